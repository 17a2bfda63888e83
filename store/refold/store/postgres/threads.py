"""Threads with a connection each, for event loops of asyncio and trio, and a connection without a thread.

An event loop hands a thread work and goes on. The thread sets the results of all that it did at once, so the
loop is woken once for a group of appends.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

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
        """Whether the event loop was notified."""
        return self._event.is_set()

    def tell(self) -> None:
        """Wake the task that awaits the result; called in the event loop."""
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
    """Notify the event loops that these results are set, each loop once."""
    loops: dict[Waker, list[Reply[T]]] = {}
    for reply in replies:
        loops.setdefault(reply.waker, []).append(reply)
    for waker, some in loops.items():
        with suppress(RuntimeError):  # the loop has ended, and no task waits
            waker(lambda some=some: [reply.tell() for reply in some])  # type: ignore[misc]


class Job(Generic[T]):
    """Work for a thread. `take` and `withdraw` exclude each other."""

    def __init__(self) -> None:
        self.reply = Reply[T]()
        self.queued = time.monotonic()
        self._lock = threading.Lock()
        self._taken = self._withdrawn = self._abandoned = False

    def is_abandoned(self) -> bool:
        """Return whether the caller was cancelled: further attempts are useless."""
        return self._abandoned

    def take(self) -> bool:
        """Return whether the thread may begin; False if the job was withdrawn."""
        with self._lock:
            self._taken = not self._withdrawn
            return self._taken

    def withdraw(self) -> bool:
        """Abandon the job. Return whether it will not begin any more."""
        with self._lock:
            self._abandoned = True
            self._withdrawn = not self._taken
            return self._withdrawn


class CallJob(Job[T]):
    """A call of a function with the thread's link."""

    def __init__(self, function: Callable[[Link], T]) -> None:
        super().__init__()
        self._function = function

    def run(self, link: Link) -> None:
        """Call the function, and set the reply. Patience counts from when the job was queued."""
        try:
            with link.on_behalf(self.queued, self.is_abandoned):
                self.reply.set(self._function(link))
        except BaseException as error:
            self.reply.set(None, error)
        wake([self.reply])


class StopJob(Job[None]):
    """The end of a thread."""

    def run(self, link: Link) -> None:
        """Close the connection."""
        link.drop()
        self.reply.set(None)
        wake([self.reply])


class Lane(Protocol):
    """A connection on which functions run, one after another."""

    async def run(self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function(link, ...)`, again while the connection is lost: see `Link.retry`."""
        ...

    def stop_retries(self) -> None:
        """Fail what waits for a lost connection, now and later."""
        ...

    async def aclose(self) -> None:
        """Close the connection after what is queued. A lost connection is not opened again for that."""
        ...


class LaneHere:
    """A connection used in the caller's thread; its methods never wait for an event loop."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def run(self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Lane.run`."""
        return self._link.retry(function, *args, **kwargs)

    def stop_retries(self) -> None:
        """See `Lane.stop_retries`."""
        self._link.closing.set()

    async def aclose(self) -> None:
        """See `Lane.aclose`."""
        self._link.drop()


class LaneInThread:
    """A connection in a thread of its own. A cancelled read is withdrawn; one that has begun is not repeated,
    and its result is dropped. In a forked process the thread does not exist: calls raise `WrongUse`.
    """

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._work: SimpleQueue[CallJob[Any] | StopJob] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Lane.run`."""
        job = self._begin(function, *args, **kwargs)
        try:
            return await job.reply.get()
        except BaseException:
            job.withdraw()
            raise

    def start(
        self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Reply[T]:
        """Begin `run`, and return its reply."""
        return self._begin(function, *args, **kwargs).reply

    def check_process(self) -> None:
        """Raise `WrongUse` in a forked process."""
        self._link.check_process()

    def _begin(
        self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> CallJob[T]:
        self.check_process()
        job = CallJob(lambda link: link.retry(function, *args, **kwargs))
        self._work.put(job)
        return job

    def stop_retries(self) -> None:
        """See `Lane.stop_retries`."""
        self._link.closing.set()

    async def aclose(self) -> None:
        """See `Lane.aclose`. Does nothing in a forked process."""
        if not self._link.foreign:
            await self._stop().finish()

    def close_soon(self) -> None:
        """Close the connection after the running function, without waiting for it."""
        if not self._link.foreign:
            self._stop()

    def _stop(self) -> Reply[None]:
        self.stop_retries()
        job = StopJob()
        self._work.put(job)
        return job.reply

    def _loop(self) -> None:
        while True:
            job = self._work.get()
            if job.take():
                job.run(self._link)
            if isinstance(job, StopJob):
                return
