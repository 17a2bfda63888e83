"""Clocks for tests: the same instants in every run."""

from collections.abc import Callable

import anyio

from refold.engine.clock import Stopwatch
from refold.reducers.effects import Effect
from refold.reducers.vocabulary import NANO

START = 1_767_225_600 * NANO
"""The first instant: 2026-01-01 00:00 UTC, in nanoseconds since the Unix epoch."""

STEP = 1_000_000
"""The time between two facts: a millisecond."""


class FrozenClock:
    """A clock that moves only by a millisecond a fact, and to the instants that a run waits for.

    So the same run has the same instants every time. Waits are as long as with the system's clock, because a
    real model or tool may need them; with `waits=False` they end at once.
    """

    def __init__(self, start: int = START, *, waits: bool = True) -> None:
        self._now = start
        self._waits = waits

    def start(self, last: int) -> None:
        """Continue after the log's last instant."""
        self._now = max(self._now, last)

    def now(self) -> int:
        """Return the present instant, in nanoseconds since the Unix epoch."""
        return self._now

    def stamp(self) -> int:
        """Move on by a millisecond, and return the instant."""
        self._now += STEP
        return self._now

    def stopwatch(self, effect: Effect) -> Stopwatch:  # noqa: ARG002
        """Measure nothing: each effect takes a millisecond."""
        return lambda: STEP

    async def sleep_until(self, instant: int) -> None:
        """Wait, and move to the instant."""
        await anyio.sleep(max(0, instant - self._now) / NANO if self._waits else 0)
        self._now = max(self._now, instant)

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._now += int(seconds * NANO)


def frozen(start: int = START, *, waits: bool = True) -> Callable[[], FrozenClock]:
    """Return a function that makes frozen clocks: for `Agent(clock=frozen())`."""
    return lambda: FrozenClock(start, waits=waits)
