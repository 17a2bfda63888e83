"""The command that writes a run as a page."""

from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from refold.console import places
from refold.console.options import Address, StorePath, screen_of

report_app = typer.Typer(rich_markup_mode=None)


@report_app.command("report", short_help="Write a run as one HTML page.")
def _report(
    context: typer.Context,
    run: Address,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page's file.")],
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    store: StorePath = None,
) -> int:
    """Write a run as one HTML page that opens from disk, without network: what happened, why, and what the model saw."""
    from refold.console.reports import report_command

    command = partial(report_command, force=force)
    return anyio.run(
        command, screen_of(context, None), places.store_place(store), run, places.expanded(output)
    )
