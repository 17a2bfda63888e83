"""One SQLite file, open: a connection that writes, and one that reads beside it. Runs on asyncio alone."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar, TypeVarTuple

import anyio

from refold.reducers.errors import WrongUse
from refold.store import evidence, residue
from refold.store.access import Durability, look, open_reader, open_writer
from refold.store.connection import PagedConnection
from refold.store.problems import translated
from refold.store.protocol import Head, Lease, Record, StoreUnavailable
from refold.store.thread import Connection

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Database:
    """The open file. `writer` is None if it was opened to be read only.

    No transaction is open between two round trips to a connection's thread: tasks may interleave and be
    cancelled as they like.
    """

    def __init__(
        self, path: str, writer: Connection | None, reader: Connection, durability: Durability
    ) -> None:
        self.path, self.reader, self.durability = path, reader, durability
        self._writer = writer
        self._files = _file(path), _file(f"{path}-wal") if writer else None

    @classmethod
    async def open(cls, path: Path, durability: Durability, *, readonly: bool) -> Self:
        """Open the file, make it if need be. Raises `NotAStore` before anything was changed."""
        with anyio.CancelScope(shield=True):  # half-open connections could not be closed
            await asyncio.to_thread(look, path, readonly=readonly)
            with translated(str(path)):
                return await cls._open(path, durability, readonly=readonly)
        raise AssertionError  # for the type checkers: nothing cancels a shielded scope

    @classmethod
    async def _open(cls, path: Path, durability: Durability, *, readonly: bool) -> Self:
        writer = None if readonly else await open_writer(path, durability)
        try:
            return cls(str(path), writer, await open_reader(path), durability)
        except BaseException:
            if writer:
                await writer.close()
            raise

    @property
    def writes(self) -> bool:
        """Whether it may be written."""
        return self._writer is not None

    @property
    def writer(self) -> Connection:
        """The connection that writes. Raises `WrongUse` if there is none."""
        if self._writer is None:
            raise WrongUse(f"store {self.path}: opened to be read only; open it without `readonly`")
        return self._writer

    def check_file(self) -> None:
        """Raise `StoreUnavailable` if the file or its journal was removed or replaced: SQLite would go on in one without a name."""
        file, journal = _file(self.path), _file(f"{self.path}-wal") if self._writer else None
        if self._files[1] is None:
            self._files = self._files[0], journal  # it is made with the first page that is written
        if (file, journal) != self._files:
            what = "file" if file != self._files[0] else "-wal"
            problem = f"the {what} was removed or replaced while it was open: stop what uses the store, put it back, then go on"
            raise StoreUnavailable(self.path, problem)

    async def write(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        """Run a function in the thread of the connection that writes.

        When it raises, cancellation included, nothing of it is in flight any more.
        """
        self.check_file()
        with translated(self.path, writing=True):
            try:
                return await self.writer.run(function, *args)
            except asyncio.CancelledError:
                # The function runs all the same, in its thread. Once it has, a look at the file shows how it ended.
                await self.writer.reached()
                raise

    async def erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head:
        """See `Store.erase`. When cancelled, it has erased, but perhaps not out of the last gap of the file."""
        head, marks = await self.write(evidence.erase, run, expected_seq, lease, seqs, notice)
        with translated(self.path):
            found = await asyncio.to_thread(residue.stands, self.path, marks)
        if found:
            await self.write(evidence.rewrite)
        return head

    async def read(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        """Run a function in the thread of the connection that reads. It waits for no writer."""
        self.check_file()
        with translated(self.path):
            return await self.reader.run(function, *args)

    async def close(self) -> None:
        """Close both connections. The last one to close a file tidies up its journal, so the writer is last."""
        with anyio.CancelScope(shield=True), translated(self.path):
            try:
                await self.reader.close()
            finally:
                if self._writer:
                    await self._writer.close()


def _file(path: str) -> tuple[int, int] | None:
    """Which file it is; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
