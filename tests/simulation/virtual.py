"""Virtual time and seeded scheduling: a schedule takes no real time, and a seed gives the same one again."""

import math
import random
from collections.abc import Awaitable, Callable, Iterator, MutableSequence
from contextlib import contextmanager
from typing import Any, TypeVar

import trio

import refold.engine.agent
import refold.engine.clock
import refold.engine.run
from refold.reducers.guards import BUILTIN, Registry

_NANO = 1_000_000_000
START = 1_700_000_000
"""Seconds since the Unix epoch at which every simulated wall clock begins."""

_PATIENCE = 100
_MOST = 30_000
"""Looks at the clock in one schedule: each turn of the event loop is one, and a schedule has a few thousand.
"""

Result = TypeVar("Result")


class Stuck(AssertionError):
    """Nothing would ever happen again, or the same for ever."""


class VirtualTime(trio.abc.Clock):
    """Time that stands still while anything can run, and jumps to the next deadline when nothing can."""

    def __init__(self) -> None:
        self._now = 0.0
        self._idle = self._looks = 0

    def start_clock(self) -> None:
        """It begins at 0."""

    def current_time(self) -> float:
        """Seconds since the beginning."""
        self._looks += 1
        if self._looks > _MOST:
            raise Stuck("the tasks go round in a circle")
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Trio asks when nothing can run: that is the moment to jump."""
        # Trio wakes itself by a socket now and then, so nothing may be due for a moment.
        self._idle = self._idle + 1 if deadline == math.inf else 0
        if self._idle > _PATIENCE:
            raise Stuck("every task waits, and none of them for an instant")
        if not self._idle:
            self._now = max(self._now, deadline)
        return 0


class WallClock:
    """The wall clock that all processes and the store share; it may be set while they run.

    Stands in for `time`.
    """

    def __init__(self) -> None:
        self.ahead = 0.0  # seconds that somebody has set it forward by, or back if less than 0

    def seconds(self) -> float:
        """Seconds since the Unix epoch, as the clock says."""
        return START + self.ahead + trio.current_time()

    def time_ns(self) -> int:
        """See `time.time_ns`."""
        return int(self.seconds() * _NANO)

    def monotonic_ns(self) -> int:
        """See `time.monotonic_ns`: nobody can set this one."""
        return int(trio.current_time() * _NANO)


class Order(random.Random):
    """The order in which tasks run, from a seed; and which of them do not, because their process stands
    still.

    `owner` tells a task's process. Trio asks for an order once a turn of its loop: see `_scheduled_by`.
    """

    def __init__(self, seed: int, owner: Callable[[trio.lowlevel.Task], object]) -> None:
        super().__init__(seed)
        self._owner = owner
        self._frozen: dict[object, list[trio.lowlevel.Task]] = {}

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Put the tasks that are to run in order, and those that stand still aside."""
        super().shuffle(x)
        if self._frozen:
            for task in [task for task in x if self._owner(task) in self._frozen]:
                self._frozen[self._owner(task)].append(task)
                x.remove(task)

    def freeze(self, owner: object, seconds: float) -> None:
        """Nothing of this process runs for so long, its timers neither: then they all ring at once."""
        self._frozen.setdefault(owner, [])
        trio.lowlevel.spawn_system_task(self._thaw, owner, seconds)

    async def _thaw(self, owner: object, seconds: float) -> None:
        await trio.sleep(seconds)
        trio._core._run.GLOBAL_RUN_CONTEXT.runner.runq.extend(self._frozen.pop(owner, ()))


def run(order: Order, wall: WallClock, main: Callable[[], Awaitable[Result]]) -> Result:
    """Run `main` from virtual instant 0. Raises `trio.TrioInternalError` from `Stuck` where nothing goes
    on.
    """
    with _scheduled_by(order), instead(refold.engine.clock, "time", wall), _packages_read_once():
        return trio.run(main, clock=VirtualTime())


@contextmanager
def instead(owner: object, name: str, value: object) -> Iterator[None]:
    """Another value for an attribute, for as long as the block runs."""
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


@contextmanager
def _scheduled_by(order: Order) -> Iterator[None]:
    """Trio's order of tasks from a seed, as its own tests under Hypothesis have it."""
    scheduler = trio._core._run
    with (
        instead(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        instead(scheduler, "_r", order),
    ):
        yield


@contextmanager
def _packages_read_once() -> Iterator[None]:
    """What an agent reads of the installed packages is 7 ms of disk each time: as much as a whole
    schedule.
    """

    def guards() -> Registry:
        return dict(BUILTIN)

    def versions() -> dict[str, str]:
        return {"refold": "simulated"}

    agents, runs = refold.engine.agent, refold.engine.run
    with (
        instead(agents, "installed_guards", guards),
        instead(agents, "versions", versions),
        instead(runs, "versions", versions),
    ):
        yield
