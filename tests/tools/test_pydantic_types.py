"""pydantic's models as parameters of tools: their own rules hold, and their schema stands alone."""

import json
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model

from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import BadArguments, CallContext
from refold.reducers.errors import WrongUse

pytestmark = pytest.mark.anyio

CALL = CallContext(run="r", call="c1", key="k1")


class Line(BaseModel):
    sku: str = Field(description="what is bought")
    count: int = Field(gt=0)


class Order(BaseModel):
    model_config = ConfigDict(strict=True)

    lines: list[Line]
    by: date | None = None


class Node(BaseModel):
    value: int
    kids: list["Node"] = []


@tool(replay="idempotent")
def buy(order: Order, note: str = "", extra: Line | None = None) -> str:
    """Buy something."""
    assert extra is None or isinstance(extra, Line)
    return f"{sum(line.count for line in order.lines)} by {order.by}{note}"


async def test_a_model_is_given_as_its_own_rules_take_it() -> None:
    """A strict one takes a date from a text of JSON, as it does from JSON."""
    arguments = '{"order": {"lines": [{"sku": "a", "count": 2}], "by": "2026-01-02"}, "extra": {"sku": "b", "count": 1}}'
    assert "2 by 2026-01-02" == await buy.run(arguments, CALL)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            '{"order": {"lines": [{"sku": "a", "count": 0}]}}',
            "lines.0.count: Input should be greater than 0 - at `$.order`",
        ),
        ('{"order": {"lines": [{"sku": "a"}]}}', "lines.0.count: Field required"),
        ('{"order": 3}', "it: Input should be"),
    ],
)
async def test_what_its_rules_refuse_is_told_in_one_line(arguments: str, problem: str) -> None:
    """Where, what, and which arguments the tool takes: no address of a page, and not what was given."""
    with pytest.raises(BadArguments) as refused:
        await buy.run(arguments, CALL)
    said = str(refused.value)
    assert problem in said
    assert said.endswith("buy takes: order, note (optional), extra (optional)")
    assert "\n" not in said
    assert "http" not in said


def test_its_schema_is_laid_out() -> None:
    """No reference is left: adapters embed it where a reference would point nowhere."""
    schema = json.loads(buy.manifest.schema)
    line = schema["properties"]["order"]["properties"]["lines"]["items"]
    assert {"type": "integer", "exclusiveMinimum": 0} == _plain(line["properties"]["count"])
    assert "what is bought" == line["properties"]["sku"]["description"]
    assert "$ref" not in buy.manifest.schema


def test_a_model_that_holds_itself_keeps_its_definition() -> None:
    """The one case in which a reference has to stay, and then it points within."""

    @tool(replay="read_only")
    def count(tree: Node) -> int:
        """Count."""
        return len(tree.kids)

    schema = json.loads(count.manifest.schema)
    assert ["Node"] == list(schema["$defs"])


def test_a_default_that_is_a_model() -> None:
    """It stands in the schema as plain data."""

    @tool(replay="read_only")
    def look(at: Line = Line(sku="a", count=1)) -> str:  # noqa: B008 - what the test is about
        """Look."""
        return at.sku

    assert {"sku": "a", "count": 1} == json.loads(look.manifest.schema)["properties"]["at"]["default"]


def test_two_models_of_one_name_are_told_apart() -> None:
    """Each stands where it is used; only of two that hold themselves, and so need their name, one has to be
    renamed.
    """

    def look(one: object, other: object) -> str:
        """Look."""
        return ""

    look.__annotations__ |= {"one": _holding("Inner", int), "other": _holding("Inner", str)}
    schema = json.loads(tool(look).manifest.schema)["properties"]
    kinds = [schema[name]["properties"]["inner"]["properties"]["x"]["type"] for name in ("one", "other")]
    assert ["integer", "string"] == kinds
    look.__annotations__["other"] = _holding(
        "Node", str, kids=(list["Node"], [])
    )  # the same, and not the same
    look.__annotations__["one"] = Node
    with pytest.raises(
        WrongUse,
        match=r"tool look: its types together cannot be serialized as JSON: two recursive models are named Node",
    ):
        tool(look)


def _holding(name: str, kind: Any, **fields: Any) -> Any:
    inner = create_model(name, x=(kind, ...), **fields)
    return create_model(f"Holds{kind.__name__}", inner=(inner, ...))


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}
