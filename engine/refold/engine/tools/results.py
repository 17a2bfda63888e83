"""What tools return: which types can become text, and the text."""

import types
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

import msgspec

from refold.engine.tools import pydantic_types
from refold.engine.tools.signature import hints_of
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean


def refuse_result(function: Callable[..., object], tool: str) -> None:
    """Refuse a function whose annotation says that it returns what JSON cannot carry. Raises `WrongUse`, naming the type.

    What is annotated with nothing, or `object`, is known only when it is there.
    """
    returns = hints_of(function, tool).get("return")
    for kind in _leaves(returns):
        if not _carried(kind):
            name = getattr(kind, "__qualname__", str(kind))
            raise WrongUse(
                f"tool {tool}: returns {name}, which JSON cannot carry: return text, numbers, lists and mappings of them, "
                "or a dataclass, a TypedDict, a Struct or a pydantic model"
            )


def as_text(result: object) -> str:
    """What a tool returned, as the text that the model reads: text as it is, None as "", anything else as JSON.

    Lone surrogates are replaced, sets and keys are in order. Raises `TypeError` for what JSON cannot carry.
    """
    if result is None:
        return ""
    if isinstance(result, str):
        return clean(str.__str__(result))
    try:
        return _json(result)
    except (TypeError, ValueError) as error:
        # Whoever reads this must not take it for a tool that failed, and try again what was done.
        raise TypeError(f"the tool did return, and what it returned is lost: {error}") from error


def _json(result: object) -> str:
    try:
        return msgspec.json.encode(result, enc_hook=pydantic_types.encode, order="deterministic").decode()
    except (UnicodeEncodeError, TypeError):  # keys that are numbers can be put in order as texts only
        plain = msgspec.to_builtins(
            result, enc_hook=pydantic_types.encode, order="deterministic", str_keys=True
        )
        return msgspec.json.encode(_cleaned(plain)).decode()


def _leaves(annotation: Any) -> list[Any]:
    """The types of which an annotation is made. What a plain wrapper of an async function returns is what it awaits."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Awaitable, Coroutine):
        return _leaves(parts[-1])
    if origin is Annotated:
        return _leaves(parts[0])
    if origin in (Union, types.UnionType):  # each of its own: encoding needs not tell them apart
        return [leaf for part in parts for leaf in _leaves(part)]
    if origin in (list, tuple, set, frozenset, dict):
        return [leaf for part in parts if part is not Ellipsis for leaf in _leaves(part)]
    return [annotation]


def _carried(kind: Any) -> bool:
    if kind is None or kind is object or isinstance(kind, TypeVar) or pydantic_types.is_model(kind):
        return True
    try:
        msgspec.json.schema(kind, schema_hook=lambda made: pydantic_types.schema(made, "{model}"))
    except (TypeError, NotImplementedError):
        return False
    return True


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return {_cleaned(key): _cleaned(each) for key, each in entries.items()}
    if isinstance(value, list):
        return [_cleaned(each) for each in cast("list[object]", value)]
    return value
