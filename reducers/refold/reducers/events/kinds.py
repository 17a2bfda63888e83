"""Every kind of event, by its word; and the sizes in their bodies."""

from refold.reducers.events.decisions import DECISIONS, CallRefused, MessageInjected
from refold.reducers.events.facts import (
    ANNOTATIONS,
    FACTS,
    ContextObserved,
    InputReceived,
    LateResult,
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
    """The snake_case word by which the log knows an event."""
    return str(event.__struct_config__.tag)


def differing(one: Event | None, other: Event | None) -> tuple[str, ...]:
    """The fields in which two events of one kind differ; none where there are not two of one kind."""
    if one is None or type(one) is not type(other):
        return ()
    return tuple(name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name))


KINDS: dict[str, type[Event]] = {kind_of(event): event for event in (*FACTS, *DECISIONS, *ANNOTATIONS)}


def sizes_of(event: Event) -> tuple[Size, ...]:
    """The size of each message that the event becomes, or may become; none of an event that is no message."""
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
    """What the message that the event becomes shows of its body: the ids and names of calls, the id of the
    call that it answers.
    """
    match event:
        case ModelResponded(calls=calls):
            return tuple([part for call in calls for part in (call.id, call.name)])
        case ToolReturned(call=call):
            return (call,)
        case _:
            return ()


def wordless(event: Event) -> bool:
    """Whether the event says that it had words, and they are not here: erased, or not read."""
    return getattr(event, "content", None) is None and any(size.digest for size in sizes_of(event))
