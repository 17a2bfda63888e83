"""How far a long command is, on stderr: a bar where a person watches, nothing elsewhere."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from refold.console.screen import watched


class Step(Protocol):
    """Says that so much more is done."""

    def __call__(self, amount: int, /) -> None:
        """Take note of it."""
        ...


@contextmanager
def progress(what: str, total: int) -> Generator[Step]:
    """A bar that fills up to `total`, and is gone at the end."""
    if not watched(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def step(amount: int, /) -> None:
            bar.advance(task, amount)

        yield step
