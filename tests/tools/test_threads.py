"""Where a tool runs, the loop or a thread: what it raises, and what becomes of it when it is cancelled or
hangs.
"""

import functools
import threading
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from refold.engine.tools.decorator import tool
from support.tool_of import CALL

pytestmark = pytest.mark.anyio


async def test_async_tools_run_in_the_loop_and_sync_ones_in_a_thread() -> None:
    """An async function shares the thread of the loop, any other does not, and a wrapped async one is
    awaited.
    """

    @tool
    async def here() -> bool:
        await anyio.lowlevel.checkpoint()
        return threading.current_thread() is threading.main_thread()

    @tool
    def there() -> bool:
        return threading.current_thread() is threading.main_thread()

    def plain(function: Callable[[], Awaitable[bool]]) -> Callable[[], Awaitable[bool]]:
        @functools.wraps(function)
        def wrapper() -> Awaitable[bool]:
            return function()

        return wrapper

    assert ["true", "false", "true"] == [
        await t.run("{}", CALL) for t in (here, there, tool(plain(here.function)))
    ]


async def test_exceptions_of_a_tool_pass_unchanged() -> None:
    """What a tool raises, in a thread or not, reaches the engine as it was raised."""
    problem = KeyError("mine")

    @tool
    def there() -> None:
        raise problem

    @tool
    async def here() -> None:
        raise problem

    for made in (here, there):
        with pytest.raises(KeyError) as caught:
            await made.run("{}", CALL)
        assert problem is caught.value


async def test_a_cancelled_sync_tool_is_abandoned() -> None:
    """Cancellation returns while the thread still runs; the thread is not waited for."""
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool
    def hang() -> None:
        started.set()
        release.wait(10)
        ended.set()

    async def cancel_when_started(scope: anyio.CancelScope) -> None:
        await anyio.to_thread.run_sync(started.wait)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_when_started, tasks.cancel_scope)
        await hang.run("{}", CALL)
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)


async def test_tools_that_hang_do_not_hold_up_others() -> None:
    """After more abandoned calls than a shared pool has places, another sync tool still runs."""
    release = threading.Event()
    begun = threading.Semaphore(0)

    @tool
    def hang() -> None:
        begun.release()
        release.wait(10)

    @tool
    def work() -> str:
        return "done"

    async def call() -> None:
        await hang.run("{}", CALL)

    try:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(50):
                    tasks.start_soon(call)
                for _ in range(50):
                    await anyio.to_thread.run_sync(
                        begun.acquire, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
                    )
                tasks.cancel_scope.cancel()
            assert "done" == await work.run("{}", CALL)
    finally:
        release.set()
