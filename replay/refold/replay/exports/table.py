"""Events as JSON lines, as a flat table, and as Parquet files.

Body and content are the stored bytes, so that the hash chain can be checked of the lines alone.

What a column means is what the row's field means (`refold.replay.queries.rows`); what an event does not have
is null. Lists are reduced to what a query asks for: the first name (in `tool`, in `guard`, of all else in
`what`), the first call; all stand in the body.
"""

from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, Self, cast

import msgspec
from msgspec.structs import asdict

from refold.reducers.errors import WrongUse
from refold.reducers.events import Event, ModelResponded, RunStarted
from refold.reducers.vocabulary import NANO, SOURCE_LABEL
from refold.replay import known
from refold.replay.kinds.table import kind_for, sentence
from refold.replay.queries.rows import START, FlatEvent, moved, row_of
from refold.replay.reader import Step, event_of, stored_events
from refold.store.protocol import Store, Stored

_NOTHING = msgspec.Raw(b"")
_HEX = ("hash", "salt", "content_digest")


class EventLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `hash`, `salt` and `content_digest` are hex; `at` is nanoseconds since the Unix epoch.

    An event that said nothing has neither `content` nor `content_digest`; one whose content was erased has
    the digest.
    """

    run: str
    seq: int
    at: int
    kind: str
    body: msgspec.Raw
    content: msgspec.Raw = _NOTHING
    salt: str = ""
    content_digest: str = ""
    hash: str = ""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(EventLine)
_BREAKS = bytes.maketrans(b"\r\n", b"  ")


async def json_lines(
    store: Store, run: str, upto: int | None = None, *, content: bool = True
) -> AsyncIterator[str]:
    """The events of a run, a line each. Without `content` what was said is left out, and its salts.

    Raises `UnknownRun`, `DamagedLog` and `NewerLog`, naming the event.
    """
    async for stored in stored_events(store, run, upto):
        event_of(stored)  # what cannot be read is not handed on as if it could
        yield line_of(stored, content=content)


def line_of(stored: Stored, *, content: bool = True) -> str:
    """The line of a record. What is no JSON, in a log that was tampered with, stands in it as a text."""
    fields: dict[str, Any] = asdict(stored) | {"body": _raw(stored.body), "content": _NOTHING}
    fields |= {name: (fields[name] or b"").hex() for name in _HEX}
    if content and stored.content is not None:
        fields["content"] = _raw(stored.content)
    elif not content:
        fields["salt"] = ""
    return _ENCODER.encode(EventLine(**fields)).decode() + "\n"


def record(line: str | bytes) -> Stored:
    """The record that a line was made of. Raises `WrongUse` for what is no such line."""
    try:
        read = _DECODER.decode(line)
        fields: dict[str, Any] = asdict(read) | {name: bytes.fromhex(getattr(read, name)) for name in _HEX}
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WrongUse(f"no line of an export: {error}") from error
    fields |= {"body": bytes(read.body), "content": bytes(read.content) or None}
    fields["content_digest"] = fields["content_digest"] or None
    return Stored(**fields)


def _raw(text: bytes) -> msgspec.Raw:
    try:
        text.decode()
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return msgspec.Raw(_ENCODER.encode(text.decode(errors="backslashreplace")))
    # Between JSON's tokens a line break is but a space, and inside a string it cannot stand.
    return msgspec.Raw(text.translate(_BREAKS))


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

`recorded_at` is nanoseconds since the Unix epoch (in a file an instant without a zone: UTC), null where a
transcript told none, and so is every time of such a run; `elapsed` and `duration` are seconds, `cost` US
dollars. `says` is the event in one line, of a call its tool and main argument; `body` and `content` are its
JSON text. `format` and `source` name, in an imported run, the transcript's format and file.
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
    """Makes the rows of one run's steps, in order. It remembers what its first event says of the whole
    run.
    """

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


ROWS = 10_000
"""Rows of a row group: what is held in memory."""

_MOST_CHARS = 32 << 20  # of texts in a row group; a column of one cannot hold 2 GiB
_INT64 = 1 << 63


class ParquetFile:
    """Writes rows into an open file; as a context manager, its end too.

    Raises `WrongUse` where pyarrow is not installed.
    """

    def __init__(self, file: BinaryIO) -> None:
        arrow, parquet = _loaded()
        self._arrow = arrow
        self._schema = arrow.schema([(name, _type(arrow, kind)) for name, kind in COLUMNS.items()])
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[TableRow] = []
        self._chars = 0

    def write(self, row: TableRow) -> None:
        """Add a row."""
        self._rows.append(row)
        self._chars += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(self._rows) >= ROWS or self._chars >= _MOST_CHARS:
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._flush()
                self._writer.close()
        finally:
            # Else pyarrow ends the file once more when it collects the writer, in a file that is closed.
            self._writer.is_open = False

    def _flush(self) -> None:
        columns: Mapping[str, list[Any]] = {
            name: [_fits(row[name]) for row in self._rows] for name in COLUMNS
        }
        if self._rows:
            self._writer.write_table(self._arrow.table(dict(columns), schema=self._schema))
        self._rows, self._chars = [], 0


def _loaded() -> tuple[Any, Any]:
    try:
        # By name, for it has no types.
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise WrongUse("--to parquet needs pyarrow: pip install 'refold[parquet]'") from error


def _type(arrow: Any, kind: ColumnType) -> Any:
    match kind:
        case "text":
            return arrow.string()
        case "integer":
            return arrow.int64()
        case "number":
            return arrow.float64()
        case "flag":
            return arrow.bool_()
        case "instant":
            return arrow.timestamp("ns")


def _fits(value: Any) -> Any:
    # A log's numbers have no end, a column's have: such a one is null here, and stands in the body.
    return None if isinstance(value, int) and not -_INT64 <= value < _INT64 else value
