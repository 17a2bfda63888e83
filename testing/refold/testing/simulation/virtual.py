"""Virtual time and seeded scheduling of tasks.

A schedule takes no real time: when no task can run, the clock jumps to the next deadline. A seed determines
the order of tasks, so the same seed plays the same schedule. Threads are replaced by tasks of the event
loop.
"""

import math
import random
from collections.abc import Awaitable, Callable, Generator, Iterable, MutableSequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

import anyio.to_thread
import trio

import refold.engine.agent
import refold.engine.clock
import refold.engine.loop
import refold.engine.run
import refold.engine.tools.decorator
from refold.engine.compatibility import installed_guards
from refold.reducers.guards import Registry

# trio has no public way to choose the order of tasks; its own tests use these names, too.
_scheduler: Any = import_module("trio._core._run")

_NANO = 1_000_000_000
START = 1_700_000_000
"""Seconds since the Unix epoch at which every simulated wall clock starts."""

_RETRIES = (0.05, 0.2, 1.0)
"""The engine's waits after a failed write, also in tests that make them shorter."""

_IDLE_TURNS = 100
_CLOCK_READS = 100_000
"""Maximum of clock readings in one schedule. Each turn of the event loop is one; up to 31,000 are usual."""

Result = TypeVar("Result")


class Stuck(AssertionError):
    """The tasks of a schedule wait for ever, or run for ever without progress."""


class VirtualTime(trio.abc.Clock):
    """A clock that stands still while any task can run, and jumps to the next deadline otherwise."""

    def __init__(self) -> None:
        self._now = 0.0
        self._idle = self._reads = 0

    def start_clock(self) -> None:
        """Do nothing: the clock starts at 0."""

    def current_time(self) -> float:
        """Return the virtual seconds since the start. Raises `Stuck` after too many readings."""
        self._reads += 1
        if self._reads > _CLOCK_READS:
            raise Stuck("the tasks run for ever and make no progress")
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to the deadline: trio calls this when no task can run. Raises `Stuck` without a deadline."""
        # Trio wakes itself through a socket now and then, so a single turn without a deadline is normal.
        self._idle = self._idle + 1 if deadline == math.inf else 0
        if self._idle > _IDLE_TURNS:
            raise Stuck("every task waits for another one, and no timer is set")
        if not self._idle:
            self._now = max(self._now, deadline)
        return 0


class WallClock:
    """The wall clock of the store and of all processes, in place of the module `time`. Faults can set it."""

    def __init__(self) -> None:
        self.ahead = 0.0  # seconds by which the clock was set forward (negative: back)

    def seconds(self) -> float:
        """Return the seconds since the Unix epoch that the clock shows."""
        return START + self.ahead + trio.current_time()

    def time_ns(self) -> int:
        """Return the wall clock, in nanoseconds."""
        return int(self.seconds() * _NANO)

    def monotonic_ns(self) -> int:
        """Return the monotonic clock, in nanoseconds. Faults cannot set it."""
        return int(trio.current_time() * _NANO)


class Order(random.Random):
    """The order of tasks in each turn of the event loop, from a seed; frozen tasks do not run.

    `owners` returns what a task belongs to: a process, and a tool call in it. While an owner is frozen,
    none of its tasks runs, and its timers ring late, all at once.
    """

    def __init__(self, seed: int, owners: Callable[[trio.lowlevel.Task], Iterable[object]]) -> None:
        super().__init__(seed)
        self._owners = owners
        self._frozen: dict[object, list[trio.lowlevel.Task]] = {}

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Shuffle the tasks that are to run, and remove those of frozen owners. Trio calls this each turn."""
        super().shuffle(x)
        if not self._frozen:
            return
        for task in tuple(x):
            owner = next((each for each in self._owners(task) if each in self._frozen), None)
            if owner is not None:
                self._frozen[owner].append(task)
                x.remove(task)

    def is_frozen(self, owner: object) -> bool:
        """Return whether the tasks of this owner do not run."""
        return owner in self._frozen

    def freeze(self, owner: object, seconds: float = math.inf) -> None:
        """Stop the tasks of this owner for these virtual seconds; by default until `thaw`."""
        self._frozen.setdefault(owner, [])
        if seconds < math.inf:
            trio.lowlevel.spawn_system_task(self._thaw_later, owner, seconds)

    def thaw(self, owner: object) -> None:
        """Let the tasks of this owner run again."""
        _scheduler.GLOBAL_RUN_CONTEXT.runner.runq.extend(self._frozen.pop(owner, ()))

    async def _thaw_later(self, owner: object, seconds: float) -> None:
        await trio.sleep(seconds)
        self.thaw(owner)


class SeededBytes:
    """Random ids and salts from a seed, in place of the module `secrets`."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"bytes {seed}")

    def token_bytes(self, count: int) -> bytes:
        """Return bytes."""
        return self._chance.randbytes(count)

    def token_hex(self, count: int) -> str:
        """Return bytes, in hex."""
        return self._chance.randbytes(count).hex()

    def randbits(self, count: int) -> int:
        """Return an integer of this many bits."""
        return self._chance.getrandbits(count)


ToThread = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a function of a tool in place of a thread."""


def run(
    seed: int,
    order: Order,
    wall: WallClock,
    main: Callable[[], Awaitable[Result]],
    to_thread: ToThread | None = None,
) -> Result:
    """Run `main` from virtual second 0.

    Args:
        seed: determines the random ids and salts of the engine, and the module `random`.
        order: the order of tasks.
        wall: the wall clock of the engine.
        main: the async function to run.
        to_thread: runs functions that the engine would run in threads. Without it, they run at once.

    Raises:
        trio.TrioInternalError: from `Stuck`, if the tasks make no progress.
    """
    with (
        _scheduled_by(order),
        replaced(refold.engine.clock, "time", wall),
        replaced(refold.engine.loop, "AGAIN", _RETRIES),
        replaced(refold.engine.clock, "secrets", SeededBytes(seed)),
        _random_from(seed),
        replaced(anyio.to_thread, "run_sync", _run_for_threads(to_thread or _run_at_once)),
        replaced(refold.engine.tools.decorator, "in_thread", to_thread or _run_at_once),
        _packages_read_once(),
    ):
        return trio.run(main, clock=VirtualTime())


@contextmanager
def replaced(owner: object, name: str, value: object) -> Generator[None]:
    """Replace an attribute while the block runs."""
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


@contextmanager
def _random_from(seed: int) -> Generator[None]:
    """Seed the module `random`, which tools may use, and restore its state afterwards."""
    kept = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(kept)


async def _run_at_once(function: Callable[[], object]) -> object:
    await trio.lowlevel.checkpoint()
    return function()


def _run_for_threads(to_thread: ToThread) -> Callable[..., Awaitable[object]]:
    async def run_sync(function: Callable[..., object], *arguments: object, **options: object) -> object:
        """Stand in for `anyio.to_thread.run_sync`; its options concern threads and have no meaning here."""
        del options
        return await to_thread(lambda: function(*arguments))

    return run_sync


@contextmanager
def _scheduled_by(order: Order) -> Generator[None]:
    """Let trio take its order of tasks from ours, with the switch that its own tests use."""
    deterministic = True
    with (
        replaced(_scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", deterministic),
        replaced(_scheduler, "_r", order),
    ):
        yield


_guards: list[Registry] = []


@contextmanager
def _packages_read_once() -> Generator[None]:
    """Read the installed packages once: each reading takes 7 ms, as much as a whole schedule.

    The recorded versions are constant, so that logs are equal on every machine.
    """
    if not _guards:
        _guards.append(installed_guards())

    def guards() -> Registry:
        return dict(_guards[0])

    def versions() -> dict[str, str]:
        return {"refold": "simulated"}

    agents, runs = refold.engine.agent, refold.engine.run
    with (
        replaced(agents, "installed_guards", guards),
        replaced(agents, "versions", versions),
        replaced(runs, "versions", versions),
    ):
        yield
