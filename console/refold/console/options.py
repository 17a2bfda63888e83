"""The arguments and options that several commands share, each with its words of help."""

from pathlib import Path
from typing import Annotated

import typer

from refold.console.screen import Form, Screen

Output = Annotated[
    Form | None, typer.Option("-o", "--output", help="How results are written.", show_default="text")
]
StorePath = Annotated[
    Path | None,
    typer.Option("--store", help="The store's file; also REFOLD_STORE.", show_default="the user's data"),
]
Address = Annotated[
    str, typer.Argument(help="RUN, RUN@e41 (event), RUN@t7 (turn) or @last; a prefix of an id will do.")
]
Runs = Annotated[list[str] | None, typer.Argument(help="RUN or @last; a prefix of an id will do.")]
Everything = Annotated[bool, typer.Option("--all", help="All runs of the store.")]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", help="Address of an OpenAI-compatible server; also REFOLD_BASE_URL."),
]
Root = Annotated[Path | None, typer.Option("--root", help="Directory that the files tools may reach.")]
Tools = Annotated[
    str | None,
    typer.Option(
        "--tools",
        help="files, files-ro (read only), todos, shell, module:attribute; by commas.",
        show_default="todos, and files with --root",
    ),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Record it and leave the run to a worker: see `refold worker`.")
]
Note = Annotated[str, typer.Option("--note", help="Why: recorded with the answer, not shown to the model.")]
By = Annotated[str | None, typer.Option("--by", help="Who says so.", show_default="your login name")]
WholeRun = Annotated[str, typer.Argument(help="RUN or @last; a prefix of an id will do.")]


def screen_of(context: typer.Context, output: Form | None) -> Screen:
    """Where the command writes: in the form that was asked for after it, before it, or in text."""
    chosen: Form | None = output or context.obj["output"]
    return Screen(chosen or Form.TEXT)
