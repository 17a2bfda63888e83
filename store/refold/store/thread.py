"""A connection that writes or reads, and the thread in which it does: aiosqlite's.

aiosqlite takes one statement a round trip, and ours belong together: a whole transaction, with what is decided in it, is
one function. So what aiosqlite is given for a connection takes functions for statements. Of aiosqlite that needs no more
than what it says of itself: `execute_fetchall(sql, parameters)` is `connection.execute(sql, parameters).fetchall()`, in its
thread, in order. A test holds that.
"""

from collections.abc import Callable
from typing import Any, Self, TypeVar, TypeVarTuple, cast

import aiosqlite

from refold.store.cancellation import seen_through
from refold.store.connection import PagedConnection
from refold.store.pages import ROWS

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
        return cls(functions, await aiosqlite.Connection(cast("Any", functions.opened), ROWS))

    async def run(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        """What `function(connection, ...)` returns or raises. Cancelled, it runs all the same, in its thread."""
        self.asked += 1
        return cast("T", await self._thread.execute_fetchall(cast("Any", function), args))

    async def reached(self) -> None:
        """Wait until its thread has done what it was asked for until now, however often the waiting is cancelled."""
        asked = self.asked
        await seen_through(lambda: self.run(_nothing), lambda: self._functions.done >= asked)

    @property
    def idle(self) -> bool:
        """Whether its thread has done all that it was asked for."""
        return self._functions.done == self.asked

    def run_here(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        """The same in the event loop's thread, and at once: only while it is `idle`. Nothing is waited for, no lock either."""
        assert self.idle
        self._functions.connection.hurry(hurried=True)
        return function(self._functions.connection, *args)

    async def close(self) -> None:
        """Close it, after what it was asked for, and end its thread."""
        await self._thread.close()


def _nothing(_: PagedConnection) -> None:
    """What is asked for to know that all before it is done."""


class _Functions:
    """What aiosqlite takes for a connection, and for its cursor. `done` is counted in the thread, and nowhere else."""

    connection: PagedConnection

    def __init__(self, made: Callable[[], PagedConnection]) -> None:
        self._made = made
        self._result: object = None
        self.done = 0

    def opened(self) -> Self:
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
