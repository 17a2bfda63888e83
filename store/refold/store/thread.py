"""Connections in threads, and a bridge to asyncio from other event loops.

aiosqlite runs one statement per round trip. We need a whole transaction, with its decisions, in one function.
So the object that we pass to aiosqlite as a connection takes functions instead of statements. This relies
only on documented behavior: `execute_fetchall(sql, parameters)` calls
`connection.execute(sql, parameters).fetchall()` in its thread, in order. A test checks that.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Self, TypeVar, TypeVarTuple, cast

import aiosqlite
import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from refold.store.cancellation import finish_despite_cancel
from refold.store.checks import ROWS
from refold.store.connection import PagedConnection
from refold.store.readable import Bridge, DirectBridge

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Connection:
    """A connection that runs functions, `function(connection, ...)`, in its thread."""

    def __init__(self, functions: "_Functions", thread: aiosqlite.Connection) -> None:
        self._functions, self._thread = functions, thread
        self.asked = 0
        """The number of functions submitted to the thread."""

    @classmethod
    async def open(cls, made: Callable[[], PagedConnection]) -> Self:
        """Open the connection with `made` in a new thread. If `made` raises, the thread ends."""
        functions = _Functions(made)
        try:
            return cls(functions, await aiosqlite.Connection(cast("Any", functions.opened), ROWS))
        except Exception:
            # aiosqlite does not wait for its thread here, whose last report needs an open event loop.
            if functions.thread is not None:
                functions.thread.join()
            raise

    async def run(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        """Run `function(connection, ...)` in the thread. After cancellation it still runs to its end."""
        self.asked += 1
        return cast("T", await self._thread.execute_fetchall(cast("Any", function), args))

    async def wait_submitted(self) -> None:
        """Wait until the thread has run everything submitted so far, even if cancelled repeatedly."""
        asked = self.asked
        await finish_despite_cancel(lambda: self.run(_nothing), lambda: self._functions.done >= asked)

    @property
    def idle(self) -> bool:
        """Whether the thread has run everything submitted."""
        return self._functions.done == self.asked

    def run_here(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        """Run a function at once in the event loop's thread; allowed only while `idle`.

        It waits for nothing, not even for a lock.
        """
        assert self.idle
        self._functions.connection.hurry(hurried=True)
        return function(self._functions.connection, *args)

    async def close(self) -> None:
        """Close the connection after all submitted functions, and end the thread."""
        await self._thread.close()


def _nothing(_: PagedConnection) -> None:
    """Do nothing: a marker that all earlier functions have run."""


class _Functions:
    """The object that aiosqlite uses as a connection and as its cursor.

    Only the thread changes `done`.
    """

    connection: PagedConnection

    def __init__(self, made: Callable[[], PagedConnection]) -> None:
        self._made = made
        self._result: object = None
        self.thread: threading.Thread | None = None
        self.done = 0

    def opened(self) -> Self:
        self.thread = threading.current_thread()
        self.connection = self._made()
        return self

    def execute(self, function: Callable[[PagedConnection, *Args], object], args: tuple[*Args]) -> Self:
        try:
            self.connection.hurry(hurried=False)
            self._result = function(self.connection, *args)
        finally:
            self.done += 1
        return self

    def fetchall(self) -> object:
        result, self._result = self._result, None
        return result

    def close(self) -> None:
        self.connection.close()


THREADS = 64
"""The maximum of concurrent calls into the portal, and of runs that share a commit.

The limiter is separate so that a tool that hangs in a thread does not block the log.
"""


class PortalBridge:
    """An asyncio loop in a separate thread. Calls that started are awaited, not cancelled."""

    def __init__(self, opened: AbstractContextManager[BlockingPortal], portal: BlockingPortal) -> None:
        self._opened, self._portal = opened, portal
        self._limiter = anyio.CapacityLimiter(THREADS)

    async def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Await `function(*args)` on the other loop."""
        return await anyio.to_thread.run_sync(
            partial(self._portal.call, function, *args), limiter=self._limiter
        )

    async def aclose(self) -> None:
        """Stop the loop and its thread after the running calls."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._opened.__exit__, None, None, None)


async def bridge() -> Bridge:
    """Return a bridge from the current event loop to asyncio."""
    if _on_asyncio():
        return DirectBridge()
    opened = start_blocking_portal("asyncio", name="refold-store")
    portal = await anyio.to_thread.run_sync(opened.__enter__)
    return PortalBridge(opened, portal)


def _on_asyncio() -> bool:
    # Not `get_running_loop`: in trio's guest mode there is a loop, but it is not ours.
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False
