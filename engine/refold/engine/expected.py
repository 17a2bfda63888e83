"""What a caller gave in place of what was expected: told with the argument, the value, and the way out."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from refold.reducers.errors import WrongUse

_LONGEST = 80
_PLAIN = frozenset({"NoneType", "bool", "int", "float", "str", "bytes", "list", "tuple", "dict", "set"})


def wrong(place: str, expected: str, value: object, way_out: str = "") -> WrongUse:
    """The error for a value that is not what was expected at `place`."""
    return WrongUse(f"{place}: expected {expected}, got {named(value)}{'; ' if way_out else ''}{way_out}")


def named(value: object) -> str:
    """A value as a person knows it: short ones as they are written, a function or a class by its name."""
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    kind = type(value).__name__
    if kind in _PLAIN:
        said = repr(value)
        return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"


def text(given: object, place: str) -> str:
    """Text. Raises `WrongUse` for anything else."""
    if not isinstance(given, str):
        raise wrong(place, "text", given)
    return given


def mapping(given: object, place: str, example: str) -> Mapping[str, Any]:
    """A mapping of names, None as an empty one. Raises `WrongUse` for anything else."""
    if given is not None and not isinstance(given, Mapping):
        raise wrong(place, f"a mapping, as in {example}", given)
    return cast("Mapping[str, Any]", given or {})


def listed(given: object, place: str, example: str) -> Iterable[Any]:
    """Several values in a row, and not one of them, a text or a mapping. Raises `WrongUse` for anything else."""
    walk = (
        None if hasattr(given, "keys") or isinstance(given, str | bytes) else getattr(given, "__iter__", None)
    )
    if walk is None:
        raise wrong(place, f"a list, as in {example}", given)
    every: list[Any] = list(walk())
    return every


def seconds(given: object, place: str, otherwise: str = "") -> float:
    """Seconds above 0. Raises `WrongUse` for anything else; `otherwise` says what might stand there, too."""
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < math.inf:
        return given
    raise wrong(place, f"seconds above 0{otherwise}", given)


def function(given: object, place: str) -> Callable[..., Any]:
    """Something to be called. Raises `WrongUse` for anything else."""
    if not callable(given):
        raise wrong(place, "a function", given)
    return given
