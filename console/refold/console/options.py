"""The arguments and options that several commands share, each with its words of help."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from refold.console.forms import Form


def option(name: str, help: str, **more: Any) -> Any:  # noqa: A002 - as typer calls it
    """An option by its name, with its words of help."""
    return typer.Option(name, help=help, **more)


def argument(help: str, **more: Any) -> Any:  # noqa: A002
    """An argument, with its words of help."""
    return typer.Argument(help=help, **more)


def words(help: str) -> Any:  # noqa: A002
    """Any number of arguments: a list."""
    return argument(help, default_factory=list, show_default=False)


def repeated(name: str, help: str, **more: Any) -> Any:  # noqa: A002
    """An option that may stand there several times: a list."""
    return option(name, help, default_factory=list, show_default=False, **more)


def path_argument(help: str) -> Any:  # noqa: A002
    """An argument that is a path, in which `~` stands for a home."""
    return argument(help, parser=_path)


def path_option(name: str, help: str) -> Any:  # noqa: A002
    """An option that is such a path."""
    return option(name, help, parser=_path)


def paths_option(name: str, help: str) -> Any:  # noqa: A002
    """An option that is a path, and may stand there several times."""
    return repeated(name, help, parser=_path)


def new_file(help: str, **more: Any) -> Any:  # noqa: A002
    """`-o FILE`, of a command that writes one; `show_default` says how it is named otherwise."""
    return typer.Option("-o", "--output", help=help, parser=_path, **more)


def _path(text: str) -> Path:
    from refold.console.places import expanded

    return expanded(Path(text))


def _login() -> str:
    from refold.console.places import login

    return login()


Output = Annotated[
    Form | None, typer.Option("-o", "--output", help="How results are written.", show_default="text")
]
StorePath = Annotated[
    Path | None, option("--store", "The store's file; also REFOLD_STORE.", show_default="the user's data")
]
OtherStore = Annotated[
    Path | None, option("--other-store", "The store of the second run.", show_default="the same")
]
Address = Annotated[str, argument("RUN, RUN@e41 (event), RUN@t7 (turn) or @last; a prefix of an id will do.")]
WholeRun = Annotated[str, argument("RUN or @last; a prefix of an id will do.")]
Runs = Annotated[list[str], words("RUN or @last; a prefix of an id will do.")]
Everything = Annotated[bool, option("--all", "All runs of the store.")]
Labels = Annotated[list[str], repeated("--label", "name=value, recorded with the run.")]
PolicyFile = Annotated[
    Path | None, path_option("--policy", "Policy file (.toml, .yaml, .json), or a preset.")
]
Settings = Annotated[
    list[str], repeated("--set", "limits.step=20: change this of the recorded policy, or of --policy.")
]
Note = Annotated[str, option("--note", "Why: recorded with the answer, not shown to the model.")]
By = Annotated[
    str,
    typer.Option("--by", help="Who says so.", default_factory=_login, show_default="your login name"),
]
Force = Annotated[bool, option("--force", "Write over a file that is there.")]


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """With what a run is driven from here: its tools, their directory, the model's address; or it is left to a worker."""

    root: Annotated[Path | None, option("--root", "Directory that the files tools may reach.")] = None
    tools: Annotated[
        str | None,
        option(
            "--tools",
            "files, files-ro (read only), todos, shell, module:attribute; by commas.",
            show_default="todos, and files with --root",
        ),
    ] = None
    base_url: Annotated[
        str | None, option("--base-url", "Address of an OpenAI-compatible server; also REFOLD_BASE_URL.")
    ] = None
    price: Annotated[
        str | None, option("--price", "IN/OUT: what the model costs, dollars per million tokens; 0.5/1.5.")
    ] = None
    timeout: Annotated[
        float | None,
        option("--timeout", "Seconds for which the model's server may stay silent.", show_default="120"),
    ] = None

    @property
    def typed(self) -> str:
        """What to type after another command so that it drives the run by the same: ` --root DIR --tools shell`, or nothing."""
        given = {name: getattr(self, name) for name in Means.__struct_fields__}
        return "".join(
            f" --{name.replace('_', '-')} {shlex.quote(f'{value:g}' if isinstance(value, float) else str(value))}"
            for name, value in given.items()
            if value is not None
        )


class MeansOrWorker(Means, frozen=True, kw_only=True):
    """The same, of a command that may leave the run to a worker."""

    detach: Annotated[
        bool, option("--detach", "Record it and leave the run to a worker: see `refold worker`.")
    ] = False
