"""Descriptions of values as text, to compare the outside world before and after an execution."""

import re
from collections.abc import Collection, Iterable, Mapping, Set
from enum import Enum
from inspect import isclass, isroutine
from types import ModuleType
from typing import cast

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), Enum)
_SHOWN = 60  # characters of each side of a difference


def describe_state(value: object) -> str:
    """Return a text that is equal for equal states.

    It contains the attributes of objects, whatever their class, and the members of collections. Mappings
    and sets are sorted. Functions, classes and modules are described by name.
    """
    return _describe(value, ())


def _describe(value: object, above: tuple[int, ...]) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isclass(value) or isroutine(value) or isinstance(value, ModuleType):
        return str(getattr(value, "__qualname__", getattr(value, "__name__", "")))
    if id(value) in above:
        return "..."
    inside = (*above, id(value))
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value).items()
        pairs = sorted(f"{_describe(key, inside)}: {_describe(each, inside)}" for key, each in entries)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Set):
        members = cast("Set[object]", value)
        return f"{{{', '.join(sorted(_describe(each, inside) for each in members))}}}"
    fields = _fields_of(value)
    if fields is not None:
        shown = (f"{name}={_describe(each, inside)}" for name, each in fields.items())
        return f"{type(value).__name__}({', '.join(shown)})"
    if isinstance(value, Collection):
        items = cast("Collection[object]", value)
        return f"[{', '.join(_describe(each, inside) for each in items)}]"
    return _ADDRESS.sub("", repr(value))


def _fields_of(value: object) -> dict[str, object] | None:
    """Return the attributes of an object; None if it has none."""
    slots = (
        name
        for kind in type(value).__mro__
        for name in _names(kind.__dict__.get("__slots__", ()))
        or _names(getattr(kind, "__struct_fields__", ()))
    )
    found = {
        name: getattr(value, name) for name in slots if hasattr(value, name) and not name.startswith("__")
    }
    found.update(getattr(value, "__dict__", {}))
    return found or None


def _names(slots: object) -> Iterable[str]:
    """Return the names in `__slots__`: a text, or names; of some types it is neither."""
    if isinstance(slots, str):
        return (slots,)
    return cast("Iterable[str]", slots) if isinstance(slots, tuple | list) else ()


def compare_states(before: str, after: str) -> str:
    """Return the parts in which two descriptions differ, in one line."""
    start = next(
        (place for place, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
        min(len(before), len(after)),
    )
    begin = max(0, start - _SHOWN // 2)
    return f"before {_cut(before, begin)}, after {_cut(after, begin)}"


def _cut(text: str, begin: int) -> str:
    end = begin + _SHOWN
    return f"{'…' * (begin > 0)}{text[begin:end]}{'…' * (end < len(text))}"
