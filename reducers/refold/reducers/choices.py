"""The words that may stand at a place of a policy, read off its types."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect


def choices(model: type, path: str) -> list[str]:
    """The words allowed at `path` (as in `limits[2].type`) of a value of type `model`, in order; none: no list."""
    nodes: list[Any] = [inspect.type_info(model)]
    for step in re.findall(r"[^.\[\]]+", path):
        nodes = [inner for node in nodes for kind in _alternatives(node) for inner in _inside(kind, step)]
    words = {word for node in nodes for kind in _alternatives(node) for word in _words(kind)}
    return sorted(words)


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
