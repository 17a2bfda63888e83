"""`refold model fetch` and `refold model list`: the embedded models' weights on this machine."""

from pathlib import Path
from typing import Annotated

from refold.console.options import argument, option
from refold.console.screen import Column, Screen, note
from refold.engine.models import weights
from refold.engine.models.weights import Progress
from refold.replay import figures


def model_list_command(screen: Screen) -> int:
    """List the embedded models, and whether their weights are on this machine."""
    found = weights.available()
    columns = [Column("model"), Column("size", right=True), Column("fetched"), Column("file")]
    rows = [
        [f"local:{each.name}", figures.size(each.size), "yes" if each.fetched else "no", each.path]
        for each in found
    ]
    screen.result(found, lambda: screen.table(columns, rows))
    return 0


def model_fetch_command(
    screen: Screen,
    name: Annotated[str, argument("Which model.")] = "smollm2-135m",
    *,
    check: Annotated[bool, option("--check", "Check the digest of what is there, too.")] = False,
) -> int:
    """Fetch a model's weights into the user's cache, and print where they are."""
    bare = name.removeprefix("local:")
    path = fetched(bare, check=check)
    made = {"name": bare, "path": str(path), "size": path.stat().st_size}
    screen.result(made, lambda: screen.say(str(path)))
    return 0


def fetched(name: str, *, check: bool = False) -> Path:
    """The path of a model's weights, fetched with a bar on the terminal, or a line every tenth where there is none."""
    from rich.console import Console

    console = Console(stderr=True, markup=False, highlight=False)
    if not console.is_terminal:
        return weights.fetch(name, progress=_lines(name), check=check)
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn(f"fetching {name}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=None)
        return weights.fetch(
            name, progress=lambda done, total: bar.update(task, completed=done, total=total), check=check
        )


def _lines(name: str) -> Progress:
    told = -1

    def progress(done: int, total: int) -> None:
        nonlocal told
        tenth = done * 10 // total if total else 0
        if tenth > told:
            told = tenth
            note(f"fetching {name}: {figures.size(done)} of {figures.size(total)}")

    return progress
