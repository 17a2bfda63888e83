"""Valid arguments for the JSON schemas of functions with `@tool`, at random."""

import random
from typing import Any, cast

_TEXTS = ("", "a", "pear", "two words", "ä ü")
_DEPTH = 6


def arguments_of(schema: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return an object that a schema accepts. Optional properties are sometimes left out.

    Args:
        schema: the JSON schema of an object.
        chance: the source of randomness.
    """
    return cast("dict[str, Any]", _sample(schema, schema, chance, 0))


def _sample(schema: dict[str, Any], top: dict[str, Any], chance: random.Random, depth: int) -> object:
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", maxsplit=1)[-1]
        return _sample(top["$defs"][name], top, chance, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        plain = [each for each in alternatives if each.get("type") == "null"]
        return _sample(
            chance.choice(plain if plain and depth > _DEPTH else alternatives), top, chance, depth + 1
        )
    match schema.get("type"):
        case "object":
            return _sample_object(schema, top, chance, depth)
        case "array":
            count = max(int(schema.get("minItems", 0)), 0 if depth > _DEPTH else chance.choice((0, 1, 2)))
            items = cast("dict[str, Any]", schema.get("items") or {})
            return [
                _sample(items, top, chance, depth + 1)
                for _ in range(min(count, schema.get("maxItems", count)))
            ]
        case "integer":
            least = int(schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1))
            most = int(schema.get("maximum", schema.get("exclusiveMaximum", least + 101) - 1))
            return chance.choice((least, most, chance.randint(least, max(least, most))))
        case "number":
            low = float(schema.get("minimum", 0))
            return chance.choice((low, low + 0.5)) if "maximum" not in schema else low
        case "boolean":
            return chance.random() < 0.5
        case "null":
            return None
        case _:
            least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", 100))
            return chance.choice(_TEXTS)[:most].ljust(least, "x")


def _sample_object(
    schema: dict[str, Any], top: dict[str, Any], chance: random.Random, depth: int
) -> dict[str, object]:
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    required = schema.get("required", ())
    return {
        name: _sample(each, top, chance, depth + 1)
        for name, each in properties.items()
        if name in required or (depth <= _DEPTH and chance.random() < 0.6)
    }
