"""A process: one engine over the shared store. Each use of a component may fail, suspend or kill it."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from enum import StrEnum, unique
from typing import NoReturn, Protocol, TypeVar, cast

import msgspec
import trio

from refold.engine import Delegated, Finished, Recorded, Run, RunResult, Streamed
from refold.reducers.errors import RefoldError
from refold.reducers.machine import TERMINAL
from refold.store.protocol import Store
from refold.testing.simulation.faults import Kind, Point
from refold.testing.simulation.process_store import ProcessStore, unavailable
from refold.testing.simulation.violations import ViolationKind
from refold.testing.simulation.world import World

PATIENCE = 5_000.0
"""Virtual seconds for which a process waits for its run: longer than any wait in our policies."""

STILL = 100.0
"""Virtual seconds for which a process is suspended, or a response is late: longer than a lease lasts."""

_MOMENT = 1.0  # seconds: shorter than the time between two renewals of a lease
_HOUR = 3600.0

Result = TypeVar("Result")


@unique
class End(StrEnum):
    """How a process ended."""

    ENDED = "ended"
    WAITS = "waits"
    KILLED = "killed"
    STOPPED = "stopped"
    FAILED = "failed"


class Ending(msgspec.Struct, frozen=True):
    """How a process ended, and its error if it failed."""

    end: End
    error: Exception | None = None


class Rival(Protocol):
    """Starts another engine for the run."""

    def __call__(self, delay: float, *, force: bool) -> None:
        """Start it after `delay` virtual seconds, and return at once; `force`: it takes the run over."""
        ...


class Dependent(Protocol):
    """What ends with a process, without being notified, such as a tool at work."""

    def freeze(self) -> None:
        """Stop for good, wherever it is."""
        ...


def _start_nothing(delay: float, *, force: bool) -> None:
    """Start no other engine."""


class Process:
    """One engine.

    Args:
        world: the world that it shares with other processes.
        number: its number in the schedule, from 1.
        latency: virtual seconds that each use of the store takes.
        patience: virtual seconds after which a run that did not end is a violation.
    """

    def __init__(self, world: World, number: int, latency: float = 0.0, patience: float = PATIENCE) -> None:
        self.world, self.number, self.latency = world, number, latency
        self.dead = False
        self.resumed_at = 0.0  # virtual second at which its last suspension ends
        self.struck: set[Kind] = set()  # faults that this engine met
        self.store = cast("Store", ProcessStore(self))
        self.run: Run | None = None
        self.start_rival: Rival = _start_nothing
        self.dependents: list[Dependent] = []
        self._allowed = patience
        self._scope = trio.CancelScope()
        self._awaiting = trio.CancelScope()
        self._patience = trio.CancelScope()

    async def live(self, run: Run, answers: Callable[[Run], Awaitable[bool]]) -> Ending:
        """Drive the run until it ends or waits, or until something stops this process.

        Args:
            run: the run, not begun yet.
            answers: called when the run waits; it may answer, and returns whether it did.
        """
        self.world.living += 1
        try:
            return await self._drive_bounded(run, answers)
        finally:
            self.world.living -= 1
            self.world.dead.add(f"p{self.number}")  # a process ends with its engine

    async def _drive_bounded(self, run: Run, answers: Callable[[Run], Awaitable[bool]]) -> Ending:
        self.run = run
        with self._scope:
            self._patience.deadline = trio.current_time() + self._allowed
            with self._patience, self._awaiting:
                ending = await self._drive(run)
                while ending.end is End.WAITS and await answers(run):
                    ending = await self._drive(run)
                return ending
            if self._patience.cancelled_caught and Kind.HANG not in self.struck:
                self.world.violate(
                    ViolationKind.ENDLESS_RUN,
                    f"run {run.id}: process {self.number} drove it for {self._allowed:g} s, and it did not end",
                )
            return Ending(End.STOPPED)
        return Ending(End.KILLED)

    async def through(
        self,
        point: Point,
        act: Callable[[], Awaitable[Result]],
        error: Callable[[Kind], Exception] | None = None,
    ) -> Result:
        """Perform `act`, with the fault that is planned for this use of `point`.

        Raises what `error` returns for the kind of fault, by default `StoreUnavailable`.
        """
        if self.dead:
            raise unavailable(Kind.KILL)
        kind = self.strike(point)
        await self._before(kind, error or unavailable)
        result = await act()
        await self._after(kind)
        if self.dead:
            raise unavailable(Kind.KILL)
        return result

    def strike(self, point: Point) -> Kind | None:
        """Count a use of `point`, and return the fault that is planned for it."""
        kind = self.world.faults.next(point)
        if kind is not None:
            self.struck.add(kind)
            self.world.note(lambda: f"p{self.number} {point} -> {kind}")
        return kind

    def kill(self) -> None:
        """Kill this process: its tasks end, and nothing that it does from now on has any effect."""
        self.dead = True
        self.world.kills += 1
        self.world.dead.add(f"p{self.number}")
        for dependent in self.dependents:
            dependent.freeze()
        self._scope.cancel()

    async def die(self) -> NoReturn:
        """Kill this process from one of its own tasks."""
        self.kill()
        await trio.sleep_forever()
        raise AssertionError("a dead process went on")

    def disturb(self, kind: Kind | None) -> None:
        """Let a fault happen that needs no task of its own: all but errors, hangs and late responses."""
        match kind:
            case Kind.KILL:
                self.kill()
            case Kind.STOP:
                self._awaiting.cancel()
            case Kind.CANCEL:
                assert self.run is not None
                self.run.cancel("the simulation cancels it", by="ann")
            case Kind.PAUSE:
                self.start_rival(STILL / 3, force=False)
                self.world.order.freeze(self, STILL)
                self.resumed_at = trio.current_time() + STILL
            case Kind.BACK | Kind.FORTH:
                self.world.wall.ahead += _HOUR if kind is Kind.FORTH else -_HOUR
            case _:
                pass

    def limit_hang(self) -> None:
        """Wait less long for the run, because something hangs."""
        self._patience.deadline = min(self._patience.deadline, trio.current_time() + 2 * STILL)

    async def _before(self, kind: Kind | None, error: Callable[[Kind], Exception]) -> None:
        match kind:
            case Kind.FAIL | Kind.LOSE:
                raise error(kind)
            case Kind.HANG:
                self.limit_hang()
                await trio.sleep_forever()
            case Kind.KILL:
                await self.die()
            case Kind.ROB:
                self.start_rival(0.0, force=True)
                await trio.sleep(_MOMENT)
                raise error(kind)
            case Kind.PAUSE:
                self.disturb(kind)
                await trio.lowlevel.checkpoint()
            case _:
                self.disturb(kind)

    async def _after(self, kind: Kind | None) -> None:
        match kind:
            case Kind.TEAR:
                raise unavailable(kind)
            case Kind.SLOW:
                await trio.sleep(STILL)
            case Kind.LATE:
                await self.die()
            case _:
                pass

    async def _drive(self, run: Run) -> Ending:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, run, nursery)
            return await self._await(run)

    async def _await(self, run: Run) -> Ending:
        try:
            result: RunResult = await run.result()
        except Exception as error:
            line = f"p{self.number} {run.id} raised {error!r}"
            self.world.note(lambda: line)
            return Ending(End.FAILED, error)
        self.world.note(lambda: f"p{self.number} {run.id} is {result.state} ({result.outcome.code})")
        return Ending(End.ENDED if result.state in TERMINAL else End.WAITS)

    async def _watch(self, run: Run, nursery: trio.Nursery) -> None:
        """Check the updates of a run until it stops, and those of its child runs."""
        begun, finished = set[int](), list[int]()
        try:
            async for update in run.updates():
                if self.dead:
                    return
                match update:
                    case Recorded(seq=seq, event=event):
                        self.world.report(run.id, seq, event)
                    case Streamed(request=request):
                        begun.add(request)
                        if request in finished:
                            self._break_stream(f"run {run.id}: stream {request} continued after it finished")
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
            self._break_stream(f"run {run.id}: streams {sorted(begun)} began, and {finished} finished")

    def _break_stream(self, text: str) -> None:
        self.world.violate(ViolationKind.BROKEN_STREAM, text)


current: ContextVar[Process] = ContextVar("current")
"""The process that runs a task."""

part: ContextVar[Dependent | None] = ContextVar("part", default=None)
"""The part of its process to which a task belongs, such as a tool at work."""
