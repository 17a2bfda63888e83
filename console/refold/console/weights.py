"""`refold model fetch` and `refold model list`: the embedded models' weights on this machine."""

from pathlib import Path

from refold.console import figures
from refold.console.screen import Column, Screen, note
from refold.engine.models import weights
from refold.engine.models.weights import Progress


def list_command(screen: Screen) -> int:
    """List the known models. Exit code 0."""
    found = weights.available()
    if screen.json:
        screen.document(found)
        return 0
    columns = [Column("model"), Column("size", right=True), Column("fetched"), Column("file")]
    rows = [
        [f"local:{each.name}", figures.size(each.size), "yes" if each.fetched else "no", each.path]
        for each in found
    ]
    screen.table(columns, rows)
    return 0


def fetch_command(screen: Screen, name: str, *, check: bool) -> int:
    """Fetch a model's weights, if they are not there; say where they are. Exit code 0."""
    bare = name.removeprefix("local:")
    path = fetched(bare, check=check)
    if screen.json:
        screen.document({"name": bare, "path": str(path), "size": path.stat().st_size})
    else:
        screen.say(str(path))
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
