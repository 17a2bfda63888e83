"""Events as JSON lines, as a flat table, and as Parquet files.

Body and content are the stored bytes, so the hash chain can be checked from the lines alone.

Columns have the meaning of the row's field (`refold.replay.queries.rows`), and null for values that an event
does not have. Lists are reduced to the first name (in `tool`, in `guard`, otherwise in `what`) and the first
call; the body has all of them.
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
from refold.replay.queries.rows import START, FlatEvent, advance_place, row_of
from refold.replay.reader import Step, event_of, stored_events
from refold.store.protocol import Store, Stored

_NOTHING = msgspec.Raw(b"")
_HEX = ("hash", "salt", "content_digest")


class EventLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of JSON. `hash`, `salt` and `content_digest` are hex; `at` is ns since the Unix epoch.

    An event without a payload has neither `content` nor `content_digest`; an event with an erased payload has
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
    """Yield the events of a run, one line each; without `content`, payloads and salts are left out.

    Raises `UnknownRun`, `DamagedLog` and `NewerLog`, naming the event.
    """
    async for stored in stored_events(store, run, upto):
        event_of(stored)  # raise for an event that cannot be read
        yield line_of(stored, content=content)


def line_of(stored: Stored, *, content: bool = True) -> str:
    """Format a record as a line. Invalid JSON, in a log that was edited, becomes a string."""
    fields: dict[str, Any] = asdict(stored) | {"body": _raw(stored.body), "content": _NOTHING}
    fields |= {name: (fields[name] or b"").hex() for name in _HEX}
    if content and stored.content is not None:
        fields["content"] = _raw(stored.content)
    elif not content:
        fields["salt"] = ""
    return _ENCODER.encode(EventLine(**fields)).decode() + "\n"


def record(line: str | bytes) -> Stored:
    """Parse a line into its record. Raises `WrongUse` if it is not such a line."""
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
    # Line breaks occur in JSON only between tokens, where they equal a space.
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
"""Columns in order, with their types.

`recorded_at` is nanoseconds since the Unix epoch (in a file a timestamp without time zone: UTC). It is null
if a transcript has no times, as are all times of such a run. `elapsed` and `duration` are seconds, `cost` US
dollars. `says` is a one-line summary, for a call its tool and main argument; `body` and `content` are JSON
text. `format` and `source` name the transcript format and file of an imported run.
"""

TableRow = Mapping[str, str | int | float | bool | None]
"""Row of one event: column values; missing columns are null."""

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
    """Converts the steps of one run to rows, in order. It keeps run-level fields from the first event."""

    def __init__(self, *, content: bool = True) -> None:
        self._content, self._place = content, START
        self._about: dict[str, str | None] = {"agent": None, "format": None, "source": None}

    def row(self, step: Step) -> TableRow:
        """Return the row of one event."""
        stored, event = step.stored, step.event
        self._place = advance_place(self._place, stored.at, event)
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
    """Return the row's value for a column, None if the row has no such field or an empty one."""
    value: Any = getattr(flat, _RENAMED.get(column, column), None)
    if isinstance(value, tuple):
        return next(iter(cast("tuple[str, ...]", value)), None)
    if value is not None and column in _NANO:
        return value / NANO
    return None if value == "" else value


ROWS = 10_000
"""Rows per row group, and so in memory."""

_MOST_CHARS = 32 << 20  # characters in a row group; a column must stay below 2 GiB
_INT64 = 1 << 63


class ParquetFile:
    """Writes rows to an open file. As a context manager, it also writes the end of the file.

    Raises `WrongUse` if pyarrow is not installed.
    """

    def __init__(self, file: BinaryIO) -> None:
        arrow, parquet = _load_pyarrow()
        self._arrow = arrow
        self._schema = arrow.schema([(name, _type(arrow, kind)) for name, kind in COLUMNS.items()])
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[TableRow] = []
        self._chars = 0

    def write(self, row: TableRow) -> None:
        """Add one row."""
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
            # Otherwise pyarrow writes to the closed file again when the writer is garbage-collected.
            self._writer.is_open = False

    def _flush(self) -> None:
        columns: Mapping[str, list[Any]] = {
            name: [_fit_integer(row[name]) for row in self._rows] for name in COLUMNS
        }
        if self._rows:
            self._writer.write_table(self._arrow.table(dict(columns), schema=self._schema))
        self._rows, self._chars = [], 0


def _load_pyarrow() -> tuple[Any, Any]:
    try:
        # Imported by name, because it has no types.
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


def _fit_integer(value: Any) -> Any:
    # Integers of a log are unbounded. One that does not fit a column is null here; the body has it.
    return None if isinstance(value, int) and not -_INT64 <= value < _INT64 else value
