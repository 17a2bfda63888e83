"""Of which types an annotation is made, and which of them JSON cannot have as keys."""

import dataclasses
import types
from collections.abc import Awaitable, Coroutine
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from refold.engine.tools import pydantic_types

_CONTAINERS = (tuple, list, dict, set, frozenset, msgspec.Struct, type(None))


def parts_of(annotation: Any) -> list[Any]:
    """The types of which an annotation is made, mappings and sets before what is in them.

    What a plain wrapper of an async function returns is what it awaits.
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Awaitable, Coroutine):
        return parts_of(parts[-1])
    if origin is Annotated:
        return parts_of(parts[0])
    within = [each for part in parts if part is not Ellipsis for each in parts_of(part)]
    if origin in (Union, types.UnionType, list, tuple):  # each of its own: encoding needs not tell them apart
        return within
    return [annotation, *within] if origin in (set, frozenset, dict) else [annotation]


def alternatives(annotation: Any) -> list[Any]:
    """The types of which a value has one."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return alternatives(parts[0])
    if origin in (Union, types.UnionType):
        return [each for part in parts for each in alternatives(part)]
    return [annotation]


def unwritable_keys(kind: Any) -> list[Any]:
    """The types of keys of this mapping that JSON, whose keys are texts, cannot write; of anything else there are none."""
    return (
        []
        if get_origin(kind) is not dict
        else [key for key in alternatives(get_args(kind)[0]) if not _is_key(key)]
    )


def _is_key(kind: Any) -> bool:
    plain = get_origin(kind) or kind
    container = kind is None or (isinstance(plain, type) and issubclass(plain, _CONTAINERS))
    return not container and not dataclasses.is_dataclass(kind) and not pydantic_types.is_model(kind)
