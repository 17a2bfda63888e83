"""Events as one flat table, for SQL: a typed row an event, the same columns for every kind.

What a column means is what the row's field means (`refold.replay.queries.rows`); what an event does not have is null. Lists are
reduced to what a query asks for: the first name (in `tool`, in `guard`, of all else in `what`), the first call; all stand in the body.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, cast

from refold.reducers.events import Event, ModelResponded, RunStarted
from refold.reducers.vocabulary import NANO, SOURCE_LABEL
from refold.replay import known
from refold.replay.following import Step
from refold.replay.kinds.table import kind_for, sentence
from refold.replay.queries.rows import START, FlatEvent, moved, row_of

ColumnType = Literal["text", "integer", "number", "flag", "instant"]

COLUMNS: Mapping[str, ColumnType] = MappingProxyType(
    {
        "run": "text",
        "seq": "integer",
        "recorded_at": "instant",
        "elapsed": "number",
        "kind": "text",
        "type": "text",
        "side": "text",
        "step": "integer",
        "state": "text",
        "tool": "text",
        "guard": "text",
        "what": "text",
        "call": "text",
        "model": "text",
        "person": "text",
        "failed": "flag",
        "error": "text",
        "stop": "text",
        "verdict": "text",
        "reason": "text",
        "tokens": "integer",
        "input_tokens": "integer",
        "output_tokens": "integer",
        "cache_read_tokens": "integer",
        "cache_write_tokens": "integer",
        "cost": "number",
        "duration": "number",
        "size": "integer",
        "calls": "integer",
        "agent": "text",
        "format": "text",
        "source": "text",
        "says": "text",
        "text": "text",
        "body": "text",
        "content": "text",
    }
)
"""The columns in order, each with its type.

`recorded_at` is nanoseconds since the Unix epoch (in a file an instant without a zone: UTC), null where a transcript told none,
and so is every time of such a run; `elapsed` and `duration` are seconds, `cost` US dollars. `says` is the event in one line, of a call its
tool and main argument; `body` and `content` are its JSON text. `format` and `source` name, in an imported run, the transcript's format and file.
"""

TableRow = Mapping[str, str | int | float | bool | None]
"""One event: a value for each column that it has; the others are null."""

_TOOLS = frozenset({"tool", "person", "model"})
_RENAMED = {
    "step": "turn",
    "person": "by",
    "failed": "error",
    "input_tokens": "input",
    "output_tokens": "output",
}
_NANO = frozenset({"elapsed", "cost", "duration"})


class Table:
    """Makes the rows of one run's steps, in order. It remembers what its first event says of the whole run."""

    def __init__(self, *, content: bool = True) -> None:
        self._content, self._place = content, START
        self._about: dict[str, str | None] = {"agent": None, "format": None, "source": None}

    def row(self, step: Step) -> TableRow:
        """The row of one event."""
        stored, event = step.stored, step.event
        self._place = moved(self._place, stored.at, event)
        if isinstance(event, RunStarted):
            self._about = {
                "agent": event.agent or None,
                "format": event.labels.get(SOURCE_LABEL),
                "source": event.labels.get("source.file"),
            }
        flat = row_of(stored, event, self._place, text=self._content)
        row = {name: _plain(flat, name) for name in COLUMNS} | self._about | _of_answer(event)
        name = flat.name[0] if flat.name else None
        row["guard" if flat.type == "guard" else "tool" if flat.type in _TOOLS else "what"] = name
        return row | {
            "recorded_at": stored.at or None,
            "error": row["reason"] if flat.error else None,
            "says": sentence(event) if self._content else kind_for(event).says(event),
            "text": flat.text if self._content else None,
            "body": stored.body.decode(errors="replace"),
            "content": stored.content.decode(errors="replace") if self._content and stored.content else None,
        }


def _of_answer(event: Event) -> dict[str, str | int | None]:
    if not isinstance(event, ModelResponded):
        return {}
    return {
        "stop": known.stopped(event),
        "cache_read_tokens": event.usage.cache_read or None,
        "cache_write_tokens": event.usage.cache_write or None,
        "calls": len(event.calls),
    }


def _plain(flat: FlatEvent, column: str) -> Any:
    """What the row's own field says for a column; None: there is no such field, or nothing in it."""
    value: Any = getattr(flat, _RENAMED.get(column, column), None)
    if isinstance(value, tuple):
        return next(iter(cast("tuple[str, ...]", value)), None)
    if value is not None and column in _NANO:
        return value / NANO
    return None if value == "" else value
