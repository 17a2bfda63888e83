"""Every kind of event, by the word by which the log knows it."""

from refold.reducers.events.annotations import ANNOTATIONS
from refold.reducers.events.base import Event
from refold.reducers.events.decisions import DECISIONS
from refold.reducers.events.facts import FACTS


def kind_of(event: Event | type[Event]) -> str:
    """The snake_case word by which the log knows an event."""
    return str(event.__struct_config__.tag)


KINDS: dict[str, type[Event]] = {kind_of(event): event for event in (*FACTS, *DECISIONS, *ANNOTATIONS)}
