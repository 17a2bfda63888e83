"""Async tests in which time passes at once: on trio, with a clock that jumps to the next deadline."""

from collections.abc import Awaitable, Callable

import anyio
import trio.testing

from refold.engine.clock import Stopwatch
from refold.reducers.effects import Effect
from refold.store import MemoryStore

_NANO = 1_000_000_000
_START = 1_700_000_000 * _NANO


class LoopClock:
    """An `engine.clock.Clock` that goes by the clock of the event loop."""

    def start(self, last: int) -> None:
        """All of them go alike."""

    def now(self) -> int:
        return _START + int(anyio.current_time() * _NANO)

    def stamp(self) -> int:
        return self.now()

    def stopwatch(self, effect: Effect) -> Stopwatch:
        begin = self.now()
        return lambda: self.now() - begin

    async def sleep_until(self, instant: int) -> None:
        while self.now() < instant:  # noqa: ASYNC110 - what it waits for is time itself
            await anyio.sleep((instant - self.now()) / _NANO)


def in_no_time(function: Callable[[], Awaitable[None]]) -> None:
    """Run it; whoever sleeps wakes as soon as nothing else can run."""
    anyio.run(
        function, backend="trio", backend_options={"clock": trio.testing.MockClock(autojump_threshold=0)}
    )


def store() -> MemoryStore:
    """A store whose clock is that of the event loop."""
    return MemoryStore(now=anyio.current_time)
