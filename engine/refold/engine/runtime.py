"""What a run needs around it."""

import importlib.metadata
import platform
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache

import msgspec

from refold.engine.arguments import StoreSource
from refold.engine.clock import Maker, Salts
from refold.engine.service import serve
from refold.engine.world import Work, World
from refold.reducers.effects import RunTool, WaitUntil, next_effects
from refold.reducers.guards import Registry
from refold.reducers.state import RunState
from refold.reducers.vocabulary import NANO
from refold.store.protocol import LEASE_SECONDS, Store, UnknownRun

Serve = Callable[[Work], Awaitable[tuple[Maker, ...]]]
"""Sees an effect through: the facts in which it ends, the last of which ends it."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run takes place: its world, its log, its guards, its chance.

    `serve` sees effects through. `check` is called with the state of a log that was taken up, and raises if
    this agent cannot go on with it. `lease` is in seconds. `driven`: False where there is no model and no
    tool to drive it with. `resumes`: False where a recording is played, which brings its resumptions itself.
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


def versions() -> dict[str, str]:
    """What runs here: recorded whenever an engine comes to a run."""
    return {"refold": _own_version(), "python": platform.python_version()}


@cache  # what is loaded stays what it is, whatever is installed over it
def _own_version() -> str:
    return importlib.metadata.version("refold")


def rings_in(state: RunState, now: int) -> float | None:
    """In how many seconds from the instant `now` the next clock rings, 0 for one that has; None: not before a
    person acts.
    """
    instants = [effect.at for effect in next_effects(state) if isinstance(effect, WaitUntil)]
    return max(0.0, (min(instants) - now) / NANO) if instants else None


def due_in(state: RunState, now: int) -> float | None:
    """The same for any state: 0 where something is to be done in the world right away."""
    at_once = any(not isinstance(effect, WaitUntil) for effect in next_effects(state))
    return 0.0 if at_once else rings_in(state, now)


def is_lost(state: RunState, now: int) -> bool:
    """Whether a run that has no engine and waits for none never gets one: something is to be done, now or at
    an instant, that neither a person nor the end of a child run begins.
    """
    children = {tool.name for tool in state.setup.tools if tool.agent}
    waits = (isinstance(effect, RunTool) and effect.name in children for effect in next_effects(state))
    return due_in(state, now) is not None and not all(waits)


async def wake_parent(store: Store, state: RunState) -> None:
    """Have the run taken up that waits for the result of this one, if it has ended. It may be in another
    store.

    To be called before the lease is given back: an engine that dies in between is found, and it is done
    again.
    """
    if state.ended and state.setup.parent is not None:
        with suppress(UnknownRun):
            await store.wake(state.setup.parent.run)
