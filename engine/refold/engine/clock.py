"""Clocks, random ids and salts, and makers of facts.

An instant is max(last instant of the log, wall clock when the engine loaded the run) + monotonic time since.
Only facts record it.
"""

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

import anyio
from msgspec.structs import replace

from refold.reducers.effects import Effect
from refold.reducers.events import Fact, LateResult
from refold.reducers.state import RunState
from refold.store.chain import SALT, seeded_salt

_NANO = 1_000_000_000


class Stopwatch(Protocol):
    """Nanoseconds since its creation."""

    def __call__(self) -> int:
        """Return the elapsed nanoseconds."""
        ...


class Clock(Protocol):
    """The time source of a run. Instants are integer nanoseconds since the Unix epoch."""

    def start(self, last: int) -> None:
        """Begin with a run whose log's last instant is `last` (0: a new run)."""
        ...

    def now(self) -> int:
        """Return the present instant."""
        ...

    def stamp(self) -> int:
        """Return the instant of the next fact. Called once for each fact, in order."""
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
        """Read the wall clock once; afterwards the monotonic clock counts."""
        self._since = time.monotonic_ns()
        self._base = max(last, time.time_ns())

    def now(self) -> int:
        """Return the wall clock at the start plus the monotonic time since."""
        return self._base + time.monotonic_ns() - self._since

    def stamp(self) -> int:
        """Return the present instant."""
        return self.now()

    def stopwatch(self, effect: Effect) -> Stopwatch:  # noqa: ARG002
        """Count monotonic nanoseconds from now."""
        begin = time.monotonic_ns()
        return lambda: time.monotonic_ns() - begin

    async def sleep_until(self, instant: int) -> None:
        """Sleep until the instant is reached: the sleep of an event loop may end a little early."""
        while (left := instant - self.now()) > 0:  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(left / _NANO)


Salts = Callable[[int], bytes]
"""Returns the salt of the fact that becomes event number `seq`."""


def new_run_id() -> str:
    """Return a run id of 16 hex digits, random from the first digit so that short prefixes are unique."""
    return secrets.token_hex(8)


def new_seed() -> int:
    """Return 63 random bits; the seed is recorded with the run."""
    return secrets.randbits(63)


def new_salts(chosen: int | None) -> Salts:
    """Return a source of random salts, or of deterministic ones for a chosen seed (for tests).

    With a chosen seed, erased payloads can be guessed from their hashes.
    """
    if chosen is None:
        return lambda seq: secrets.token_bytes(SALT)  # noqa: ARG005
    return partial(seeded_salt, chosen)


Maker = Callable[[RunState, int, bytes], Fact]
"""(state, at, salt) -> the fact, called when it is next in the queue."""

LateMaker = Callable[[RunState, int, bytes], LateResult]
"""The same for a result that arrives after its call has ended."""

FactT = TypeVar("FactT", bound=Fact)


def maker(fact: FactT, complete: Callable[[RunState, FactT, bytes], Fact]) -> Maker:
    """Return a maker that sets the fact's instant and calls `complete(state, fact, salt)`."""
    return lambda state, at, salt: complete(state, replace(fact, at=at), salt)


def recorded(fact: Fact) -> Maker:
    """Return a maker of the fact as it is, with its own instant."""
    return lambda state, at, salt: fact  # noqa: ARG005
