"""What tools return: which types can become text, and the text."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from refold.engine.tools import pydantic_types
from refold.engine.tools.annotations import alternatives, parts_of, unwritable_keys
from refold.engine.tools.signature import hints_of
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean


def refuse_result(function: Callable[..., object], tool: str) -> None:
    """Refuse a function whose annotation says that it returns what JSON cannot carry. Raises `WrongUse`, naming the type.

    What is annotated with nothing, or `object`, is known only when it is there.
    """
    for kind in parts_of(hints_of(function, tool).get("return")):
        problem = _problem(kind)
        if problem:
            name = kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)
            raise WrongUse(f"tool {tool}: returns {name}, which JSON cannot carry: {problem}")


def as_text(result: object) -> str:
    """What a tool returned, as the text that the model reads: text as it is, None as "", anything else as JSON.

    Lone surrogates are replaced, sets and keys are in order, numbers that are none are told by name: "nan", "inf". Raises
    `TypeError` for what JSON cannot carry.
    """
    if result is None:
        return ""
    if isinstance(result, str):
        return clean(str.__str__(result))
    try:
        return _json(result)
    except (TypeError, ValueError, RecursionError) as error:
        # Whoever reads this must not take it for a tool that failed, and try again what was done.
        raise TypeError(f"the tool did return, and what it returned is lost: {error}") from error


def _json(result: object) -> str:
    try:
        text = msgspec.json.encode(result, enc_hook=pydantic_types.encode, order="deterministic").decode()
    except (UnicodeEncodeError, TypeError):  # keys that are numbers can be put in order as texts only
        text = "null"
    # JSON has no number that is none: such a one is written as null, as what is not there.
    return _cleaned_json(result) if "null" in text else text


def _cleaned_json(result: object) -> str:
    plain = msgspec.to_builtins(result, enc_hook=pydantic_types.encode, order="deterministic", str_keys=True)
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
