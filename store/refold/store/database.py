"""One SQLite file, open: a connection that writes, and one that reads beside it. Runs on asyncio alone."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar, TypeVarTuple

import anyio

from refold.store import evidence, residue
from refold.store.access import Durability, look, open_reader, open_writer
from refold.store.connection import PagedConnection
from refold.store.problems import translated
from refold.store.protocol import Head, Lease, Record
from refold.store.readable import Readable
from refold.store.thread import Connection

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Database(Readable):
    """The open file.

    No transaction is open between two round trips to a connection's thread: tasks may interleave and be
    cancelled as they like.
    """

    def __init__(
        self, path: str, writer: Connection | None, reader: Connection, durability: Durability
    ) -> None:
        super().__init__(path, reader, writes=writer is not None)
        self.durability = durability
        self._writer = writer

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
        writer = None if readonly else await Connection.open(partial(open_writer, path, durability))
        try:
            return cls(str(path), writer, await Connection.open(partial(open_reader, path)), durability)
        except BaseException:
            if writer:
                await writer.close()
            raise

    @property
    def writer(self) -> Connection:
        """The connection that writes. Raises `WrongUse` if there is none."""
        if self._writer is None:
            raise self.unwritable()
        return self._writer

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

    async def close(self) -> None:
        """Close both connections. The last one to close a file tidies up its journal, so the writer is last."""
        with anyio.CancelScope(shield=True), translated(self.path):
            try:
                await super().close()
            finally:
                if self._writer:
                    await self._writer.close()
