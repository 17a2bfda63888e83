"""An agent in few lines: functions as tools, text as it streams, what it cost and what it waits for."""

import warnings
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from refold.engine import Agent, ModelRequest, Reply, ScriptedModel, call, calls, say, tool
from refold.engine.models.protocol import Delta, ModelError, TextDelta
from refold.engine.models.script import deltas
from refold.reducers.errors import WrongUse
from refold.reducers.messages import ReplyCall, Usage
from refold.reducers.vocabulary import FailureClass, Replay, StopReason
from refold.store import MemoryStore
from support.driving import StreamingModel

pytestmark = pytest.mark.anyio

LOOK = ReplyCall(provider_id="p", name="look", arguments='{"path": "a"}')


def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@tool(replay="read_only")
def guess() -> int:
    """Guess a number."""
    return 7


async def test_plain_functions_are_tools_that_are_not_repeated() -> None:
    """One warning names them all, and the way out; what was made with `@tool` is not in it."""

    def look(path: str) -> str:
        """Look at a file."""
        return f"{path} is there"

    def spend(cents: int) -> str:
        """Spend."""
        return f"spent {cents}"

    with pytest.warns(
        UserWarning, match=r"tools without @tool: look, spend\. .*; after a crash .*@tool\(replay="
    ) as said:
        agent = Agent(
            ScriptedModel([call("look", path="a"), say("It is there.")]), tools=[look, guess, spend]
        )
    assert (1, __file__) == (len(said), said[0].filename)
    assert [Replay.AT_MOST_ONCE, Replay.READ_ONLY, Replay.AT_MOST_ONCE] == [
        each.manifest.replay for each in agent.tools.values()
    ]
    result = await agent.run("Is it there?")
    assert ("COMPLETED", "It is there.") == (result.state, result.outcome.text)


def test_a_function_is_warned_of_once() -> None:
    """However many agents are made with it, on whatever lines."""

    def feel() -> str:
        """Feel."""
        return ""

    with pytest.warns(UserWarning, match=r"tools without @tool: feel\. "):
        Agent(ScriptedModel([]), tools=[feel])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Agent(ScriptedModel([]), tools=[guess, feel])


def test_tools_that_say_what_they_are_need_no_warning() -> None:
    """No warning comes where there is nothing to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Agent(ScriptedModel([]), tools=[guess])


@pytest.mark.parametrize("thing", ["look", 3, None, {"name": "look"}], ids=repr)
def test_what_is_no_function_is_no_tool(thing: Any) -> None:
    """The error names the place and what stood there."""
    with pytest.raises(WrongUse, match=r"tools\[1\]: expected a tool or a function, got "):
        Agent(ScriptedModel([]), tools=[guess, thing])


def reply(text: str, *made: ReplyCall) -> Reply:
    stop = StopReason.TOOL_USE if made else StopReason.END_TURN
    return Reply(text=text, calls=made, stop=stop, usage=Usage(), model="m", adapter="test")


async def streams(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
    whole = reply("I look first.", LOOK)
    for delta in deltas(whole):
        yield delta
    yield whole


async def answers_at_once(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
    yield reply("It is there.")


async def breaks(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
    yield TextDelta("It is ")
    raise ModelError(FailureClass.STREAM_BROKEN, "gone")


@tool(replay="read_only", name="look")
def looked(path: str) -> str:
    """Look at a file."""
    return path


async def test_text_comes_piece_by_piece() -> None:
    """As it streams, or at once where a model does not stream; two answers have an empty line between
    them.
    """
    agent = Agent(StreamingModel(streams, answers_at_once), tools=[looked])
    pieces = [piece async for piece in agent.start("Is it there?").text()]
    assert "I look first.\n\nIt is there." == "".join(pieces)
    assert len(pieces) > 2


async def test_text_of_a_request_that_is_made_again() -> None:
    """What had come is not taken back: the next try begins behind an empty line."""
    agent = Agent(
        StreamingModel(breaks, answers_at_once),
        policy={"retry": {"attempts": 2, "initial": 0.001}},
    )
    assert "It is \n\nIt is there." == "".join([piece async for piece in agent.start("Is it there?").text()])


async def test_nothing_is_dropped_for_a_slow_reader() -> None:
    """However much comes while nobody reads."""
    agent = Agent(StreamingModel(many), tools=[])
    pieces = list[str]()
    async for piece in agent.start("Count.").text():
        if not pieces:
            await anyio.sleep(0.2)
        pieces.append(piece)
    assert "x" * 20_000 == "".join(pieces)


async def many(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
    for _ in range(20_000):
        yield TextDelta("x")
    yield reply("x" * 20_000)


@pytest.mark.parametrize(
    ("costs", "dollars"),
    [([1_500_000, 500_000], 0.002), ([1_500_000, None], None), ([0, 0], 0.0)],
    ids=["known", "one is not known", "free"],
)
async def test_cost_in_dollars(costs: list[int | None], dollars: float | None) -> None:
    """A sum that leaves out an answer would be a number that nobody can rely on."""
    first, last = costs

    async def one(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        yield Reply(**{**_fields(reply("", LOOK)), "cost_nanousd": first})

    async def two(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        yield Reply(**{**_fields(reply("Done.")), "cost_nanousd": last})

    assert dollars == (await Agent(StreamingModel(one, two), tools=[looked]).run("Go.")).cost


def _fields(said: Reply) -> dict[str, Any]:
    return {name: getattr(said, name) for name in said.__struct_fields__}


async def test_what_waits_for_approval() -> None:
    """Which calls, and with which arguments: enough to ask a person."""
    agent = Agent(
        ScriptedModel([calls(("look", {"path": "a"}), ("pay", {"cents": 30})), say("Done.")]),
        tools=[looked, tool(pay)],
        policy={"approvals": {"chain": [{"approver": "human", "tools": ["pay"]}, {"approver": "approve"}]}},
    )
    run = agent.start("Pay.")
    (asked,) = (await run.result()).pending
    assert ("c2", "pay", '{"cents": 30}', "approval") == (asked.id, asked.tool, asked.arguments, asked.asked)
    run.answer({asked.id: "approve"})
    assert () == (await run.result()).pending


async def test_what_is_in_doubt() -> None:
    """A person is told what was begun, and is not asked about what may simply run again."""
    store, begun = MemoryStore(), anyio.Event()

    @tool
    async def wire(cents: int) -> str:
        """Send money."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    def agent() -> Agent:
        return Agent(
            ScriptedModel([call("wire", cents=30)]), tools=[wire], policy={"doubt": "ask"}, store=store
        )

    async with agent().start("Pay.", run_id="r"):
        await begun.wait()
    (asked,) = (await agent().resume("r").result()).pending
    assert ("c1", "wire", '{"cents": 30}', "doubt") == (asked.id, asked.tool, asked.arguments, asked.asked)
