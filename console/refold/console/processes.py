"""Processes that share the work on a store, and their progress."""

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Protocol

import msgspec

from refold.console.options import option
from refold.console.screen import is_terminal
from refold.replay.dispatch import Workers
from refold.replay.shards import Shard

Jobs = Annotated[
    int | None, option("--jobs", "Number of processes for many runs.", min=1, shows="one per core")
]


class Unchecked(msgspec.Struct, frozen=True, kw_only=True):
    """A part that was not finished, as JSON, with the reason. Its runs are inconclusive."""

    part: str
    unchecked: str


_TRIES = 3
"""Attempts at a part whose process was killed: with others, with others again, and alone."""


@contextmanager
def processes(
    jobs: int | None, work: Sequence[Shard], begin: Callable[[], object] = gc.freeze
) -> Generator[Workers]:
    """Start at most `jobs` processes, or one per core; none if one suffices. Each calls `begin` first."""
    wanted = min(jobs or count_cores(), len(work))
    if wanted < 2:
        yield Workers()
        return
    start = partial(pool, wanted, begin)
    with start() as executor:
        try:
            yield Workers(executor=executor, replace=start, alone=partial(pool, 1, begin), tries=_TRIES)
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def pool(count: int, begin: Callable[[], object]) -> ProcessPoolExecutor:
    """Start `count` processes, which call `begin` first."""
    # A fresh interpreter, which does not inherit connections and threads.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, mp_context=context, initializer=begin)


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Advance(Protocol):
    """Adds to the progress."""

    def __call__(self, amount: int, /) -> None:
        """Add the amount."""
        ...


@contextmanager
def progress(what: str, total: int) -> Generator[Advance]:
    """Display a progress bar up to `total`, and remove it at the end."""
    with _bar(what, total, files=None) as advance:
        yield advance


@contextmanager
def progress_of_files(what: str, sizes: Sequence[int]) -> Generator[Advance]:
    """Display files, MB/s and the time left until files of these sizes are done; remove it at the end."""
    with _bar(what, sum(sizes), files=len(sizes)) as advance:
        yield advance


@contextmanager
def _bar(what: str, total: int, files: int | None) -> Generator[Advance]:
    if not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
    ]
    if files is not None:
        columns += [
            TextColumn(f"{{task.fields[done]}} of {files} files", markup=False),
            TransferSpeedColumn(),
        ]
    columns += [TimeRemainingColumn()]
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        # Results that go to a file or a pipe do not go to the terminal.
        redirect_stdout=is_terminal(sys.stdout),
    ) as bar:
        task = bar.add_task(what, total=total, done=0)
        done = 0

        def step(amount: int, /) -> None:
            nonlocal done
            done += 1
            bar.update(task, advance=amount, done=done)

        yield step
