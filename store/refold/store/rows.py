"""Conversion of the file's rows to values, and of SQLite's errors to our own."""

import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from types import NoneType, TracebackType
from typing import Any, NamedTuple

from refold.store import checks, schema
from refold.store.chain import START, Link, links
from refold.store.checks import can_name
from refold.store.protocol import (
    DamagedStore,
    Head,
    NotAStore,
    Record,
    Seal,
    SealedHead,
    Stored,
    StoreUnavailable,
)

RECOVER = "copy the file and its -wal, then try `sqlite3 FILE .recover`"
"""What to do about a damaged file."""

_CORRUPT = f"the database is corrupt: {RECOVER}"

_UNAVAILABLE: dict[int, str] = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, then retry",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: make both writable, or copy the file elsewhere",
    sqlite3.SQLITE_BUSY: "another program holds its lock: close that program, then retry",
    sqlite3.SQLITE_LOCKED: "another program holds its lock: close that program, then retry",
    sqlite3.SQLITE_PROTOCOL: "another program holds its lock: close that program, then retry",
    sqlite3.SQLITE_TOOBIG: "an event is too large: a body and a payload have at most 256 MiB each",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened or created: check that its folder exists and is writable",
    sqlite3.SQLITE_IOERR: "the disk failed: check the system's log, then retry",
    sqlite3.SQLITE_NOMEM: "out of memory",
}

_DAMAGED: dict[int, str] = {
    sqlite3.SQLITE_CORRUPT: _CORRUPT,
    # Our statements are fixed, so a missing table or column means that the file was changed.
    sqlite3.SQLITE_ERROR: "its tables differ from those of a store: the schema was changed",
    sqlite3.SQLITE_CONSTRAINT: "its tables refuse valid rows: the schema or the rows were changed",
    sqlite3.SQLITE_INTERRUPT: "reading it takes more steps than a file of its size needs: it was manipulated",
    sqlite3.SQLITE_MISMATCH: "its columns differ from those of a store: the schema was changed",
}


FAILED = (sqlite3.Error, UnicodeDecodeError)
"""What a statement raises when SQLite fails. Its message may quote damaged bytes of the file."""


class translate_errors:  # noqa: N801 - used like a function: `with translate_errors(path):`
    """Convert SQLite's errors to our own, with the cause chained.

    `writing`: whether the outcome of a commit may be unknown. A class instead of a generator because it wraps
    every append.
    """

    def __init__(self, path: str, *, writing: bool = False) -> None:
        self._path, self._writing = path, writing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, FAILED):
            raise translate(self._path, error, writing=self._writing) from error


def translate(
    path: str, error: sqlite3.Error | UnicodeDecodeError, *, writing: bool = False
) -> StoreUnavailable | DamagedStore | NotAStore:
    """Return our own error for `error` in the store at `path`, with its cause set."""
    told = _convert(path, error, writing=writing)
    told.__cause__ = error
    return told


def _convert(
    path: str, error: sqlite3.Error | UnicodeDecodeError, *, writing: bool
) -> StoreUnavailable | DamagedStore | NotAStore:
    if isinstance(error, UnicodeDecodeError):
        return DamagedStore(path, f"{_CORRUPT} (SQLite's message is not UTF-8)")
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    primary = code & 0xFF if code is not None else None  # the upper bits are detail
    detail = f" (SQLite: {error}; {name})"
    if primary == sqlite3.SQLITE_NOTADB:
        return NotAStore(path, f"is not an SQLite database (a bundle is named bundle:PATH){detail}")
    if primary in _DAMAGED:
        return DamagedStore(path, _DAMAGED[primary] + detail)
    problem = _UNAVAILABLE.get(primary, "SQLite failed") if primary is not None else "SQLite failed"
    # After a failed flush it is unknown what reached the disk.
    in_doubt = writing and primary == sqlite3.SQLITE_IOERR
    return StoreUnavailable(path, problem + detail, outcome_known=not in_doubt)


SqlRow = tuple[Any, ...]

FORKED = checks.FORKED.encode()

# The columns of an event's row and their types. Its table is STRICT, but a damaged page may hold anything.
_COLUMNS: dict[str, type | tuple[type, ...]] = {
    "key": int,
    "at": int,
    "kind": bytes,
    "hash": bytes,
    "content_digest": (bytes, NoneType),
    "salt": (bytes, NoneType),
    "body": bytes,
    "content": (bytes, NoneType),
}


class RunPlace(NamedTuple):
    """A run in the file: its number, the token of its lease, its head."""

    number: int
    token: int
    head: Head


def place(path: str, row: SqlRow) -> RunPlace:
    """Convert a row of `schema.PLACE`. Raises `DamagedStore`."""
    number, token, key, _, digest = row
    end = head(number, key, digest)
    if end is None or not isinstance(token, int):
        raise damaged_run(path, number)
    return RunPlace(number, token, end)


def head(number: int, key: int | None, digest: object) -> Head | None:
    """Return the head of the run with this number; None if the values are not valid."""
    if not 0 < number <= schema.MAX_NUMBER:
        return None
    if key is None:
        return START
    seq = key & schema.SEQ_MASK
    return Head(seq=seq, hash=digest) if seq and isinstance(digest, bytes) else None


def run_id(name: object) -> str | None:
    """Return the run's id; None if it is not a valid one."""
    # Bytes that are not UTF-8 become lone surrogates, which are not valid in an id.
    run = name.decode(errors="surrogateescape") if isinstance(name, bytes) else ""
    return run if can_name(run) else None


def from_records(run: str, place: RunPlace, records: Sequence[Record]) -> list[Link]:
    """Return the records as rows of events after the run's head. The fourth column is the hash."""
    return links(run, place.head, records, place.number << schema.SEQ_BITS)


def to_events(path: str, run: str, rows: Sequence[SqlRow]) -> list[Stored]:
    """Convert rows to events. Raises `DamagedStore`."""
    return [_event(path, run, row) for row in rows]


def _event(path: str, run: str, row: SqlRow) -> Stored:
    if not all(map(isinstance, row, _COLUMNS.values())):
        raise _damaged_event(path, run, row)
    key, at, kind, digest, content_digest, salt, body, content = row
    return Stored(
        run=run,
        seq=key & schema.SEQ_MASK,
        at=at,
        kind=text(kind),
        body=body,
        content=content,
        salt=salt or b"",
        hash=digest,
        content_digest=content_digest,
    )


def to_sealed_head(path: str, row: SqlRow) -> SealedHead:
    """Convert a row to an entry of the log of heads. Raises `DamagedStore`."""
    place, seq, run, digest = row
    name = run_id(run)
    if name is None or not isinstance(seq, int) or not isinstance(digest, bytes):
        raise DamagedStore(path, f"entry {place} of the log of heads is not valid")
    return SealedHead(place=place, run=name, seq=seq, hash=digest)


def to_seal(path: str, row: SqlRow) -> Seal:
    """Convert a row to a seal. Raises `DamagedStore`."""
    number, size, at, key, signature, root = row
    if not all(map(isinstance, row, (int, int, int, bytes, bytes, bytes))):
        raise DamagedStore(path, f"seal {number} is not valid")
    return Seal(size=size, at=at, root=root, key=key, signature=signature)


def damaged_run(path: str, number: object) -> DamagedStore:
    """Return the error for an invalid row of a run."""
    return DamagedStore(path, f"run number {number}: its number, id, token or head is not valid")


def _damaged_event(path: str, run: str, row: SqlRow) -> DamagedStore:
    name, value = next(
        (name, value)
        for (name, kind), value in zip(_COLUMNS.items(), row, strict=True)
        if not isinstance(value, kind)
    )
    said = f"event {row[0] & schema.SEQ_MASK} of run {run}: its {name} is {value!r:.40}, which is not valid"
    return DamagedStore(path, said)


def too_large(path: str, run: str, key: int, column: str, size: int, most: int) -> DamagedStore:
    """Return the error for an event too large to be read into memory; `size` and `most` are bytes."""
    event = f"event {key & schema.SEQ_MASK} of run {run}"
    return DamagedStore(path, f"{event}: its {column} has {size} bytes; at most {most} are read")


def changed_schema(path: str) -> DamagedStore:
    """Return the error for tables that silently drop written rows."""
    return DamagedStore(path, "its tables drop written rows without an error: the schema was changed")


def out_of_order(path: str) -> DamagedStore:
    """Return the error for rows out of order on a damaged page, where reading on would never end."""
    return DamagedStore(path, f"rows are out of order: {RECOVER}")


def missing_events(path: str, run: str, first: int, last: int) -> DamagedStore:
    """Return the error for events that belong to a run's log and that a query does not return."""
    which = f"event {first}" if first == last else f"events {first} to {last}"
    return DamagedStore(path, f"{which} of run {run} cannot be read: the file is damaged; {RECOVER}")


def last_key(path: str, run: str, page: Sequence[SqlRow], after: int, last: int) -> int:
    """Return the key of the page's last row. The page was read after key `after` and up to `last`, which is
    in the log.

    Raises `DamagedStore` if the page is empty or its keys do not ascend.
    """
    if not page:
        raise missing_events(path, run, (after & schema.SEQ_MASK) + 1, last & schema.SEQ_MASK)
    for row in page:
        if row[0] <= after:
            raise out_of_order(path)
        after = row[0]
    return after


def check_end(path: str, run: str, last: int, end: Sequence[SqlRow]) -> None:
    """Raise `DamagedStore` unless the rows of `schema.END` prove that event `last` ends the run's log.

    The next row must belong to the same run (appended since) or begin another log. SQLite finds rows by
    binary search, so a key out of order can hide rows: then the last row is not found again, or a hidden row
    follows it.
    """
    if [key for key, *_ in end[:1]] != [last]:
        raise missing_events(path, run, last & schema.SEQ_MASK, last & schema.SEQ_MASK)
    for (key, *_), (following, *_) in pairwise(end):
        if following <= key:
            raise out_of_order(path)
    for key, kind, _ in end[1:2]:
        number, seq = key >> schema.SEQ_BITS, key & schema.SEQ_MASK
        if number != last >> schema.SEQ_BITS and seq != 1 and kind != FORKED:
            stray = f"event {seq} of run number {number} follows instead"
            problem = f"events of run {run} after event {last & schema.SEQ_MASK} cannot be read: {stray}"
            raise DamagedStore(path, f"{problem}; {RECOVER}")


def text(value: bytes) -> str:
    """Decode text; invalid bytes become escapes, so that damaged text can be displayed."""
    return value.decode(errors="backslashreplace")
