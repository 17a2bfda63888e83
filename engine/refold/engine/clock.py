"""Clocks, chance, and the makers of facts.

An instant is max(the log's last, the wall clock when the engine took the run up) + what a monotonic clock has
counted since. Only facts carry it on from here.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import anyio
from msgspec.structs import replace

from refold.reducers.effects import Effect
from refold.reducers.events import Fact, LateResult
from refold.reducers.state import RunState

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


Salts = Callable[[int], bytes]
"""The salt of the fact that becomes event number so-and-so."""

_SALT_BYTES = 16


def new_run_id() -> str:
    """A new run's id: 16 hex digits. Random from the first, so that short prefixes tell runs apart."""
    return secrets.token_hex(8)


def new_seed() -> int:
    """64 bits that are recorded with the run."""
    return secrets.randbits(63)


def new_salts(chosen: int | None) -> Salts:
    """Random salts; for a chosen seed, salts that follow from it, so that a test's log is the same every
    time.

    A log whose seed was chosen protects erased content less: with the seed it can be guessed.
    """
    if chosen is None:
        return lambda seq: secrets.token_bytes(_SALT_BYTES)  # noqa: ARG005
    return lambda seq: hashlib.sha256(f"{chosen}|{seq}".encode()).digest()[:_SALT_BYTES]


Maker = Callable[[RunState, int, bytes], Fact]
"""(state, at, salt) -> the fact, when its turn in the queue has come."""

LateMaker = Callable[[RunState, int, bytes], LateResult]
"""The same for a result for which nothing waits any more."""

FactT = TypeVar("FactT", bound=Fact)


def maker(fact: FactT, complete: Callable[[RunState, FactT, bytes], Fact]) -> Maker:
    """Gives the fact its instant, and has it completed with what was said: `complete(state, fact, salt)`."""
    return lambda state, at, salt: complete(state, replace(fact, at=at), salt)


def recorded(fact: Fact) -> Maker:
    """The fact as it stands, with the instant that it has."""
    return lambda state, at, salt: fact  # noqa: ARG005
