"""What tools return: text for the model, and types that are refused before anything runs."""

import enum
import json
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypedDict
from uuid import uuid4

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.engine.tools.results import as_text
from refold.reducers.errors import WrongUse


class Colour(enum.Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Place:
    at: Point


class Named(TypedDict):
    name: str


class Line(BaseModel):
    sku: str
    day: date | None = None


class Foreign:
    """A type that nothing is known of."""


@pytest.mark.parametrize(
    ("result", "text"),
    [
        pytest.param("as it is", "as it is", id="text"),
        pytest.param(None, "", id="nothing"),
        pytest.param({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}', id="keys in order"),
        pytest.param({10: {"a"}, 9: 0.5}, '{"10":["a"],"9":0.5}', id="keys that are numbers"),
        pytest.param({"z", "y"}, '["y","z"]', id="a set in order"),
        pytest.param(Point(1), '{"x":1,"y":0}', id="an object"),
        pytest.param(Place(Point(1)), '{"at":{"x":1,"y":0}}', id="a dataclass"),
        pytest.param(
            Line(sku="a", day=date(2026, 1, 2)), '{"day":"2026-01-02","sku":"a"}', id="a pydantic model"
        ),
        pytest.param([Line(sku="\ud800")], '[{"day":null,"sku":"\ufffd"}]', id="a lone surrogate in a model"),
        pytest.param(Colour.RED, '"red"', id="an enum"),
        pytest.param(0, "0", id="a number that is false"),
        pytest.param({"x": float("nan"), "y": None}, '{"x":"nan","y":null}', id="what is no number"),
        pytest.param([float("-inf")], '["-inf"]', id="less than any number"),
        pytest.param("half \ud800", "half \ufffd", id="a lone surrogate"),
        pytest.param({"k\udc00": ["\ud800"]}, '{"k\ufffd":["\ufffd"]}', id="a lone surrogate within"),
    ],
)
def test_results_become_text(result: object, text: str) -> None:
    """One row a kind of result: the model reads exactly this text."""
    assert text == as_text(result)


class Mute:
    """An object whose words fail."""

    def __str__(self) -> str:
        raise OSError("no words")


class Loud(Foreign):
    """An object with words of its own."""

    def __str__(self) -> str:
        return "loud \ud800"


class Holds(BaseModel):
    """A model that cannot be written: pydantic says so only when it writes it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    thing: Foreign


CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("result", "text", "kinds"),
    [
        pytest.param(Path("/tmp/a"), '"/tmp/a"', ["PosixPath"], id="a path"),
        pytest.param({"p": Path("/a"), "n": None}, '{"n":null,"p":"/a"}', ["PosixPath"], id="a path within"),
        pytest.param({"d": Decimal("1.50")}, '{"d":"1.50"}', [], id="a decimal"),
        pytest.param(
            {"all": {Path("b"), Path("a")}}, '{"all":["a","b"]}', ["PosixPath"], id="a set of paths"
        ),
        pytest.param([Loud()], '["loud \ufffd"]', ["Loud"], id="words of its own"),
        pytest.param([Foreign()], '["<Foreign>"]', ["Foreign"], id="no words: no address in memory"),
        pytest.param([Mute()], '["<Mute>"]', ["Mute"], id="words that fail"),
        pytest.param(iter([1]), '"<list_iterator>"', ["list_iterator"], id="an iterator"),
        pytest.param({(1, 2): "x"}, "{(1, 2): 'x'}", ["dict"], id="a key that is no text"),
        pytest.param(CIRCLE, "[[...]]", ["list"], id="what holds itself"),
        pytest.param(
            Holds(thing=Loud()), "thing=<tests.Loud object>", ["Holds"], id="a model that cannot be written"
        ),
    ],
)
def test_what_json_cannot_carry_becomes_text_with_a_warning(
    result: object, text: str, kinds: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a tool returned is told, for its call has had its effect, and the log warns once of each
    type.
    """
    place = f"tool-{uuid4()}"
    said = re.sub(r"<[\w.]+\.(\w+) object>", r"<tests.\1 object>", as_text(result, place))
    assert text == said
    as_text(result, place)
    assert [
        f"warning: tool {place} returned a value of type {kind}, which cannot be serialized as JSON: it is recorded as text"
        for kind in kinds
    ] == [record.getMessage() for record in caplog.records]


@pytest.mark.anyio
async def test_a_result_that_json_cannot_carry_is_no_failure() -> None:
    """The model reads what the tool returned, and is not told of an error after which it would act again."""
    ordered: list[int] = []

    @tool
    async def order(nuts: int) -> dict[str, Any]:
        """Order."""
        ordered.append(nuts)
        return {"receipt": Path("/receipts/7"), "price": Decimal("1.50")}

    result = await Agent(ScriptedModel([call("order", nuts=3), say("Done.")]), tools=[order]).run("Order.")
    assert ([3], '{"price":"1.50","receipt":"/receipts/7"}') == (ordered, result.messages[-2].text)


@pytest.mark.parametrize(
    "returns",
    [
        *(None, Any, object, str, bytes, date, Literal["a"], Point, Place, Named, Line, Colour),
        *(list[Line], dict[str, Any], tuple[int, ...], Sequence[str], Mapping[str, int], set[int]),
        *(Point | Place | None, Awaitable[Line]),
    ],
    ids=str,
)
def test_what_json_can_carry_may_be_returned(returns: Any) -> None:
    """One type a case; two types without a tag too, for nothing has to tell them apart."""
    tool(_returning(returns))


@pytest.mark.parametrize(
    "returns",
    [Path, complex, Foreign, Iterator[str], list[Path], dict[str, Foreign], int | Path, Awaitable[Path]],
    ids=str,
)
def test_what_json_cannot_carry_is_refused_where_the_tool_is_made(returns: Any) -> None:
    """Not when its first call has had its effect: the error names tool and type, and the way out."""
    with pytest.raises(
        WrongUse,
        match=r"tool look: returns [\w.\[\]]+, which cannot be serialized as JSON: return text, .* or a dataclass",
    ):
        tool(_returning(returns))


def _returning(returns: Any) -> Any:
    def look() -> object:
        """Look."""
        return json.dumps(None)

    look.__annotations__["return"] = returns
    return look
