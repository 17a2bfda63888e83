"""A process: one engine over the shared store, which may fail, stand still or die at any use of anything."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from enum import StrEnum, unique
from typing import NoReturn, Protocol, TypeVar, cast

import msgspec
import trio

from refold.engine import Delegated, Finished, Recorded, Run, RunResult, Streamed
from refold.reducers.errors import RefoldError
from refold.reducers.machine import TERMINAL
from refold.store.checks import Pages
from refold.store.protocol import (
    Claim,
    Head,
    Lease,
    Record,
    Snapshot,
    Store,
    Stored,
    StoreUnavailable,
)
from simulation.faults import Kind, Point
from simulation.world import World

PATIENCE = 5_000.0
"""Seconds after which whoever awaits a run gives up: longer than any wait that a policy here can ask for."""

_STILL = (
    100.0  # seconds for which a process stands still, or an answer is late: longer than a lease is good for
)
_MOMENT = 1.0  # seconds: shorter than the time between two renewals of a lease
_HOUR = 3600.0

Result = TypeVar("Result")


@unique
class End(StrEnum):
    """How a life of a process ended."""

    ENDED = "ended"
    WAITS = "waits"
    KILLED = "killed"
    STOPPED = "stopped"
    FAILED = "failed"


class Ending(msgspec.Struct, frozen=True):
    """How a life of a process ended, and the error if it was one."""

    end: End
    error: Exception | None = None


class Rival(Protocol):
    """Starts another engine on the run, so many seconds from now; with `force`, whoever has it now."""

    def __call__(self, delay: float, *, force: bool) -> None:
        """Start it, and return at once."""
        ...


def _nobody(delay: float, *, force: bool) -> None:
    """There is no other engine."""


class Process:
    """One engine. `latency` is the virtual seconds that each use of the store takes."""

    def __init__(self, world: World, number: int, latency: float = 0.0) -> None:
        self.world, self.number, self.latency = world, number, latency
        self.dead = False
        self.struck: set[Kind] = set()  # what went wrong here, as far as the engine can tell
        self.store = cast("Store", ProcessStore(self))
        self.run: Run | None = None
        self.rivalled: Rival = _nobody
        self._scope = trio.CancelScope()
        self._awaiting = trio.CancelScope()
        self._patience = trio.CancelScope()

    async def live(self, run: Run, answers: Callable[[Run], Awaitable[bool]]) -> Ending:
        """Drive the run until it ends, waits, or something stops this process.

        `answers` is asked when the run waits, and may answer it; False: nobody does.
        """
        try:
            return await self._lived(run, answers)
        finally:
            self.world.dead.add(f"p{self.number}")  # a process ends with its engine

    async def _lived(self, run: Run, answers: Callable[[Run], Awaitable[bool]]) -> Ending:
        self.run = run
        with self._scope:
            self._patience.deadline = trio.current_time() + PATIENCE
            with self._patience, self._awaiting:
                ending = await self._driven(run)
                while ending.end is End.WAITS and await answers(run):
                    ending = await self._driven(run)
                return ending
            if self._patience.cancelled_caught and Kind.HANG not in self.struck:
                self.world.wrong(f"process {self.number}: nothing came of run {run.id} in {PATIENCE:g} s")
            return Ending(End.STOPPED)
        return Ending(End.KILLED)

    async def through(
        self,
        point: Point,
        act: Callable[[], Awaitable[Result]],
        error: Callable[[Kind], Exception] | None = None,
    ) -> Result:
        """Use something of the world, with what is planned to go wrong there."""
        if self.dead:
            raise _unavailable(Kind.KILL)
        kind = self.world.faults.next(point)
        if kind is not None:
            self.struck.add(kind)
            self.world.say(lambda: f"p{self.number} {point} -> {kind}")
        await self._before(kind, error or _unavailable)
        result = await act()
        await self._after(kind)
        if self.dead:
            raise _unavailable(Kind.KILL)
        return result

    async def die(self) -> NoReturn:
        """Kill this process: its tasks end, and nothing it does from now on has any effect."""
        self.dead = True
        self.world.kills += 1
        self.world.dead.add(f"p{self.number}")
        self._scope.cancel()
        await trio.sleep_forever()
        raise AssertionError("a dead process went on")

    async def _before(self, kind: Kind | None, error: Callable[[Kind], Exception]) -> None:
        match kind:
            case Kind.FAIL | Kind.LOSE:
                raise error(kind)
            case Kind.HANG:
                self._patience.deadline = min(self._patience.deadline, trio.current_time() + 2 * _STILL)
                await trio.sleep_forever()
            case Kind.KILL:
                await self.die()
            case Kind.STOP:
                self._awaiting.cancel()
            case Kind.CANCEL:
                assert self.run is not None
                self.run.cancel("the simulation says so", by="ann")
            case Kind.ROB:
                self.rivalled(0.0, force=True)
                await trio.sleep(_MOMENT)
                raise error(kind)
            case Kind.PAUSE:
                self.rivalled(_STILL / 3, force=False)
                self.world.order.freeze(self, _STILL)
                await trio.lowlevel.checkpoint()
            case Kind.BACK | Kind.FORTH:
                self.world.wall.ahead += _HOUR if kind is Kind.FORTH else -_HOUR
            case _:
                pass

    async def _after(self, kind: Kind | None) -> None:
        match kind:
            case Kind.TEAR:
                raise _unavailable(kind)
            case Kind.SLOW:
                await trio.sleep(_STILL)
            case Kind.LATE:
                await self.die()
            case _:
                pass

    async def _driven(self, run: Run) -> Ending:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, run, nursery)
            return await self._awaited(run)

    async def _awaited(self, run: Run) -> Ending:
        try:
            result: RunResult = await run.result()
        except Exception as error:
            said = f"p{self.number} {run.id} raised {error!r}"
            self.world.say(lambda: said)
            return Ending(End.FAILED, error)
        self.world.say(lambda: f"p{self.number} {run.id} is {result.state} ({result.outcome.code})")
        return Ending(End.ENDED if result.state in TERMINAL else End.WAITS)

    async def _watch(self, run: Run, nursery: trio.Nursery) -> None:
        """Stay until the run stops, and check what is told of its streams. Its children are watched too."""
        begun, finished = set[int](), list[int]()
        try:
            async for update in run.updates():
                if self.dead:
                    return
                match update:
                    case Recorded(seq=seq, event=event):
                        self.world.told(run.id, seq, event)
                    case Streamed(request=request):
                        begun.add(request)
                        if request in finished:
                            self.world.wrong(f"run {run.id}: stream {request} went on after it finished")
                    case Finished(request=request):
                        finished.append(request)
                    case Delegated(run=child) if child in run.children:
                        nursery.start_soon(self._watch, run.children[child], nursery)
                    case _:
                        pass
        except Exception as error:
            if not isinstance(error, RefoldError) and not self.dead:
                raise
        if not self.dead and (begun - set(finished) or len(finished) != len(set(finished))):
            self.world.wrong(f"run {run.id}: streams {sorted(begun)} began, and {finished} finished")


current: ContextVar[Process] = ContextVar("current")
"""The process in which a task runs."""


class ProcessStore:
    """The shared store, as one process reaches it."""

    def __init__(self, process: Process) -> None:
        self._process, self._store = process, process.world.store

    async def append(self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> Head:
        """See `Store.append`. What was committed is known to the world, what returned is promised."""
        world = self._process.world

        async def act() -> Head:
            head = await self._store.append(run, expected_seq, lease, records)
            world.written(self._process.number, lease, head, records)
            kinds = [record.kind for record in records]
            world.say(lambda: f"p{self._process.number} {run} @{expected_seq + 1} {' '.join(kinds)}")
            return head

        head = await self._through(Point.APPEND, act)
        world.acknowledged(run, head)
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
            return await self._through(Point.READ, lambda: _next(pages))

        return Pages(following)

    async def read_some(self, run: str, seqs: Sequence[int], *, checked: bool = True) -> Sequence[Stored]:
        """See `Store.read_some`."""
        return await self._through(Point.READ, lambda: self._store.read_some(run, seqs, checked=checked))

    async def read_kinds(self, run: str, kinds: Collection[str]) -> Sequence[Stored]:
        """See `Store.read_kinds`."""
        return await self._through(Point.READ, lambda: self._store.read_kinds(run, kinds))

    async def lease(self, run: str, *, holder: str, seconds: float = 30.0, over: int | None = None) -> Lease:
        """See `Store.lease`. What was given is known to the world."""

        async def act() -> Lease:
            lease = await self._store.lease(run, holder=holder, seconds=seconds, over=over)
            self._process.world.leased(lease)
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


async def _next(pages: object) -> Sequence[Stored]:
    following = cast("Pages[Stored]", pages)
    try:
        return await anext(following)
    except StopAsyncIteration:
        return ()


def _unavailable(kind: Kind) -> StoreUnavailable:
    return StoreUnavailable(
        "simulated",
        f"as planned ({kind})",
        outcome_known=kind in (Kind.FAIL, Kind.KILL),
    )
