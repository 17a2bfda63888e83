"""What a run needs around it."""

import importlib.metadata
import platform
from collections.abc import Awaitable, Callable
from functools import cache

import msgspec

from refold.engine.entropy import Salts
from refold.engine.makers import Maker
from refold.engine.service import serve
from refold.engine.stores import StoreSource
from refold.engine.world import Work, World
from refold.reducers.guards import Registry
from refold.reducers.state import RunState
from refold.store.protocol import LEASE_SECONDS

Serve = Callable[[Work], Awaitable[tuple[Maker, ...]]]
"""Sees an effect through: the facts in which it ends, the last of which ends it."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run takes place: its world, its log, its guards, its chance.

    `serve` sees effects through. `check` is called with the state of a log that was taken up, and raises if this agent cannot go on with it.
    `lease` is in seconds.
    `driven`: False where there is no model and no tool to drive it with. `resumes`: False where a recording is played,
    which brings its resumptions itself.
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
