"""What a step of the whole engine costs: asked from outside, as a process of its own. See `engine.py`.

Nothing but steps is in the figures of a step: the clock stands while runs begin and end. `patience` is for
how many CPU seconds a run may go on; then it ends where it is.
"""

import asyncio
import gc
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import msgspec

# A script's own folder is on the path, not the one above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.instant import Instant, agent_of
from bench.serving import TASK, Marks, serve
from refold.engine import Agent
from refold.engine.models.protocol import ModelRequest
from refold.store import MemoryStore, SqliteStore
from refold.store.protocol import Store

WINDOWS = {10: (0, 20), 100: (80, 120), 1_000: (900, 1_100), 10_000: (9_800, 10_000)}
"""Steps over which the mean is taken, by the number that it goes under."""
TICK = 0.002
"""Seconds between two looks at how late the event loop is."""


class Alone(msgspec.Struct):
    """One run: microseconds a step, the mean of all and around some numbers of steps; how many steps it came
    to.
    """

    mean: float
    at: dict[int, float]
    reached: int


class Together(msgspec.Struct):
    """Runs at once: CPU microseconds a step, steps a second by the clock, how many milliseconds late the loop
    was.
    """

    us: float
    rate: float
    lag_p50: float
    lag_p99: float
    lag_max: float


class Counts(msgspec.Struct):
    """Of one step: what was called in the loop's thread, and what the loop was given to do."""

    python: float
    c: float
    tasks: float
    handles: float


class Memory(msgspec.Struct):
    """A run's share, in bytes, of what was allocated and not freed; and characters of text in its window."""

    traced: float
    window: float


class Beginning(msgspec.Struct):
    """CPU milliseconds: an agent, from there to the first request, and from the last request until all is
    closed.
    """

    agent: float
    start: float
    end: float


@asynccontextmanager
async def opened(store: str, folder: str) -> AsyncGenerator[Store]:
    """A new store: `memory`, or a SQLite file in the folder with the durability `fsync` or `process`."""
    if store == "memory":
        yield MemoryStore()
        return
    assert store in ("fsync", "process")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        async with await SqliteStore.open(
            Path(place, "runs.db"), durability="fsync" if store == "fsync" else "process"
        ) as opened:
            yield opened


async def _live(agent: Agent) -> None:
    async with agent.start(TASK) as run:
        await run.result()


async def alone(store: str, folder: str, policy: str, steps: int, texts: str, patience: float) -> Alone:
    """One run of so many steps."""
    marks = Marks(steps)
    until = time.process_time() + patience

    def watch(step: int, _: ModelRequest) -> None:
        marks.request()
        if step and marks.at[-1] > until:
            model.steps = step

    model = Instant(steps, watch, texts)
    async with opened(store, folder) as place:
        await _live(agent_of(model, policy, place, texts))
    reached = len(marks.at) - 1
    at = {number: marks.step(*window) for number, window in WINDOWS.items() if window[1] <= reached}
    return Alone(mean=marks.step(0, reached), at=at, reached=reached)


class _Gate:
    """Holds runs until all have come; then `pass_by` is called, and they go on."""

    def __init__(self, runs: int, pass_by: Callable[[], None]) -> None:
        self._missing = runs
        self._pass_by = pass_by
        self._all = asyncio.Event()

    async def wait(self) -> None:
        """Come, and wait for the others."""
        self._missing -= 1
        if self._missing == 0:
            self._pass_by()
            self._all.set()
        await self._all.wait()


async def _at_once(
    store: Store, policy: str, runs: int, steps: int, begin: Callable[[], None], end: Callable[[], None]
) -> int:
    """Runs at once: `begin` when all have their first request, `end` when all have their last.

    Their windows' characters.
    """
    first, last, characters = _Gate(runs, begin), _Gate(runs, end), 0

    def watch(step: int, request: ModelRequest) -> Coroutine[Any, Any, None] | None:
        nonlocal characters
        if step == 0:
            return first.wait()
        if step < steps:
            return None
        characters += sum(len(each.text) for each in request.messages)
        return last.wait()

    agents = [agent_of(Instant(steps, watch), policy, store) for _ in range(runs)]
    async with asyncio.TaskGroup() as tasks:
        for agent in agents:
            tasks.create_task(_live(agent))
    return characters


async def together(store: str, folder: str, policy: str, runs: int, steps: int) -> Together:
    """So many runs of so many steps, in one event loop."""
    lags, at = list[float](), list[tuple[float, float]]()
    asleep, tickers = 0.0, list[asyncio.Task[None]]()

    def awake() -> None:
        lags.append(max(0.0, time.perf_counter() - asleep - TICK) * 1000)

    async def tick() -> None:
        nonlocal asleep
        while True:
            asleep = time.perf_counter()
            await asyncio.sleep(TICK)
            awake()

    def begin() -> None:
        nonlocal asleep
        asleep = time.perf_counter()
        tickers.append(asyncio.create_task(tick()))
        at.append((time.process_time(), asleep))

    def end() -> None:
        at.append((time.process_time(), time.perf_counter()))
        awake()  # it still waits, or there was no other
        tickers[0].cancel()

    async with opened(store, folder) as place:
        gc.collect()
        await _at_once(place, policy, runs, steps, begin, end)
    (cpu, wall), (cpu_after, wall_after) = at
    lags.sort()
    p50, p99, most = (lags[int((len(lags) - 1) * share)] for share in (0.5, 0.99, 1))
    return Together(
        us=(cpu_after - cpu) / runs / steps * 1e6,
        rate=runs * steps / (wall_after - wall),
        lag_p50=p50,
        lag_p99=p99,
        lag_max=most,
    )


async def counts(store: str, folder: str, policy: str, skipped: int, steps: int) -> Counts:
    """One run: the steps after those that are skipped.

    A coroutine or generator that goes on is called once more.
    """
    loop, counted = asyncio.get_running_loop(), Counts(python=0, c=0, tasks=0, handles=0)
    handle = asyncio.Handle._run.__code__

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            counted.python += 1
            counted.handles += frame.f_code is handle
        elif event == "c_call":
            counted.c += 1

    def created(loop: asyncio.AbstractEventLoop, coro: Any, **words: Any) -> asyncio.Task[Any]:
        counted.tasks += 1
        return asyncio.Task(coro, loop=loop, **words)

    def watch(step: int, _: ModelRequest) -> None:
        if step == skipped:
            loop.set_task_factory(created)
            sys.setprofile(profile)
        elif step == skipped + steps:
            sys.setprofile(None)
            loop.set_task_factory(None)

    async with opened(store, folder) as place:
        await _live(agent_of(Instant(skipped + steps, watch), policy, place))
    return Counts(**{name: number / steps for name, number in msgspec.structs.asdict(counted).items()})


async def memory(store: str, folder: str, policy: str, runs: int, steps: int) -> Memory:
    """What so many runs hold together after so many steps, each about to be answered for the last time."""
    traced = list[int]()

    def note() -> None:
        gc.collect()
        traced.append(tracemalloc.get_traced_memory()[0])

    async with opened(store, folder) as place:
        await _at_once(place, policy, 1, steps, lambda: None, lambda: None)  # whatever is cached once
        tracemalloc.start()
        note()
        characters = await _at_once(place, policy, runs, steps, lambda: None, note)
        tracemalloc.stop()
    before, after = traced
    return Memory(traced=(after - before) / runs, window=characters / runs)


async def beginning(store: str, folder: str, runs: int) -> Beginning:
    """Runs one after the other that take no step: medians."""
    at = list[float]()
    model = Instant(0, lambda _, __: at.append(time.process_time()))
    agents, starts, ends = list[float](), list[float](), list[float]()
    async with opened(store, folder) as place:
        for _ in range(runs):
            begun = time.process_time()
            agent = agent_of(model, "unpruned", place)
            made = time.process_time()
            await _live(agent)
            ended = time.process_time()
            agents.append(made - begun)
            starts.append(at[-1] - made)
            ends.append(ended - at[-1])
    return Beginning(agent=median(agents) * 1e3, start=median(starts) * 1e3, end=median(ends) * 1e3)


def _case(measure: Callable[..., Coroutine[Any, Any, object]]) -> Callable[..., object]:
    def case(**words: object) -> object:
        gc.collect()
        return msgspec.to_builtins(asyncio.run(measure(**words)), str_keys=True)

    return case


if __name__ == "__main__":
    serve(
        {name: version(name) for name in ("refold", "msgspec", "anyio")},
        {measure.__name__: _case(measure) for measure in (alone, together, counts, memory, beginning)},
    )
