"""The contract of every store: bytes in, bytes out, in order, all or nothing.

A store knows records, not events. It numbers nothing by itself: the caller says where it believes the
log to be, and the store refuses if that is not so.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

import msgspec

from refold.reducers.errors import Damaged, WorldFailed, WrongUse

LEASE_SECONDS = 30.0
"""How long a lease is good for when nothing else is said."""


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as bytes, before it is stored.

    `body` and `content` are JSON text (`content` None: the event said nothing). `salt` blinds the
    content's digest, so that a short erased text cannot be found by guessing; it goes with the content.
    `at` is integer nanoseconds since the Unix epoch. `content_digest`, beside content None, is that of a
    content which was erased before the record came here (out of a bundle): else it is computed.
    """

    at: int
    kind: str
    body: bytes
    content: bytes | None = None
    salt: bytes = b""
    content_digest: bytes | None = None


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of a log: the number and the hash (32 bytes) of its last event. A run without events has seq
    0.
    """

    seq: int
    hash: bytes


class Stored(Head, frozen=True, kw_only=True, gc=False):
    """One event as it is on disk, and so the head of the log up to it. `seq` counts from 1; see
    `refold.store.chain`.

    `content_digest` is 32 bytes, or None for an event that never had content. Content None beside a digest
    is content that was erased.
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
        """Whether its content was erased."""
        return self.content is None and self.content_digest is not None


class Origin(Head, frozen=True, kw_only=True, gc=False):
    """Where the log of a fork goes on from: event `seq` in the own log of `run`, with its hash."""

    run: str


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to append to a run. `token` is the fencing token: an append under an older one is refused."""

    run: str
    token: int


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """That a run has an engine, or wants one.

    `holder` has the lease under `token`, for `seconds` more if it does not renew it. It is free where
    `holder` is "": then the run is to be taken up in `seconds`, 0 or less: now.
    """

    run: str
    holder: str
    token: int
    seconds: float


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A state after event `seq`, as bytes: a cache. Who reads another `version` than it writes folds the
    log.
    """

    seq: int
    version: str
    data: bytes


class SealedHead(Head, frozen=True, kw_only=True, gc=False):
    """An entry of the log of heads: at some time, event `seq` of `run` had this hash. `place` counts from
    1.
    """

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
        now = f"its token is {self.current} now" if self.current else "it was never leased"
        return f"run {self.run}: the lease under token {self.token} is lost ({now}): another engine took the run over; stop"


class Held(StoreError):
    """Another engine has the run's lease. Nothing was changed.

    `token` is that of its lease: who knows that the holder is gone may take the run over with it.
    """

    def __init__(self, run: str, holder: str, token: int, seconds: float) -> None:
        super().__init__(run, holder, token, seconds)
        self.run, self.holder, self.token, self.seconds = run, holder, token, seconds

    def __str__(self) -> str:
        return (
            f"run {self.run} is driven by {self.holder}, whose lease has {self.seconds:.0f} s left unless it renews it: "
            "wait for it, or stop that one"
        )


class SealedElsewhere(StoreError):
    """Another seal came first. Nothing of ours was written."""

    def __init__(self, expected: int, size: int) -> None:
        super().__init__(expected, size)
        self.expected, self.size = expected, size

    def __str__(self) -> str:
        return f"the log of heads has {self.size} entries, not {self.expected}: another seal came first; try again"


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


class FileProblem(Exception):
    """What errors about a file have in common: its `path`, and `problem`, one sentence."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class NotAStore(FileProblem, WrongUse):
    """The file is no refold store: another kind of file, another database, or another schema."""


class DamagedStore(FileProblem, Damaged):
    """The database itself is corrupt: pages that cannot be read, or a schema that was changed by hand."""


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
        """Append all of `records` or none, and return the new head once they are as durable as the store
        promises.

        `expected_seq` is the number of the run's last event (0 for a new run). It and the lease's token are
        checked in the transaction that writes. Raises `Conflict` or `LeaseLost`; nothing is then written.
        `records` is not empty.

        A new run may begin as a fork: `expected_seq` is then the number of an event in another run's own log,
        and the first record, of kind `run_forked`, names that run, that number and that event's hash in its
        body (`parent`, `parent_seq`, `parent_hash` in hex). It is chained to that event. Raises `WrongUse` if
        that event is not there.
        """
        ...

    async def head(self, run: str) -> Head:
        """Where the run's log ends; `Head(seq=0, hash=...)` for a run that has no events."""
        ...

    def read(
        self, run: str, after: int = 0, upto: int | None = None, *, checked: bool = True
    ) -> AsyncIterator[Sequence[Stored]]:
        """The events with `after < seq <= upto` in order, in chunks of bounded size.

        Raises `DamagedLog` in the place of the first that is not what was recorded, or behind a gap; not so
        `checked`, all that is there comes as it stands: see `refold.store.chain`.

        A run without events yields nothing. Events appended after the call may or may not be seen. Of a fork
        the events before it come first, from event 1: they say of which `run` they are. Raises `DamagedLog`
        for a fork of what is not there.
        """
        ...

    async def read_some(self, run: str, seqs: Sequence[int], *, checked: bool = True) -> Sequence[Stored]:
        """The events with these numbers, ascending; numbers that the run does not have are left out.

        Raises as `read`.
        """
        ...

    async def read_kinds(self, run: str, kinds: Collection[str]) -> Sequence[Stored]:
        """All events of these kinds, ascending; of a fork with those before it.

        Meant for kinds that are rare. Raises as `read`.
        """
        ...

    async def lineage(self, run: str) -> Sequence[Origin]:
        """Where the runs behind a fork were left, the oldest first; none for a run that is no fork.

        Its own log begins right after the last of them. Raises `DamagedLog` as `read`.
        """
        ...

    async def erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head:
        """Take content and salt of these events away for good, and append `notice`, which says so: both or
        neither.

        The digests stay, and the chain holds. Snapshots of the run and of its forks go too: what is erased in
        a run is erased in what was forked from it. Raises as `append`; `WrongUse` for a number that the run's
        own log does not have, or an event that never had content. An erased one may be erased again.
        """
        ...

    async def lease(
        self, run: str, *, holder: str, seconds: float = LEASE_SECONDS, over: int | None = None
    ) -> Lease:
        """Take the run for `holder`, for so long by the store's own clock; the run need not have events yet.

        The token is greater than any before it: who had the run is fenced out. Raises `Held` while an engine
        has it, unless `over` is the token of that very lease. A lease whose end lies further away than it was
        ever given for (the clock was set back) has its own length left from now.
        """
        ...

    async def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> None:
        """Have the lease for so long from now; one that ran out is good again if the run was not taken
        meanwhile.

        Raises `LeaseLost`.
        """
        ...

    async def release(self, lease: Lease, after: float | None = None) -> None:
        """Let go of the run. It is to be taken up again in `after` seconds; None: when it is woken.

        A lease that was lost has nothing to let go of, and nothing happens.
        """
        ...

    async def wake(self, run: str) -> None:
        """Have the run taken up as soon as it is free. One that is held now is due when it is released."""
        ...

    async def due(self, most: int) -> Sequence[str]:
        """Ids of runs that want an engine now and are free, those that wait longest first.

        They were woken or released to be taken up by now, or their engine's lease ran out.
        """
        ...

    async def claim(self, run: str) -> Claim | None:
        """Who has the run, or since when it wants an engine; None for one that wants none."""
        ...

    async def save_snapshot(self, run: str, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the run's last one, if it is of a later event.

        It never delays an append long.
        """
        ...

    async def snapshot(self, run: str, version: str) -> Snapshot | None:
        """The run's snapshot if it is of this version, and of the log as it stands: its event has the same
        hash.
        """
        ...

    async def add_seal(self, heads: Sequence[SealedHead], seal: Seal) -> None:
        """Append the entries to the log of heads, and the seal over all of it: all or nothing.

        Places go on from the last one, and `seal.size` is the last place; there may be no new entry, for a
        new signature. Raises `SealedElsewhere`.
        """
        ...

    def sealed_heads(self, after: int = 0) -> AsyncIterator[Sequence[SealedHead]]:
        """The log of heads with `after < place`, in order, in chunks of bounded size."""
        ...

    def seals(self) -> AsyncIterator[Sequence[Seal]]:
        """The seals, the oldest first, in chunks of bounded size."""
        ...

    def runs(self, prefix: str = "") -> AsyncIterator[Sequence[tuple[str, Head]]]:
        """Ids and heads of the runs whose id starts with `prefix`, newest first, in chunks of bounded
        size.
        """
        ...

    async def check(self) -> None:
        """Look through all that is stored for damage that would hide events from a reader. Raises
        `DamagedStore`.

        What was changed in an event it does not find: the hash chain shows that.
        """
        ...

    async def aclose(self) -> None:
        """Let go of files and threads. May be called twice; nothing may be called after it."""
        ...
