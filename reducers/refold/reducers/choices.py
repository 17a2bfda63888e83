"""The words and keys that may stand at a place of a policy, read off its types."""

import re
from collections.abc import Collection, Iterator
from typing import Any

from msgspec import inspect


def choices(model: type, path: str) -> list[str]:
    """The words allowed at `path` (as in `limits[2].type`) of a value of type `model`, in order; none: no list."""
    return sorted({word for kind in _at(model, path) for word in _words(kind)})


def keys(model: type, path: str, tags: Collection[str]) -> list[str]:
    """The keys of the mapping at `path` (as in `limits[2]`) of a value of type `model`; none: any, or it is no mapping.

    Where it may be one of several kinds, `tags` are the texts that stand in it: the one that names its kind is among them.
    """
    meant = _meant(model, path, tags)
    tag_fields = [kind.tag_field for kind in meant if kind.tag_field]
    return sorted({*tag_fields, *(field.encode_name for kind in meant for field in kind.fields)})


def takes_fractions(model: type, path: str, key: str, tags: Collection[str]) -> bool:
    """Whether a number under `key` of the mapping at `path` may be a fraction; `tags` as for `keys`."""
    nodes = [node for kind in _meant(model, path, tags) for node in _inside(kind, key)]
    return any(isinstance(kind, inspect.FloatType) for node in nodes for kind in _alternatives(node))


def _meant(model: type, path: str, tags: Collection[str]) -> list[inspect.StructType]:
    structs = [kind for kind in _at(model, path) if isinstance(kind, inspect.StructType)]
    return [kind for kind in structs if kind.tag_field is None or kind.tag in tags]


def _at(model: type, path: str) -> list[Any]:
    nodes: list[Any] = [inspect.type_info(model)]
    for step in re.findall(r"[^.\[\]]+", path):
        nodes = [inner for node in nodes for kind in _alternatives(node) for inner in _inside(kind, step)]
    return [kind for node in nodes for kind in _alternatives(node)]


def _alternatives(node: Any) -> Iterator[Any]:
    if isinstance(node, inspect.UnionType):
        for kind in node.types:
            yield from _alternatives(kind)
    elif isinstance(node, inspect.Metadata):
        yield from _alternatives(node.type)
    else:
        yield node


def _inside(node: Any, step: str) -> Iterator[Any]:
    if isinstance(node, inspect.VarTupleType | inspect.ListType):
        yield node.item_type
    elif isinstance(node, inspect.StructType):
        if step == node.tag_field:
            yield inspect.LiteralType((node.tag,))
        yield from (field.type for field in node.fields if field.encode_name == step)


def _words(node: Any) -> Iterator[str]:
    if isinstance(node, inspect.LiteralType):
        yield from map(str, node.values)
    elif isinstance(node, inspect.EnumType):
        yield from (str(member.value) for member in node.cls)
