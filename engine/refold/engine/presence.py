"""Who may still act for a run: an engine that stands still in another process, a thread that one of ours left behind.

A lease keeps an engine from beginning anything new. What it had begun may go on after the lease: a process that was
suspended wakes up in the middle of a payment. So before a call is begun a second time it must be known that none is
left who could still finish the first.
"""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from threading import Lock

from refold.engine.holder import is_over, this_process

RUN: ContextVar[str] = ContextVar("refold_run", default="")
"""The run for which a tool acts."""

_ACTING: Counter[str] = Counter()  # by run: engines and threads of this process
_LOCK = Lock()  # threads end when they like


def begin(run: str) -> None:
    """One more acts for the run in this process."""
    with _LOCK:
        _ACTING[run] += 1


def end(run: str) -> None:
    """One less does."""
    with _LOCK:
        _ACTING[run] -= 1
        if not _ACTING[run]:
            del _ACTING[run]


@asynccontextmanager
async def acting(run: str) -> AsyncGenerator[None]:
    """An engine acts for the run while the block runs."""
    begin(run)
    try:
        yield
    finally:
        end(run)


def lingers(process: str, run: str) -> bool:
    """Whether what an engine of this process began for the run may still go on. Its own engine asks, no other.

    True wherever that cannot be known: of another machine, or of a process without a name.
    """
    return _ACTING[run] > 1 if process == this_process() else not is_over(process)
