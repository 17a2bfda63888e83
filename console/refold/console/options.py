"""The arguments and options that several commands share, each with its words of help."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from refold.console import places
from refold.console.screen import Form


def path_option(*names: str, help: str, **more: Any) -> Any:  # noqa: A002 - as typer calls it
    """An option that is a path, in which `~` stands for a home."""
    return typer.Option(*names, help=help, parser=_path, **more)


def words(help: str) -> Any:  # noqa: A002 - as typer calls it
    """Any number of arguments: a list."""
    return typer.Argument(help=help, default_factory=list, show_default=False)


def repeated(*names: str, help: str, **more: Any) -> Any:  # noqa: A002 - as typer calls it
    """An option that may stand there several times: a list."""
    return typer.Option(*names, help=help, default_factory=list, show_default=False, **more)


def paths_option(*names: str, help: str) -> Any:  # noqa: A002 - as typer calls it
    """An option that is a path, and may stand there several times."""
    return repeated(*names, help=help, parser=_path)


def path_argument(help: str, **more: Any) -> Any:  # noqa: A002 - as typer calls it
    """An argument that is a path, in the same way."""
    return typer.Argument(help=help, parser=_path, **more)


def _path(text: str) -> Path:
    return places.expanded(Path(text))


Output = Annotated[
    Form | None, typer.Option("-o", "--output", help="How results are written.", show_default="text")
]
StorePath = Annotated[
    Path | None,
    typer.Option("--store", help="The store's file; also REFOLD_STORE.", show_default="the user's data"),
]
OtherStore = Annotated[
    Path | None, typer.Option("--other-store", help="The store of the second run.", show_default="the same")
]
Address = Annotated[
    str, typer.Argument(help="RUN, RUN@e41 (event), RUN@t7 (turn) or @last; a prefix of an id will do.")
]
WholeRun = Annotated[str, typer.Argument(help="RUN or @last; a prefix of an id will do.")]
Runs = Annotated[
    list[str],
    words("RUN or @last; a prefix of an id will do."),
]
Everything = Annotated[bool, typer.Option("--all", help="All runs of the store.")]
Labels = Annotated[
    list[str],
    repeated("--label", help="name=value, recorded with the run."),
]
PolicyFile = Annotated[
    Path | None,
    path_option("--policy", help="Policy file (.toml, .yaml, .json), or a preset."),
]
Settings = Annotated[
    list[str],
    repeated("--set", help="limits.step=20: change this of the recorded policy, or of --policy."),
]
Note = Annotated[str, typer.Option("--note", help="Why: recorded with the answer, not shown to the model.")]
By = Annotated[
    str,
    typer.Option("--by", help="Who says so.", default_factory=places.login, show_default="your login name"),
]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """With what a run is driven from here: its tools, their directory, the model's address; or it is left to a worker."""

    root: Annotated[Path | None, typer.Option("--root", help="Directory that the files tools may reach.")] = (
        None
    )
    tools: Annotated[
        str | None,
        typer.Option(
            "--tools",
            help="files, files-ro (read only), todos, shell, module:attribute; by commas.",
            show_default="todos, and files with --root",
        ),
    ] = None
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="Address of an OpenAI-compatible server; also REFOLD_BASE_URL."),
    ] = None


class MeansOrWorker(Means, frozen=True, kw_only=True):
    """The same, of a command that may leave the run to a worker."""

    detach: Annotated[
        bool, typer.Option("--detach", help="Record it and leave the run to a worker: see `refold worker`.")
    ] = False
