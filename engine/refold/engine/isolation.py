"""Other people's code in a task of ours, as if it had one of its own.

A task would do, and costs more than a whole step of the engine. What it would keep apart is kept apart here: what the
code sets in context variables, the scopes that it enters and does not leave, and, on asyncio, where a task can be cancelled
by anyone, that it cancels itself.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import ContextVar, copy_context
from types import coroutine
from typing import Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint

T = TypeVar("T")

LEFT_OPEN = "it left a cancel scope or a task group open, or closed one that was not its own"


class _Step:
    """Of the work's present step: how often others have cancelled its task since it began, and whether they closed it."""

    cancelled = 0
    closed = False


_STEP: ContextVar[_Step | None] = ContextVar("refold_isolated_step", default=None)


@coroutine
def isolated(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await `work` in a copy of this context. If it cancels its task, that is thrown into it, and ends with it."""
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
    """In isolated work: whether somebody else has cancelled its task, as an event loop does that shuts down."""
    step, task = _STEP.get(), _asyncio_task()
    return step is not None and task is not None and step.cancelled > 0 and task.cancelling() > 0


def closed() -> bool:
    """In isolated work: whether somebody else closes it, as an interpreter does that ends. Elsewhere that is not known."""
    step = _STEP.get()
    return step is None or step.closed


async def leave(scope: anyio.CancelScope, error: RuntimeError) -> None:
    """Leave a scope of ours of which `error` says that others' code has left scopes open in it, and those with it.

    What goes on in them is cancelled. Raises `error` if it says something else, and a cancellation that is somebody else's.
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
    # Neither anyio nor trio has a way out of this that is meant to be used: hence names that are theirs alone.
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
    """Trio has left the inner scopes with the outer one, and cancelled what goes on there; it still counts the nurseries."""
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
