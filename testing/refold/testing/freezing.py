"""Fixed run ids, seeds and instants for agents that a test does not create itself."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from unittest.mock import patch

import refold.engine.clock
from refold.engine.clock import Clock, SystemClock
from refold.testing.clocks import START, FrozenClock


class Frozen:
    """The frozen clock of new runs. `advance` moves it for runs that begin later."""

    def __init__(self) -> None:
        self.start = START

    def advance(self, seconds: float) -> None:
        """Move the start of later runs forward."""
        self.start += int(seconds * 1_000_000_000)

    def clock_of(self, kind: type[SystemClock]) -> Clock:  # noqa: ARG002
        """Return a clock in place of an instance of the system's."""
        return self.clock()

    def clock(self) -> Clock:
        """Return a clock for a run."""
        return FrozenClock(self.start)


@contextmanager
def freeze() -> Generator[Frozen]:
    """Give new runs the ids `run-1`, `run-2`, ..., seeds counted from 1, derived salts and a frozen clock."""
    frozen = Frozen()
    ids, seeds = count(1), count(1)
    with (
        patch.object(refold.engine.clock, "new_run_id", lambda: f"run-{next(ids)}"),
        patch.object(refold.engine.clock, "new_seed", lambda: next(seeds)),
        patch.object(refold.engine.clock, "new_salts", _salts(refold.engine.clock.new_salts)),
        # Agents hold the class itself: its instances are replaced instead.
        patch.object(SystemClock, "__new__", frozen.clock_of),
    ):
        yield frozen


def _salts(original: Callable[[int | None], refold.engine.clock.Salts]) -> Callable[[int | None], object]:
    return lambda seed: original(1 if seed is None else seed)
