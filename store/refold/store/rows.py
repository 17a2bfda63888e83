"""Rows of the file as values, and back. A damaged page may hold anything: what no store writes is `DamagedStore`."""

from collections.abc import Sequence
from types import NoneType
from typing import Any, NamedTuple

from refold.store import schema
from refold.store.asking import can_name
from refold.store.chain import GENESIS, hashes
from refold.store.protocol import DamagedStore, Head, Record, Seal, SealedHead, Stored

Row = tuple[Any, ...]

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


class Place(NamedTuple):
    """Where a run stands in the file: its number, the token of its lease, its head."""

    number: int
    token: int
    head: Head


def place(path: str, row: Row) -> Place:
    """What `schema.PLACE` found. Raises `DamagedStore`."""
    number, token, key, _, digest = row
    end = head(number, key, digest)
    if end is None or not isinstance(token, int):
        raise damaged_run(path, number)
    return Place(number, token, end)


def head(number: int, key: int | None, digest: object) -> Head | None:
    """The head of the run with this number; None if no store wrote it so."""
    if not 0 < number <= schema.MAX_NUMBER:
        return None
    if key is None:
        return Head(seq=0, hash=GENESIS)
    seq = key & schema.SEQ_MASK
    return Head(seq=seq, hash=digest) if seq and isinstance(digest, bytes) else None


def run_id(name: object) -> str | None:
    """The id as it was read; None if no run can have it."""
    # Bytes that are no UTF-8 become lone surrogates, which no id has.
    run = name.decode(errors="surrogateescape") if isinstance(name, bytes) else ""
    return run if can_name(run) else None


def from_records(run: str, place: Place, records: Sequence[Record]) -> list[Row]:
    """The records as the rows of the events that follow the run's head. Their fourth column is the hash."""
    first, made = (place.number << schema.SEQ_BITS) + place.head.seq + 1, list[Row]()
    chained = hashes(run, place.head, records)
    for key, (each, (hash_, digest)) in enumerate(zip(records, chained, strict=True), first):
        salt = None if each.content is None else each.salt or None
        made.append((key, each.at, each.kind, hash_, digest, salt, each.body, each.content))
    return made


def to_events(path: str, run: str, rows: Sequence[Row]) -> list[Stored]:
    """The events of these rows. Raises `DamagedStore`."""
    return [_event(path, run, row) for row in rows]


def _event(path: str, run: str, row: Row) -> Stored:
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


def to_sealed_head(path: str, row: Row) -> SealedHead:
    """An entry of the log of heads. Raises `DamagedStore`."""
    place, seq, run, digest = row
    name = run_id(run)
    if name is None or not isinstance(seq, int) or not isinstance(digest, bytes):
        raise DamagedStore(path, f"entry {place} of the log of heads is none that a store writes")
    return SealedHead(place=place, run=name, seq=seq, hash=digest)


def to_seal(path: str, row: Row) -> Seal:
    """A seal. Raises `DamagedStore`."""
    number, size, at, key, signature, root = row
    if not all(map(isinstance, row, (int, int, int, bytes, bytes, bytes))):
        raise DamagedStore(path, f"seal {number} is none that a store writes")
    return Seal(size=size, at=at, root=root, key=key, signature=signature)


def damaged_run(path: str, number: object) -> DamagedStore:
    """That this run's row is not as a store writes it."""
    return DamagedStore(
        path, f"run number {number}: its number, id, token or head is none that a store writes"
    )


def _damaged_event(path: str, run: str, row: Row) -> DamagedStore:
    name, value = next(
        (name, value)
        for (name, kind), value in zip(_COLUMNS.items(), row, strict=True)
        if not isinstance(value, kind)
    )
    said = (
        f"event {row[0] & schema.SEQ_MASK} of run {run}: its {name} is {value!r:.40}, which no store writes"
    )
    return DamagedStore(path, said)


def too_large(path: str, run: str, key: int, column: str, size: int, most: int) -> DamagedStore:
    """That an event says more than anybody wants to have in memory: `size` and `most` in bytes."""
    event = f"event {key & schema.SEQ_MASK} of run {run}"
    return DamagedStore(path, f"{event}: its {column} has {size} bytes, more than the {most} that are read")


def changed_schema(path: str) -> DamagedStore:
    """That the tables took what was written, and do not have it."""
    return DamagedStore(path, "its tables take nothing, and say nothing of it: somebody changed the schema")


def out_of_order(path: str) -> DamagedStore:
    """That SQLite believed the order of a damaged page. Whoever reads on from its last row would do so for ever."""
    return DamagedStore(path, "rows are out of order: copy the file, then try `sqlite3 FILE .recover`")


def text(value: bytes) -> str:
    """Text as it was read. What somebody wrote over it must still be readable, to be shown as damaged."""
    return value.decode(errors="backslashreplace")
