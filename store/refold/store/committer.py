"""Group commit for one SQLite file: appends that wait at the same time become one transaction.

A commit costs the same for one append as for a hundred: a round trip to the connection's thread and, to
survive a power cut, a flush of the disk. While one group is being committed, the next one gathers, so 64 runs
share one commit.

Appends in a group share the commit but succeed or fail separately: see `group_commit`, which runs in that
thread.

With durability `process`, no append waits for the disk, and the round trip would cost more than the commit.
A short append without others is then committed in the event loop's thread, unless it would wait for other
work on the connection or for another program's lock.

Even then, two things flush the disk: a checkpoint, and the first commit after it, which restarts the journal.
A commit in the event loop's thread makes no checkpoint. After every `HERE_IN_A_ROW` of them, two commits in
a row go to the connection's thread, one for each flush. After any other checkpoint, by a long group or by
another program, one commit in the event loop's thread may flush.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar, TypeVarTuple

import anyio

from refold.store import readable
from refold.store.access import Durability, look, open_reader, open_writer
from refold.store.cancellation import finish_despite_cancel
from refold.store.connection import PagedConnection
from refold.store.group_commit import AppendRequest, Known, Outcome, commit, commit_unhindered
from refold.store.protocol import Head, Lease, Record
from refold.store.readable import Readable
from refold.store.rows import translate_errors
from refold.store.thread import Connection

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Database(Readable):
    """The open file.

    No transaction is open between two round trips to a connection's thread, so tasks may interleave and be
    cancelled at any time.
    """

    def __init__(
        self, path: str, writer: Connection | None, reader: Connection, durability: Durability
    ) -> None:
        super().__init__(path, reader, writes=writer is not None)
        self.durability = durability
        self._writer = writer

    @classmethod
    async def open(cls, path: Path, durability: Durability, *, readonly: bool) -> Self:
        """Open the file, creating it if it does not exist. Raises `NotAStore` before any change."""
        with anyio.CancelScope(shield=True):  # half-open connections could not be closed
            await asyncio.to_thread(look, path, readonly=readonly)
            with translate_errors(str(path)):
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

        When it raises, cancellation included, no work is still in progress.
        """
        self.check_file()
        with translate_errors(self.path, writing=True):
            try:
                return await self.writer.run(function, *args)
            except asyncio.CancelledError:
                # The function still runs in its thread. Afterwards, the file shows its outcome.
                await self.writer.wait_submitted()
                raise

    async def erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head:
        """See `Store.erase`. After cancellation the rows are erased, but copies may remain in page gaps."""
        head, marks = await self.write(readable.erase, run, expected_seq, lease, seqs, notice)
        with translate_errors(self.path):
            found = await asyncio.to_thread(readable.residue_stands, self.path, marks)
        if found:
            await self.write(readable.rewrite)
        return head

    async def close(self) -> None:
        """Close both connections, the writer last: the last one to close cleans up the journal."""
        with anyio.CancelScope(shield=True), translate_errors(self.path):
            try:
                await super().close()
            finally:
                if self._writer:
                    await self._writer.close()


GROUP_ROWS = 500
GROUP_BYTES = 2 * 2**20
"""Limits of a group, so that a commit stays short. The last append may exceed them: it is never split."""


HERE_ROWS = 64
HERE_BYTES = 2**16
"""Maximum rows and bytes of an append committed in the event loop's thread: some tenths of a millisecond."""
HERE_IN_A_ROW = 256
"""Commits in the event loop's thread after which the next two are made in the connection's thread.

The first of those makes a checkpoint if the journal has `CHECKPOINT_PAGES` pages; the second restarts it.
"""


class Append:
    """A waiting append and its outcome."""

    __slots__ = ("outcome", "request", "size", "taken")

    def __init__(self, request: AppendRequest) -> None:
        self.request = request
        self.size = sum(len(each.body) + len(each.content or b"") for each in request.records)
        self.outcome: asyncio.Future[Head] = asyncio.get_running_loop().create_future()
        self.taken: asyncio.Future[None] | None = None  # done when its group is done


class Committer:
    """Gathers appends and commits them in groups. Belongs to one asyncio loop."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._waiting: list[Append] = []
        self._known = Known()  # used only by the thread that commits
        self._task: asyncio.Task[None] | None = None
        self._here = 0  # commits in this thread since the last forced trip to the connection's thread
        self._trips = 0  # commits that must go there before the next one here
        self._asked = 0  # value of `writer.asked` after our last commit there

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool
    ) -> Head:
        """See `Store.append`. When it raises, cancellation included, no work is still in progress."""
        self.database.writer  # noqa: B018 - raises if there is none
        append = Append(AppendRequest(run, expected_seq, lease, records, release))
        self._waiting.append(append)
        try:
            if self.database.durability == "process":
                await asyncio.sleep(0)  # let other ready appends join the group
            if self._waiting and self._task is None and not self._commit_here():
                self._task = asyncio.create_task(self._drain(), name="refold-store-commits")
            return await append.outcome
        except asyncio.CancelledError:
            await self._withdraw(append)
            raise

    def _commit_here(self) -> bool:
        """Commit a single short append in this thread; return False if it must go to the other thread."""
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
            await finish_despite_cancel(lambda: asyncio.wait([taken]), taken.done)
        elif append in self._waiting:
            self._waiting.remove(append)

    async def _drain(self) -> None:
        try:
            while self._waiting and not self._commit_here():
                await self._commit(self._take())
                await asyncio.sleep(0)  # a caller that just got its result may append again
        finally:
            self._task = None
            for append in self._waiting:  # only when this task was cancelled with its event loop
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
        outcomes: Sequence[Outcome] = [asyncio.CancelledError()] * len(group)  # if the loop ends
        try:
            self.database.check_file()
            requests = [append.request for append in group]
            self._trips, self._asked = max(0, self._trips - 1), self.database.writer.asked + 1
            outcomes = await self.database.writer.run(commit, requests, self._known)
        except asyncio.CancelledError:
            # The commit still runs in its thread.
            await self.database.writer.wait_submitted()
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
