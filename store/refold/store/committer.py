"""One SQLite file, open for writing: appends that wait at one moment become one transaction.

A commit costs the same for one append as for a hundred: a trip to the connection's thread and, if it is to
survive a power cut, a flush of the disk. So while one group is being committed the next one gathers, and 64
runs pay for one.

What a group shares is the commit, not the fate: see `group_commit`, which is what runs in that thread.

Where no append waits for the disk (`process`), the trip would cost more than the commit. So a short append
that is alone is committed in the event loop's own thread, unless other work on the connection, or another
program's lock, would be waited for.

What flushes the disk even there is a checkpoint, and the first commit after it, which begins the journal
anew. A commit in the event loop's thread makes no checkpoint. Every so many of them, two commits in a row go
to the connection's thread: one for each flush. After a checkpoint that comes otherwise, by a long group or by
another program, one commit of the loop's may flush.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar, TypeVarTuple

import anyio

from refold.store import readable
from refold.store.access import Durability, look, open_reader, open_writer
from refold.store.connection import PagedConnection
from refold.store.group_commit import AppendRequest, Known, Outcome, commit, commit_unhindered
from refold.store.protocol import Head, Lease, Record
from refold.store.readable import Readable
from refold.store.rows import translated
from refold.store.thread import Connection, seen_through

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
                # The function runs all the same, in its thread. Once it has, a look at the file shows how it
                # ended.
                await self.writer.reached()
                raise

    async def erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head:
        """See `Store.erase`. When cancelled, it has erased, but perhaps not out of the last gap of the
        file.
        """
        head, marks = await self.write(readable.erase, run, expected_seq, lease, seqs, notice)
        with translated(self.path):
            found = await asyncio.to_thread(readable.residue_stands, self.path, marks)
        if found:
            await self.write(readable.rewrite)
        return head

    async def close(self) -> None:
        """Close both connections. The last one to close a file tidies up its journal, so the writer is
        last.
        """
        with anyio.CancelScope(shield=True), translated(self.path):
            try:
                await super().close()
            finally:
                if self._writer:
                    await self._writer.close()


GROUP_ROWS = 500
GROUP_BYTES = 2 * 2**20
"""Where a group ends, so that a commit stays short.

It may be larger by one append, for an append is never cut.
"""


HERE_ROWS = 64
HERE_BYTES = 2**16
"""The most of an append that is committed in the event loop's thread: some tenths of a millisecond."""
HERE_IN_A_ROW = 256
"""So many appends are, before one goes to the connection's thread: what its commit finds too long, it cuts.
"""


class Append:
    """An append that waits, and how it ended."""

    __slots__ = ("outcome", "request", "size", "taken")

    def __init__(self, request: AppendRequest) -> None:
        self.request = request
        self.size = sum(len(each.body) + len(each.content or b"") for each in request.records)
        self.outcome: asyncio.Future[Head] = asyncio.get_running_loop().create_future()
        self.taken: asyncio.Future[None] | None = None  # done when the group that took it is


class Committer:
    """Gathers appends and commits them in groups. Belongs to one asyncio loop."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._waiting: list[Append] = []
        self._known = Known()  # whoever commits touches it
        self._task: asyncio.Task[None] | None = None
        self._here = 0  # appends that were committed in this thread since one had to go to the connection's
        self._trips = 0  # so many have to go there before others may be committed here
        self._asked = 0  # of the connection's thread, until our last commit there

    async def append(self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> Head:
        """See `Store.append`. When it raises, cancellation included, nothing of it is in flight any more."""
        self.database.writer  # noqa: B018 - raises if there is none
        append = Append(AppendRequest(run, expected_seq, lease, records))
        self._waiting.append(append)
        try:
            if self.database.durability == "process":
                await asyncio.sleep(0)  # what comes in the same moment comes along
            if self._waiting and self._task is None and not self._committed_here():
                self._task = asyncio.create_task(self._drain(), name="refold-store-commits")
            return await append.outcome
        except asyncio.CancelledError:
            await self._withdraw(append)
            raise

    def _committed_here(self) -> bool:
        """Commit what waits in this thread, if that takes no time; False: it was not."""
        writer, (append, *others) = self.database.writer, self._waiting
        if others or self.database.durability != "process" or not writer.idle:
            return False
        if append.size > HERE_BYTES or len(append.request.records) > HERE_ROWS:
            return False
        if self._here >= HERE_IN_A_ROW:
            self._here, self._trips = 0, 2
        if self._trips or writer.asked != self._asked:
            return False
        self._waiting.clear()
        try:
            self.database.check_file()
            outcome = writer.run_here(commit_unhindered, append.request, self._known)
        except Exception as error:
            outcome = error
        if outcome is None:
            self._waiting.append(append)
            return False
        self._here += 1
        _settle(append.outcome, outcome)
        return True

    async def aclose(self) -> None:
        """Wait for the last group."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _withdraw(self, append: Append) -> None:
        taken = append.taken
        if taken is not None:
            await seen_through(lambda: asyncio.wait([taken]), taken.done)
        elif append in self._waiting:
            self._waiting.remove(append)

    async def _drain(self) -> None:
        try:
            while self._waiting and not self._committed_here():
                await self._commit(self._take())
                await asyncio.sleep(0)  # who was just answered may have the next append ready
        finally:
            self._task = None
            for append in self._waiting:  # only where this task was cancelled, with its event loop
                append.outcome.cancel()
            self._waiting.clear()

    def _take(self) -> list[Append]:
        count = size = taken = 0
        for append in self._waiting:
            if taken and (count >= GROUP_ROWS or size >= GROUP_BYTES):
                break
            count, size, taken = count + len(append.request.records), size + append.size, taken + 1
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return group

    async def _commit(self, group: list[Append]) -> None:
        done = asyncio.get_running_loop().create_future()
        for append in group:
            append.taken = done
        outcomes: Sequence[Outcome] = [asyncio.CancelledError()] * len(group)  # the loop ends, and we with it
        try:
            self.database.check_file()
            requests = [append.request for append in group]
            self._trips, self._asked = max(0, self._trips - 1), self.database.writer.asked + 1
            outcomes = await self.database.writer.run(commit, requests, self._known)
        except asyncio.CancelledError:
            # It is run all the same, in its thread.
            await self.database.writer.reached()
            raise
        except Exception as error:
            outcomes = [error] * len(group)
        finally:
            done.set_result(None)
            for append, outcome in zip(group, outcomes, strict=True):
                _settle(append.outcome, outcome)


def _settle(future: "asyncio.Future[Head]", outcome: Outcome) -> None:
    if future.done():  # cancelled meanwhile
        return
    if isinstance(outcome, Head):
        future.set_result(outcome)
    elif isinstance(outcome, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(outcome)
