"""The environment of a run, and when a run is runnable."""

import importlib.metadata
import platform
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache

import msgspec

from refold.engine.arguments import StoreSource
from refold.engine.clock import Maker, Salts
from refold.engine.journal import Journal
from refold.engine.service import serve
from refold.engine.world import Work, World
from refold.reducers.effects import RunTool, WaitUntil, next_effects
from refold.reducers.events import Fact
from refold.reducers.guards import Registry
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import NANO
from refold.store.protocol import LEASE_SECONDS, Store, UnknownRun

Serve = Callable[[Work], Awaitable[tuple[Maker, ...]]]
"""Serves an effect and returns its facts; the last one ends it."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a run: world, store, guards and salts.

    `serve` serves effects. `check` raises if this agent cannot continue a loaded state. `lease` is in
    seconds. `driven` is False without model and tools. `resumes` is False for a played recording, which
    contains its resumptions.
    """

    world: World
    store: StoreSource
    registry: Registry
    salts: Salts
    check: Callable[[RunState], None]
    serve: Serve = serve
    lease: float = LEASE_SECONDS
    driven: bool = True
    resumes: bool = True


Opening = Callable[[Journal], Awaitable[tuple[RunState, list[Maker]]]]
"""Begins a run: returns the state before its first own event, and its first facts."""


def anew(make: Maker) -> Opening:
    """Return the opening of a run with a log of its own."""

    async def begin(_: Journal) -> tuple[RunState, list[Maker]]:
        return NEW, [make]

    return begin


def altered(opening: Opening, start: Callable[[Fact], Fact]) -> Opening:
    """Return the opening with its first fact changed."""

    async def begin(journal: Journal) -> tuple[RunState, list[Maker]]:
        state, (first, *others) = await opening(journal)
        return state, [lambda state, at, salt: start(first(state, at, salt)), *others]

    return begin


def versions() -> dict[str, str]:
    """Return the versions that are recorded whenever an engine begins or resumes a run."""
    return {"refold": _own_version(), "python": platform.python_version()}


@cache  # an upgrade on disk does not change the loaded code
def _own_version() -> str:
    return importlib.metadata.version("refold")


def rings_in(state: RunState, now: int) -> float | None:
    """Return the seconds from `now` until the next deadline, 0 for a past one; None if there is none."""
    instants = [effect.at for effect in next_effects(state) if isinstance(effect, WaitUntil)]
    return max(0.0, (min(instants) - now) / NANO) if instants else None


def due_in(state: RunState, now: int) -> float | None:
    """Return the seconds until the run is runnable: 0 if a model, a tool or a settling is pending."""
    at_once = any(not isinstance(effect, WaitUntil) for effect in next_effects(state))
    return 0.0 if at_once else rings_in(state, now)


def is_lost(state: RunState, now: int) -> bool:
    """Return whether a run without a claim would stay forgotten: it is runnable now or at some instant, and
    not because of a child run, whose end wakes it.
    """
    children = {tool.name for tool in state.setup.tools if tool.agent}
    waits = (isinstance(effect, RunTool) and effect.name in children for effect in next_effects(state))
    return due_in(state, now) is not None and not all(waits)


async def wake_parent(store: Store, state: RunState) -> None:
    """Make the parent of an ended run runnable; it may be in another store.

    Call it before the lease is released: if the engine dies in between, the next one repeats it.
    """
    if state.ended and state.setup.parent is not None:
        with suppress(UnknownRun):
            await store.wake(state.setup.parent.run)
