"""Time for a run: instants that never fall, whatever the wall clock does.

An instant is max(the log's last, the wall clock when the engine took the run up) + what a monotonic clock has
counted since. Only facts carry it on from here.
"""

import time
from typing import Protocol

import anyio

from refold.reducers.effects import Effect

_NANO = 1_000_000_000


class Stopwatch(Protocol):
    """Counts nanoseconds since it was made."""

    def __call__(self) -> int:
        """Nanoseconds since then."""
        ...


class Clock(Protocol):
    """What the engine wants of time. Instants are integer nanoseconds since the Unix epoch."""

    def start(self, last: int) -> None:
        """The run is taken up; its log's last instant is `last` (0: a new run)."""
        ...

    def now(self) -> int:
        """The present instant."""
        ...

    def stamp(self) -> int:
        """The instant of the next fact. Called once for each fact, in order."""
        ...

    def stopwatch(self, effect: Effect) -> Stopwatch:
        """Begin to measure how long an effect takes."""
        ...

    async def sleep_until(self, instant: int) -> None:
        """Return at `instant` or later."""
        ...


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._base = 0
        self._since = 0

    def start(self, last: int) -> None:
        """Take the wall clock once; from here on the monotonic one counts."""
        self._since = time.monotonic_ns()
        self._base = max(last, time.time_ns())

    def now(self) -> int:
        """The wall clock at the start, and the monotonic time since."""
        return self._base + time.monotonic_ns() - self._since

    def stamp(self) -> int:
        """The present instant."""
        return self.now()

    def stopwatch(self, effect: Effect) -> Stopwatch:  # noqa: ARG002
        """Monotonic nanoseconds from now."""
        begin = time.monotonic_ns()
        return lambda: time.monotonic_ns() - begin

    async def sleep_until(self, instant: int) -> None:
        """Sleep, and look again: a sleeper may wake a little early."""
        while (left := instant - self.now()) > 0:  # noqa: ASYNC110 - what it waits for is time itself
            await anyio.sleep(left / _NANO)
