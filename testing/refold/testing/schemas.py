"""Values that fit a JSON schema, drawn from a source of chance.

Small draws give simple values, so Hypothesis, which draws smaller numbers when it shrinks, ends with few
properties, short texts and numbers near zero.
"""

import math
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from refold.reducers.errors import WrongUse
from refold.testing.patterns import matching_text
from refold.testing.texts import FORMATS, base64_text, plain_text

Schema = Mapping[str, Any]
Node = Schema | bool
"""A schema, True for any value, or False for none."""

_DEEPEST = 4  # nesting at which only what is required is generated
_MORE = 3  # items and properties beyond the least number
_WIDE = 1000  # numbers are drawn from a range of this size
_TRIES = 100
_UNIONS = ("anyOf", "oneOf")
_ANYTHING: list[Any] = [None, False, 0, "", "a", 1.5, [], {}]
_KINDS = {
    "properties": "object",
    "additionalProperties": "object",
    "required": "object",
    "items": "array",
    "prefixItems": "array",
    "minLength": "string",
    "maxLength": "string",
    "pattern": "string",
    "format": "string",
    "contentEncoding": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
}
"""What a schema without a type describes, by the first of these keys that it has."""


class Schemas:
    """A schema whose references are resolved, and the source of chance for its values."""

    def __init__(self, root: Schema, chance: random.Random) -> None:
        self._root, self._chance = root, chance

    def value(self, schema: Node, place: str, depth: int = 0) -> Any:
        """Return a value that fits; `place` names the part of the schema in errors. Raises `WrongUse`."""
        if schema is False:
            raise WrongUse(f"{place}: the schema is false, so no value fits; remove it")
        whole = {} if schema is True else self._resolved(schema, place)
        if "const" in whole:
            return whole["const"]
        if "enum" in whole:
            if not whole["enum"]:
                raise WrongUse(f"{place}: the enum is empty, so no value fits; list its values")
            return self._chance.choice(whole["enum"])
        for union in _UNIONS:
            if union in whole:
                rest = {key: each for key, each in whole.items() if key not in _UNIONS}
                picked = self._picked(_with_numerals(whole[union]), depth, place)
                return self.value(_merged(rest, self._resolved(picked, place)), place, depth)
        return self._typed(whole, place, depth)

    def _typed(self, schema: Schema, place: str, depth: int) -> Any:
        kinds: list[str] | str | None = schema.get("type", _kind(schema))
        if isinstance(kinds, list):
            kinds = self._chance.choice(kinds) if depth < _DEEPEST else min(kinds)
        match kinds:
            case "object":
                return self._object(schema, place, depth)
            case "array":
                return self._array(schema, place, depth)
            case "string":
                return self._text(schema, place)
            case "integer":
                return self._number(schema, place, whole=True)
            case "number":
                return self._number(schema, place, whole=False)
            case "boolean":
                return self._chance.choice([False, True])
            case "null":
                return None
            case None:
                return self._chance.choice(_ANYTHING)
            case _:
                raise WrongUse(f"{place}: the type {kinds!r} is not one of JSON Schema's")

    def _resolved(self, schema: Node, place: str) -> dict[str, Any]:
        """Return the schema with references and `allOf` replaced by what they mean."""
        whole: dict[str, Any] = {} if isinstance(schema, bool) else dict(schema)
        followed: set[str] = set()
        while "$ref" in whole:
            reference = str(whole.pop("$ref"))
            if reference in followed:
                raise WrongUse(f"{place}: {reference} refers to itself, so no value fits")
            followed.add(reference)
            whole = _merged(whole, self._referred(reference, place))
        for part in whole.pop("allOf", ()):
            whole = _merged(whole, self._resolved(part, place))
        return whole

    def _referred(self, reference: str, place: str) -> Schema:
        node: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or name not in node:
                raise WrongUse(f"{place}: {reference} is not in the schema; only references into it are read")
            node = cast("Mapping[str, Any]", node)[name]
        return cast("Schema", node)

    def _picked(self, branches: list[Schema], depth: int, place: str) -> Schema:
        if depth < _DEEPEST:
            # Null is the simplest, and shrinking tends to the first.
            return self._chance.choice(sorted(branches, key=lambda each: not _is_null(each)))
        return min(branches, key=lambda each: self._height(each, frozenset(), place))

    def _height(self, schema: Node, within: frozenset[str], place: str) -> float:
        """Return how deeply the smallest value is nested; infinite within its own definition."""
        if isinstance(schema, bool):
            return 0 if schema else math.inf
        if (reference := schema.get("$ref")) is not None:
            if reference in within:
                return math.inf
            within |= {reference}
        whole = self._resolved(schema, place)
        if "const" in whole or "enum" in whole:
            return 0
        for union in _UNIONS:
            if union in whole:
                return min([self._height(each, within, place) for each in whole[union]], default=math.inf)
        needed = [whole.get("properties", {}).get(name, True) for name in whole.get("required", ())]
        least = whole.get("minItems", 0)
        needed += (whole.get("prefixItems") or [])[:least] or ([whole.get("items", True)] if least else [])
        return max([1 + self._height(each, within, place) for each in needed], default=0)

    def _object(self, schema: Schema, place: str, depth: int) -> dict[str, Any]:
        properties: Schema = schema.get("properties", {})
        required = [name for name in schema.get("required", ()) if name not in properties]
        made: dict[str, Any] = {}
        for name, each in properties.items():
            if name in schema.get("required", ()) or self._more(depth):
                made[name] = self.value(each, f"{place}.{name}", depth + 1)
        others = schema.get("additionalProperties", True)
        for name in required:
            made[name] = self.value(others, f"{place}.{name}", depth + 1)
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", math.inf)
        if properties and len(made) >= least:
            return made  # unknown properties are allowed at best
        wanted = self._count(least, most, depth)
        for attempt in range(_TRIES):
            if len(made) >= wanted or others is False:
                break
            key = self._drawn(attempt)._key(schema.get("propertyNames"), place, depth)
            if key not in made:
                made[key] = self.value(others, f"{place}.{key}", depth + 1)
        if len(made) < least:
            raise WrongUse(f"{place}: no {least} different properties were found; minProperties is {least}")
        return made

    def _key(self, names: Schema | None, place: str, depth: int) -> str:
        # Keys of a mapping may be numbers, which the schemas of `@tool` do not show: digits fit both.
        if names is None:
            return str(self._chance.randint(0, 99))
        return str(self.value({"type": "string", **names}, f"{place} (a key)", depth + 1))

    def _drawn(self, attempt: int) -> "Schemas":
        """Return the generator of one more different value: after many equal draws, one with other luck.

        Hypothesis may draw the same value again and again.
        """
        return self if attempt < _MORE else Schemas(self._root, random.Random(attempt))  # noqa: S311 - no secret

    def _array(self, schema: Schema, place: str, depth: int) -> list[Any]:
        first: list[Schema] = schema.get("prefixItems", [])
        others = schema.get("items", True)
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        if others is False or (first and "items" not in schema):
            most = min(most, len(first))
        wanted = self._count(least, most, depth, usual=len(first) or None)
        made: list[Any] = []
        written: set[bytes] = set()
        for attempt in range(max(_TRIES, 2 * wanted)):
            if len(made) >= wanted:
                break
            each = first[len(made)] if len(made) < len(first) else others
            source = self._drawn(attempt - len(made))
            item = source.value(each, f"{place}[{len(made)}]", depth + 1)
            mark = msgspec.json.encode(item, order="deterministic")
            if not schema.get("uniqueItems") or mark not in written:
                made.append(item)
                written.add(mark)
        if len(made) < least:
            raise WrongUse(f"{place}: no {least} different items were found; minItems is {least}")
        return made

    def _text(self, schema: Schema, place: str) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)

        def fits(text: str) -> bool:
            return bool(least <= len(text) <= most)

        if (pattern := schema.get("pattern")) is not None:
            found = matching_text(pattern, self._chance, fits)
            if found is None:
                raise WrongUse(
                    f"{place}: no text was found that matches {pattern!r} and has its length; simplify the "
                    "pattern, or list values in an enum"
                )
            return found
        if schema.get("contentEncoding") == "base64":
            return base64_text(self._chance, least, most)
        if schema.get("contentMediaType") == "application/json":
            return msgspec.json.encode(self.value(schema.get("contentSchema", True), place)).decode()
        made: Callable[[random.Random], str] | None = FORMATS.get(schema.get("format", ""))
        if made is not None and fits(text := made(self._chance)):
            return text
        return plain_text(self._chance, least, self._count(least, most, 0, usual=least))

    def _number(self, schema: Schema, place: str, *, whole: bool) -> float:
        low = _bound(schema, "minimum", -math.inf, max)
        high = _bound(schema, "maximum", math.inf, min)
        step = schema.get("multipleOf") or (1 if whole else None)
        if step is None and (low > -math.inf or high < math.inf) and math.floor(high) <= math.ceil(low):
            return self._within(low, high, schema, place)
        multiple = 1 if step is None else step

        def fits(number: float) -> bool:
            return (
                low <= number <= high
                and number != schema.get("exclusiveMinimum")
                and number != schema.get("exclusiveMaximum")
            )

        first, last = _multiples(low, high, multiple)
        candidates = [self._chance.randint(first, last) * multiple] if first <= last else []
        candidates += [each * multiple for each in (first, first + 1, last - 1, last)]
        number = next((each for each in candidates if fits(each)), None)
        if number is None:
            if step is None:
                return self._within(low, high, schema, place)
            raise WrongUse(f"{place}: no multiple of {step} is between {low} and {high}")
        return number + self._chance.choice([0, 0.5]) if step is None and fits(number + 0.5) else number

    def _within(self, low: float, high: float, schema: Schema, place: str) -> float:
        """Return a fraction of a range that holds no whole number, or one at its bound."""
        for share in (self._chance.choice([0.5, 0.25, 0.75, 0, 1]), 0.5, 0, 1):
            number = low + (high - low) * share
            if number not in (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")) and low <= high:
                return number
        raise WrongUse(f"{place}: no number is between {low} and {high}; correct its bounds")

    def _more(self, depth: int) -> bool:
        return depth < _DEEPEST and self._chance.choice([False, True])

    def _count(self, least: int, most: float, depth: int, usual: int | None = None) -> int:
        """Return a number of items; `usual` is the number of those that are described one by one."""
        if depth >= _DEEPEST:
            return least
        return self._chance.randint(least, int(min(most, max(least, usual or 0) + _MORE)))


def _is_null(schema: Schema) -> bool:
    return schema.get("type") == "null"


def _with_numerals(branches: list[Schema]) -> list[Schema]:
    """Return the branches of a union; a text beside a number is a numeral.

    That is how pydantic describes a `Decimal`, without saying which texts it takes.
    """
    if not any(each.get("type") == "number" for each in branches):
        return branches
    return [{**each, "format": "decimal"} if each == {"type": "string"} else each for each in branches]


def _kind(schema: Schema) -> str | None:
    return next((kind for key, kind in _KINDS.items() if key in schema), None)


def _bound(schema: Schema, name: str, otherwise: float, stricter: Callable[[float, float], float]) -> float:
    exclusive = "exclusive" + name.capitalize()
    return stricter(schema.get(name, otherwise), schema.get(exclusive, otherwise))


def _multiples(low: float, high: float, step: float) -> tuple[int, int]:
    """Return the first and last factor of `step` to draw from: near zero if zero is in the range."""
    if low == -math.inf and high == math.inf:
        return -_WIDE, _WIDE
    first = None if low == -math.inf else math.ceil(low / step)
    last = None if high == math.inf else math.floor(high / step)
    if first is None:
        first = cast("int", last) - _WIDE
    elif last is None:
        last = first + _WIDE
    return first, cast("int", last)


def _merged(base: Schema, more: Schema) -> dict[str, Any]:
    """Return one schema with the keys of both; for a key that both have, the value of `more` counts."""
    both = {**base, **more}
    if "properties" in base and "properties" in more:
        both["properties"] = {**base["properties"], **more["properties"]}
    if "required" in base and "required" in more:
        both["required"] = [*dict.fromkeys([*base["required"], *more["required"]])]
    return both
