"""Every kind of event, by the word by which the log knows it."""

from refold.reducers.events.annotations import ANNOTATIONS
from refold.reducers.events.base import Event
from refold.reducers.events.decisions import DECISIONS
from refold.reducers.events.facts import FACTS


def kind_of(event: Event | type[Event]) -> str:
    """The snake_case word by which the log knows an event."""
    return str(event.__struct_config__.tag)


def differing(one: Event | None, other: Event | None) -> tuple[str, ...]:
    """The fields in which two events of one kind differ; none where there are not two of one kind."""
    if one is None or type(one) is not type(other):
        return ()
    return tuple(name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name))


KINDS: dict[str, type[Event]] = {kind_of(event): event for event in (*FACTS, *DECISIONS, *ANNOTATIONS)}
