"""Tasks: work in the background, turns of the event loop, and other people's code.

A run is awaited in one place and watched in another, and may be left in the middle of an `async for`. A task
group held open across a generator's `yield` would break there (PEP 789), so the driver is a task of its own,
and everything that it starts lives in a task group inside it. Cancelling a waiting `join` stops it.

A loop runs all that is ready before it looks at its clocks and sockets again. Of hundreds of runs that are
ready at once, each with a tenth of a millisecond of work, everything else that lives there would wait for
tens of milliseconds.

A task would do, and costs more than a whole step of the engine. What it would keep apart is kept apart here:
what the code sets in context variables, the scopes that it enters and does not leave, and, on asyncio, where
a task can be cancelled by anyone, that it cancels itself.
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
    """Start work that is not waited for, and that raises nothing; also from a callback, where no task
    runs.
    """
    task = _spawn(work)
    if isinstance(task, asyncio.Task):
        _ASIDE.add(task)
        task.add_done_callback(_ASIDE.discard)


def inlet() -> Callable[[Callable[[], object]], None]:
    """A way for any thread to have a function called in this event loop; once the loop is gone, nothing
    happens.
    """
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


AT_ONCE = 8
"""Runs that go on in one turn of the loop: about a millisecond."""


class Pace:
    """Lets the runs of one event loop go on in the order in which they come, a few in each turn of the
    loop.
    """

    def __init__(self) -> None:
        self.runs = 0  # that are driven here: as long as they are few, none waits
        self._room = AT_ONCE
        self._waiting: deque[anyio.Event] = deque()
        self._turner: Background | None = None  # gives the turns, as long as there are any to give

    @asynccontextmanager
    async def joined(self) -> AsyncGenerator[None]:
        """A run is driven while the block runs, which it begins at its turn."""
        self.runs += 1
        try:
            await self.turn()
            yield
        finally:
            self.runs -= 1

    async def turn(self) -> None:
        """Wait until it is this run's turn, if there are many."""
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
            while self._waiting:  # it was cancelled: nothing else would wake them
                self._waiting.popleft().set()


_PACE: RunVar[Pace] = RunVar("refold_pace")


def pace() -> Pace:
    """That of this event loop."""
    try:
        return _PACE.get()
    except LookupError:
        made = Pace()
        _PACE.set(made)
        return made


T = TypeVar("T")

LEFT_OPEN = "it left a cancel scope or a task group open, or closed one that was not its own"


class _Step:
    """Of the work's present step: how often others have cancelled its task since it began, and whether they
    closed it.
    """

    cancelled = 0
    closed = False


_STEP: ContextVar[_Step | None] = ContextVar("refold_isolated_step", default=None)


@coroutine
def isolated(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await `work` in a copy of this context.

    If it cancels its task, that is thrown into it, and ends with it.
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
            while task and task.cancelling() > before:  # nobody else had a turn
                by_itself = True
                task.uncancel()
        try:
            resume, value = work.send, (yield wanted)
        except BaseException as error:  # whatever it is, it is for the work to say
            step.closed = isinstance(error, GeneratorExit)
            resume, value = work.throw, error
    if task and by_itself:
        try:
            yield  # it may not have been thrown yet
        except asyncio.CancelledError:
            if task.cancelling() > before:  # somebody else did it meanwhile
                raise
    return result


def cut_short() -> bool:
    """In isolated work: whether somebody else has cancelled its task, as an event loop does that shuts
    down.
    """
    step, task = _STEP.get(), _asyncio_task()
    return step is not None and task is not None and step.cancelled > 0 and task.cancelling() > 0


def closed() -> bool:
    """In isolated work: whether somebody else closes it, as an interpreter does that ends.

    Elsewhere that is not known.
    """
    step = _STEP.get()
    return step is None or step.closed


async def leave(scope: anyio.CancelScope, error: RuntimeError) -> None:
    """Leave a scope of ours of which `error` says that others' code has left scopes open in it, and those
    with it.

    What goes on in them is cancelled. Raises `error` if it says something else, and a cancellation that is
    somebody else's.
    """
    if "cancel scope" not in str(error).lower():
        raise error
    task = _asyncio_task()
    if task is None:
        _let_go_of_nurseries()
    else:
        _leave_all(scope, task)
    await checkpoint()
    if cut_short():
        raise asyncio.CancelledError from error


def _leave_all(scope: anyio.CancelScope, task: "asyncio.Task[Any]") -> None:
    # Neither anyio nor trio has a way out of this that is meant to be used: hence names that are theirs
    # alone.
    from anyio._backends import _asyncio

    states: Any = _asyncio._task_states  # pyright: ignore
    inside, inner = list[Any](), states[task].cancel_scope
    while inner is not None and inner is not scope:
        inside.append(inner)
        inner = inner._parent_scope
    if inner is None:  # it was left by the code, too
        return
    for each in inside:
        each.cancel()
        each.__exit__(None, None, None)
    scope.__exit__(None, None, None)


def _let_go_of_nurseries() -> None:
    """Trio has left the inner scopes with the outer one, and cancelled what goes on there; it still counts
    the nurseries.
    """
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


def somebody_elses(error: BaseException) -> bool:
    """Whether it is the model's or the tool's own failure: no interrupt, and no cancellation that is ours."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return False
    if isinstance(error, GeneratorExit):
        return not closed()
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return True
    return not (anyio.current_effective_deadline() == -math.inf or cut_short())


class Exited(Exception):
    """A tool asked to end its process, as `sys.exit` does; it is told in those words."""


def worded(error: BaseException) -> str:
    """The error's class, and what it says of itself."""
    if isinstance(error, Exited):
        return str(error)
    try:
        said = str(error)
    except Exception:  # an error that cannot even be printed
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
