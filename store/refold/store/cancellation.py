"""What must come to its end, in a task that is cancelled."""

from collections.abc import Awaitable, Callable

import anyio


async def seen_through(work: Callable[[], Awaitable[object]], over: Callable[[], bool]) -> None:
    """Await `work`, again if need be, until `over`, whatever cancels this task meanwhile: that is raised afterwards.

    A shield holds off scopes. On asyncio a task may also be cancelled by itself, as by `asyncio.timeout` and by a loop
    that shuts down: that cuts off whatever the task waits for, in a shield too, as often as somebody likes.
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
