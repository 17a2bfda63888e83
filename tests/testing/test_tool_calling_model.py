"""`ToolCallingModel`: each tool is called once with valid arguments, then the run ends."""

import random
from typing import Any

import pytest

from refold.engine import Agent, ScriptError, tool
from refold.reducers.errors import WrongUse
from refold.testing import ToolCallingModel, arguments_of

pytestmark = pytest.mark.anyio


def shop() -> tuple[list[Any], list[tuple[str, Any]]]:
    """Two tools, and the list of the calls that reach them."""
    seen: list[tuple[str, Any]] = []

    @tool(replay="read_only")
    def price(item: str) -> int:
        seen.append(("price", item))
        return 30

    @tool
    def pay(cents: int, note: str = "") -> str:
        seen.append(("pay", cents))
        return "paid"

    return [price, pay], seen


@pytest.mark.parametrize(("together", "requests"), [(True, 2), (False, 3)])
async def test_each_tool_is_called_once(together: bool, requests: int) -> None:
    """Every tool is called once, in one response or in one each, and the run ends with the text."""
    tools, seen = shop()
    model = ToolCallingModel(text="that is all", together=together)
    result = await Agent(model, tools=tools).run("Go.")
    assert ["price", "pay"] == [name for name, _ in seen] or together
    assert {"price", "pay"} == {name for name, _ in seen}
    assert (2, requests) == (len(seen), len(model.requests))
    assert ("COMPLETED", "that is all") == (result.state, result.outcome.text)
    model.done()


async def test_the_seed_decides_the_arguments() -> None:
    """The same seed gives the same calls in every run, alone or together; other seeds give others."""

    async def paid(seed: int, *, together: bool = True) -> dict[str, Any]:
        tools, seen = shop()
        await Agent(ToolCallingModel(seed, together=together), tools=tools).run("Go.")
        return dict(seen)

    first = await paid(0)
    assert first == await paid(0)
    assert first == await paid(0, together=False)
    assert len({(await paid(seed))["pay"] for seed in range(10)}) > 5


async def test_one_model_serves_several_runs() -> None:
    """Which tools were called is read from the prompt, so a second run begins anew."""
    tools, seen = shop()
    agent = Agent(ToolCallingModel(), tools=tools)
    for _ in range(2):
        await agent.run("Go.")
    assert 4 == len(seen)


async def test_a_failed_call_is_not_repeated() -> None:
    """A tool that fails was called, so the run still ends."""

    @tool
    def pay(cents: int) -> str:
        raise ValueError("no money")

    model = ToolCallingModel()
    result = await Agent(model, tools=[pay]).run("Go.")
    assert ("COMPLETED", 2) == (result.state, len(model.requests))


async def test_some_tools_with_given_arguments() -> None:
    """`only` picks tools and their order; `given` fixes the arguments of one."""
    tools, seen = shop()
    model = ToolCallingModel(only=["pay"], given={"pay": {"cents": 7}})
    await Agent(model, tools=tools).run("Go.")
    assert [("pay", 7)] == seen
    model.done()


@pytest.mark.parametrize("more", [{"only": ["refund"]}, {"given": {"refund": {}}}])
async def test_a_tool_that_is_named_and_never_called(more: dict[str, Any]) -> None:
    """A misspelt name does not pass unnoticed."""
    tools, _ = shop()
    model = ToolCallingModel(**more)
    await Agent(model, tools=tools).run("Go.")
    with pytest.raises(ScriptError, match="never called: refund"):
        model.done()


async def test_without_tools() -> None:
    """Without tools, the text is the first response."""
    result = await Agent(ToolCallingModel(text="hello")).run("Go.")
    assert "hello" == result.outcome.text


@pytest.mark.parametrize("wrong", [{"text": 3}, {"only": "pay"}, {"only": [3]}, {"given": ["pay"]}], ids=str)
def test_invalid_arguments(wrong: Any) -> None:
    """An argument of the wrong type is refused at once, by its name."""
    with pytest.raises(WrongUse, match=f"^{next(iter(wrong))}: expected "):
        ToolCallingModel(**wrong)


async def test_the_arguments_are_those_of_the_schema() -> None:
    """The calls have exactly the arguments that `arguments_of` generates for the seed and the name."""
    tools, seen = shop()
    await Agent(ToolCallingModel(4), tools=tools[1:]).run("Go.")
    assert [("pay", arguments_of(tools[1], random.Random("4 pay"))["cents"])] == seen
