"""Rules over the arguments that a model wrote: when they are complete, and when two calls are the same."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec


class _Written(str):
    """A number in the digits that the model wrote: 1.0 is not 1, and 1e400 is no infinity."""

    __slots__ = ()


class _Repeated(list[Any]):
    """The values of a key that stands more than once in its object. JSON does not say which of them an agent takes."""


def _with_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        values: dict[str, list[Any]] = {}
        for key, value in pairs:
            values.setdefault(key, []).append(value)
        found = {key: each[0] if len(each) == 1 else _Repeated(each) for key, each in values.items()}
    return found


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_DECODER = json.JSONDecoder(parse_float=_Written, parse_int=_Written)
_ALL_VALUES = json.JSONDecoder(parse_float=_Written, parse_int=_Written, object_pairs_hook=_with_repeated)
_ENCODER = json.JSONEncoder(ensure_ascii=False)
# A text that is not closed is matched to its end: else each of its quotes would be looked at again and again.
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_DEEPEST = 100
_TEXTS_IN_TEXTS = 8
"""How often a text in JSON may itself be JSON, and so on, and still be searched by its parts."""


def is_object(arguments: str) -> bool:
    """Whether arguments parse as a JSON object, not nested more than 100 deep; empty text counts as `{}`."""
    # Nothing is kept of it: 0.3 us instead of 1.1. What msgspec refuses may be one all the same: with a number of any
    # size in it, or half a pair of surrogates.
    try:
        _OBJECT.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return object_of(arguments) is not None
    return _depth(arguments) <= _DEEPEST


def object_of(arguments: str) -> Mapping[str, Any] | None:
    """The JSON object that the arguments are, numbers as they were written; None for text that is none."""
    parsed = _parsed(arguments)
    return cast("Mapping[str, Any]", parsed) if isinstance(parsed, dict) else None


def call_signature(name: str, arguments: str, clip: int) -> str:
    """`name(k=v,…)`: keys sorted; a string as it is, any other value as compact JSON with sorted keys.

    Numbers stay as they were written; a value counts up to its first `clip` characters. Arguments that are no
    JSON object stand as their raw text; empty text is `{}`.
    """
    parsed = object_of(arguments)
    if parsed is None:
        return f"{name}({arguments[:clip]})"
    pairs = sorted(parsed.items())
    return f"{name}({','.join(f'{key}={_value(value)[:clip]}' for key, value in pairs)})"


def canonical(arguments: str) -> str:
    """Arguments as compact JSON with sorted keys and numbers as written; text that is no JSON object as it is."""
    parsed = object_of(arguments)
    return arguments if parsed is None else _object(parsed)


def searched(arguments: str, field: str | None = None) -> list[str]:
    """What a pattern is looked for in: every text in the arguments, or what stands in `field` (`params.command`) alone.

    Numbers as written, true and false as words; the texts of a list each by itself and all of them, joined by spaces, as of
    a command and its words. The keys of objects are texts too, but for the names of the parameters. A text that is itself a
    JSON object or list is searched as it is and by its parts. If a key stands twice, both its values are searched: agents
    differ in which one they take. Of what is no JSON object the text as it is, for then nobody knows where a field ends.
    """
    found: Any = _all_values(arguments)
    if not isinstance(found, dict):
        return [arguments]
    texts: list[str] = []
    if field:
        values: list[Any] = [found]
        for key in field.split("."):
            inner = [cast("dict[str, Any]", each).get(key) for each in values if isinstance(each, dict)]
            values = [one for each in inner for one in (each if isinstance(each, _Repeated) else [each])]
        for value in values:
            _collect(value, texts)
    else:
        for value in cast("dict[str, Any]", found).values():
            _collect(value, texts)
    return texts


def _collect(value: Any, texts: list[str], within: int = 0) -> None:
    """Append the texts in a value, which stands within so many texts that are JSON themselves."""
    if isinstance(value, str):
        texts.append(value)
        if within < _TEXTS_IN_TEXTS and value.lstrip()[:1] in ("{", "["):
            _collect(_all_values.__wrapped__(value), texts, within + 1)
    elif isinstance(value, bool):
        texts.append("true" if value else "false")
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            texts.append(key)
            _collect(inner, texts, within)
    elif isinstance(value, list):
        inner = cast("Sequence[Any]", value)
        for each in inner:
            _collect(each, texts, within)
        if (
            len(inner) > 1
            and not isinstance(value, _Repeated)
            and all(isinstance(each, str) for each in inner)
        ):
            texts.append(" ".join(inner))


@lru_cache(maxsize=8)  # each guard asks about the same few calls
def _parsed(arguments: str) -> Any:
    """The arguments as an agent takes them that keeps the last value of a key."""
    return _decoded(arguments, _DECODER)


@lru_cache(maxsize=8)
def _all_values(arguments: str) -> Any:
    """The same with all values of each key."""
    return _decoded(arguments, _ALL_VALUES)


def _decoded(arguments: str, decoder: json.JSONDecoder) -> Any:
    # How deep the interpreter can go, and how long a number it converts, differs from one to the next: neither
    # may decide what a log means.
    if _depth(arguments) > _DEEPEST:
        return None
    try:
        # Without looking for space around it, which few have and which takes as long as reading the rest.
        found, end = decoder.raw_decode(arguments)
    except ValueError:
        found, end = None, -1
    if end == len(arguments):
        return found
    try:
        return decoder.decode(arguments or "{}")
    except ValueError:
        return None


def _depth(text: str) -> int:
    if text.count("{") + text.count("[") <= _DEEPEST:
        return 0  # it cannot be too deep, and that is all that is asked
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        if bracket in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in "]}":
            depth -= 1
    return deepest


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return _compact(value)


def _compact(value: object) -> str:
    write = _WRITERS.get(type(value))
    return write(value) if write else _ENCODER.encode(value)


def _object(values: Mapping[str, Any]) -> str:
    return "{" + ",".join(f"{_compact(key)}:{_compact(inner)}" for key, inner in sorted(values.items())) + "}"


def _row(values: list[Any]) -> str:
    return "[" + ",".join(map(_compact, values)) + "]"


_WRITERS: dict[type, Callable[[Any], str]] = {_Written: str, dict: _object, list: _row}


def batch_signature(calls: list[tuple[str, str]], clip: int) -> str:
    """The calls of one answer, sorted and joined by `;`: ids and order do not matter."""
    return ";".join(sorted(call_signature(name, arguments, clip) for name, arguments in calls))
