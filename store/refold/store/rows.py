"""Rows of the file as values, and what SQLite's errors mean."""

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
"""The way out of a damaged file."""

_CORRUPT = f"the database is corrupt: {RECOVER}"

_UNAVAILABLE: dict[int, str] = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, then go on",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: make both writable, or copy the file elsewhere",
    sqlite3.SQLITE_BUSY: "another program holds its lock: close that, then go on",
    sqlite3.SQLITE_LOCKED: "another program holds its lock: close that, then go on",
    sqlite3.SQLITE_PROTOCOL: "another program holds its lock: close that, then go on",
    sqlite3.SQLITE_TOOBIG: "an event is larger than a store takes: a body and a content have 256 MiB at most",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened or made: look whether its folder exists and may be written",
    sqlite3.SQLITE_IOERR: "the disk failed: look at the system's log, then go on",
    sqlite3.SQLITE_NOMEM: "out of memory",
}

_DAMAGED: dict[int, str] = {
    sqlite3.SQLITE_CORRUPT: _CORRUPT,
    # Our statements are fixed: what they ask for is missing only from a file that was changed.
    sqlite3.SQLITE_ERROR: "its tables are not those of a store: the schema was changed",
    sqlite3.SQLITE_CONSTRAINT: "its tables refuse what the log needs: the schema or the rows were changed",
    sqlite3.SQLITE_INTERRUPT: "reading it takes more steps than a file of its size needs: it was changed to do so",
    sqlite3.SQLITE_MISMATCH: "its columns are not those of a store: the schema was changed",
}


FAILED = (sqlite3.Error, UnicodeDecodeError)
"""What a statement raises when SQLite fails. What it says quotes the file, and that can be damaged."""


class translated:  # noqa: N801 - it reads as a word: `with translated(path):`
    """Raise our own error for SQLite's, its cause chained. `writing`: whether a commit may be in doubt.

    A class, not a generator: it stands around every append.
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
    """What `error` means for the caller of the store at `path`; its cause is set."""
    told = _translated(path, error, writing=writing)
    told.__cause__ = error
    return told


def _translated(
    path: str, error: sqlite3.Error | UnicodeDecodeError, *, writing: bool
) -> StoreUnavailable | DamagedStore | NotAStore:
    if isinstance(error, UnicodeDecodeError):
        return DamagedStore(path, f"{_CORRUPT} (what SQLite said is not UTF-8)")
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    primary = code & 0xFF if code is not None else None  # the upper bits are detail
    said = f" (SQLite said: {error}; {name})"
    if primary == sqlite3.SQLITE_NOTADB:
        return NotAStore(path, f"is no SQLite database{said}")
    if primary in _DAMAGED:
        return DamagedStore(path, _DAMAGED[primary] + said)
    problem = _UNAVAILABLE.get(primary, "SQLite failed") if primary is not None else "SQLite failed"
    # A failed flush leaves open what reached the disk.
    in_doubt = writing and primary == sqlite3.SQLITE_IOERR
    return StoreUnavailable(path, problem + said, outcome_known=not in_doubt)


SqlRow = tuple[Any, ...]

FORKED = checks.FORKED.encode()

# What a row of an event holds. Its table takes nothing else, but a damaged page may.
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
    """Where a run stands in the file: its number, the token of its lease, its head."""

    number: int
    token: int
    head: Head


def place(path: str, row: SqlRow) -> RunPlace:
    """What `schema.PLACE` found. Raises `DamagedStore`."""
    number, token, key, _, digest = row
    end = head(number, key, digest)
    if end is None or not isinstance(token, int):
        raise damaged_run(path, number)
    return RunPlace(number, token, end)


def head(number: int, key: int | None, digest: object) -> Head | None:
    """The head of the run with this number; None if no store wrote it so."""
    if not 0 < number <= schema.MAX_NUMBER:
        return None
    if key is None:
        return START
    seq = key & schema.SEQ_MASK
    return Head(seq=seq, hash=digest) if seq and isinstance(digest, bytes) else None


def run_id(name: object) -> str | None:
    """The id as it was read; None if no run can have it."""
    # Bytes that are no UTF-8 become lone surrogates, which no id has.
    run = name.decode(errors="surrogateescape") if isinstance(name, bytes) else ""
    return run if can_name(run) else None


def from_records(run: str, place: RunPlace, records: Sequence[Record]) -> list[Link]:
    """The records as the rows of the events that follow the run's head. Their fourth column is the hash."""
    return links(run, place.head, records, place.number << schema.SEQ_BITS)


def to_events(path: str, run: str, rows: Sequence[SqlRow]) -> list[Stored]:
    """The events of these rows. Raises `DamagedStore`."""
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
    """An entry of the log of heads. Raises `DamagedStore`."""
    place, seq, run, digest = row
    name = run_id(run)
    if name is None or not isinstance(seq, int) or not isinstance(digest, bytes):
        raise DamagedStore(path, f"entry {place} of the log of heads is not valid")
    return SealedHead(place=place, run=name, seq=seq, hash=digest)


def to_seal(path: str, row: SqlRow) -> Seal:
    """A seal. Raises `DamagedStore`."""
    number, size, at, key, signature, root = row
    if not all(map(isinstance, row, (int, int, int, bytes, bytes, bytes))):
        raise DamagedStore(path, f"seal {number} is not valid")
    return Seal(size=size, at=at, root=root, key=key, signature=signature)


def damaged_run(path: str, number: object) -> DamagedStore:
    """That this run's row is not as a store writes it."""
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
    """That an event is larger than what is read into memory: `size` and `most` in bytes."""
    event = f"event {key & schema.SEQ_MASK} of run {run}"
    return DamagedStore(path, f"{event}: its {column} has {size} bytes, more than the {most} that are read")


def changed_schema(path: str) -> DamagedStore:
    """That the tables took what was written, and do not have it."""
    return DamagedStore(path, "its tables drop what is written, without an error: the schema was changed")


def out_of_order(path: str) -> DamagedStore:
    """That SQLite believed the order of a damaged page. Reading on from its last row would never end."""
    return DamagedStore(path, f"rows are out of order: {RECOVER}")


def unread(path: str, run: str, first: int, last: int) -> DamagedStore:
    """That these events are, or were, in a run's log, and do not come when they are asked for."""
    which = f"event {first}" if first == last else f"events {first} to {last}"
    return DamagedStore(path, f"{which} of run {run} cannot be read: the file is damaged; {RECOVER}")


def reached(path: str, run: str, page: Sequence[SqlRow], after: int, last: int) -> int:
    """The key of the page's last row: it was asked for what comes after a key, up to `last`, which is in the
    log.

    Raises `DamagedStore` where rows do not ascend, and where there are none any more.
    """
    if not page:
        raise unread(path, run, (after & schema.SEQ_MASK) + 1, last & schema.SEQ_MASK)
    for row in page:
        if row[0] <= after:
            raise out_of_order(path)
        after = row[0]
    return after


def check_end(path: str, run: str, last: int, end: Sequence[SqlRow]) -> None:
    """Raise `DamagedStore` unless a run's last row, and those after it, show that it is the last: see
    `schema.END`.

    The run may have gone on since; else the next row begins another log. SQLite looks for an end by halving,
    and a number out of order leads it astray: then the last row is not found again, or what it hid comes
    right after it.
    """
    if [key for key, *_ in end[:1]] != [last]:
        raise unread(path, run, last & schema.SEQ_MASK, last & schema.SEQ_MASK)
    for (key, *_), (following, *_) in pairwise(end):
        if following <= key:
            raise out_of_order(path)
    for key, kind, _ in end[1:2]:
        number, seq = key >> schema.SEQ_BITS, key & schema.SEQ_MASK
        if number != last >> schema.SEQ_BITS and seq != 1 and kind != FORKED:
            stray = f"event {seq} of run number {number} stands there"
            problem = f"what run {run} has after event {last & schema.SEQ_MASK} cannot be read: {stray}"
            raise DamagedStore(path, f"{problem}; {RECOVER}")


def text(value: bytes) -> str:
    """Text as it was read. What was written over it must still be readable, to be shown as damaged."""
    return value.decode(errors="backslashreplace")
