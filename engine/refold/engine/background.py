"""One task that outlives a single `await`: what drives a run.

A run is awaited in one place and watched in another, and may be left in the middle of an `async for`. A task
group held open across a generator's `yield` would break there (PEP 789), so the driver is a task of its own,
and everything that it starts lives in a task group inside it. Whoever cancels a waiting `join` stops it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import Any

import anyio

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """A started task. Its exception, if it has one, is raised where it is joined."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()
        self._error: BaseException | None = None
        self._task = _spawn(self._run)

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
        with anyio.CancelScope(shield=True):
            await self._over.wait()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._work()
        except BaseException as error:
            self._error = _first(error)
            if isinstance(self._error, anyio.get_cancelled_exc_class()):
                raise
        finally:
            self._over.set()


def _spawn(work: Work) -> Awaitable[None] | None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        # As a task of asyncio's would: with the context of whoever starts it.
        trio.lowlevel.spawn_system_task(work, context=copy_context())
        return None
    return loop.create_task(work())


def _first(error: BaseException) -> BaseException:
    """What stopped the task: of several failures in one moment the first, but nothing before an interrupt."""
    inside: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if not inside:
        return error
    return _first(next((each for each in inside if not isinstance(each, Exception)), inside[0]))
