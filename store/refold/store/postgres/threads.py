"""Threads with a connection each, for event loops of asyncio and trio, and a connection without a thread.

An event loop hands a thread work and goes on. The thread sets the results of all that it did at once, so the
loop is woken once for a group of appends.
"""

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

import anyio

from refold.store.cancellation import finish_despite_cancel
from refold.store.postgres.connection import Link

P = ParamSpec("P")
T = TypeVar("T")

Waker = Callable[[Callable[[], object]], object]
"""Calls a function in an event loop's thread, from any thread."""


def current_waker() -> Waker:
    """Return the waker of the running event loop."""
    trio = sys.modules.get("trio")
    if trio is not None:
        with suppress(RuntimeError):
            return cast("Waker", trio.lowlevel.current_trio_token().run_sync_soon)
    return asyncio.get_running_loop().call_soon_threadsafe


class Reply(Generic[T]):
    """The result of work in another thread. Created and awaited in the event loop, set in the thread."""

    __slots__ = ("_error", "_event", "_result", "waker")

    def __init__(self) -> None:
        self.waker = current_waker()
        self._event = anyio.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def set(self, result: T | None, error: BaseException | None = None) -> None:
        """Set the result without waking the event loop: see `wake`."""
        self._result, self._error = result, error

    @property
    def over(self) -> bool:
        """Whether the event loop has been told."""
        return self._event.is_set()

    def tell(self) -> None:
        """Wake who awaits the result; called in the event loop."""
        self._event.set()

    async def finish(self) -> None:
        """Wait until the result is set, even if cancelled."""
        await finish_despite_cancel(self._event.wait, self._event.is_set)

    async def get(self) -> T:
        """Return the result, or raise its error."""
        await self._event.wait()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


def wake(replies: "list[Reply[T]]") -> None:
    """Tell the event loops that these results are set, each loop once."""
    loops: dict[Waker, list[Reply[T]]] = {}
    for reply in replies:
        loops.setdefault(reply.waker, []).append(reply)
    for waker, some in loops.items():
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            waker(lambda some=some: [reply.tell() for reply in some])  # type: ignore[misc]


class Lane(Protocol):
    """A connection on which functions run, one after another."""

    async def run(self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function(link, ...)`, again while the connection is lost: see `Link.retry`."""
        ...

    async def aclose(self) -> None:
        """Close the connection after the running function."""
        ...


class LaneHere:
    """A connection used in the caller's thread; its methods never wait for an event loop."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def run(self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Lane.run`."""
        return self._link.retry(function, *args, **kwargs)

    async def aclose(self) -> None:
        """See `Lane.aclose`."""
        self._link.drop()


class LaneInThread:
    """A connection in a thread of its own. Abandoned reads end in the thread, and their result is dropped."""

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._work: SimpleQueue[Callable[[], bool]] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Lane.run`."""
        return await self.start(function, *args, **kwargs).get()

    def start(
        self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Reply[T]:
        """Begin `run`, and return its reply."""
        reply = Reply[T]()

        def work() -> bool:
            try:
                reply.set(self._link.retry(function, *args, **kwargs))
            except BaseException as error:
                reply.set(None, error)
            wake([reply])
            return True

        self._work.put(work)
        return reply

    async def aclose(self) -> None:
        """See `Lane.aclose`."""
        reply = Reply[None]()

        def stop() -> bool:
            self._link.drop()
            reply.set(None)
            wake([reply])
            return False

        self._work.put(stop)
        await reply.finish()

    def close_soon(self) -> None:
        """Close the connection after the running function, without waiting for it."""

        def stop() -> bool:
            self._link.drop()
            return False

        self._work.put(stop)

    def _loop(self) -> None:
        while self._work.get()():
            pass
