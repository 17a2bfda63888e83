"""The arguments of a tool: the schema that a model is given, and what is refused against it."""

import enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import BadArguments, CallContext
from support.tool_of import CALL, of, schema

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: int
    y: int = 0


class Cat(msgspec.Struct, tag="cat"):
    lives: int = 9


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Node(msgspec.Struct):
    value: int
    kids: "list[Node]" = []


@pytest.mark.parametrize(
    ("annotation", "default", "expected"),
    [
        pytest.param(int, ..., {"type": "integer"}, id="a number"),
        pytest.param(bool, True, {"type": "boolean", "default": True}, id="a default"),
        pytest.param(
            Annotated[str, msgspec.Meta(max_length=4, description="short")],
            ...,
            {"type": "string", "maxLength": 4, "description": "short"},
            id="constraints and a description",
        ),
        pytest.param(Literal["b", "a"], "a", {"enum": ["a", "b"], "default": "a"}, id="a literal"),
        pytest.param(Colour, Colour.RED, {"enum": ["blue", "red"], "default": "red"}, id="an enum"),
        pytest.param(
            set[str],
            frozenset({"q", "p"}),
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "default": ["p", "q"]},
            id="a set, in order",
        ),
        pytest.param(
            str | None,
            None,
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            id="optional",
        ),
        pytest.param(
            list[Point],
            ...,
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                    "required": ["x"],
                    "additionalProperties": False,
                },
            },
            id="a nested object is laid out, not referred to",
        ),
        pytest.param(
            Cat | Dog,
            ...,
            {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"type": {"enum": ["cat"]}, "lives": {"type": "integer", "default": 9}},
                        "required": ["type"],
                    },
                    {
                        "type": "object",
                        "properties": {"type": {"enum": ["dog"]}, "name": {"type": "string"}},
                        "required": ["type", "name"],
                    },
                ]
            },
            id="a tagged union has no discriminator that refers elsewhere",
        ),
    ],
)
def test_schema(annotation: Any, default: Any, expected: dict[str, Any]) -> None:
    """One row a kind of argument: the schema of the argument is exactly this."""
    got = schema(of(annotation, default))
    assert {
        "type": "object",
        "properties": {"x": expected},
        "required": ["x"] if default is ... else [],
        "additionalProperties": False,
    } == got


def test_a_type_that_holds_itself_keeps_its_definition() -> None:
    """Every reference left in a schema points into the same schema."""
    got = schema(of(Node))
    assert {"$ref": "#/$defs/Node"} == got["$defs"]["Node"]["properties"]["kids"]["items"]
    assert "object" == got["properties"]["x"]["type"]


def test_arguments_keep_the_order_of_the_signature() -> None:
    """A model reads the arguments in the order in which the function has them."""

    @tool
    def move(source: str, destination: str, again: bool = False) -> None: ...

    assert ["source", "destination", "again"] == list(schema(move)["properties"])


async def test_context_is_given_and_not_offered() -> None:
    """A parameter annotated CallContext is absent from the schema and gets the call's context."""

    @tool
    def key(text: str, context: CallContext) -> str:
        return f"{text} {context.key}"

    assert ["text"] == list(schema(key)["properties"])
    assert "a k1" == await key.run('{"text": "a"}', CALL)
    with pytest.raises(BadArguments, match="unknown field `context`"):
        await key.run('{"text": "a", "context": {"run": "x", "call": "y", "key": "z"}}', CALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param("{}", "Object missing required field `x`. f takes: x, points (optional)", id="missing"),
        pytest.param(
            '{"x": "1"}', "Expected `int`, got `str` - at `$.x`. f takes: x, points (optional)", id="type"
        ),
        pytest.param(
            '{"x": 1, "points": [{"x": null}]}',
            "Expected `int`, got `null` - at `$.points[0].x`. f takes: x, points (optional)",
            id="within",
        ),
        pytest.param(
            '{"x": 1, "z": 2}',
            "Object contains unknown field `z`. f takes: x, points (optional)",
            id="unknown",
        ),
        pytest.param("[]", "Expected `object`, got `array`. f takes: x, points (optional)", id="no object"),
        pytest.param('{"x": 1', "Input data was truncated. f takes: x, points (optional)", id="no JSON"),
        pytest.param(
            '{"x": 1, "p\ud800": 2}',
            "Character 11 of the arguments is an unpaired surrogate. f takes: x, points (optional)",
            id="a lone surrogate",
        ),
    ],
)
async def test_bad_arguments_name_the_place(arguments: str, message: str) -> None:
    """Arguments against the schema raise BadArguments that says where, and what was expected; the tool is not
    run.
    """

    @tool
    def f(x: int, points: list[Point] = []) -> None:  # noqa: B006 - a default that is shared, on purpose
        raise AssertionError(x, points)

    with pytest.raises(BadArguments) as caught:
        await f.run(arguments, CALL)
    assert message == str(caught.value)


async def test_arguments_nested_too_deeply_are_bad_arguments() -> None:
    """Arguments that would exhaust the stack are refused like any others."""
    with pytest.raises(BadArguments, match="nested too deeply"):
        await of(Any).run('{"x": ' + "[" * 100_000, CALL)


async def test_a_default_is_not_shared_between_calls() -> None:
    """What one call does to a default value does not reach the next call."""

    @tool
    def grow(items: list[int] = [1]) -> list[int]:  # noqa: B006 - what the test is about
        items.append(2)
        return items

    assert ["[1,2]", "[1,2]"] == [await grow.run("{}", CALL), await grow.run("{}", CALL)]
