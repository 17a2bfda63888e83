"""A readable store file, the bridge to its thread, and the search for text left after an erasure.

`secure_delete` overwrites deleted rows. It does not overwrite the gap in a page after SQLite moves rows to a
neighboring page: an unreachable copy of a row may remain there (observed for one to four of 200 small events
of 20 runs that grew in parallel). Only VACUUM, which rewrites the whole file, removes such a copy, so we
first check for one. A row stores its hash next to its content's digest: if these 64 bytes occur twice in the
file, there is a copy.
"""

import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol, Self, TypeVar, TypeVarTuple

from refold.reducers.errors import WrongUse
from refold.store import rows, schema, tables
from refold.store.access import look, open_reader
from refold.store.base import check_sealed
from refold.store.checks import check_erase, inherited_error
from refold.store.connection import PagedConnection, direct, transaction
from refold.store.group_commit import insert, refused_append
from refold.store.protocol import (
    Head,
    Lease,
    Record,
    Seal,
    SealedHead,
    Snapshot,
    StoreUnavailable,
)
from refold.store.rows import FAILED, RunPlace, SqlRow, translate_errors
from refold.store.tables import find

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Reader(Protocol):
    """A connection that runs functions."""

    def run(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> Awaitable[T]:
        """Run `function(connection, ...)` and return its result."""
        ...

    async def close(self) -> None:
        """Close the connection after all submitted functions."""
        ...


class Readable:
    """The open file for reading, and also for writing if `writes` is set."""

    def __init__(self, path: str, reader: Reader, *, writes: bool = False) -> None:
        self.path, self.writes = path, writes
        self._reader = reader
        self._files = _file(path), _file(f"{path}-wal") if writes else None

    @classmethod
    def open_here(cls, path: Path) -> Self:
        """Open an existing file, and read it in the caller's thread, blocking its event loop."""
        look(path, readonly=True)
        with translate_errors(str(path)):
            return cls(str(path), _Here(open_reader(path)))
        raise AssertionError  # for the type checkers: `translate_errors` suppresses no error

    def unwritable(self) -> WrongUse:
        """Return the error for a write to a store opened read-only."""
        return WrongUse(f"store {self.path}: it is open read-only; open it without `readonly`")

    def check_file(self) -> None:
        """Raise `StoreUnavailable` if the file or its journal was removed or replaced.

        SQLite would continue in the unlinked file.
        """
        file, journal = _file(self.path), _file(f"{self.path}-wal") if self.writes else None
        if self._files[1] is None:
            self._files = self._files[0], journal  # created with the first page written
        if (file, journal) != self._files:
            what = "file" if file != self._files[0] else "-wal"
            problem = f"the {what} was removed or replaced while it was open: stop all programs that use the store, restore it, then retry"
            raise StoreUnavailable(self.path, problem)

    async def read(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        """Run a function on the reading connection, without waiting for writers."""
        self.check_file()
        with translate_errors(self.path):
            return await self._reader.run(function, *args)

    async def close(self) -> None:
        """Close the reading connection."""
        with translate_errors(self.path):
            await self._reader.close()


class _Here:
    """A connection that runs functions at once in the caller's thread."""

    def __init__(self, connection: PagedConnection) -> None:
        self._connection = connection

    async def run(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        try:
            return function(self._connection, *args)
        except sqlite3.OperationalError as error:
            # Ctrl-C arrives in SQLite's progress callback, where it only interrupts the statement.
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT and not self._connection.endless:
                raise KeyboardInterrupt from error
            raise

    async def close(self) -> None:
        self._connection.close()


def _file(path: str) -> tuple[int, int] | None:
    """Return the file's device and inode; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Bridge(Protocol):
    """A bridge to an asyncio event loop."""

    def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> Awaitable[T]:
        """Await `function(*args)` on asyncio."""
        ...

    async def aclose(self) -> None:
        """Stop the loop if this bridge started it."""
        ...


class DirectBridge:
    """The bridge of callers that are on asyncio already or need no loop."""

    def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> Awaitable[T]:
        """Return the awaitable of `function(*args)`."""
        return function(*args)

    async def aclose(self) -> None:
        """Do nothing: there is no loop to stop."""


CHUNK = 2**20

# Descriptors of searched files, by device and inode. Closing one would drop every lock that this process has
# on the file, including SQLite's (https://sqlite.org/howtocorrupt.html, 2.2). So each file is opened once and
# stays open until the process ends.
_open: dict[tuple[int, int], int] = {}


def residue_stands(path: str, marks: Sequence[bytes]) -> bool:
    """Return whether any mark occurs in the file more than once. Marks have equal lengths."""
    counts = dict.fromkeys(marks, 0)
    with closing(direct(Path(path), "mode=ro")) as connection:
        # An open read transaction keeps checkpoints from moving rows during the search.
        connection.execute("BEGIN")
        connection.execute("SELECT EXISTS (SELECT 1 FROM run)").fetchone()
        for piece in _pieces(_descriptor(path), overlap=len(marks[0]) - 1 if marks else 0):
            for mark in marks:
                counts[mark] += piece.count(mark)
    return any(count > 1 for count in counts.values())


def _pieces(descriptor: int, overlap: int) -> Iterator[bytes]:
    """Yield the file in overlapping pieces: a mark across a boundary is found in the later piece only."""
    place, kept = 0, b""
    while read := _read(descriptor, place):
        place += len(read)
        yield kept + read
        kept = (kept + read)[-overlap:]


def _read(descriptor: int, place: int) -> bytes:
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.read(descriptor, CHUNK)


def _descriptor(path: str) -> int:
    found = os.stat(path)
    key = found.st_dev, found.st_ino
    if key not in _open:
        _open[key] = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    return _open[key]


def erase(
    connection: PagedConnection,
    run: str,
    expected_seq: int,
    lease: Lease,
    seqs: Sequence[int],
    notice: Record,
) -> tuple[Head, list[bytes]]:
    """See `Store.erase`. Return the new head and the mark of each erased event for `residue_stands`."""
    with transaction(connection):
        place = find(connection, run)
        if refused := refused_append(run, place, expected_seq, lease):
            raise refused
        assert place is not None
        marks = [_erase(connection, run, place, seq) for seq in seqs]
        new = rows.from_records(run, place, [notice])
        insert(connection, new)
        connection.execute(schema.DROP_SNAPSHOT, (place.number,))
    empty_journal(connection)
    return Head(seq=expected_seq + 1, hash=new[0][3]), marks


def _erase(connection: PagedConnection, run: str, place: RunPlace, seq: int) -> bytes:
    key = (place.number << schema.SEQ_BITS) + seq
    there = 0 < seq <= place.head.seq
    row: SqlRow | None = connection.execute(schema.DIGEST, (key,)).fetchone() if there else None
    if there and row is None and (owner := tables.owner(connection, run, seq)) != run:
        raise inherited_error(run, seq, owner)
    check_erase(run, place.head.seq, seq, row[1] if row else None)
    assert row is not None
    connection.execute(schema.ERASE, (key,))
    return b"".join(row)


def rewrite(connection: PagedConnection) -> None:
    """Rewrite the file without gaps."""
    try:
        connection.execute("VACUUM")
    except FAILED as error:
        raise _erasure_error(
            connection.path, f"in unused parts of the file, which could not be rewritten ({error})"
        ) from error
    empty_journal(connection)


def empty_journal(connection: PagedConnection) -> None:
    """Checkpoint and truncate the write-ahead log, which also contains the erased text."""
    try:
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except FAILED as error:
        raise _erasure_error(connection.path, f"in the -wal beside the file ({error})") from error
    if busy:
        raise _erasure_error(connection.path, "in the -wal beside the file, which another program is reading")


def _erasure_error(path: str, where: str) -> StoreUnavailable:
    problem = f"the log has no payload any longer, but copies may remain {where}: close other programs, and erase again"
    return StoreUnavailable(path, problem, outcome_known=False)


def save_snapshot(connection: PagedConnection, run: str, snapshot: Snapshot) -> None:
    """See `Store.save_snapshot`."""
    connection.execute(schema.SAVE_SNAPSHOT, (run, snapshot.seq, snapshot.version, snapshot.data))


def add_seal(connection: PagedConnection, heads: Sequence[SealedHead], seal: Seal) -> None:
    """See `Store.add_seal`."""
    with transaction(connection):
        (size,) = connection.execute(schema.SEALED).fetchone()
        check_sealed(size, heads, seal)
        connection.executemany(
            schema.ADD_SEALED, [(each.place, each.run, each.seq, each.hash) for each in heads]
        )
        connection.execute(schema.ADD_SEAL, (seal.size, seal.at, seal.root, seal.key, seal.signature))
