"""The contract of every store: records as bytes, in order, appended atomically.

A store does not interpret events. The caller passes the number at which it expects the log to end, and the
store refuses the append if that differs.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

import msgspec

from refold.reducers.errors import Damaged, ExternalFailure, WrongUse
from refold.store.durability import Durability

LEASE_SECONDS = 30.0
"""Default length of a lease."""


RECORDING = b'{"recording":'
"""The first bytes of a recording, a log as JSON lines."""


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as bytes, before it is stored.

    `body` and `content` are JSON text (`content` None: the event has no payload). `salt` blinds the content's
    digest, so that a short erased text cannot be found by guessing; it is erased with the content. `at` is
    integer nanoseconds since the Unix epoch. `content_digest` is given only with content None, for content
    that was erased before (as in a bundle); else the store computes it.
    """

    at: int
    kind: str
    body: bytes
    content: bytes | None = None
    salt: bytes = b""
    content_digest: bytes | None = None


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of a log: number and hash (32 bytes) of its last event. A run without events has seq 0."""

    seq: int
    hash: bytes


class Stored(Head, frozen=True, kw_only=True, gc=False):
    """One event as stored, and so the head of the log up to it. `seq` counts from 1; see
    `refold.store.chain`.

    `content_digest` is 32 bytes, or None for an event recorded without content. With a digest, content None
    means that the content was erased.
    """

    run: str
    at: int
    kind: str
    body: bytes
    content: bytes | None
    salt: bytes
    content_digest: bytes | None = None

    @property
    def erased(self) -> bool:
        """Whether the content was erased."""
        return self.content is None and self.content_digest is not None


class Origin(Head, frozen=True, kw_only=True, gc=False):
    """The event that a fork's log continues: event `seq` in the own log of `run`, with its hash."""

    run: str


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to append to a run. `token` is the fencing token: an append with an older one is refused."""

    run: str
    token: int


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The claim on a run: an engine has it, or it waits for one.

    `holder` has the lease with `token`, which ends in `seconds` unless renewed. If `holder` is "", the run is
    free and due in `seconds`; 0 or less means now.
    """

    run: str
    holder: str
    token: int
    seconds: float


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state after event `seq`, as bytes: a cache. A reader of another `version` folds the log instead."""

    seq: int
    version: str
    data: bytes


class SealedHead(Head, frozen=True, kw_only=True, gc=False):
    """An entry of the log of heads: event `seq` of `run` had this hash. `place` counts from 1."""

    place: int
    run: str


class Seal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A signed tree head: the Merkle root over the first `size` entries of the log of heads.

    `at` is nanoseconds since the epoch, `key` the public Ed25519 key (32 bytes), `signature` 64 bytes.
    """

    size: int
    at: int
    root: bytes
    key: bytes
    signature: bytes


class StoreError(ExternalFailure):
    """Base of errors of a store that could not do what it was called for."""


class Conflict(StoreError):
    """Another writer appended first. Nothing was written."""

    def __init__(self, run: str, expected: int, head: int) -> None:
        super().__init__(run, expected, head)
        self.run, self.expected, self.head = run, expected, head

    def __str__(self) -> str:
        return (
            f"run {self.run} is at event {self.head}, not {self.expected}: read it again, decide again, retry"
        )


class LeaseLost(StoreError):
    """The lease is no longer the run's lease. Nothing was written."""

    def __init__(self, run: str, token: int, current: int) -> None:
        super().__init__(run, token, current)
        self.run, self.token, self.current = run, token, current

    def __str__(self) -> str:
        now = f"its token is {self.current} now" if self.current else "it was never leased"
        return f"run {self.run}: lease lost: token {self.token} is not valid ({now}): another engine took the run over, or an operator cancelled it; stop this one"


class Held(StoreError):
    """Another engine has the run's lease. Nothing was changed.

    `token` is that of its lease. If the holder is known to be dead, pass it as `over` to take the run over.
    """

    def __init__(self, run: str, holder: str, token: int, seconds: float) -> None:
        super().__init__(run, holder, token, seconds)
        self.run, self.holder, self.token, self.seconds = run, holder, token, seconds

    def __str__(self) -> str:
        return (
            f"run {self.run} is driven by {self.holder}, whose lease has {self.seconds:.0f} s left unless it renews it: "
            "wait for it, or stop that engine"
        )


class SealedElsewhere(StoreError):
    """Another seal came first. Nothing was written."""

    def __init__(self, expected: int, size: int) -> None:
        super().__init__(expected, size)
        self.expected, self.size = expected, size

    def __str__(self) -> str:
        return f"the log of heads has {self.size} entries, not {self.expected}: another seal came first; try again"


class StoreUnavailable(StoreError):
    """The disk or the database failed: full, read-only, locked, removed. Nothing was written.

    The cause is chained. If `outcome_known` is False, the append may have been committed: read the head
    before the next decision.
    """

    def __init__(self, path: str, problem: str, *, outcome_known: bool = True) -> None:
        super().__init__(path, problem)
        self.path, self.problem, self.outcome_known = path, problem, outcome_known

    def __str__(self) -> str:
        return f"store {self.path}: {self.problem}"


class FileProblem(Exception):
    """Base of errors about a file: its `path`, and `problem`, one sentence."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class NotAStore(FileProblem, WrongUse):
    """The file is not a refold store: another kind of file, another database, or another schema."""


class DamagedStore(FileProblem, Damaged):
    """The database is corrupt: unreadable pages, or a changed schema."""


class UnknownRun(WrongUse):
    """No run has this id."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        return f"no run {self.run!r} in this store; `refold ls` lists them"


class Store(Protocol):
    """An append-only log for each run.

    Every method may raise `StoreUnavailable` or `DamagedStore`. A cancelled append was written completely or
    not at all; every other cancelled method changes nothing.
    """

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        """Append `records` atomically, and return the new head once they are durable.

        `expected_seq` is the number of the run's last event (0 for a new run). It and the lease's token are
        checked in the writing transaction. Raises `Conflict` or `LeaseLost`; nothing is then written.
        `records` must not be empty. With `release`, the same transaction ends the lease, and the run then
        waits for nothing, even if it was woken: for the end of a run.

        A new run may begin as a fork: `expected_seq` is then the number of an event in another run's own log,
        and the first record, of kind `run_forked`, names that run, that number and that event's hash in its
        body (`parent`, `parent_seq`, `parent_hash` in hex). It is chained to that event. Raises `WrongUse` if
        that event does not exist.
        """
        ...

    async def head(self, run: str) -> Head:
        """Return the head of the run's log; `Head(seq=0, hash=...)` for a run without events."""
        ...

    def read(
        self, run: str, after: int = 0, upto: int | None = None, *, checked: bool = True
    ) -> AsyncIterator[Sequence[Stored]]:
        """Yield the events with `after < seq <= upto` in order, in chunks of bounded size.

        Raises `DamagedLog` instead of the first event that was changed or follows a gap. With
        `checked=False`, all stored events are yielded unchecked: see `refold.store.chain`.

        A run without events yields nothing. Events appended after the call may or may not be included. For a
        fork, the events of its prefix come first, from event 1, each with the id of its own `run`. Raises
        `DamagedLog` if the fork's origin does not exist.
        """
        ...

    async def read_some(self, run: str, seqs: Sequence[int], *, checked: bool = True) -> Sequence[Stored]:
        """Return the events with these numbers, ascending; missing numbers are skipped. Raises as `read`."""
        ...

    async def read_kinds(self, run: str, kinds: Collection[str]) -> Sequence[Stored]:
        """Return all events of these kinds, ascending; for a fork this includes its prefix.

        Meant for rare kinds. Raises as `read`.
        """
        ...

    async def lineage(self, run: str) -> Sequence[Origin]:
        """Return the fork points of a fork's ancestors, oldest first; empty for a run that is not a fork.

        The run's own log begins right after the last of them. Raises `DamagedLog` as `read`.
        """
        ...

    async def erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head:
        """Delete content and salt of these events and append `notice`, the erasure record, atomically.

        The digests stay, so the chain remains valid. Snapshots of the run and of all forks are deleted too,
        because an erasure in a run also applies to its forks. Raises as `append`; `WrongUse` for a number
        that is not in the run's own log, or an event recorded without content. An event may be erased again.
        """
        ...

    async def lease(
        self, run: str, *, holder: str, seconds: float = LEASE_SECONDS, over: int | None = None
    ) -> Lease:
        """Lease the run to `holder` for `seconds` of the store's own clock. The run need not have events yet.

        The token is greater than all earlier ones, so a previous holder loses its lease. Raises `Held` while
        an engine has the run, unless `over` is the token of that lease. If a lease ends later than its length
        from now, because the clock was set back, it ends after its length from now.
        """
        ...

    async def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> None:
        """Extend the lease to `seconds` from now; an expired one becomes valid again.

        Raises `LeaseLost` if another engine leased the run meanwhile.
        """
        ...

    async def release(self, lease: Lease, after: float | None = None) -> None:
        """Release the run. It is due again in `after` seconds; None: when it is woken.

        Releasing a lost lease does nothing.
        """
        ...

    async def wake(self, run: str) -> None:
        """Make the run due as soon as it is free: at once, or when its holder releases it."""
        ...

    async def due(self, most: int) -> Sequence[str]:
        """Return the ids of at most `most` free, runnable runs, longest waiting first.

        They were woken, their time after a release has passed, or their engine's lease expired.
        """
        ...

    async def take_due(
        self, most: int, *, holder: str, seconds: float = LEASE_SECONDS, skip: Collection[str] = ()
    ) -> Sequence[Lease]:
        """Lease at most `most` of the runs that `due` lists to `holder`, longest waiting first.

        Concurrent callers get different runs. The runs in `skip` are left to others.
        """
        ...

    async def wait_due(self, seconds: float) -> None:
        """Return when a run may have become due, after `seconds` at the latest.

        A wake-up may be missed, so call it with the interval at which `due` is polled.
        """
        ...

    async def claim(self, run: str) -> Claim | None:
        """Return the run's claim: who has it, or since when it is runnable; None if it waits for nothing."""
        ...

    async def save_snapshot(self, run: str, snapshot: Snapshot) -> None:
        """Replace the run's snapshot if this one is of a later event.

        It delays appends only briefly.
        """
        ...

    async def snapshot(self, run: str, version: str) -> Snapshot | None:
        """Return the run's snapshot if it has this version and its event still has the same hash."""
        ...

    async def add_seal(self, heads: Sequence[SealedHead], seal: Seal) -> None:
        """Append entries to the log of heads, and a seal over all its entries, atomically.

        Places continue from the last one, and `seal.size` is the last place. `heads` may be empty, for a new
        signature. Raises `SealedElsewhere`.
        """
        ...

    def sealed_heads(self, after: int = 0) -> AsyncIterator[Sequence[SealedHead]]:
        """Yield the entries of the log of heads with `after < place`, in order, in chunks of bounded size."""
        ...

    def seals(self) -> AsyncIterator[Sequence[Seal]]:
        """Yield the seals, oldest first, in chunks of bounded size."""
        ...

    def runs(self, prefix: str = "") -> AsyncIterator[Sequence[tuple[str, Head]]]:
        """Yield ids and heads of runs whose id starts with `prefix`, newest first, in bounded chunks."""
        ...

    async def check(self) -> None:
        """Search the stored data for damage that would hide events from readers. Raises `DamagedStore`.

        It does not find changed events: the hash chain does.
        """
        ...

    async def durability(self) -> Durability:
        """Return what an append survives after it returned, by the settings in force now."""
        ...

    async def aclose(self) -> None:
        """Close files and threads. May be called twice; no other method may be called after it."""
        ...
