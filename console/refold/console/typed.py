"""What can be typed for a function: each parameter is an argument or an option, by what is said of it in its type.

    async def ls_command(screen: Screen, place: StorePlace, *, most: Annotated[int, option("--most", "How many.")] = 20) -> int

`screen` and `place` are given, not typed: the one writes as `-o` says, before the command or after it; the other is what
`--store` names. A parameter that is a Struct stands for the options that its fields are. The default is the parameter's own;
what has none must be typed.
"""

import inspect
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import click
import msgspec

from refold.console.options import OUT, Form, Output, StorePath, Typed

_EMPTY = inspect.Parameter.empty
_GIVEN = ("screen", "place")
_PLAIN = {str: click.STRING, bool: click.BOOL, int: click.INT, float: click.FLOAT}


class _Choice(click.Choice[str]):
    """One of an enumeration's values."""

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__([each.value for each in kind])
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The member that has the value."""
        if self._kind is Form and value not in self.choices and ctx and _writes_file(ctx.command):
            self.fail(
                f"{value!r} is no format (text or json). To write into a file: {OUT} {value}", param, ctx
            )
        return self._kind(super().convert(str(value), param, ctx))


class _Path(click.ParamType[Path]):
    """A path, in which `~` stands for a home."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ARG002 - the parser's signature
        """The path."""
        from refold.console.places import expanded

        return expanded(Path(value))


class _NewFile(_Path):
    """A path of a file to write. The name of a format alone is refused: `-o json` was meant more often than a file `json`."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path. Fails for `json` and `text`."""
        if value in {form.value for form in Form}:
            self.fail(
                f"{value!r} is a format: type -o {value}, or {OUT} ./{value} for a file of this name",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


def _writes_file(typed: click.Command) -> bool:
    return any(OUT in each.opts for each in typed.params)


def command(name: str, function: Callable[..., Any]) -> click.Command:
    """The command that does the function, whose docstring is its help. It returns the exit code."""
    own = inspect.signature(function).parameters
    bundles = {
        name: each.annotation
        for name, each in own.items()
        if name not in _GIVEN and _is_bundle(each.annotation)
    }
    typed = [option for name, each in own.items() for option in _typed(each, bundles.get(name))]
    if "place" in own:
        typed.append(parameter("store", StorePath, None))
    typed.append(parameter("output", Output, None))
    lists = {each.name for each in typed if each.multiple or each.nargs == -1}

    def call(**said: Any) -> int:
        from refold.console.screen import Screen

        said = {name: list(value) if name in lists else value for name, value in said.items()}
        form = said.pop("output", None) or click.get_current_context().obj or Form.TEXT
        given: dict[str, Any] = {"screen": Screen(form)}
        if "place" in own:
            from refold.console.places import store_place

            given["place"] = store_place(said.pop("store"))
        for bundle, kind in bundles.items():
            given[bundle] = kind(**{field: said.pop(field) for field in kind.__struct_fields__})
        work = partial(function, **given, **said)
        code: int
        if not inspect.iscoroutinefunction(function):
            code = work()
            return code
        import anyio

        code = anyio.run(work)
        return code

    return click.Command(name, callback=call, params=typed, help=function.__doc__)


def parameter(name: str, annotation: Any, default: Any = _EMPTY) -> click.Parameter:
    """An argument or an option, as it is typed; many of them, or none, for a list."""
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
    # What is said of a default stands in the help already: click would put it in parentheses.
    shown = not said.shows and default not in (_EMPTY, "")
    return click.Option([name, *said.names], is_flag=kind is bool, multiple=many, show_default=shown, **more)


def _type(kind: type, said: Typed) -> click.ParamType[Any]:
    if said.min is not None or said.max is not None:
        return click.IntRange(said.min, said.max) if kind is int else click.FloatRange(said.min, said.max)
    if issubclass(kind, Enum):
        return _Choice(kind)
    if kind is Path:
        return _NewFile() if OUT in said.names else _Path()
    return _PLAIN[kind]


def _is_bundle(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, msgspec.Struct)


def _typed(own: inspect.Parameter, bundle: Any) -> list[click.Parameter]:
    if own.name in _GIVEN:
        return []
    if bundle is None:
        return [parameter(own.name, own.annotation, own.default)]
    kinds = get_type_hints(bundle, include_extras=True)
    return [
        parameter(each.name, kinds[each.name], _EMPTY if each.default is msgspec.NODEFAULT else each.default)
        for each in msgspec.structs.fields(bundle)
    ]
