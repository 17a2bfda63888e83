"""Calls that start runs of other agents: one child a call, whatever breaks, within its parent's bounds,
cancelled with it.
"""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from refold.engine import (
    Agent,
    Delegated,
    ModelRequest,
    Recorded,
    Recording,
    Reply,
    Run,
    ScriptedModel,
    Tool,
    call,
    calls,
    fail,
    say,
    tool,
)
from refold.engine.children import GENERATIONS
from refold.engine.models.script import Line
from refold.reducers.errors import PolicyError, WrongUse
from refold.reducers.events import ChildEnded, Parent, RunStarted, ToolReturned, kind_of
from refold.reducers.messages import Usage
from refold.reducers.meters import child_seed
from refold.reducers.vocabulary import FailureClass, Replay, Role, ToolError
from refold.store import MemoryStore
from refold.store.protocol import Record
from support.driving import events_of, kinds
from support.families import (
    CHILD,
    PARENT,
    RETRY_NOTHING,
    Busy,
    all_sound,
    asking,
    boss,
    hand_on,
    result_of_call,
    runs_of,
    the,
    writer,
)
from support.forging import records_of

pytestmark = pytest.mark.anyio


async def test_a_handoff_runs_the_other_agent_and_returns_its_answer() -> None:
    """The child has a log of its own, linked both ways, and what it says last is the call's result."""
    store = MemoryStore()
    agent = boss(hand_on("A poem."), say("There."), to=[writer(say("Roses."), system="Rhyme.")], store=store)
    result = await agent.start("Go.", run_id=PARENT).result()
    assert "There." == result.outcome.text
    assert (None, "Roses.") == await result_of_call(store)
    assert {PARENT, CHILD} == await runs_of(store)
    opening = await the(RunStarted, store, CHILD)
    assert Parent(run=PARENT, call="c1") == opening.parent
    assert "writer" == opening.agent
    assert ["Rhyme.", "A poem."] == [message.text for message in opening.content.messages]
    ended, head = await the(ChildEnded, store), await store.head(CHILD)
    assert ("c1", CHILD, "COMPLETED") == (ended.call, ended.run, ended.agent_state)
    assert (head.seq, head.hash.hex()) == (ended.head_seq, ended.head_hash)
    log = await kinds(store, PARENT)
    assert log.index("tool_returned") == log.index("child_ended") + 1
    await all_sound(store)


async def test_a_handoff_is_offered_as_a_tool_that_says_whose_run_it_starts() -> None:
    """The manifest names the agent; the tool takes a task, and may be run again."""
    store = MemoryStore()
    agent = boss(
        call("editor", task="Trim."),
        say("."),
        to=[writer()],
        tools=[writer(say("Trimmed.")).as_tool("editor", "Trims texts.")],
        store=store,
    )
    await agent.start("Go.", run_id=PARENT).result()
    editor, transfer = (await the(RunStarted, store)).tools
    assert ("editor", "Trims texts.", "writer", Replay.IDEMPOTENT) == (
        editor.name,
        editor.description,
        editor.agent,
        editor.replay,
    )
    assert ("transfer_to_writer", "writer") == (transfer.name, transfer.agent)
    assert '"required":["task"]' in transfer.schema
    assert (None, "Trimmed.") == await result_of_call(store)


@pytest.mark.parametrize(
    ("script", "policy", "error", "said"),
    [
        pytest.param([say("Done.")], {}, None, "Done.", id="it completed: its answer"),
        pytest.param([say("", usage=Usage(output=1))], {}, None, "", id="it completed with nothing: nothing"),
        pytest.param(
            [call("look", path="a")],
            {"limits": [{"type": "step", "value": 1}]},
            ToolError.RAISED,
            "ended MAX_STEPS (step_limit)",
            id="a limit of its own: its state and code",
        ),
        pytest.param(
            [calls(("look", {"path": "a"}), text="Half of it.")],
            {"limits": [{"type": "step", "value": 1}]},
            ToolError.RAISED,
            "The last it said: Half of it.",
            id="what it had said is not lost",
        ),
        pytest.param(
            [fail(FailureClass.AUTH, "bad key")],
            {},
            ToolError.RAISED,
            "ended ERROR (provider:auth)",
            id="its model failed",
        ),
    ],
)
async def test_how_a_child_ends_is_the_result_of_the_call(
    script: list[Line], policy: dict[str, Any], error: ToolError | None, said: str
) -> None:
    """A child that completed returns its answer; any other is an error that names its run, state and code."""

    @tool(replay="read_only")
    async def look(path: str) -> str:
        return path

    store = MemoryStore()
    other = writer(*script, policy={**RETRY_NOTHING, **policy}, tools=[look])
    result = await boss(hand_on(), say("."), to=[other], store=store).start("Go.", run_id=PARENT).result()
    assert "COMPLETED" == result.state
    told = await result_of_call(store)
    assert error == told[0]
    if error is None:
        assert said == told[1]
    else:
        assert said in told[1]
        assert f"its run {CHILD}" in told[1]
    await all_sound(store)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("{}", id="no task"),
        pytest.param('{"task": ""}', id="an empty task"),
        pytest.param('{"task": "a", "to": "b"}', id="more than a task"),
        pytest.param('{"task": ', id="half of the arguments"),
    ],
)
async def test_arguments_that_do_not_fit_start_nothing(arguments: str) -> None:
    """The model is told what is wrong with its arguments, and no run is begun."""
    store = MemoryStore()
    agent = boss(calls(("transfer_to_writer", arguments)), say("."), to=[writer()], store=store)
    await agent.start("Go.", run_id=PARENT).result()
    assert ToolError.BAD_ARGUMENTS == (await result_of_call(store))[0]
    assert {PARENT} == await runs_of(store)


async def test_what_children_spend_counts_in_the_parent() -> None:
    """Tokens and cost of a child are in the parent's account once the child has ended."""
    store = MemoryStore()
    spoken = say("Roses.", usage=Usage(input=70, output=30), cost_nanousd=500)
    agent = boss(hand_on(), say("There.", cost_nanousd=7), to=[writer(spoken)], store=store)
    result = await agent.start("Go.", run_id=PARENT).result()
    assert 70 == result.usage.input
    assert 507 == result.spent.cost_nanousd


async def test_an_unknown_price_stays_unknown() -> None:
    """A child without a price costs an unknown amount, not nothing."""
    store = MemoryStore()
    agent = boss(hand_on(), say("."), to=[writer(say("x", cost_nanousd=None))], store=store)
    result = await agent.start("Go.", run_id=PARENT).result()
    assert (await the(ChildEnded, store)).cost_nanousd is None
    assert 1 == result.spent.unpriced


# Bounds


async def test_a_child_stops_where_its_parents_budget_ends() -> None:
    """The rest of the parent's budget is a limit in the child's own log, and ends it."""
    store = MemoryStore()

    @tool(replay="read_only")
    async def look() -> str:
        return "seen"

    spending = calls(("look", {}), usage=Usage(output=40))
    other = writer(spending, spending, spending, tools=[look])
    agent = boss(
        calls(("transfer_to_writer", {"task": "x"}), usage=Usage(output=30)),
        say("."),
        to=[other],
        store=store,
        policy={"limits": [{"type": "token", "value": 100}]},
    )
    result = await agent.start("Go.", run_id=PARENT).result()
    limits = (await the(RunStarted, store, CHILD)).policy.limits
    assert [("parent:tokens", 70)] == [
        (limit.name, limit.value) for limit in limits if "parent:" in limit.name
    ]
    assert "BUDGET_EXCEEDED" == (await the(ChildEnded, store)).agent_state
    assert "BUDGET_EXCEEDED" == result.state
    assert 110 <= result.usage.output  # two answers of the child: no more than the one that crossed it
    await all_sound(store)


async def test_agents_that_hand_on_to_themselves_are_bounded() -> None:
    """A chain of runs has a greatest length: the last of them is told to do the task itself."""
    store = MemoryStore()

    def line(request: ModelRequest) -> Reply:
        answered = request.messages[-1].role is Role.TOOL
        return say(f"({request.messages[-1].text})") if answered else call("transfer_to_echo", task="x")

    echo = Agent(model=ScriptedModel([line] * 100), name="echo", store=store)
    echo.add_handoffs(echo)
    result = await echo.start("Go.").result()
    assert GENERATIONS == len(await runs_of(store))
    assert result.outcome.text.startswith("(" * GENERATIONS + "raised: ")
    await all_sound(store)


async def test_children_run_side_by_side() -> None:
    """Two calls of one answer have a child each, and each its own result."""
    store = MemoryStore()
    met = [anyio.Event(), anyio.Event()]

    def meeting(mine: int) -> Tool:
        @tool(replay="read_only")
        async def meet() -> str:
            met[mine].set()
            await met[1 - mine].wait()
            return "met"

        return meet

    others = [
        Agent(model=ScriptedModel([call("meet"), say(f"I am {name}.")]), name=name, tools=[meeting(place)])
        for place, name in enumerate(("ann", "bob"))
    ]
    both = calls(("ann", {"task": "Meet."}), ("bob", {"task": "Meet."}))
    agent = boss(both, say("."), tools=[other.as_tool() for other in others], store=store)
    with anyio.fail_after(10):
        await agent.start("Go.", run_id=PARENT).result()
    returned = {
        e.call: e.content.output
        for e in await events_of(store, PARENT)
        if isinstance(e, ToolReturned) and e.content
    }
    assert {"c1": "I am ann.", "c2": "I am bob."} == returned
    await all_sound(store)


async def test_a_chosen_seed_makes_children_the_same_too() -> None:
    """With a seed of one's own every log of the family is the same to the byte each time."""

    async def logs() -> list[list[Record]]:
        store = MemoryStore()
        agent = boss(hand_on(), say("."), to=[writer(say("x"))], store=store)
        await agent.start("Go.", run_id=PARENT, seed=4).result()
        assert child_seed(4, "c1") == (await the(RunStarted, store, CHILD)).seed
        return [await records_of(store, run) for run in (PARENT, CHILD)]

    assert await logs() == await logs()


async def test_a_recorded_parent_plays_without_its_children() -> None:
    """Played again, the call answers from the parent's log: the same log, and no run but its own."""
    store, into = MemoryStore(), MemoryStore()
    agent = boss(hand_on(), say("."), to=[writer(say("x"))], store=store)
    await agent.start("Go.", run_id=PARENT).result()
    played = await (await Recording.read(store, PARENT)).play(into)
    assert "COMPLETED" == played.state.agent_state
    assert await records_of(store, PARENT) == await records_of(into, PARENT)
    assert {PARENT} == await runs_of(into)


async def test_whoever_watches_the_parent_can_watch_its_children() -> None:
    """While a child goes on its run can be had from the parent's, with its updates."""
    store, busy = MemoryStore(), Busy()
    run: Run = boss(hand_on(), to=[busy.agent], store=store).start("Go.", run_id=PARENT)
    async with run:
        await busy.began.wait()
        child = run.children[CHILD]
        assert "WAITING_FOR_TOOL" == child.state.agent_state
        updates = child.updates()
        run.cancel()
        seen = [kind_of(update.event) async for update in updates if isinstance(update, Recorded)]
    assert "state_changed" == seen[-1]


@pytest.mark.parametrize(
    ("make", "refused"),
    [
        pytest.param(
            lambda: Agent(model=ScriptedModel([])).as_tool(),
            (WrongUse, "has no name|without a name"),
            id="no name",
        ),
        pytest.param(
            lambda: Agent(model=ScriptedModel([]), handoffs=[Agent(model=ScriptedModel([]), name="a b")]),
            (WrongUse, "transfer_to_a b"),
            id="a name that no provider accepts",
        ),
        pytest.param(
            lambda: Agent(model=ScriptedModel([]), handoffs=[writer(), writer()]),
            (WrongUse, "two tools"),
            id="two of one name",
        ),
        pytest.param(
            lambda: Agent(
                model=ScriptedModel([]),
                handoffs=[Agent(model=Unpriced([]), name="free")],
                policy={"limits": [{"type": "cost", "value": 1}]},
            ),
            (PolicyError, "the price of scripted is unknown"),
            id="a cost limit that a child without a price escapes",
        ),
    ],
)
def test_what_cannot_work_is_refused(
    make: Callable[[], object], refused: tuple[type[Exception], str]
) -> None:
    """Agents that cannot be handed on to are refused before anything is started."""
    with pytest.raises(refused[0], match=refused[1]):
        make()


class Unpriced(ScriptedModel):
    def __init__(self, script: list[Line]) -> None:
        super().__init__(script)
        self.priced = False


async def test_a_run_is_not_resumed_with_another_agent_under_the_same_tool() -> None:
    """A call of the log would start the run of an agent that it was never offered: refused."""
    store = MemoryStore()
    await boss(hand_on(), to=[asking()], store=store).start("Go.", run_id=PARENT).result()
    other = Agent(model=ScriptedModel([]), name="stranger").as_tool("transfer_to_writer")
    with pytest.raises(WrongUse, match="agent"):
        await boss(tools=[other], store=store).resume(PARENT).result()


async def test_whoever_watches_is_told_which_run_serves_a_call() -> None:
    """A watcher hears of a child run when it is begun, and again when its end is recorded."""
    store = MemoryStore()
    run = boss(hand_on(), say("."), to=[writer(say("x"))], store=store).start("Go.", run_id=PARENT)
    seen = [update async for update in run.updates()]
    begun = seen.index(Delegated("c1", CHILD))
    ended = [isinstance(update, Recorded) and isinstance(update.event, ChildEnded) for update in seen]
    assert begun < ended.index(True)
