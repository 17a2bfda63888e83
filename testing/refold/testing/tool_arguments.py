"""Valid arguments for a tool, generated from its JSON schema."""

import random
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from refold.engine.arguments import wrong_value
from refold.engine.tools.protocol import Tool
from refold.testing.schemas import Schemas

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Offered = Tool | Mapping[str, Any] | str
"""A tool, its JSON schema, or the schema as JSON text."""


def arguments_of(schema: Offered, chance: random.Random) -> dict[str, Any]:
    """Generate valid arguments for a tool.

    Two things are not in the schemas that `@tool` makes: the format of a `datetime` that may have no time
    zone (annotate it with `msgspec.Meta(tz=True)`), and keys of a mapping that are neither text nor numbers.

    Args:
        schema: the tool, or the JSON schema of its arguments, as data or JSON text.
        chance: the only source of variation. Equal states of it give equal arguments.

    Raises:
        WrongUse: no valid arguments were found; the message names the part of the schema.
    """
    plain = _plain(schema)
    return cast("dict[str, Any]", Schemas(plain, chance).value(plain, "arguments"))


def arguments(schema: Offered) -> "SearchStrategy[dict[str, Any]]":
    """Return a Hypothesis strategy of valid arguments for a tool; see `arguments_of`.

    Failing examples shrink to fewer optional arguments, shorter texts and smaller numbers.
    """
    from hypothesis import strategies

    return strategies.randoms(use_true_random=False).map(partial(arguments_of, _plain(schema)))


def _plain(schema: object) -> dict[str, Any]:
    expected = "a tool, or the JSON schema of an object as a mapping or JSON text"
    plain = schema.manifest.schema if isinstance(schema, Tool) else schema
    if isinstance(plain, str):
        try:
            plain = msgspec.json.decode(plain)
        except msgspec.DecodeError as error:
            raise wrong_value("schema", expected, schema, f"its JSON is invalid: {error}") from error
    if not isinstance(plain, Mapping):
        raise wrong_value("schema", expected, schema)
    plain = dict(cast("Mapping[str, Any]", plain))
    if plain.setdefault("type", "object") != "object":
        raise wrong_value("schema", expected, schema, "arguments are always an object")
    return plain
