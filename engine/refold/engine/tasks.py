"""Tasks: background work, fair turns in the event loop, and isolation of user code.

A run is awaited in one place, watched in another, and may be abandoned in the middle of an `async for`. A
task group held open across a generator's `yield` would break there (PEP 789). So the driver is a task of its
own, and everything that it starts lives in a task group inside it. Cancelling a waiting `join` stops it.

An event loop runs all ready tasks before it polls its timers and sockets. With hundreds of ready runs, each
with 0.1 ms of work, other tasks would wait for tens of milliseconds. `Pace` limits the runs in each turn.

A task for each piece of user code would cost more than a whole step of the engine. `isolate` replaces it. It
contains changes of context variables, scopes that the code enters but does not exit, and on asyncio, where
any code can cancel a task, that the code cancels its own.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from types import coroutine
from typing import Any, TypeVar

import anyio
from anyio.lowlevel import RunVar, checkpoint

from refold.store.cancellation import finish_despite_cancel

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """A started task. `join` raises its exception."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()
        self._error: BaseException | None = None
        self._task = _spawn(self._run)
        if isinstance(self._task, asyncio.Task):
            self._task.add_done_callback(self._on_end)

    @property
    def over(self) -> bool:
        """Whether the task has ended."""
        return self._over.is_set()

    async def join(self) -> None:
        """Wait for the end and raise the task's exception. If cancelled, stop the task and wait for that."""
        try:
            await self._over.wait()
        except anyio.get_cancelled_exc_class():
            await self.stop()
            raise
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """Cancel the task and wait until it has ended. Its exception is not raised."""
        self._scope.cancel()
        await finish_despite_cancel(self._over.wait, self._over.is_set)

    def _on_end(self, _: "asyncio.Task[None]") -> None:
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


# An event loop holds only weak references to tasks: they could be garbage-collected while they run.
_ASIDE: set[Awaitable[None]] = set()


def aside(work: Work) -> None:
    """Start work that is not awaited and raises nothing; works in callbacks outside of tasks, too."""
    task = _spawn(work)
    if isinstance(task, asyncio.Task):
        _ASIDE.add(task)
        task.add_done_callback(_ASIDE.discard)


def in_event_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        anyio.get_current_task()
    except RuntimeError:
        return False
    return True


def inlet() -> Callable[[Callable[[], object]], None]:
    """Return a function by which any thread can call into this event loop; a no-op once it is closed."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        token = trio.lowlevel.current_trio_token()
        return partial(_schedule, trio.RunFinishedError, token.run_sync_soon)
    return partial(_schedule, RuntimeError, loop.call_soon_threadsafe)


def _schedule(
    gone: type[Exception], soon: Callable[[Callable[[], object]], object], function: Callable[[], object]
) -> None:
    with suppress(gone):
        soon(function)


def _spawn(work: Work) -> Awaitable[None] | None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        # With the starter's context, as a task of asyncio has.
        trio.lowlevel.spawn_system_task(work, context=copy_context())
        return None
    return loop.create_task(work())


def first(error: BaseException) -> BaseException:
    """Return what stopped the task: an interrupt, else the first of several errors."""
    inside: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if not inside:
        return error
    return first(next((each for each in inside if not isinstance(each, Exception)), inside[0]))


AT_ONCE = 8
"""Runs that proceed in one turn of the event loop: about a millisecond."""


class Pace:
    """Schedules the runs of one event loop first come, first served, a few in each turn of the loop."""

    def __init__(self) -> None:
        self.runs = 0  # driven here; as long as they are few, none waits
        self._room = AT_ONCE
        self._waiting: deque[anyio.Event] = deque()
        self._turner: Background | None = None  # gives turns while runs wait for one

    @asynccontextmanager
    async def joined(self) -> AsyncGenerator[None]:
        """Count a run as driven while the block runs; the block begins at the run's turn."""
        self.runs += 1
        try:
            await self.turn()
            yield
        finally:
            self.runs -= 1

    async def turn(self) -> None:
        """Wait for this run's turn if there are many runs."""
        if self.runs <= AT_ONCE:
            return
        if self._turner is None or self._turner.over:
            self._turner = Background(self._turns)
        if self._room and not self._waiting:
            self._room -= 1
            return
        mine = anyio.Event()
        self._waiting.append(mine)
        await mine.wait()

    async def _turns(self) -> None:
        try:
            while self._waiting or self._room < AT_ONCE:
                await checkpoint()
                self._room = AT_ONCE
                while self._waiting and self._room:
                    self._room -= 1
                    self._waiting.popleft().set()
        finally:
            while self._waiting:  # after a cancellation, nothing else would wake them
                self._waiting.popleft().set()


_PACE: RunVar[Pace] = RunVar("refold_pace")


def pace() -> Pace:
    """Return the pace of this event loop."""
    try:
        return _PACE.get()
    except LookupError:
        made = Pace()
        _PACE.set(made)
        return made


T = TypeVar("T")

LEFT_OPEN = "it left a cancel scope or a task group open, or closed one that was not its own"


class _Step:
    """One step of isolated work: how often others cancelled its task so far, and whether they closed it."""

    cancelled = 0
    closed = False


_STEP: ContextVar[_Step | None] = ContextVar("refold_isolated_step", default=None)


@coroutine
def isolate(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await `work` in a copy of this context.

    If it cancels its own task, the cancellation is thrown into it and ends with it.
    """
    run, task = copy_context().run, _asyncio_task()
    resume, value, by_itself, step = work.send, None, False, _Step()
    run(_STEP.set, step)
    begun = task.cancelling() if task else 0
    while True:
        before = task.cancelling() if task else 0
        step.cancelled = before - begun
        try:
            wanted = run(resume, value)
        except StopIteration as end:
            result: T = end.value
            break
        finally:
            while task and task.cancelling() > before:  # only the work itself ran in between
                by_itself = True
                task.uncancel()
        try:
            resume, value = work.send, (yield wanted)
        except BaseException as error:  # the work decides about any error
            step.closed = isinstance(error, GeneratorExit)
            resume, value = work.throw, error
    if task and by_itself:
        try:
            yield  # the cancellation may not have been thrown yet
        except asyncio.CancelledError:
            if task.cancelling() > before:  # others cancelled the task meanwhile
                raise
    return result


def cut_short() -> bool:
    """Return whether others have cancelled the task of isolated work, as an event loop does on shutdown."""
    step, task = _STEP.get(), _asyncio_task()
    return step is not None and task is not None and step.cancelled > 0 and task.cancelling() > 0


def closed() -> bool:
    """Return whether others are closing isolated work, as an interpreter does at exit.

    Outside of isolated work this is unknown, and the result is True.
    """
    step = _STEP.get()
    return step is None or step.closed


async def leave(scope: anyio.CancelScope, error: RuntimeError) -> None:
    """Exit a scope of ours, and the scopes inside it that user code left open, as `error` reports.

    Their tasks are cancelled. Raises `error` if it reports something else, and cancellations by others.
    """
    if "cancel scope" not in str(error).lower():
        raise error
    task = _asyncio_task()
    if task is None:
        _drop_nurseries()
    else:
        _leave_all(scope, task)
    await checkpoint()
    if cut_short():
        raise asyncio.CancelledError from error


def _leave_all(scope: anyio.CancelScope, task: "asyncio.Task[Any]") -> None:
    # anyio and trio have no public way to do this, hence the private names.
    from anyio._backends import _asyncio

    states: Any = _asyncio._task_states  # pyright: ignore
    inside, inner = list[Any](), states[task].cancel_scope
    while inner is not None and inner is not scope:
        inside.append(inner)
        inner = inner._parent_scope
    if inner is None:  # the code exited our scope, too
        return
    for each in inside:
        each.cancel()
        each.__exit__(None, None, None)
    scope.__exit__(None, None, None)


def _drop_nurseries() -> None:
    """Remove nurseries that trio abandoned with their scopes but still counts as children."""
    import trio

    task: Any = trio.lowlevel.current_task()
    task._child_nurseries[:] = [
        each for each in task._child_nurseries if not each._cancel_status.abandoned_by_misnesting
    ]


def _asyncio_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # the loop is trio's
        return None


def is_foreign(error: BaseException) -> bool:
    """Return whether the error is the model's or tool's own: no interrupt, and no cancellation of ours."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return False
    if isinstance(error, GeneratorExit):
        return not closed()
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return True
    return not (anyio.current_effective_deadline() == -math.inf or cut_short())


class Exited(Exception):
    """A tool tried to end its process, as `sys.exit` does; the model receives this message."""


def describe_error(error: BaseException) -> str:
    """Return the error's class and message."""
    if isinstance(error, Exited):
        return str(error)
    try:
        message = str(error)
    except Exception:  # its __str__ fails
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
