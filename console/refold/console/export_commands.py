"""The command that writes runs in the shapes that other programs read."""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from refold.console import places
from refold.console.export_shapes import Shape
from refold.console.options import Everything, StorePath, screen_of

export_app = typer.Typer(rich_markup_mode=None)


@export_app.command("export", short_help="Write runs in the shapes that other programs read.")
def _export(
    context: typer.Context,
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="RUN, RUN@e41, RUN@t7 (up to there) or @last; a prefix of an id will do."),
    ] = None,
    *,
    to: Annotated[Shape, typer.Option("--to", help="In which shape.")] = Shape.JSONL,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file.", show_default="stdout")
    ] = None,
    everything: Everything = False,
    no_content: Annotated[
        bool, typer.Option("--no-content", help="Without what was said: for jsonl, otel and parquet.")
    ] = False,
    prompts: Annotated[
        bool,
        typer.Option("--prompts", help="For otel: all that each request showed, not only what is new in it."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    store: StorePath = None,
) -> int:
    """Write runs as JSON lines, Markdown for a ticket, OpenAI messages, OpenTelemetry spans (OTLP/JSON) or Parquet."""
    from refold.console.exports import ExportRequest, export_command

    request = ExportRequest(
        typed=runs or [],
        shape=to,
        file=None if output is None else places.expanded(output),
        everything=everything,
        content=not no_content,
        prompts=prompts,
        force=force,
    )
    return anyio.run(export_command, screen_of(context, None), places.store_place(store), request)
