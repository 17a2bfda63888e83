"""How many runs go on in one turn of their event loop.

A loop runs all that is ready before it looks at its clocks and sockets again. Of hundreds of runs that are ready at
once, each with a tenth of a millisecond of work, everything else that lives there would wait for tens of milliseconds.
"""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import RunVar, checkpoint

from refold.engine.background import Background

AT_ONCE = 8
"""Runs that go on in one turn of the loop: about a millisecond."""


class Pace:
    """Lets the runs of one event loop go on in the order in which they come, a few in each turn of the loop."""

    def __init__(self) -> None:
        self.runs = 0  # that are driven here: as long as they are few, none waits
        self._room = AT_ONCE
        self._waiting: deque[anyio.Event] = deque()
        self._turner: Background | None = None  # gives the turns, as long as there are any to give

    @asynccontextmanager
    async def joined(self) -> AsyncGenerator[None]:
        """A run is driven while the block runs, which it begins at its turn."""
        self.runs += 1
        try:
            await self.turn()
            yield
        finally:
            self.runs -= 1

    async def turn(self) -> None:
        """Wait until it is this run's turn, if there are many."""
        if self.runs <= AT_ONCE:
            return
        if self._turner is None or self._turner.over:
            self._turner = Background(self._turns)
        if self._room and not self._waiting:
            self._room -= 1
            return
        mine = anyio.Event()
        self._waiting.append(mine)
        await mine.wait()

    async def _turns(self) -> None:
        try:
            while self._waiting or self._room < AT_ONCE:
                await checkpoint()
                self._room = AT_ONCE
                while self._waiting and self._room:
                    self._room -= 1
                    self._waiting.popleft().set()
        finally:
            while self._waiting:  # it was cancelled: nothing else would wake them
                self._waiting.popleft().set()


_PACE: RunVar[Pace] = RunVar("refold_pace")


def pace() -> Pace:
    """That of this event loop."""
    try:
        return _PACE.get()
    except LookupError:
        made = Pace()
        _PACE.set(made)
        return made
