"""What tools return: text for the model, and types that are refused before anything runs."""

import enum
import json
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict

from refold.engine.tools.decorator import tool
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


def test_a_result_that_is_no_json_is_the_tools_failure() -> None:
    """What JSON cannot carry raises and is never shown by its repr."""
    with pytest.raises(
        TypeError, match="the tool did return, and what it returned is lost: JSON cannot carry object"
    ):
        as_text(object())


def test_what_holds_itself_is_a_lost_result() -> None:
    """A model that read of a failure would do again what was done."""
    circle: dict[str, object] = {}
    circle["again"] = circle
    with pytest.raises(TypeError, match="the tool did return, and what it returned is lost"):
        as_text(circle)


def test_a_model_that_cannot_be_written_is_a_lost_result() -> None:
    """pydantic takes any type that it is told to take, and only says when it writes it that it cannot."""

    class Holds(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)

        thing: Foreign

    with pytest.raises(TypeError, match=r"what it returned is lost: .*Foreign"):
        as_text(Holds(thing=Foreign()))


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
        match=r"tool look: returns [\w.\[\]]+, which JSON cannot carry: return text, .* or a dataclass",
    ):
        tool(_returning(returns))


def _returning(returns: Any) -> Any:
    def look() -> object:
        """Look."""
        return json.dumps(None)

    look.__annotations__["return"] = returns
    return look
