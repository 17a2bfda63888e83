"""Time that passes only when a test says so."""

import anyio
import anyio.lowlevel

from refold.engine.clock import Stopwatch
from refold.reducers.effects import Effect

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


class VirtualClock:
    """An `engine.clock.Clock` that stands still until `advance`.

    `jumps`: whoever sleeps is woken at once, and it is then that late. For runs that only wait between
    attempts.
    """

    def __init__(self, at: int = START, *, jumps: bool = False) -> None:
        self._now = at
        self._jumps = jumps
        self._moved = anyio.Event()

    def start(self, last: int) -> None:
        self._now = max(self._now, last)

    def now(self) -> int:
        return self._now

    def stamp(self) -> int:
        return self._now

    def stopwatch(self, effect: Effect) -> Stopwatch:
        begin = self._now
        return lambda: self._now - begin

    async def sleep_until(self, instant: int) -> None:
        await anyio.lowlevel.checkpoint()
        if self._jumps:
            self._now = max(self._now, instant)
        while self._now < instant:
            await self._moved.wait()

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake whoever waited for it."""
        self._now += int(seconds * SECOND)
        self._moved.set()
        self._moved = anyio.Event()
