"""What tools return: which types can become text, and the text."""

import dataclasses
import logging
import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from refold.engine.tools import pydantic_types
from refold.engine.tools.annotations import alternatives, parts_of, unwritable_keys
from refold.engine.tools.signature import hints_of
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LOGGER = logging.getLogger("refold.tools")


def refuse_result(function: Callable[..., object], tool: str) -> None:
    """Refuse a function whose annotation says that it returns what JSON cannot carry. Raises `WrongUse`, naming the type.

    What is annotated with nothing, or `object`, is known only when it is there.
    """
    for kind in parts_of(hints_of(function, tool).get("return")):
        problem = _problem(kind)
        if problem:
            name = kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)
            raise WrongUse(f"tool {tool}: returns {name}, which JSON cannot carry: {problem}")


def as_text(result: object, tool: str = "") -> str:
    """What a tool returned, as the text that the model reads: text as it is, None as "", anything else as JSON.

    Lone surrogates are replaced, sets and keys are in order, numbers that are none are told by name: "nan", "inf". What JSON
    cannot carry (a `Path`, an object of the tool's own) becomes text by `str`, with a warning of the log `refold.tools`
    that names `tool` and the type: its call has had its effect, and must not look as if it had failed. An object
    without words of its own is told by the name of its type.
    """
    if result is None:
        return ""
    if isinstance(result, str):
        return clean(str.__str__(result))
    found: list[type] = []
    try:
        text = _json(result, found)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, or a structure that holds itself
        found = [type(result)]
        text = _described(result)
    for kind in found:
        _warn(tool, kind.__name__)
    return text


@cache  # once for each: a tool may be called a thousand times
def _warn(tool: str, kind: str) -> None:
    whose = f"tool {tool}" if tool else "a tool"
    _LOGGER.warning(
        "warning: %s returned a value of type %s, which JSON cannot carry: it is recorded as text",
        whose,
        kind,
    )


def _described(value: object) -> str:
    """An object in its own words; without any, or where they fail, the name of its type: never where it lies in memory."""
    kind = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        return f"<{kind.__name__}>"
    try:
        return clean(_ADDRESS.sub("", str(value)))
    except Exception:  # a stranger's own method
        return f"<{kind.__name__}>"


def _json(result: object, found: list[type]) -> str:
    """The JSON of a result; `found` gets the types that it has as text."""

    def hook(value: object) -> Any:
        if pydantic_types.is_model(type(value)):
            return pydantic_types.encode(value)
        found.append(type(value))
        return _described(value)

    try:
        text = msgspec.json.encode(result, enc_hook=hook, order="deterministic").decode()
    except (UnicodeEncodeError, TypeError):  # keys that are numbers can be put in order as texts only
        text = "null"
    # JSON has no number that is none: such a one is written as null, as what is not there.
    if "null" not in text:
        return text
    plain = msgspec.to_builtins(result, enc_hook=hook, order="deterministic", str_keys=True)
    return msgspec.json.encode(_cleaned(plain)).decode()


def _problem(kind: Any) -> str:
    """Why JSON cannot carry a type, and what to return in its place; "" where it can."""
    origin = get_origin(kind)
    if origin is dict:
        return "a key is text or a number there; return a list of pairs" if unwritable_keys(kind) else ""
    if origin in (set, frozenset):
        kinds = {float if each in (bool, int) else each for each in alternatives(get_args(kind)[0])}
        ordered = len(kinds) < 2 and not any(dataclasses.is_dataclass(each) for each in kinds)
        return "" if ordered else "it has no order of what is in it; return a list"
    if kind is None or kind is object or isinstance(kind, TypeVar):
        return ""
    try:
        if pydantic_types.is_model(kind):
            pydantic_types.schema(kind, "{model}", "serialization")
        else:
            msgspec.json.schema(
                kind, schema_hook=lambda made: pydantic_types.schema(made, "{model}", "serialization")
            )
    except (TypeError, NotImplementedError) as error:
        said = f"{error}; " if isinstance(error.__cause__, RuntimeError) else ""
        return f"{said}return {pydantic_types.KNOWN}"
    return ""


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return {_cleaned(key): _cleaned(each) for key, each in entries.items()}
    if isinstance(value, list):
        return [_cleaned(each) for each in cast("list[object]", value)]
    return value
