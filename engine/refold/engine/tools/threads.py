"""Functions that are not async, run in threads; and what a thread says after its call was cut off.

A thread cannot be stopped. When its call is cut off, the run goes on without it, and what it returns later is told
to a listener: the engine keeps it beside the log as `late_result`.
"""

from collections.abc import Callable
from contextvars import ContextVar
from threading import Lock
from typing import TypeVar

import anyio
import anyio.to_thread

from refold.engine.faults import Exited, worded

T = TypeVar("T")

Late = Callable[[object, BaseException | None], None]
"""(what was returned, what was raised instead), called in any thread, once, if at all."""

LISTENER: ContextVar[Late | None] = ContextVar("refold_late_listener", default=None)


class _Work:
    """One function in one thread: its end is told to the caller, or else to the listener; never to both.

    Abandoned before it has begun, it never does.
    """

    def __init__(self, function: Callable[[], object], late: Late | None) -> None:
        self._function, self._late = function, late
        self._lock = Lock()
        self._ended = self._abandoned = False
        self._result: object = None
        self._error: BaseException | None = None

    def run(self) -> tuple[object]:
        """In the thread."""
        with self._lock:
            if self._abandoned:
                return (None,)
        try:
            self._result = self._function()
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            # In a thread of a tool's own it ends nothing but the tool: what calls a command's main function comes to it.
            # Thrown into the caller's coroutine it would mean that somebody closes that.
            exited = Exited(worded(error))
            self._end(exited)
            raise exited from error
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)
        # In a tuple: an async function may hide behind a plain one, and trio refuses a bare coroutine.
        return (self._result,)

    def abandon(self) -> None:
        """The caller does not wait any more."""
        with self._lock:
            self._abandoned = True
            ended = self._ended
        if ended:
            self._tell()

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            self._ended, self._error = True, error
            abandoned = self._abandoned
        if abandoned:
            self._tell()

    def _tell(self) -> None:
        if self._late is not None:
            self._late(self._result, self._error)


async def in_thread(function: Callable[[], T]) -> T:
    """Run the function in a thread of its own. Cancelled, it is abandoned, and its end told to `LISTENER`."""
    work = _Work(function, LISTENER.get())
    try:
        # A limiter of its own: on trio an abandoned thread keeps its place in a shared one, and a few tools
        # that hang would then hold up every other for good.
        (result,) = await anyio.to_thread.run_sync(
            work.run, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
    except anyio.get_cancelled_exc_class():
        work.abandon()
        raise
    return result  # type: ignore[return-value]
