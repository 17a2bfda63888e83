"""The way to asyncio from other event loops: a loop in a thread of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from refold.store.bridge import Bridge, DirectBridge

T = TypeVar("T")
Args = TypeVarTuple("Args")

THREADS = 64
"""The most calls at once into the portal: so many runs share a commit. A limiter of our own: a tool that hangs in a
thread must not stop the log."""


class PortalBridge:
    """An asyncio loop in a thread of its own. A call that began is not cancelled but waited for."""

    def __init__(self, opened: AbstractContextManager[BlockingPortal], portal: BlockingPortal) -> None:
        self._opened, self._portal = opened, portal
        self._limiter = anyio.CapacityLimiter(THREADS)

    async def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Await `function(*args)` on the other loop."""
        return await anyio.to_thread.run_sync(
            partial(self._portal.call, function, *args), limiter=self._limiter
        )

    async def aclose(self) -> None:
        """Stop the loop and its thread, after the calls that began."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._opened.__exit__, None, None, None)


async def bridge() -> Bridge:
    """The way to asyncio from here."""
    if _on_asyncio():
        return DirectBridge()
    opened = start_blocking_portal("asyncio", name="refold-store")
    portal = await anyio.to_thread.run_sync(opened.__enter__)
    return PortalBridge(opened, portal)


def _on_asyncio() -> bool:
    # Not `get_running_loop`: in trio's guest mode there is one, and it is not ours.
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False
