"""A store in memory, with every promise of a store but durability. For tests, and for runs that need not be kept."""

import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import NamedTuple, Self, TypeVar

from msgspec.structs import replace

from refold.reducers.errors import WrongUse
from refold.store.chain import START, extend
from refold.store.checks import (
    BYTES,
    ROWS,
    OwnLog,
    Pages,
    check_append,
    check_erase,
    check_erasure,
    check_holder,
    check_origin,
    check_prefix,
    check_run,
    check_seal,
    inherited,
    milliseconds,
    origin_of,
    traced,
)
from refold.store.protocol import (
    LEASE_SECONDS,
    Claim,
    Conflict,
    Head,
    Held,
    Lease,
    LeaseLost,
    Origin,
    Record,
    Seal,
    SealedElsewhere,
    SealedHead,
    Snapshot,
    Stored,
    UnknownRun,
)

T = TypeVar("T")


class _Claim(NamedTuple):
    holder: str  # "": nobody
    until: float
    length: float
    woken: bool = False


class MemoryStore:
    """A real store that forgets everything at the end.

    Works on every event loop that anyio knows, without threads; belongs to the loop's thread. Every method lets
    other tasks run first, as a store on disk would, so that races show in tests. `now` is its clock, in seconds:
    what leases are counted by.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        # Late: an import of `refold.store` for its types should not load an event loop.
        from anyio.lowlevel import checkpoint

        self._checkpoint, self._now = checkpoint, now
        self._logs: dict[str, list[Stored]] = {}
        self._tokens: dict[str, int] = {}
        self._claims: dict[str, _Claim] = {}
        self._snapshots: dict[str, tuple[Snapshot, bytes]] = {}
        self._heads: list[SealedHead] = []
        self._seals: list[Seal] = []
        self._closed = False

    async def append(self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> Head:
        """See `Store.append`."""
        check_append(run, expected_seq, lease, records)
        await self._turn()
        return self._append(run, expected_seq, lease, records)

    async def head(self, run: str) -> Head:
        """See `Store.head`."""
        check_run(run)
        await self._turn()
        return self._head(run)

    def read(
        self,
        run: str,
        after: int = 0,
        upto: int | None = None,
        *,
        checked: bool = True,  # noqa: ARG002 - nobody edits it
    ) -> AsyncIterator[Sequence[Stored]]:
        """See `Store.read`."""
        check_run(run)
        after = max(after, 0)
        last: int | None = None

        async def following() -> Sequence[Stored]:
            nonlocal after, last
            await self._turn()
            log = self._whole(run)
            if last is None:  # fixed once: a reader must come to an end, however fast the log grows
                last = len(log) if upto is None else min(len(log), max(upto, 0))
            page = _page(log, after, last)
            after += len(page)
            return page

        return Pages(following)

    async def read_some(
        self,
        run: str,
        seqs: Sequence[int],
        *,
        checked: bool = True,  # noqa: ARG002 - as `read`
    ) -> Sequence[Stored]:
        """See `Store.read_some`."""
        check_run(run)
        await self._turn()
        log = self._whole(run)
        return [log[seq - 1] for seq in sorted(set(seqs)) if 0 < seq <= len(log)]

    async def read_kinds(self, run: str, kinds: Collection[str]) -> Sequence[Stored]:
        """See `Store.read_kinds`."""
        check_run(run)
        await self._turn()
        return [stored for stored in self._whole(run) if stored.kind in kinds]

    async def lineage(self, run: str) -> Sequence[Origin]:
        """See `Store.lineage`."""
        check_run(run)
        await self._turn()
        return traced(run, self._own)

    async def erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head:
        """See `Store.erase`."""
        check_erasure(run, expected_seq, lease, seqs, notice)
        await self._turn()
        log = self._whole(run)
        self._check(run, expected_seq, lease)
        for seq in seqs:
            if 0 < seq <= len(log) and log[seq - 1].run != run:
                raise inherited(run, seq, log[seq - 1].run)
            check_erase(run, len(log), seq, log[seq - 1].content_digest if 0 < seq <= len(log) else None)
        own = self._logs[run]
        for seq in seqs:
            own[seq - own[0].seq] = replace(log[seq - 1], content=None, salt=b"")
        for each in [run, *(fork for fork, begun in self._logs.items() if begun[0].seq > 1)]:
            self._snapshots.pop(each, None)
        return self._append(run, expected_seq, lease, [notice])

    async def lease(
        self, run: str, *, holder: str, seconds: float = LEASE_SECONDS, over: int | None = None
    ) -> Lease:
        """See `Store.lease`."""
        check_run(run)
        check_holder(holder)
        milliseconds(seconds)
        await self._turn()
        held = self._claim(run)
        if held and held.holder and held.seconds > 0 and held.token != over:
            raise Held(run, held.holder, held.token, held.seconds)
        self._claims[run] = _Claim(holder, self._now() + seconds, seconds)
        return Lease(run=run, token=self._fence(run))

    async def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> None:
        """See `Store.renew`."""
        milliseconds(seconds)
        await self._turn()
        current = self._tokens.get(lease.run, 0)
        if lease.token != current:
            raise LeaseLost(lease.run, lease.token, current)
        self._claims[lease.run] = self._claims[lease.run]._replace(
            until=self._now() + seconds, length=seconds
        )

    async def release(self, lease: Lease, after: float | None = None) -> None:
        """See `Store.release`."""
        later = None if after is None else milliseconds(max(after, 0.0)) / 1000
        await self._turn()
        if lease.token != self._tokens.get(lease.run, 0):
            return
        self._fence(lease.run)
        if self._claims.pop(lease.run).woken:
            later = 0.0
        if later is not None:
            self._claims[lease.run] = _Claim("", self._now() + later, later)

    async def wake(self, run: str) -> None:
        """See `Store.wake`."""
        check_run(run)
        await self._turn()
        if run not in self._logs:
            raise UnknownRun(run)
        now = self._now()
        claim = self._claims.get(run, _Claim("", now, 0.0))
        if claim.holder:
            self._claims[run] = claim._replace(woken=True)
        else:
            self._claims[run] = _Claim("", min(claim.until, now), 0.0)

    async def due(self, most: int) -> Sequence[str]:
        """See `Store.due`."""
        await self._turn()
        waiting = [claim for run in self._logs if (claim := self._claim(run)) and claim.seconds <= 0]
        return [claim.run for claim in sorted(waiting, key=lambda claim: claim.seconds)[: max(most, 0)]]

    async def claim(self, run: str) -> Claim | None:
        """See `Store.claim`."""
        check_run(run)
        await self._turn()
        return self._claim(run)

    async def save_snapshot(self, run: str, snapshot: Snapshot) -> None:
        """See `Store.save_snapshot`."""
        check_run(run)
        await self._turn()
        own, kept = self._logs.get(run, []), self._snapshots.get(run)
        there = bool(own) and own[0].seq <= snapshot.seq <= own[-1].seq
        if there and not (kept and kept[0].seq >= snapshot.seq):
            self._snapshots[run] = snapshot, own[snapshot.seq - own[0].seq].hash

    async def snapshot(self, run: str, version: str) -> Snapshot | None:
        """See `Store.snapshot`."""
        check_run(run)
        await self._turn()
        kept, hash_ = self._snapshots.get(run, (None, b""))
        if kept is None or kept.version != version or self._whole(run)[kept.seq - 1].hash != hash_:
            return None
        return kept

    async def add_seal(self, heads: Sequence[SealedHead], seal: Seal) -> None:
        """See `Store.add_seal`."""
        check_seal(heads, seal)
        await self._turn()
        expected = seal.size - len(heads)
        if len(self._heads) != expected:
            raise SealedElsewhere(expected, len(self._heads))
        self._heads += heads
        self._seals.append(seal)

    def sealed_heads(self, after: int = 0) -> AsyncIterator[Sequence[SealedHead]]:
        """See `Store.sealed_heads`."""
        return self._pages(self._heads, max(after, 0))

    def seals(self) -> AsyncIterator[Sequence[Seal]]:
        """See `Store.seals`."""
        return self._pages(self._seals, 0)

    def runs(self, prefix: str = "") -> AsyncIterator[Sequence[tuple[str, Head]]]:
        """See `Store.runs`. Runs are as new as their first event."""
        check_prefix(prefix)
        names: list[str] | None = None

        async def following() -> Sequence[tuple[str, Head]]:
            nonlocal names
            await self._turn()
            if names is None:
                names = [run for run in reversed(self._logs) if run.startswith(prefix)]
            page, names = names[:ROWS], names[ROWS:]
            return [(run, self._head(run)) for run in page]

        return Pages(following)

    async def check(self) -> None:
        """See `Store.check`. Memory has no pages that could be damaged."""
        await self._turn()

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _turn(self) -> None:
        if self._closed:
            raise WrongUse("this store is closed")
        await self._checkpoint()

    def _append(self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> Head:
        head = self._forked(run, expected_seq, lease, records[0]) or self._check(run, expected_seq, lease)
        self._logs.setdefault(run, []).extend(extend(run, head, records))
        return self._head(run)

    def _forked(self, run: str, expected_seq: int, lease: Lease, first: Record) -> Head | None:
        """Where a run without events is to go on from, if this record begins it as a fork there."""
        new = expected_seq and run not in self._logs and lease.token == self._tokens.get(run, 0)
        origin = origin_of(expected_seq + 1, first.kind, first.body) if new else None
        if origin is None:
            return None
        log = self._logs.get(origin.run, [])
        there = bool(log) and log[0].seq <= origin.seq <= log[-1].seq
        hashed = log[origin.seq - log[0].seq].hash if there else None
        check_origin(run, origin, hashed, len(traced(origin.run, self._own)) + 1)
        return origin

    def _own(self, run: str) -> OwnLog | None:
        log = self._logs.get(run)
        if not log:
            return None
        return OwnLog(log[0].seq, log[-1].seq, origin_of(log[0].seq, log[0].kind, log[0].body))

    def _whole(self, run: str) -> list[Stored]:
        """The run's log from event 1. Of a run that is no fork it is the log itself."""
        own, before = self._logs.get(run, []), list[Stored]()
        for origin in traced(run, self._own):
            before += self._logs[origin.run][: origin.seq - len(before)]
        return [*before, *own] if before else own

    def _check(self, run: str, expected_seq: int, lease: Lease) -> Head:
        """Where the run's log ends, if it takes an append there."""
        token, head = self._tokens.get(run, 0), self._head(run)
        if lease.token != token:
            raise LeaseLost(run, lease.token, token)
        if head.seq != expected_seq:
            raise Conflict(run, expected_seq, head.seq)
        return head

    def _fence(self, run: str) -> int:
        """Give the run another token: every lease before it is lost."""
        self._tokens[run] = max(self._tokens.get(run, 0) + 1, int(self._now() * 1000))
        return self._tokens[run]

    def _claim(self, run: str) -> Claim | None:
        if (claim := self._claims.get(run)) is None:
            return None
        now = self._now()
        if claim.until > now + claim.length:  # the clock was set back
            claim = self._claims[run] = claim._replace(until=now + claim.length)
        return Claim(run=run, holder=claim.holder, token=self._tokens[run], seconds=claim.until - now)

    def _pages(self, entries: Sequence[T], after: int) -> AsyncIterator[Sequence[T]]:
        async def following() -> Sequence[T]:
            nonlocal after
            await self._turn()
            page = entries[after : after + ROWS]
            after += len(page)
            return page

        return Pages(following)

    def _head(self, run: str) -> Head:
        log = self._logs.get(run)
        return Head(seq=log[-1].seq, hash=log[-1].hash) if log else START


def _page(log: Sequence[Stored], after: int, upto: int) -> Sequence[Stored]:
    """The events with `after < seq <= upto`, as far as they fit one chunk."""
    page, size = list[Stored](), 0
    for event in log[after : min(upto, after + ROWS)]:
        if size >= BYTES:
            break
        page.append(event)
        size += len(event.body) + len(event.content or b"")
    return page
