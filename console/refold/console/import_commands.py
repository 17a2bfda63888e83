"""The command that imports transcripts of other agents."""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from refold.console import places
from refold.console.options import Output, StorePath, screen_of

import_app = typer.Typer(rich_markup_mode=None)


@import_app.command("import", short_help="Import transcripts of other agents.")
def _import(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or folders of them.")],
    *,
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option("--format", help="The format of all the files.", show_default="told by their content"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count, write nothing.")] = False,
    store: StorePath = None,
    output: Output = None,
) -> int:
    """Make runs of transcripts of other agents. What is there already is not added again.

    With -o json: one line a file, with its counts, its runs and what was odd in it.
    """
    from refold.console.imports import ImportRequest, import_command

    request = ImportRequest(paths=paths, format=format, dry_run=dry_run)
    return anyio.run(import_command, screen_of(context, output), places.store_place(store), request)
