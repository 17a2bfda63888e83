"""A recorded run, played through the live engine, gives the same log; what the log lacks is an error."""

import sys
from collections.abc import AsyncGenerator, Sequence
from types import FrameType
from typing import Any

import anyio
import pytest

from refold.engine import Agent, Recorded, Recording, Run, ScriptedModel, Tool, call, calls, fail, say, tool
from refold.engine.models.protocol import Delta, ModelRequest, Reply
from refold.engine.playback import Diverged
from refold.reducers.errors import MissingFact
from refold.reducers.events import ToolReturned
from refold.reducers.machine import AgentState
from refold.reducers.messages import ReplyCall, Usage
from refold.reducers.vocabulary import StopReason
from refold.store import MemoryStore

pytestmark = pytest.mark.anyio

QUICK = {"retry": {"initial": 0.01, "jitter": {"add": 0}}, "limits": [{"type": "time", "value": 60}]}


@tool(replay="read_only")
def look(where: str) -> str:
    """Look."""
    return f"{where}: " + "seen " * 5000


@tool
async def act(seconds: float) -> str:
    """Act, slowly."""
    await anyio.sleep(seconds)
    return "done"


@tool(timeout=0.01)
async def hang() -> str:
    """Never return."""
    await anyio.sleep_forever()
    return ""


async def recorded(
    script: Sequence[Any],
    policy: dict[str, Any] | None = None,
    *,
    tools: Sequence[Tool] = (look, act, hang),
    system: str | None = None,
) -> tuple[MemoryStore, str]:
    """A run of this script, to its end; its store and its id."""
    store = MemoryStore()
    agent = Agent(
        model=ScriptedModel(script),
        tools=tools,
        policy={**QUICK, **(policy or {})},
        store=store,
        system=system,
    )
    run = agent.start("do it")
    await run.result()
    return store, run.id


async def plays_to_the_same_log(store: MemoryStore, run: str) -> AgentState:
    """Play it; equal heads mean equal logs, for the hash of the head hangs on every byte before it."""
    copy = MemoryStore()
    recording = await Recording.read(store, run)
    with anyio.fail_after(10):
        played = await recording.play(copy)
    assert await store.head(run) == await copy.head(run)
    return played.state.agent_state


async def test_parallel_results_come_back_in_their_recorded_order() -> None:
    """Results that arrived out of call order, of every kind of error, are played to the same bytes."""
    made = calls(
        ("act", {"seconds": 0.02}),
        ("look", {"where": "a"}),
        ("nobody", {}),
        ("look", "{bad"),
        ("hang", {}),
        ("act", {"seconds": "x"}),
    )
    store, run = await recorded([made, say("so it is")])
    assert await plays_to_the_same_log(store, run) is AgentState.COMPLETED


async def test_failures_and_waits_are_played() -> None:
    """Retries are played with their recorded waits, without waiting for them."""
    store, run = await recorded([fail(), fail(), call("look", where="b"), say("fine")])
    assert await plays_to_the_same_log(store, run) is AgentState.COMPLETED


async def functions_called_to_play(turns: int) -> int:
    """How many functions are called to play a run of so many turns, with a window of a few messages."""
    policy = {"history": [{"do": "tail", "last": 8}], "limits": [{"type": "step", "value": None}]}
    store, run = await recorded([*[call("look", where="a")] * turns, say("fine")], policy)
    called = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal called
        called += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        await plays_to_the_same_log(store, run)
    finally:
        sys.setprofile(before)
    return called


async def test_playing_a_run_costs_as_much_as_it_has_turns() -> None:
    """Four times the turns call about four times the functions: no fact is looked for among all."""
    few, many = await functions_called_to_play(50), await functions_called_to_play(200)
    assert many < 5 * few


async def test_a_conversation_and_a_cancellation_are_played() -> None:
    """What people did, a message and a cancellation in mid-call, comes from the log at its turn."""
    store = MemoryStore()
    script = [say("what now?"), calls(("act", {"seconds": 0}), ("act", {"seconds": 100}))]
    agent = Agent(
        model=ScriptedModel(script), tools=[act], policy={**QUICK, "end_of_turn": "wait"}, store=store
    )
    run = agent.start("do it")
    await run.result()
    run.send("act twice")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.result)
        async for update in run.updates():
            if isinstance(update, Recorded) and isinstance(update.event, ToolReturned):
                break
        run.cancel("enough")
    assert await plays_to_the_same_log(store, run.id) is AgentState.CANCELLED


async def leave_at_its_call(store: MemoryStore, run: Run) -> None:
    """Drive a run until its first call has begun, and no further."""
    async with anyio.create_task_group() as group:
        group.start_soon(run.result)
        while (await store.head(run.id)).seq < 5:  # noqa: ASYNC110 - a store tells nobody of what is appended
            await anyio.sleep(0.005)
        group.cancel_scope.cancel()


async def test_a_crash_and_a_resumption_are_played() -> None:
    """A log with a resumption in it, and a call in doubt, is played as it was."""
    store = MemoryStore()
    script = [call("act", seconds=100), say("never mind")]
    first = Agent(model=ScriptedModel(script[:1]), tools=[act], policy=QUICK, store=store).start("do it")
    await leave_at_its_call(store, first)
    second = Agent(model=ScriptedModel(script[1:]), tools=[act], policy=QUICK, store=store).resume(first.id)
    assert (await second.result()).state is AgentState.COMPLETED
    assert await plays_to_the_same_log(store, first.id) is AgentState.COMPLETED


async def test_a_log_that_ends_before_its_run_is_a_missing_fact() -> None:
    """Where the evidence ends the replay stops with an error; it asks nobody."""
    store = MemoryStore()
    run = Agent(
        model=ScriptedModel([call("act", seconds=100)]), tools=[act], policy=QUICK, store=store
    ).start("do it")
    await leave_at_its_call(store, run)
    recording = await Recording.read(store, run.id)
    with anyio.fail_after(10), pytest.raises(MissingFact, match="no recorded result of call c1"):
        await recording.play(MemoryStore())


async def test_a_recorded_model_serves_real_tools() -> None:
    """The model from the log and the tools of today: as long as they say the same, the run is the same."""
    store, run = await recorded([call("look", where="c"), say("seen")])
    recording = await Recording.read(store, run)
    result = (
        await Agent(model=recording.model(), tools=[look, act, hang], policy=QUICK).start("do it").result()
    )
    assert "seen" == result.outcome.text


async def test_a_request_that_was_never_made_is_a_missing_fact() -> None:
    """A tool that answers otherwise leads to a request that the log does not know: an error, no guess."""
    store, run = await recorded([call("look", where="d"), say("seen")])

    @tool(name="look", replay="read_only")
    def changed(where: str) -> str:
        """Look."""
        return f"{where}: nothing"

    recording = await Recording.read(store, run)
    agent = Agent(model=recording.model(), tools=[changed, act, hang], policy=QUICK)
    differs = r"a request of 3 messages: message 3 \(tool\) was 'd: seen .*' and is 'd: nothing'"
    with pytest.raises(MissingFact, match=differs):
        await agent.start("do it").result()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param(
            {"system": "Be kind."}, "message 1 .system. was 'Be brief.' and is 'Be kind.'", id="a prompt"
        ),
        pytest.param(
            {"tools": [look, act]}, "its tools differ from the recorded ones: hang", id="a tool less"
        ),
        pytest.param({"settings": {"temperature": 1}}, "its settings differ", id="a setting"),
    ],
)
async def test_what_is_unlike_the_recorded_is_named(changes: dict[str, Any], told: str) -> None:
    """A prompt, a tool or a setting that changed is what the error says, with the words of both."""
    store, run = await recorded([say("seen")], system="Be brief.")
    recording = await Recording.read(store, run)
    given: dict[str, Any] = {"tools": [look, act, hang], "system": "Be brief.", "policy": QUICK} | changes
    with pytest.raises(MissingFact, match=told):
        await Agent(model=recording.model(), **given).start("do it").result()


async def test_recorded_tools_serve_a_real_model() -> None:
    """The tools from the log run nothing, and refuse a call with other arguments."""
    store, run = await recorded([call("look", where="e"), say("seen")])
    recording = await Recording.read(store, run)
    tools = recording.tools().tools
    same = Agent(model=ScriptedModel([call("look", where="e"), say("as before")]), tools=tools, policy=QUICK)
    assert "as before" == (await same.start("do it").result()).outcome.text
    other = Agent(model=ScriptedModel([call("look", where="f")]), tools=tools, policy=QUICK)
    with pytest.raises(MissingFact, match="call c1"):
        await other.start("do it").result()


async def test_the_first_other_decision_is_named() -> None:
    """An engine whose rules decide otherwise parts from the log at the first event that differs."""
    store, run = await recorded([call("look", where="g"), say("seen")])
    recording = await Recording.read(store, run)
    recording.opening = type(recording.opening)(
        **{
            name: getattr(recording.opening, name)
            for name in recording.opening.__struct_fields__
            if name != "model"
        },
        model="another",
    )
    with pytest.raises(Diverged, match="event 1 diverges: recorded run_started"):
        await recording.play(MemoryStore())


async def test_every_field_of_a_reply_plays_again() -> None:
    """A recorded reply is played as it was received: no field is left at its default."""
    whole = Reply(
        text="Hello.",
        reasoning="Be kind.",
        calls=(ReplyCall(name="look", arguments="{}", provider_id="call_9"),),
        stop=StopReason.TOOL_USE,
        stop_raw="tool_calls",
        usage=Usage(input=5, output=3, cache_read=1, cache_write=1, reasoning=2),
        cost_nanousd=7,
        model="whole-1",
        adapter="whole",
        adapter_version="2",
        response_id="r9",
        provider_data='{"a":1}',
    )
    fields = Reply.__struct_fields__
    assert [] == [name for name in fields if getattr(whole, name) in ("", None, (), Usage())]

    requests: list[ModelRequest] = []

    class Whole:
        name, priced = "whole:1", True

        async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
            requests.append(request)
            yield whole

        async def aclose(self) -> None:
            pass

    store = MemoryStore()
    policy = {"limits": [{"type": "step", "value": 1}]}
    await Agent(model=Whole(), tools=[look], store=store, policy=policy).start("Hi", run_id="r").result()
    recorded = (await Recording.read(store, "r")).model()
    assert whole == [reply async for reply in recorded.stream(requests[0])][-1]
