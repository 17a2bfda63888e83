"""A store in memory, with every guarantee of a store except durability.

For tests, and for runs that need not be saved.
"""

import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import NamedTuple, TypeVar, TypeVarTuple

from msgspec.structs import replace

from refold.reducers.errors import WrongUse
from refold.store.base import BaseStore, Claims, check_sealed, give_up, refusal
from refold.store.chain import START, extend
from refold.store.checks import (
    BYTES,
    ROWS,
    OwnLog,
    Pages,
    check_erase,
    check_origin,
    inherited_error,
    origin_of,
    trace_lineage,
)
from refold.store.durability import Durability
from refold.store.protocol import (
    Claim,
    Head,
    Lease,
    Origin,
    Record,
    Seal,
    SealedHead,
    Snapshot,
    Stored,
)

T = TypeVar("T")
Args = TypeVarTuple("Args")


class _ClaimRow(NamedTuple):
    holder: str  # "": no engine has the run
    until: float
    length: float
    woken: bool = False


class _Tables:
    """The store's data: logs, tokens, claims and snapshots of runs. `now` is its clock, in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.logs: dict[str, list[Stored]] = {}
        self.snapshots: dict[str, tuple[Snapshot, bytes]] = {}
        self._tokens: dict[str, int] = {}
        self._claims: dict[str, _ClaimRow] = {}

    def token(self, run: str) -> int:
        return self._tokens.get(run, 0)

    def has_events(self, run: str) -> bool:
        return run in self.logs

    def claim(self, run: str) -> Claim | None:
        if (claim := self._claims.get(run)) is None:
            return None
        now = self._now()
        if claim.until > now + claim.length:  # the clock was set back
            claim = self._claims[run] = claim._replace(until=now + claim.length)
        return Claim(run=run, holder=claim.holder, token=self._tokens[run], seconds=claim.until - now)

    def woken(self, run: str) -> bool:
        return self._claims[run].woken

    def fence(self, run: str) -> int:
        self._tokens[run] = max(self.token(run) + 1, int(self._now() * 1000))
        return self._tokens[run]

    def set_claim(self, run: str, holder: str, length: int) -> None:
        self._claims[run] = _ClaimRow(holder, self._now() + length / 1000, length / 1000)

    def renew_claim(self, run: str, length: int) -> None:
        seconds = length / 1000
        self._claims[run] = self._claims[run]._replace(until=self._now() + seconds, length=seconds)

    def drop_claim(self, run: str) -> None:
        self._claims.pop(run, None)

    def wake(self, run: str) -> None:
        now = self._now()
        claim = self._claims.get(run, _ClaimRow("", now, 0.0))
        woken = claim._replace(woken=True) if claim.holder else _ClaimRow("", min(claim.until, now), 0.0)
        self._claims[run] = woken

    def head(self, run: str) -> Head:
        log = self.logs.get(run)
        return Head(seq=log[-1].seq, hash=log[-1].hash) if log else START

    def own(self, run: str) -> OwnLog | None:
        """See `OwnLog`."""
        log = self.logs.get(run)
        if not log:
            return None
        return OwnLog(log[0].seq, log[-1].seq, origin_of(log[0].seq, log[0].kind, log[0].body))

    def whole(self, run: str) -> list[Stored]:
        """Return the run's complete log from event 1."""
        own, before = self.logs.get(run, []), list[Stored]()
        for origin in trace_lineage(run, self.own):
            before += self.logs[origin.run][: origin.seq - len(before)]
        return [*before, *own] if before else own

    def append(self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> Head:
        """See `Store.append`."""
        head = self._find_fork(run, expected_seq, lease, records[0]) or self.check_append(
            run, expected_seq, lease
        )
        self.logs.setdefault(run, []).extend(extend(run, head, records))
        return self.head(run)

    def check_append(self, run: str, expected_seq: int, lease: Lease) -> Head:
        """Return the run's head. Raises `Conflict` or `LeaseLost` if the append is refused."""
        head = self.head(run)
        if refused := refusal(run, self.token(run), head.seq, expected_seq, lease):
            raise refused
        return head

    def _find_fork(self, run: str, expected_seq: int, lease: Lease, first: Record) -> Head | None:
        """Return the event that a new run continues if `first` makes it a fork there, else None."""
        new = expected_seq and run not in self.logs and lease.token == self.token(run)
        origin = origin_of(expected_seq + 1, first.kind, first.body) if new else None
        if origin is None:
            return None
        log = self.logs.get(origin.run, [])
        there = bool(log) and log[0].seq <= origin.seq <= log[-1].seq
        hashed = log[origin.seq - log[0].seq].hash if there else None
        check_origin(run, origin, hashed, len(trace_lineage(origin.run, self.own)) + 1)
        return origin


class MemoryStore(BaseStore):
    """A complete store without persistence.

    Works on every event loop that anyio supports, without threads; belongs to the loop's thread. Every method
    lets other tasks run first, as a store on disk would, so that races show in tests; unless `waits` is
    False, which needs no event loop. `now` is the clock of its leases, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, *, waits: bool = True) -> None:
        # Imported here, so that importing `refold.store` for its types does not load an event loop.
        from anyio.lowlevel import checkpoint

        self._checkpoint = checkpoint if waits else None
        self._tables = _Tables(now)
        self._heads: list[SealedHead] = []
        self._sealed: list[Seal] = []
        self._closed = False

    def seals(self) -> AsyncIterator[Sequence[Seal]]:
        """See `Store.seals`."""
        return self._list_pages(self._sealed, 0)

    async def check(self) -> None:
        """See `Store.check`. Memory has no pages that could be damaged."""
        await self._turn()

    async def durability(self) -> Durability:
        """See `Store.durability`. Memory ends with the process."""
        return Durability(power_cut=False, loss=False, gaps=("that any event outlives this process",))

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        self._closed = True

    async def _turn(self) -> _Tables:
        if self._closed:
            raise WrongUse("this store is closed")
        if self._checkpoint is not None:
            await self._checkpoint()
        return self._tables

    def _hold(self, run: str, records: Sequence[Record], after: int = 0) -> None:
        """Add events to a log; `after` is the last event before them, in a parent's log for a new fork."""
        self._tables.append(run, after, Lease(run=run, token=0), records)

    async def _transact(self, rule: Callable[[Claims, *Args], T], *args: *Args) -> T:
        return rule(await self._turn(), *args)

    async def _append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool
    ) -> Head:
        tables = await self._turn()
        head = tables.append(run, expected_seq, lease, records)
        if release:
            give_up(tables, run)
        return head

    async def _head(self, run: str) -> Head:
        return (await self._turn()).head(run)

    def _pages(
        self,
        run: str,
        after: int,
        upto: int | None,
        *,
        checked: bool,  # noqa: ARG002 - memory is not edited
    ) -> AsyncIterator[Sequence[Stored]]:
        after = max(after, 0)
        last: int | None = None

        async def following() -> Sequence[Stored]:
            nonlocal after, last
            log = (await self._turn()).whole(run)
            if last is None:  # fixed once, so that the reader ends even if the log grows
                last = len(log) if upto is None else min(len(log), max(upto, 0))
            page = _page(log, after, last)
            after += len(page)
            return page

        return Pages(following)

    async def _read_some(
        self,
        run: str,
        seqs: Sequence[int],
        *,
        checked: bool,  # noqa: ARG002 - as `_pages`
    ) -> Sequence[Stored]:
        log = (await self._turn()).whole(run)
        return [log[seq - 1] for seq in sorted(set(seqs)) if 0 < seq <= len(log)]

    async def _read_kinds(self, run: str, kinds: Collection[str]) -> Sequence[Stored]:
        return [stored for stored in (await self._turn()).whole(run) if stored.kind in kinds]

    async def _lineage(self, run: str) -> Sequence[Origin]:
        return trace_lineage(run, (await self._turn()).own)

    async def _erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head:
        tables = await self._turn()
        log = tables.whole(run)
        tables.check_append(run, expected_seq, lease)
        for seq in seqs:
            if 0 < seq <= len(log) and log[seq - 1].run != run:
                raise inherited_error(run, seq, log[seq - 1].run)
            check_erase(run, len(log), seq, log[seq - 1].content_digest if 0 < seq <= len(log) else None)
        own = tables.logs[run]
        for seq in seqs:
            own[seq - own[0].seq] = replace(log[seq - 1], content=None, salt=b"")
        for each in [run, *(fork for fork, begun in tables.logs.items() if begun[0].seq > 1)]:
            tables.snapshots.pop(each, None)
        return tables.append(run, expected_seq, lease, [notice])

    async def _due(self, most: int) -> Sequence[str]:
        tables = await self._turn()
        waiting = [claim for run in tables.logs if (claim := tables.claim(run)) and claim.seconds <= 0]
        return [claim.run for claim in sorted(waiting, key=lambda claim: claim.seconds)[:most]]

    async def _claim(self, run: str) -> Claim | None:
        return (await self._turn()).claim(run)

    async def _save_snapshot(self, run: str, snapshot: Snapshot) -> None:
        tables = await self._turn()
        own, kept = tables.logs.get(run, []), tables.snapshots.get(run)
        there = bool(own) and own[0].seq <= snapshot.seq <= own[-1].seq
        if there and not (kept and kept[0].seq >= snapshot.seq):
            tables.snapshots[run] = snapshot, own[snapshot.seq - own[0].seq].hash

    async def _snapshot(self, run: str, version: str) -> Snapshot | None:
        tables = await self._turn()
        kept, hash_ = tables.snapshots.get(run, (None, b""))
        if kept is None or kept.version != version or tables.whole(run)[kept.seq - 1].hash != hash_:
            return None
        return kept

    async def _add_seal(self, heads: Sequence[SealedHead], seal: Seal) -> None:
        await self._turn()
        check_sealed(len(self._heads), heads, seal)
        self._heads += heads
        self._sealed.append(seal)

    def _sealed_heads(self, after: int) -> AsyncIterator[Sequence[SealedHead]]:
        return self._list_pages(self._heads, after)

    def _runs(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, Head]]]:
        names: list[str] | None = None

        async def following() -> Sequence[tuple[str, Head]]:
            nonlocal names
            tables = await self._turn()
            if names is None:
                names = [run for run in reversed(tables.logs) if run.startswith(prefix)]
            page, names = names[:ROWS], names[ROWS:]
            return [(run, tables.head(run)) for run in page]

        return Pages(following)

    def _list_pages(self, entries: Sequence[T], after: int) -> AsyncIterator[Sequence[T]]:
        async def following() -> Sequence[T]:
            nonlocal after
            await self._turn()
            page = entries[after : after + ROWS]
            after += len(page)
            return page

        return Pages(following)


def _page(log: Sequence[Stored], after: int, upto: int) -> Sequence[Stored]:
    """Return the events with `after < seq <= upto` that fit in one chunk."""
    page, size = list[Stored](), 0
    for event in log[after : min(upto, after + ROWS)]:
        if size >= BYTES:
            break
        page.append(event)
        size += len(event.body) + len(event.content or b"")
    return page
