"""Arguments generated from a schema: the tool accepts them."""

import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import random
import uuid
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, Union

import anyio
import msgspec
import pydantic
import pytest
from hypothesis import find, given
from hypothesis import strategies as st
from msgspec import Meta

from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import Tool
from refold.reducers.errors import WrongUse
from refold.testing import arguments, arguments_of
from support.tool_of import CALL, of

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
    friend: "Dog | Cat | None" = None


class Node(msgspec.Struct):
    value: int
    kids: "list[Node]" = []


class Chain(msgspec.Struct):
    rest: "Chain | None"


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str = ""


class Pair(NamedTuple):
    a: int
    b: str = ""


class Options(TypedDict, total=False):
    depth: int


@dataclasses.dataclass
class Place:
    city: Annotated[str, Meta(min_length=1)]
    tags: set[str] = dataclasses.field(default_factory=set[str])


class Order(pydantic.BaseModel):
    sku: str = pydantic.Field(pattern=r"^[A-Z]{2}-\d{3,5}$")
    count: int = pydantic.Field(gt=0, lt=3)
    price: decimal.Decimal = decimal.Decimal(1)
    kind: Literal["order"]
    by: dt.datetime | None = None
    parent: "Order | None" = None


_LEAVES: list[Any] = [
    None,
    bool,
    int,
    float,
    str,
    bytes,
    decimal.Decimal,
    uuid.UUID,
    dt.date,
    dt.timedelta,
    Annotated[dt.datetime, Meta(tz=True)],
    Annotated[dt.time, Meta(tz=False)],
    Annotated[int, Meta(ge=3, lt=4)],
    Annotated[int, Meta(multiple_of=7, gt=-20, le=-8)],
    Annotated[int, Meta(lt=-5000)],
    Annotated[float, Meta(gt=0, lt=1)],
    Annotated[float, Meta(ge=2.5, le=2.5)],
    Annotated[str, Meta(min_length=2, max_length=3)],
    Annotated[str, Meta(pattern=r"^(?:ab|[^a-z]\w)+\s?$")],
    Annotated[str, Meta(pattern=r"(?=.*\d)x(.)\1", max_length=12)],
    Annotated[bytes, Meta(min_length=2, max_length=9)],
    Literal["b", 1, None],
    Colour,
    Point,
    Cat | Dog,
    Node,
    Chain,
    Row,
    Pair,
    Options,
    Place,
    Order,
    Any,
]
_KEYS: list[Any] = [str, int, Annotated[str, Meta(pattern="^k")], Annotated[str, Meta(min_length=3)]]


# Written by subscripts of values: to a type checker, what is drawn is no type.
_LIST: Any = list
_TUPLE: Any = tuple
_DICT: Any = dict
_WITH: Any = Annotated


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda each: _LIST[each]),
        inner.map(lambda each: _WITH[_LIST[each], Meta(min_length=1, max_length=2)]),
        inner.map(lambda each: _TUPLE[each, ...]),
        st.tuples(inner, inner).map(lambda both: _TUPLE[both]),
        st.tuples(st.sampled_from(_KEYS), inner).map(lambda both: _DICT[both]),
        inner.map(lambda each: _WITH[_DICT[str, each], Meta(min_length=2)]),
        st.sampled_from([set[str], frozenset[int], Annotated[set[int], Meta(min_length=3)]]),
    )


def _unions(annotations: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(annotations, st.sampled_from([None, int])).map(lambda both: Union[both])  # noqa: UP007


annotations = _unions(st.recursive(st.sampled_from(_LEAVES), _wider, max_leaves=4))


@st.composite
def signatures(draw: st.DrawFn) -> Tool:
    """A tool whose parameters have types and defaults of any kind."""
    hints = draw(st.dictionaries(st.sampled_from(["a", "b", "for_", "d"]), annotations, max_size=3))

    def take(**given: Any) -> None: ...

    take.__annotations__ = hints
    take.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]) for name in hints]
    )
    return tool(take)


@pytest.mark.parametrize("annotation", _LEAVES, ids=repr)
async def test_each_type_of_argument(annotation: Any) -> None:
    """A tool with one argument of each type accepts what 50 seeds generate."""
    made = of(annotation)
    for seed in range(50):
        given = arguments_of(made, random.Random(seed))
        assert ["x"] == list(given)
        await made.run(msgspec.json.encode(given).decode(), CALL)


@given(data=st.data())
def test_any_signature(data: st.DataObject) -> None:
    """Arguments generated for any signature fit its schema, as the tool's own decoder reads them."""
    made = data.draw(signatures())
    given = data.draw(arguments(made))
    anyio.run(made.run, msgspec.json.encode(given).decode(), CALL)


def test_same_seed_same_arguments() -> None:
    """The arguments depend on the schema and the seed alone; other seeds give others."""
    made = of(Order)
    again = [arguments_of(made.manifest.schema, random.Random(seed)) for seed in range(20)]
    assert [arguments_of(made, random.Random(seed)) for seed in range(20)] == again
    assert len({msgspec.json.encode(each) for each in again}) > 15


def test_failing_arguments_shrink() -> None:
    """Hypothesis ends with the smallest arguments that fail."""
    made = of(list[Point], [])
    assert {"x": [{"x": 1}]} == find(arguments(made), lambda each: sum(p["x"] for p in each.get("x", [])) > 0)


def test_optional_arguments_are_sometimes_left_out() -> None:
    """Both calls with and calls without an optional argument are generated."""
    made = of(int, 3)
    assert {True, False} == {"x" in arguments_of(made, random.Random(seed)) for seed in range(20)}


_FOREIGN: list[tuple[dict[str, Any], Any]] = [
    ({"type": ["string", "null"]}, (str, type(None))),
    ({"$ref": "#/definitions/n"}, int),
    ({"allOf": [{"type": "integer"}, {"minimum": 5}]}, int),
    ({"minLength": 2}, str),
    ({"type": "number", "minimum": 0.2, "maximum": 0.4}, float),
    ({"type": "string", "format": "unheard-of"}, str),
    (True, object),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("schema", "kinds"), _FOREIGN, ids=str)
def test_schemas_of_other_tools(schema: dict[str, Any], kinds: Any) -> None:
    """What servers of tools write, and `@tool` does not, is read as JSON Schema defines it."""
    whole = {"properties": {"x": schema}, "required": ["x"], "definitions": {"n": {"type": "integer"}}}
    for seed in range(20):
        assert isinstance(arguments_of(whole, random.Random(seed))["x"], kinds)


_IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"type": "string", "pattern": "a^"}, r"arguments\.x: no text was found that matches 'a\^'"),
    ({"type": "string", "pattern": "("}, r"arguments\.x: no text was found"),
    ({"type": "integer", "minimum": 4, "maximum": 3}, r"arguments\.x: no multiple of 1 is between 4 and 3"),
    ({"type": "number", "minimum": 4, "maximum": 3}, r"arguments\.x: no number is between 4 and 3"),
    ({"enum": []}, r"arguments\.x: the enum is empty"),
    ({"$ref": "#/$defs/none"}, r"#/\$defs/none is not in the schema"),
    ({"$ref": "#/properties/x"}, r"#/properties/x refers to itself"),
    ({"type": "texts"}, "the type 'texts'"),
    (
        {"type": "array", "uniqueItems": True, "items": {"type": "boolean"}, "minItems": 3},
        "no 3 different items",
    ),
    (
        {"type": "object", "propertyNames": {"enum": ["a"]}, "minProperties": 2},
        "no 2 different properties were found",
    ),
]


@pytest.mark.parametrize(("schema", "problem"), _IMPOSSIBLE, ids=lambda each: str(each)[:40])
def test_schemas_that_nothing_fits(schema: dict[str, Any], problem: str) -> None:
    """The error names the part of the schema that nothing fits."""
    with pytest.raises(WrongUse, match=problem):
        arguments_of({"properties": {"x": schema}, "required": ["x"]}, random.Random(0))


@pytest.mark.parametrize("schema", ["{", "[]", 3, {"type": "array"}], ids=repr)
def test_what_is_no_schema_of_arguments(schema: Any) -> None:
    """Anything but a tool and the schema of an object is refused at once."""
    with pytest.raises(WrongUse, match="schema: expected a tool, or the JSON schema of an object"):
        arguments_of(schema, random.Random(0))
