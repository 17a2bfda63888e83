"""Every kind of event with its row, and what is asked of a row by the event alone."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import cast, get_args

from msgspec.structs import replace

from refold.reducers.events import Event, LateResult, kind_of
from refold.reducers.messages import Message
from refold.replay.kinds.annotations import ANNOTATIONS
from refold.replay.kinds.decisions import DECISIONS
from refold.replay.kinds.details import EventDetails, Tools
from refold.replay.kinds.facts import FACTS
from refold.replay.kinds.row import AnyKind, EventType

ROWS: tuple[AnyKind, ...] = (*FACTS, *DECISIONS, *ANNOTATIONS)

TABLE: Mapping[type[Event], AnyKind] = MappingProxyType({row.of: row for row in ROWS})
"""Every kind, with its row."""

TYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {type_: tuple(kind_of(row.of) for row in ROWS if row.type == type_) for type_ in get_args(EventType)}
)
"""What a kind of event is about, in one word."""


def kind_for(event: Event) -> AnyKind:
    """The row of an event's kind."""
    return TABLE[type(event)]


def sentence(event: Event) -> str:
    """What an event says, in one line, without its kind. Not harmless yet."""
    return kind_for(event).sentence(event)


def remark(event: Event) -> str:
    """What an event says where its kind does not stand beside it, in a few words of ours; "" for what is no remark."""
    row = kind_for(event)
    return (row.mark or row.says)(event) if row.marks else ""


def details_of(event: Event, tools: Tools) -> EventDetails:
    """What an event says of itself. `tools` are the names of tools by the ids of calls."""
    if isinstance(event, LateResult):
        details = details_of(event.fact, tools)
        return replace(details, reason=(kind_of(event.fact), *details.reason))
    return kind_for(event).details(event, tools)


def texts_of(event: Event) -> Iterator[str]:
    """What was said in an event, one text after the other, empty ones left out: its content, the sentences of its body."""
    said = event.fact if isinstance(event, LateResult) else event
    for way in kind_for(said).texts:
        value: object = event
        for name in way.split("."):
            value = getattr(value, name, None)
        yield from _texts(value)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from [value] if value else []
    elif isinstance(value, Message):
        yield from _texts((value.text, value.reasoning, *(call.arguments for call in value.calls)))
    elif isinstance(value, Mapping):
        yield from _texts(tuple(cast("Mapping[str, object]", value).values()))
    elif isinstance(value, tuple):
        for each in cast("tuple[object, ...]", value):
            yield from _texts(each)
