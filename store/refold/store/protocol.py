"""The contract of every store: bytes in, bytes out, in order, all or nothing.

A store knows records, not events. It numbers nothing by itself: the caller says where it believes the
log to be, and the store refuses if that is not so.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from refold.reducers.errors import Damaged, WorldFailed, WrongUse


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as bytes, before it is stored.

    `body` and `content` are JSON text (`content` None: the event said nothing). `salt` blinds the
    content's digest, so that a short erased text cannot be found by guessing; it goes with the content.
    `at` is integer nanoseconds since the Unix epoch.
    """

    at: int
    kind: str
    body: bytes
    content: bytes | None = None
    salt: bytes = b""


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as it is on disk. `seq` counts from 1 in its run; `hash` is 32 bytes, see `refold.store.chain`.

    `content_digest` is 32 bytes, or None for an event that never had content. Content None beside a digest
    is content that was erased.
    """

    run: str
    seq: int
    at: int
    kind: str
    body: bytes
    content: bytes | None
    salt: bytes
    hash: bytes
    content_digest: bytes | None = None


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of a run's log: the number and the hash of its last event. An empty run has seq 0."""

    seq: int
    hash: bytes


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to append to a run. `token` is the fencing token: an append under an older one is refused."""

    run: str
    token: int


class StoreError(WorldFailed):
    """The store could not do what was asked; `run` names the run, "" where none is concerned."""


class Conflict(StoreError):
    """Another writer appended first. Nothing of ours was written."""

    def __init__(self, run: str, expected: int, head: int) -> None:
        super().__init__(run, expected, head)
        self.run, self.expected, self.head = run, expected, head

    def __str__(self) -> str:
        return (
            f"run {self.run} is at event {self.head}, not {self.expected}: read it again, decide again, retry"
        )


class LeaseLost(StoreError):
    """The lease under which we wrote is not the run's lease any more. Nothing of ours was written."""

    def __init__(self, run: str, token: int, current: int) -> None:
        super().__init__(run, token, current)
        self.run, self.token, self.current = run, token, current

    def __str__(self) -> str:
        return f"run {self.run} is leased under token {self.current}, not {self.token}: another engine has it; stop"


class StoreUnavailable(StoreError):
    """The disk or the database failed: full, read-only, locked, gone. Nothing of this append was written.

    The cause is chained. `outcome_known` is False when the failure left open whether the append was
    committed: read the head before deciding anything.
    """

    def __init__(self, path: str, problem: str, *, outcome_known: bool = True) -> None:
        super().__init__(path, problem)
        self.path, self.problem, self.outcome_known = path, problem, outcome_known

    def __str__(self) -> str:
        return f"store {self.path}: {self.problem}"


class NotAStore(WrongUse):
    """The file is no refold store: another kind of file, another database, or a newer schema."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class DamagedStore(Damaged):
    """The database itself is corrupt: pages that cannot be read, or a schema that was changed by hand."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class UnknownRun(WrongUse):
    """No run has this id."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        return f"no run {self.run!r} in this store; `refold ls` lists them"


class Store(Protocol):
    """An append-only log for each run.

    Every method may raise `StoreUnavailable` or `DamagedStore`. When a method is cancelled half-way, an
    append may or may not have happened (never a part of it); everything else leaves no trace.
    """

    async def append(self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> Head:
        """Append all of `records` or none, and return the new head once they are as durable as the store promises.

        `expected_seq` is the number of the run's last event (0 for a new run). It and the lease's token are
        checked in the transaction that writes. Raises `Conflict` or `LeaseLost`; nothing is then written.
        `records` is not empty.
        """
        ...

    async def head(self, run: str) -> Head:
        """Where the run's log ends; `Head(seq=0, hash=...)` for a run that has no events."""
        ...

    def read(self, run: str, after: int = 0, upto: int | None = None) -> AsyncIterator[Sequence[Stored]]:
        """The events with `after < seq <= upto` in order, in chunks of bounded size.

        A run without events yields nothing. Events appended after the call may or may not be seen.
        """
        ...

    async def read_some(self, run: str, seqs: Sequence[int]) -> Sequence[Stored]:
        """The events with these numbers, ascending; numbers that the run does not have are left out."""
        ...

    async def lease(self, run: str) -> Lease:
        """The right to append to `run`."""
        ...

    def runs(self, prefix: str = "") -> AsyncIterator[Sequence[tuple[str, Head]]]:
        """Ids and heads of the runs whose id starts with `prefix`, newest first, in chunks of bounded size."""
        ...

    async def aclose(self) -> None:
        """Let go of files and threads. May be called twice; nothing may be called after it."""
        ...
