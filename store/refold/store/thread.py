"""Threads of connections, and the way to asyncio from other event loops.

aiosqlite takes one statement a round trip, and ours belong together: a whole transaction, with what is
decided in it, is one function. So what aiosqlite is given for a connection takes functions for statements. Of
aiosqlite that needs no more than what it says of itself: `execute_fetchall(sql, parameters)` is
`connection.execute(sql, parameters).fetchall()`, in its thread, in order. A test holds that.
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

from refold.store.checks import ROWS
from refold.store.connection import PagedConnection
from refold.store.readable import Bridge, DirectBridge


async def seen_through(work: Callable[[], Awaitable[object]], over: Callable[[], bool]) -> None:
    """Await `work`, again if need be, until `over`, whatever cancels this task meanwhile: that is raised
    afterwards.

    A shield holds off scopes. On asyncio a task may also be cancelled by itself, as by `asyncio.timeout` and
    by a loop that shuts down: that cuts off whatever the task waits for, in a shield too, as often as
    somebody likes.
    """
    cut: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not over():
            try:
                await work()
            except anyio.get_cancelled_exc_class() as error:
                cut = error
    if cut is not None:
        raise cut


T = TypeVar("T")
Args = TypeVarTuple("Args")


class Connection:
    """A connection whose work is done by functions, `function(connection, ...)`, in its thread."""

    def __init__(self, functions: "_Functions", thread: aiosqlite.Connection) -> None:
        self._functions, self._thread = functions, thread
        self.asked = 0
        """How often its thread was asked for something."""

    @classmethod
    async def open(cls, made: Callable[[], PagedConnection]) -> Self:
        """What `made` makes, in its thread. What it raises is raised here, and there is no thread then."""
        functions = _Functions(made)
        try:
            return cls(functions, await aiosqlite.Connection(cast("Any", functions.opened), ROWS))
        except Exception:
            # aiosqlite does not wait for its thread here, whose last report needs an open event loop.
            if functions.thread is not None:
                functions.thread.join()
            raise

    async def run(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        """What `function(connection, ...)` returns or raises. Cancelled, it runs all the same, in its
        thread.
        """
        self.asked += 1
        return cast("T", await self._thread.execute_fetchall(cast("Any", function), args))

    async def reached(self) -> None:
        """Wait until its thread has done what it was asked for until now, however often the waiting is
        cancelled.
        """
        asked = self.asked
        await seen_through(lambda: self.run(_nothing), lambda: self._functions.done >= asked)

    @property
    def idle(self) -> bool:
        """Whether its thread has done all that it was asked for."""
        return self._functions.done == self.asked

    def run_here(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        """The same in the event loop's thread, and at once: only while it is `idle`.

        Nothing is waited for, no lock either.
        """
        assert self.idle
        self._functions.connection.hurry(hurried=True)
        return function(self._functions.connection, *args)

    async def close(self) -> None:
        """Close it, after what it was asked for, and end its thread."""
        await self._thread.close()


def _nothing(_: PagedConnection) -> None:
    """What is asked for to know that all before it is done."""


class _Functions:
    """What aiosqlite takes for a connection, and for its cursor.

    `done` is counted in the thread, and nowhere else.
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
"""The most calls at once into the portal: so many runs share a commit. A limiter of our own: a tool that
hangs in a thread must not stop the log.
"""


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
