"""The shared store as one process reaches it: each use may fail, and the world records what it did."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol, TypeVar, cast

import trio

from refold.store.checks import Pages
from refold.store.protocol import Claim, Head, Lease, Record, Snapshot, Stored, StoreUnavailable
from refold.testing.simulation.faults import Kind, Point
from refold.testing.simulation.world import World

Result = TypeVar("Result")


class Passage(Protocol):
    """The process whose uses of the store may fail: see `Process`."""

    world: World
    number: int
    latency: float

    async def through(self, point: Point, act: Callable[[], Awaitable[Result]]) -> Result:
        """Perform `act`, with the fault that is planned for this use of `point`."""
        ...

    async def die(self) -> object:
        """Kill the process."""
        ...


class ProcessStore:
    """The store of one process. Its methods are those of `Store`."""

    def __init__(self, process: Passage) -> None:
        self._process, self._store = process, process.world.store

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        """See `Store.append`. The world records each commit, and each head that was returned."""
        world = self._process.world

        async def act() -> Head:
            head = await self._store.append(run, expected_seq, lease, records, release=release)
            world.commit(self._process.number, lease, head, records)
            kinds = [record.kind for record in records]
            world.note(lambda: f"p{self._process.number} {run} @{expected_seq + 1} {' '.join(kinds)}")
            return head

        head = await self._through(Point.APPEND, act)
        world.acknowledge(run, head)
        if world.endless:
            await self._process.die()
        return head

    async def head(self, run: str) -> Head:
        """See `Store.head`."""
        return await self._through(Point.HEAD, lambda: self._store.head(run))

    def read(
        self, run: str, after: int = 0, upto: int | None = None, *, checked: bool = True
    ) -> Pages[Stored]:
        """See `Store.read`."""
        pages = self._store.read(run, after, upto, checked=checked)

        async def following() -> Sequence[Stored]:
            return await self._through(Point.READ, lambda: _next_page(pages))

        return Pages(following)

    async def read_some(self, run: str, seqs: Sequence[int], *, checked: bool = True) -> Sequence[Stored]:
        """See `Store.read_some`."""
        return await self._through(Point.READ, lambda: self._store.read_some(run, seqs, checked=checked))

    async def read_kinds(self, run: str, kinds: Collection[str]) -> Sequence[Stored]:
        """See `Store.read_kinds`."""
        return await self._through(Point.READ, lambda: self._store.read_kinds(run, kinds))

    async def lease(self, run: str, *, holder: str, seconds: float = 30.0, over: int | None = None) -> Lease:
        """See `Store.lease`. The world records each lease that was granted."""

        async def act() -> Lease:
            lease = await self._store.lease(run, holder=holder, seconds=seconds, over=over)
            self._process.world.grant(lease)
            return lease

        return await self._through(Point.LEASE, act)

    async def renew(self, lease: Lease, seconds: float = 30.0) -> None:
        """See `Store.renew`."""
        await self._through(Point.RENEW, lambda: self._store.renew(lease, seconds))

    async def release(self, lease: Lease, after: float | None = None) -> None:
        """See `Store.release`."""
        await self._through(Point.RELEASE, lambda: self._store.release(lease, after))

    async def wake(self, run: str) -> None:
        """See `Store.wake`."""
        await self._through(Point.CLAIM, lambda: self._store.wake(run))

    async def claim(self, run: str) -> Claim | None:
        """See `Store.claim`."""
        return await self._through(Point.CLAIM, lambda: self._store.claim(run))

    async def save_snapshot(self, run: str, snapshot: Snapshot) -> None:
        """See `Store.save_snapshot`."""
        await self._through(Point.SNAPSHOT, lambda: self._store.save_snapshot(run, snapshot))

    async def snapshot(self, run: str, version: str) -> Snapshot | None:
        """See `Store.snapshot`."""
        return await self._through(Point.SNAPSHOT, lambda: self._store.snapshot(run, version))

    async def _through(self, point: Point, act: Callable[[], Awaitable[Result]]) -> Result:
        if self._process.latency:
            await trio.sleep(self._process.latency)
        return await self._process.through(point, act)


async def _next_page(pages: object) -> Sequence[Stored]:
    following = cast("Pages[Stored]", pages)
    try:
        return await anext(following)
    except StopAsyncIteration:
        return ()


def unavailable(kind: Kind) -> StoreUnavailable:
    """Return the error of a store for a fault."""
    return StoreUnavailable(
        "simulated",
        f"as planned ({kind})",
        outcome_known=kind in (Kind.FAIL, Kind.KILL),
    )
