"""All kinds of events by name, and the sizes in their bodies."""

from refold.reducers.events.annotations import (
    ANNOTATIONS,
    LateResult,
)
from refold.reducers.events.decisions import DECISIONS, CallRefused, MessageInjected
from refold.reducers.events.facts import (
    FACTS,
    ContextObserved,
    InputReceived,
    ModelFailed,
    ModelResponded,
    RunForked,
    RunStarted,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.events.parts import Event
from refold.reducers.messages import Size


def kind_of(event: Event | type[Event]) -> str:
    """Return the kind of an event in snake case, as the log records it."""
    return str(event.__struct_config__.tag)


def differing(one: Event | None, other: Event | None) -> tuple[str, ...]:
    """Return the fields in which two events of one kind differ; empty for events of different kinds."""
    if one is None or type(one) is not type(other):
        return ()
    return tuple(name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name))


KINDS: dict[str, type[Event]] = {kind_of(event): event for event in (*FACTS, *DECISIONS, *ANNOTATIONS)}


def sizes_of(event: Event) -> tuple[Size, ...]:
    """Return the size of each message that the event becomes or may become; empty if it has none."""
    match event:
        case ModelResponded() | ToolReturned() | InputReceived() | SummaryReturned():
            return (event.size,)
        case CallRefused() | MessageInjected():
            return (event.size,)
        case RunStarted() | ContextObserved():
            return tuple([head.size for head in event.messages])
        case ModelFailed(partial=size) | RunForked(size=size) if size is not None:
            return (size,)
        case LateResult(fact=fact):
            return sizes_of(fact)
        case _:
            return ()


def named_in(event: Event) -> tuple[str, ...]:
    """Return the body's ids and names that are part of the event's message.

    These are the ids and names of a response's calls, and the call id of a result.
    """
    match event:
        case ModelResponded(calls=calls):
            return tuple([part for call in calls for part in (call.id, call.name)])
        case ToolReturned(call=call):
            return (call,)
        case _:
            return ()


def wordless(event: Event) -> bool:
    """Return whether the event's content is missing: erased, or not read.

    True only if the body has a digest of that content.
    """
    return getattr(event, "content", None) is None and any(size.digest for size in sizes_of(event))
