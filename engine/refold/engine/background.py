"""One task that outlives a single `await`: what drives a run.

A run is awaited in one place and watched in another, and may be left in the middle of an `async for`. A task
group held open across a generator's `yield` would break there (PEP 789), so the driver is a task of its own,
and everything that it starts lives in a task group inside it. Cancelling a waiting `join` stops it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

import anyio

from refold.store.thread import seen_through

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """A started task. Its exception, if it has one, is raised where it is joined."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()
        self._error: BaseException | None = None
        self._task = _spawn(self._run)
        if isinstance(self._task, asyncio.Task):
            self._task.add_done_callback(self._ended)

    @property
    def over(self) -> bool:
        """Whether the task has come to its end."""
        return self._over.is_set()

    async def join(self) -> None:
        """Wait for the end; raise what the task raised. Cancelled, it stops the task, and waits for that."""
        try:
            await self._over.wait()
        except anyio.get_cancelled_exc_class():
            await self.stop()
            raise
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """Cancel the task and wait until it is gone. Its exception is not raised here."""
        self._scope.cancel()
        await seen_through(self._over.wait, self._over.is_set)

    def _ended(self, _: "asyncio.Task[None]") -> None:
        if not self.over:  # cancelled before it began
            self._error = asyncio.CancelledError()
            self._over.set()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._work()
        except BaseException as error:
            self._error = first(error)
            if isinstance(self._error, anyio.get_cancelled_exc_class()):
                raise
        finally:
            self._over.set()


# An event loop holds its tasks weakly: one that is not joined would be collected in the middle of its work.
_ASIDE: set[Awaitable[None]] = set()


def aside(work: Work) -> None:
    """Start work that is not waited for, and that raises nothing; also from a callback, where no task runs."""
    task = _spawn(work)
    if isinstance(task, asyncio.Task):
        _ASIDE.add(task)
        task.add_done_callback(_ASIDE.discard)


def inlet() -> Callable[[Callable[[], object]], None]:
    """A way for any thread to have a function called in this event loop; once the loop is gone, nothing happens."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        token = trio.lowlevel.current_trio_token()
        return partial(_called, trio.RunFinishedError, token.run_sync_soon)
    return partial(_called, RuntimeError, loop.call_soon_threadsafe)


def _called(
    gone: type[Exception], soon: Callable[[Callable[[], object]], object], function: Callable[[], object]
) -> None:
    with suppress(gone):
        soon(function)


def _spawn(work: Work) -> Awaitable[None] | None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        # As a task of asyncio's would: with the context of its starter.
        trio.lowlevel.spawn_system_task(work, context=copy_context())
        return None
    return loop.create_task(work())


def first(error: BaseException) -> BaseException:
    """What stopped the task: of several failures in one moment the first, but nothing before an interrupt."""
    inside: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if not inside:
        return error
    return first(next((each for each in inside if not isinstance(each, Exception)), inside[0]))
