"""The arguments and options that several commands share."""

import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum, unique
from pathlib import Path
from typing import Annotated, Any

import msgspec

from refold.reducers.errors import WrongUse


@unique
class Form(StrEnum):
    """How results are written."""

    TEXT = "text"
    JSON = "json"


class Typed(msgspec.Struct, frozen=True):
    """What is said of a parameter that can be typed: an option by its `names`, or, without, an argument.

    `default` makes what it is when nothing is typed, where the function has no default itself; `shows` is said of it in the
    help. A list that `may_lack` may be empty.
    """

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    min: Any = None
    max: Any = None
    shows: str | None = None
    default: Callable[[], Any] | None = None
    may_lack: bool = False


def option(name: str, help: str, **more: Any) -> Typed:  # noqa: A002 - as everybody calls it
    """An option by its name, with its words of help; one that is a list may stand there several times."""
    return Typed((name,), help, **more)


def argument(help: str, **more: Any) -> Typed:  # noqa: A002
    """An argument, with its words of help."""
    return Typed((), help, **more)


def words(help: str) -> Typed:  # noqa: A002
    """Any number of arguments, or none: a list."""
    return argument(help, may_lack=True)


OUT = "--out"
"""The option that names a file to write, on every command that writes one. `-o` is the format of results, on every command."""


def new_file(help: str, **more: Any) -> Typed:  # noqa: A002
    """`--out FILE`, of a command that writes one; `shows` is the name of the file without it."""
    return Typed((OUT,), help, metavar="FILE", **more)


def _login() -> str:
    from refold.console.places import login

    return login()


Output = Annotated[Form | None, Typed(("-o", "--output"), "How results are written.", shows="text")]
StorePath = Annotated[
    Path | None, option("--store", "The store's file; also REFOLD_STORE.", shows="the user's data")
]
OtherStore = Annotated[Path | None, option("--other-store", "The store of the second run.", shows="the same")]
Address = Annotated[str, argument("RUN, RUN@e41 (event), RUN@t7 (turn) or @last; a prefix of an id will do.")]
WholeRun = Annotated[str, argument("RUN or @last; a prefix of an id will do.")]
Runs = Annotated[list[str], words("RUN or @last; a prefix of an id will do.")]
Everything = Annotated[bool, option("--all", "All runs of the store.")]
Labels = Annotated[list[str], option("--label", "name=value, recorded with the run.")]
PolicyFile = Annotated[Path | None, option("--policy", "Policy file (.toml, .yaml, .json), or a preset.")]
Settings = Annotated[
    list[str], option("--set", "limits.step=20: change this of the recorded policy, or of --policy.")
]
Note = Annotated[str, option("--why", "Why: recorded with the answer, not shown to the model.")]
By = Annotated[
    str,
    option("--by", "Who says so.", default=_login, shows="your login name"),
]
Force = Annotated[bool, option("--force", "Write over a file that is there.")]


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """With what a run is driven from here: its tools, their directory, the model's address; or it is left to a worker."""

    root: Annotated[Path | None, option("--root", "Directory that the files tools may reach.")] = None
    tools: Annotated[
        list[str],
        option(
            "--tools",
            "files, files-ro (read only), todos, shell, module or module:attribute; by commas, or once more.",
            shows="todos, and files with --root",
        ),
    ] = []
    base_url: Annotated[
        str | None, option("--base-url", "Address of an OpenAI-compatible server; also REFOLD_BASE_URL.")
    ] = None
    price: Annotated[
        str | None, option("--price", "IN/OUT: what the model costs, dollars per million tokens; 0.5/1.5.")
    ] = None
    timeout: Annotated[
        float | None,
        option("--timeout", "Seconds for which the model's server may stay silent.", shows="120"),
    ] = None

    @property
    def typed(self) -> str:
        """What to type after another command so that it drives the run by the same: ` --root DIR --tools shell`, or nothing."""
        given = {name: getattr(self, name) for name in Means.__struct_fields__}
        given["tools"] = ",".join(self.tools) if self.tools else None
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


def labels_of(pairs: Sequence[str]) -> dict[str, str]:
    """`name=value` texts as labels. Raises `WrongUse`."""
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or name in labels:
            raise WrongUse(f"--label {pair!r}: expected name=value, each name once")
        labels[name] = value
    return labels
