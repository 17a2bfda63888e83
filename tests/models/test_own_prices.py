"""What an own endpoint costs: what its owner says, and unknown where nobody counted the tokens."""

from collections.abc import Callable
from typing import Any

import pytest

from refold.engine import Agent, ScriptedModel, resolve_model
from refold.engine.models.prices import price_of
from refold.engine.models.protocol import ModelRequest, Reply
from refold.engine.models.pydantic_ai import PydanticAIModel
from refold.reducers.errors import WrongUse
from support.wire import COUNTS, HELLO, ON_THE_WIRE, SECRET, Server, chat, items, piece

pytestmark = ON_THE_WIRE

COST_LIMIT = {"limits": [{"type": "cost", "value": 1}]}


@pytest.mark.parametrize(
    ("price", "tokens", "cost"),
    [
        pytest.param((1, 2), (1_000_000, 1_000_000), 3_000_000_000, id="a million of each"),
        pytest.param((0.1, 0.2), (3, 1), 500, id="no error of a binary fraction"),
        pytest.param((0.0001, 0), (15, 0), 2, id="half a nano-dollar is rounded up"),
        pytest.param((0, 0), (10, 10), 0, id="for nothing"),
        pytest.param((1, 2), (0, 0), None, id="nobody counted"),
    ],
)
def test_cost(price: tuple[float, float], tokens: tuple[int, int], cost: int | None) -> None:
    """Integer nano-dollars, from dollars per million tokens."""
    assert cost == price_of(price).cost_nanousd(*tokens)


@pytest.mark.parametrize("price", ["1/2", 3, (1,), (1, -1), (1, float("nan")), (1, "2"), [1, 2, 3]])
def test_what_is_no_price(price: object) -> None:
    """It is refused with what is expected."""
    with pytest.raises(WrongUse, match=r"price: expected dollars per million tokens .* as in \(0.5, 1.5\)"):
        price_of(price)


async def test_an_answer_of_an_own_endpoint(server: Server) -> None:
    """Its cost is in the reply, and a limit of cost is taken."""
    server.script = chat(piece({"content": "x"}, "stop"), COUNTS)
    model = PydanticAIModel("openai:mine", base_url=server.address, api_key=SECRET, price=(1, 10))
    Agent(model, policy=COST_LIMIT)
    *_, reply = await items(model, ModelRequest(messages=HELLO))
    assert isinstance(reply, Reply)
    assert 2_000_000 == reply.cost_nanousd
    await model.aclose()


def test_the_price_of_a_model_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent takes it beside the name; beside a model it is that model's to know."""
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:9/v1")
    assert Agent("ollama:mine", policy=COST_LIMIT, price=(0, 0)).model.priced
    with pytest.raises(WrongUse, match=r"price: .* ScriptedModel has no price; leave it out"):
        Agent(ScriptedModel([]), price=(0, 0))


@pytest.mark.parametrize(("what", "given"), [("price", (1, 2)), ("timeout", 5.0)])
def test_a_model_in_this_process_has_neither(what: str, given: object) -> None:
    """There is no server that could be silent, or want money."""
    resolve: Callable[..., Any] = resolve_model
    with pytest.raises(WrongUse, match=f"runs in this process, and {what} is for a server"):
        resolve("local:smollm2-135m", **{what: given})
