"""Events as one flat table, for SQL: a typed row an event, the same columns for every kind.

What a column means is what the row's field means (`refold.replay.queries.rows`); what an event does not have is null. Lists are
reduced to what a query asks for: the first name (in `tool`, in `guard`, of all else in `what`), the first call; all stand in the body.
"""

from typing import Literal, get_args, get_type_hints

import msgspec

from refold.reducers.events import ModelResponded, RunStarted
from refold.reducers.numbers import NANO
from refold.reducers.vocabulary import SOURCE_LABEL
from refold.replay.exports.trail import Step
from refold.replay.queries.rows import row_of

ColumnType = Literal["text", "integer", "number", "flag", "instant"]


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `recorded_at` is nanoseconds since the Unix epoch (in a file an instant without a zone: UTC), null where a transcript told none, and so is every time of such a run; `elapsed` and `duration` seconds, `cost` US dollars.

    `body` and `content` are the event's JSON text. `format` and `source` name, in an imported run, the transcript's format and file.
    """

    run: str
    seq: int
    recorded_at: int | None
    elapsed: float | None
    kind: str
    type: str
    side: str
    step: int
    state: str
    tool: str | None = None
    guard: str | None = None
    what: str | None = None
    call: str | None = None
    model: str | None = None
    person: str | None = None
    failed: bool | None = None
    error: str | None = None
    stop: str | None = None
    verdict: str | None = None
    reason: str | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost: float | None = None
    duration: float | None = None
    size: int | None = None
    calls: int | None = None
    agent: str | None = None
    format: str | None = None
    source: str | None = None
    text: str | None = None
    body: str = ""
    content: str | None = None


_TYPES: dict[type, ColumnType] = {str: "text", int: "integer", float: "number", bool: "flag"}


def _columns() -> dict[str, ColumnType]:
    hints = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(TableRow).items()}
    made: dict[str, ColumnType] = {name: _TYPES[types[0]] for name, types in hints.items()}
    made["recorded_at"] = "instant"
    return made


COLUMNS = _columns()
"""The columns in order, each with its type."""

_TOOLS = frozenset({"tool", "person", "model"})


class Table:
    """Makes the rows of one run's steps, in order. It remembers what its first event says of the whole run."""

    def __init__(self, *, content: bool = True) -> None:
        self._content = content
        self._about: dict[str, str | None] = {"agent": None, "format": None, "source": None}

    def row(self, step: Step) -> TableRow:
        """The row of one event."""
        stored, event = step.stored, step.event
        if isinstance(event, RunStarted):
            self._about = {
                "agent": event.agent or None,
                "format": event.labels.get(SOURCE_LABEL),
                "source": event.labels.get("source.file"),
            }
        flat = row_of(stored, event, step.place)
        name = flat.name[0] if flat.name else None
        reason = flat.reason[0] if flat.reason else None
        answer = event if isinstance(event, ModelResponded) else None
        said = stored.content if self._content else None
        return TableRow(
            run=stored.run,
            seq=stored.seq,
            recorded_at=stored.at or None,
            elapsed=None if flat.elapsed is None else flat.elapsed / NANO,
            kind=stored.kind,
            type=flat.type,
            side=flat.side,
            step=flat.turn,
            state=flat.state,
            tool=name if flat.type in _TOOLS else None,
            guard=name if flat.type == "guard" else None,
            what=None if flat.type in _TOOLS or flat.type == "guard" else name,
            call=flat.call[0] if flat.call else None,
            model=flat.model or None,
            person=flat.by or None,
            failed=flat.error,
            error=reason if flat.error else None,
            stop=str(answer.stop) if answer else None,
            verdict=flat.verdict[0] if flat.verdict else None,
            reason=reason,
            tokens=flat.tokens,
            input_tokens=flat.input,
            output_tokens=flat.output,
            cache_read_tokens=(answer.usage.cache_read or None) if answer else None,
            cache_write_tokens=(answer.usage.cache_write or None) if answer else None,
            cost=None if flat.cost is None else flat.cost / NANO,
            duration=None if flat.duration is None else flat.duration / NANO,
            size=flat.size,
            calls=len(answer.calls) if answer else None,
            text=flat.text if self._content else None,
            body=stored.body.decode(errors="replace"),
            content=None if said is None else said.decode(errors="replace"),
            **self._about,
        )
