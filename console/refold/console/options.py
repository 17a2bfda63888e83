"""Options of commands as types, and functions converted to click commands.

async def ls_command(screen: Screen, place: StorePlace, *, most: Annotated[int, option("--most", "How many.")]
= 20) -> int

`screen` and `place` are provided, not typed: `screen` writes in the format of `-o`, which may stand before or
after the command; `place` is the store of `--store`. A parameter whose type is a Struct stands for one option
per field. A parameter without a default is required.
"""

import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import click
import msgspec

from refold.console.screen import OutputFormat
from refold.reducers.errors import WrongUse


class Typed(msgspec.Struct, frozen=True):
    """How a parameter is typed: an option by its `names`, or without names an argument.

    `default` computes the default value if the function has none; `shows` is its description in the help. A
    list that `may_lack` may be empty.
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
    """Define an option with its help text. If its type is a list, it may be repeated."""
    return Typed((name,), help, **more)


def argument(help: str, **more: Any) -> Typed:  # noqa: A002
    """Define an argument with its help text."""
    return Typed((), help, **more)


def words(help: str) -> Typed:  # noqa: A002
    """Define any number of arguments, including none: a list."""
    return argument(help, may_lack=True)


OUT = "--out"
"""The option for an output file. `-o` is the format of results on every command."""


def new_file(help: str, **more: Any) -> Typed:  # noqa: A002
    """Define `--out FILE`; `shows` is the default file's name."""
    return Typed((OUT,), help, metavar="FILE", **more)


def _login() -> str:
    from refold.console.locations import login

    return login()


Output = Annotated[OutputFormat | None, Typed(("-o", "--output"), "Output format.", shows="text")]
StorePath = Annotated[
    str | None,
    option(
        "--store",
        "The store: a file, or postgresql://HOST/DATABASE; also REFOLD_STORE.",
        metavar="STORE",
        shows="in the user's data folder",
    ),
]
OtherStore = Annotated[str | None, option("--other-store", "The store of the second run.", shows="the same")]
Address = Annotated[
    str, argument("RUN, RUN@e41 (event), RUN@t7 (turn), RUN@c3 (call) or @last; ids may be prefixes.")
]
WholeRun = Annotated[str, argument("RUN or @last; an id may be a prefix.")]
Runs = Annotated[list[str], words("RUN or @last; ids may be prefixes.")]
Everything = Annotated[bool, option("--all", "All runs of the store.")]
Labels = Annotated[list[str], option("--label", "name=value, recorded with the run.")]
PolicyFile = Annotated[Path | None, option("--policy", "Policy file (.toml, .yaml, .json), or a preset.")]
Settings = Annotated[
    list[str], option("--set", "KEY=VALUE, as limits.step=20: change the recorded policy, or --policy.")
]
Note = Annotated[str, option("--why", "Reason, recorded with the answer and not sent to the model.")]
By = Annotated[
    str,
    option("--by", "Who decides, as recorded.", default=_login, shows="your login name"),
]
Force = Annotated[bool, option("--force", "Overwrite an existing file.")]


class DriveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is driven from here: its tools, their directory, and the model's address and price."""

    root: Annotated[Path | None, option("--root", "Directory that the file tools may access.")] = None
    tools: Annotated[
        list[str],
        option(
            "--tools",
            "files, files-ro (read only), todos, shell, module or module:attribute; comma-separated, or repeated.",
            shows="todos, and files with --root",
        ),
    ] = []
    base_url: Annotated[
        str | None, option("--base-url", "Address of an OpenAI-compatible server; also REFOLD_BASE_URL.")
    ] = None
    price: Annotated[
        str | None, option("--price", "IN/OUT: the model's price, dollars per million tokens, as 0.5/1.5.")
    ] = None
    timeout: Annotated[
        float | None,
        option("--timeout", "Seconds that the model's server may stay silent.", shows="120"),
    ] = None

    @property
    def typed(self) -> str:
        """The options for another command that drives the run in the same way:

        ` --root DIR --tools shell`, or nothing.
        """
        given = {name: getattr(self, name) for name in DriveOptions.__struct_fields__}
        given["tools"] = ",".join(self.tools) if self.tools else None
        return "".join(
            f" --{name.replace('_', '-')} {shlex.quote(f'{value:g}' if isinstance(value, float) else str(value))}"
            for name, value in given.items()
            if value is not None
        )


class MeansOrWorker(DriveOptions, frozen=True, kw_only=True):
    """The same for commands that may leave the run to a worker."""

    detach: Annotated[
        bool, option("--detach", "Only record it, and leave the run to a worker (see `refold worker`).")
    ] = False


def labels_of(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `name=value` texts into labels. Raises `WrongUse`."""
    return dict(split_pairs(pairs, "--label", "name=value, each name once"))


def split_pairs(pairs: Sequence[str], name: str, expected: str) -> Iterator[tuple[str, str]]:
    """Split each text at its first `=`. Raises `WrongUse`."""
    keys = set[str]()
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or key in keys:
            raise WrongUse(f"{name} {pair!r}: expected {expected}")
        keys.add(key)
        yield key, value


_EMPTY = inspect.Parameter.empty
_GIVEN = ("screen", "place")
_PLAIN = {str: click.STRING, bool: click.BOOL, int: click.INT, float: click.FLOAT}


class _EnumChoice(click.Choice[str]):
    """A value of an enumeration."""

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__([each.value for each in kind])
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the member with the value."""
        if self._kind is OutputFormat and value not in self.choices and ctx and _writes_file(ctx.command):
            self.fail(
                f"{value!r} is not a format (text or json); to write to a file, use {OUT} {value}", param, ctx
            )
        return self._kind(super().convert(str(value), param, ctx))


class _Path(click.ParamType[Path]):
    """A path; a leading `~` is expanded."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ARG002 - the parser's signature
        """Return the path."""
        from refold.console.locations import expand_home

        return expand_home(Path(value))


class _NewFile(_Path):
    """The path of a file to write.

    The bare name of a format is refused: a user who types `--out json` usually means `-o json`.
    """

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Fails for `json` and `text`."""
        if problem := format_problem(value):
            self.fail(problem, param, ctx)
        return super().convert(value, param, ctx)


def format_problem(value: str) -> str:
    """Return why a bare word cannot be a file to write, "" if it can."""
    if value not in {form.value for form in OutputFormat}:
        return ""
    return f"{value!r} is a format: type -o {value}, or {OUT} ./{value} for a file of this name"


def _writes_file(typed: click.Command) -> bool:
    return any(OUT in each.opts for each in typed.params)


def command(name: str, function: Callable[..., Any]) -> click.Command:
    """Create the command for a function that returns an exit code; its docstring is the help."""
    own = inspect.signature(function).parameters
    bundles = {
        name: each.annotation
        for name, each in own.items()
        if name not in _GIVEN and _is_bundle(each.annotation)
    }
    typed = [option for name, each in own.items() for option in _parameters(each, bundles.get(name))]
    if "place" in own:
        typed.append(parameter("store", StorePath, None))
    typed.append(parameter("output", Output, None))

    def call(**said: Any) -> int:
        work = partial(function, **_arguments(said, bundles))
        code: int
        if not inspect.iscoroutinefunction(function):
            code = work()
            return code
        import anyio

        code = anyio.run(work)
        return code

    return click.Command(name, callback=call, params=typed, help=function.__doc__)


def _arguments(said: dict[str, Any], bundles: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a command's function from the typed values."""
    from refold.console.screen import Screen

    said = {name: _as_list(value) for name, value in said.items()}
    form = said.pop("output", None) or click.get_current_context().obj or OutputFormat.TEXT
    given: dict[str, Any] = {"screen": Screen(form)}
    if "store" in said:
        from refold.console.locations import store_place

        given["place"] = store_place(said.pop("store"))
    for bundle, kind in bundles.items():
        given[bundle] = kind(**{field: said.pop(field) for field in kind.__struct_fields__})
    return given | said


def _as_list(value: Any) -> Any:
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def parameter(name: str, annotation: Any, default: Any = _EMPTY) -> click.Parameter:
    """Create the click argument or option of a parameter; a list takes any number of values."""
    hint, said = get_args(annotation)
    (kind,) = [each for each in get_args(hint) if each is not NoneType] or [hint]
    many = get_origin(hint) is list
    needed = default is _EMPTY and not (said.may_lack or said.default or (many and said.names))
    more: dict[str, Any] = {
        "type": _type(kind, said),
        "help": f"{said.help}  [default: {said.shows}]" if said.shows else said.help,
        "metavar": said.metavar,
        "required": needed,
    }
    if default is not _EMPTY:
        more["default"] = default
    elif said.default is not None:
        more["default"] = said.default
    if isinstance(default, Enum):
        more["default"] = default.value
    if not said.names:
        return click.Argument([name], nargs=-1 if many else 1, **more)
    # A described default is part of the help text already.
    shown = not said.shows and default not in (_EMPTY, "")
    return click.Option([name, *said.names], is_flag=kind is bool, multiple=many, show_default=shown, **more)


def _type(kind: type, said: Typed) -> click.ParamType[Any]:
    if said.min is not None or said.max is not None:
        return click.IntRange(said.min, said.max) if kind is int else click.FloatRange(said.min, said.max)
    if issubclass(kind, Enum):
        return _EnumChoice(kind)
    if kind is Path:
        return _NewFile() if OUT in said.names else _Path()
    return _PLAIN[kind]


def _is_bundle(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, msgspec.Struct)


def _parameters(own: inspect.Parameter, bundle: Any) -> list[click.Parameter]:
    if own.name in _GIVEN:
        return []
    if bundle is None:
        return [parameter(own.name, own.annotation, own.default)]
    kinds = get_type_hints(bundle, include_extras=True)
    return [
        parameter(each.name, kinds[each.name], _EMPTY if each.default is msgspec.NODEFAULT else each.default)
        for each in msgspec.structs.fields(bundle)
    ]
