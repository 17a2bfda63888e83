"""Changes planted in a log, for audits to find: one in the first decision of each kind that the log has."""

from collections.abc import Iterator, Sequence
from enum import Enum

from msgspec.structs import replace

from refold.reducers.events import Annotation, Decision, Event, Fact, kind_of
from refold.store.protocol import Record
from support import golden
from support.forging import recorded


def planted(log: Sequence[Event]) -> Iterator[tuple[str, int, Event]]:
    """(what was changed, index in the log from 0, the changed event), one for each decision kind in `log`."""
    seen: set[str] = set()
    for index, event in enumerate(log):
        kind = kind_of(event)
        if isinstance(event, Decision) and kind not in seen:
            seen.add(kind)
            field = next(name for name in event.__struct_fields__ if _other(getattr(event, name)) is not None)
            yield f"{kind}: {field}", index, replace(event, **{field: _other(getattr(event, field))})


def _other(value: object) -> object:
    """Another value that keeps the event well-formed, so that only an audit can tell; None: of this type
    there is none.
    """
    match value:
        case Enum() | None:
            return None
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}x"
        case _:
            return None


def rarer_kinds(log: list[Record]) -> Iterator[tuple[list[Record], Sequence[int]]]:
    """Recorded logs, and where in them is the first of each kind of decision that `log` lacks."""
    kinds = {record.kind for record in log}
    for name in golden.names():
        at, records = 0, list[Record]()
        for event in golden.events(name):
            at = event.at if isinstance(event, Fact | Annotation) else at
            records.append(recorded(event, at, b"salt"))
        new = {
            record.kind: seq
            for seq, record in reversed(list(enumerate(records, 1)))
            if record.kind not in kinds
        }
        kinds |= new.keys()
        if new:
            yield records, sorted(new.values())
