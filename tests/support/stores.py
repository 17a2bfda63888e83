"""Stores that watch, and stores that fail on purpose."""

from collections.abc import Sequence

import anyio.lowlevel

from refold.store import MemoryStore
from refold.store.protocol import Head, Lease, Record, StoreUnavailable


class WatchedStore(MemoryStore):
    """Takes its time, and knows what is on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.on_disk = 0

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        head = await super().append(run, expected_seq, lease, records, release=release)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        self.on_disk = head.seq
        return head


class FailingStore(MemoryStore):
    """The n-th append fails: `before` it is written, or `after`, which leaves its outcome unknown to the
    caller.

    `forever`: and so does every later one. `failed` says whether it came to that.
    """

    def __init__(self, fail_at: int, *, after: bool = False, forever: bool = False) -> None:
        super().__init__()
        self.fail_at, self.after, self.forever = fail_at, after, forever
        self.appends = 0
        self.failed = False

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        self.appends += 1
        if self.appends != self.fail_at and not (self.forever and self.appends > self.fail_at):
            return await super().append(run, expected_seq, lease, records, release=release)
        self.failed = True
        if self.after:
            await super().append(run, expected_seq, lease, records, release=release)
        raise StoreUnavailable("runs.db", "the disk is full", outcome_known=not self.after)
