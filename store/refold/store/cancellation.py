"""Work that is finished although its task was cancelled."""

from collections.abc import Awaitable, Callable

import anyio


async def finish_despite_cancel(work: Callable[[], Awaitable[object]], over: Callable[[], bool]) -> None:
    """Await `work` until `over()`, retrying after cancellation, and raise the cancellation afterwards.

    A shield stops only scopes. On asyncio a task may also be cancelled directly, as by `asyncio.timeout` or
    by a loop that shuts down. That interrupts a shielded task too, any number of times.
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
