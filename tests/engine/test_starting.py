"""What is refused before anything is started, what a run begins with, and what a caller gets at the end."""

import re
from typing import Any

import pytest

from refold.engine import (
    Agent,
    Finished,
    LimitError,
    ScriptedModel,
    Update,
    call,
    calls,
    say,
    tool,
)
from refold.engine.models.protocol import CallDelta, ReasoningDelta, TextDelta
from refold.engine.models.script import deltas
from refold.reducers.errors import PolicyError, WrongUse
from refold.reducers.events import RunStarted
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import Role
from refold.store import MemoryStore, SqliteStore
from support import runs
from support.clocks import START
from support.driving import StreamingModel, assert_sound, events_of
from support.forging import records_of

pytestmark = pytest.mark.anyio

REFUSED: list[Any] = [
    pytest.param({"limitz": []}, "limitz", id="an unknown key"),
    pytest.param({"limits": [{"type": "step", "value": -1}]}, "limits[0].value", id="a negative limit"),
    pytest.param({"limits": [{"type": "time", "value": "ten"}]}, "limits[0].value", id="a word for a number"),
    pytest.param({"limits": [{"type": "time", "value": float("inf")}]}, "limits[0].value", id="infinity"),
    pytest.param(
        {"limits": [{"type": "step", "value": 1}, {"type": "step", "value": 2}]},
        "limits[1].name",
        id="a name twice",
    ),
    pytest.param(
        {"guards": [{"guard": "repetitoin"}]}, "guards[0].guard", id="a guard that is not installed"
    ),
    pytest.param(
        {"guards": [{"guard": "repetition", "repeats": -1}]}, "guards[0].repeats", id="a guard's value"
    ),
    pytest.param({"texts": {"contineu": "Go on."}}, "texts.contineu", id="an unknown text"),
    pytest.param({"end_of_turn": "stop"}, "end_of_turn", id="a word that means nothing"),
]


@pytest.mark.parametrize(("policy", "path"), REFUSED)
def test_a_policy_that_cannot_work_is_refused_where_the_agent_is_made(
    policy: dict[str, Any], path: str
) -> None:
    """A policy that cannot work raises `PolicyError` with the place, before there is any run."""
    with pytest.raises(PolicyError, match=re.escape(path)) as caught:
        Agent(model=ScriptedModel([]), policy=policy)
    assert path == caught.value.path


def test_a_policy_made_in_python_is_checked_as_well() -> None:
    """A `Policy` whose values were never validated is refused like one that was read."""
    with pytest.raises(PolicyError, match="end_of_turn"):
        Agent(model=ScriptedModel([]), policy=Policy(end_of_turn="never"))  # type: ignore[arg-type]


def test_a_cost_limit_without_a_price_is_refused() -> None:
    """A limit on money that nobody can count is refused, naming the limit and the model."""
    with pytest.raises(PolicyError, match=r"limits\[1\]: the price of streaming is unknown"):
        Agent(
            model=StreamingModel(priced=False),
            policy={"limits": [{"type": "step", "value": 1}, {"type": "cost", "value": 1}]},
        )
    Agent(model=StreamingModel(priced=False), policy={"limits": [{"type": "cost", "value": None}]})


def test_two_tools_of_one_name_are_refused() -> None:
    """Tools that a model could not tell apart are refused."""
    with pytest.raises(WrongUse, match="two tools are named 'look'"):
        Agent(model=ScriptedModel([]), tools=[runs.look, runs.look])


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_does_not_fit_is_refused(seed: int) -> None:
    """A seed outside 0 to 2**63 - 1 is refused."""
    with pytest.raises(WrongUse, match=f"got {seed}"):
        Agent(model=ScriptedModel([])).start("Do it.", seed=seed)


ASKED = Message(role=Role.ASSISTANT, calls=(MessageCall("e1", "look", "{}"),))
ANSWERED = Message(role=Role.TOOL, text="seen", call="e1", name="look")


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        pytest.param([ASKED], r"messages\[1\]: call 'e1' has no result", id="a call without result"),
        pytest.param([ANSWERED], r"messages\[0\]: a result of call 'e1'", id="a result without call"),
    ],
)
def test_an_earlier_history_that_no_provider_takes_is_refused(messages: list[Message], problem: str) -> None:
    """Half of a call and its result is refused at the start, naming the message."""
    with pytest.raises(WrongUse, match=problem):
        Agent(model=ScriptedModel([])).start("Do it.", messages=messages)


async def test_earlier_messages_stand_between_system_prompt_and_task() -> None:
    """The model sees the system prompt, the earlier messages as they were, and the task last."""
    earlier = [
        Message(role=Role.USER, text="Hello."),
        ASKED,
        ANSWERED,
        Message(role=Role.ASSISTANT, text="Hi."),
    ]
    model, store = ScriptedModel([say("Done.")]), MemoryStore()
    agent = Agent(model=model, system="Be brief.", tools=[runs.look], store=store)
    await agent.start("Do it.", messages=earlier, run_id="r").result()
    expected = (
        Message(role=Role.SYSTEM, text="Be brief."),
        *earlier,
        Message(role=Role.USER, text="Do it."),
    )
    assert expected == model.requests[0].messages
    await assert_sound(store, "r")


async def test_the_beginning_says_with_what_the_run_was_made() -> None:
    """The first event names model, settings, tools with their schemas and replay classes, seed, labels and
    versions.
    """
    store = MemoryStore()
    agent = Agent(
        model=ScriptedModel([say("Done.")]),
        tools=[runs.look, runs.act],
        settings={"temperature": 0.5, "stop": ["x"]},
        store=store,
        name="tester",
    )
    await agent.start("Do it.", run_id="r", seed=3, labels={"suite": "engine"}).result()
    first = (await events_of(store, "r"))[0]
    assert isinstance(first, RunStarted)
    assert ("r", "scripted", 3, "tester", {"suite": "engine"}) == (
        first.run,
        first.model,
        first.seed,
        first.agent,
        first.labels,
    )
    assert {"temperature": "0.5", "stop": '["x"]'} == first.settings
    assert [("look", "read_only"), ("act", "at_most_once")] == [
        (each.name, each.replay) for each in first.tools
    ]
    assert {"refold", "python"} <= first.versions.keys()
    assert all(each.digest and '"type":"object"' in each.schema for each in first.tools)


async def test_the_same_seed_gives_the_same_log() -> None:
    """Two runs with one seed and one clock have logs that are equal to the byte, salts and waits included."""
    one, other = MemoryStore(), MemoryStore()
    for store in (one, other):  # in order: which of two tools is the first to end is no matter of the seed
        await runs.recorded_run(store, policy={**runs.POLICY, "batch": "in_order"})
    assert await records_of(one, runs.RUN) == await records_of(other, runs.RUN)
    assert (await one.head(runs.RUN)) == (await other.head(runs.RUN))


async def test_without_a_seed_logs_differ() -> None:
    """Without a seed every run has an id, a seed and salts of its own."""
    stores = [MemoryStore(), MemoryStore()]
    for store in stores:
        await Agent(model=ScriptedModel([say("Done.")]), store=store).start("Do it.", run_id="r").result()
    one, other = [await records_of(store, "r") for store in stores]
    assert one[0].salt != other[0].salt
    assert 16 == len(one[0].salt)
    assert Agent(model=ScriptedModel([])).start("a").id != Agent(model=ScriptedModel([])).start("a").id


async def test_a_run_in_a_file_that_is_opened_for_it(tmp_path: Any) -> None:
    """An agent that was given a path opens the file for as long as its run goes, and the log is there
    afterwards.
    """
    path = tmp_path / "runs.db"
    run = Agent(
        model=ScriptedModel([say("Who?"), say("Ah.")]), policy={"end_of_turn": "wait"}, store=path
    ).start("Do it.", run_id="r")
    await run.result()
    run.send("me")
    await run.result()
    async with await SqliteStore.open(path, readonly=True) as store:
        await assert_sound(store, "r")
        assert 9 == (await store.head("r")).seq


async def test_the_result_says_how_the_run_stands() -> None:
    """A result has the state, the outcome, what was spent and what the model would see next."""
    script = (call("look", path="a"), say("Seen.", usage=Usage(input=7, output=3), cost_nanousd=11))
    agent = runs.agent(script, policy={}, system="Be brief.")
    result = await agent.start("Do it.", run_id="r", seed=1).result()
    assert ("r", "COMPLETED", None) == (result.run, result.state, result.limit)
    outcome = result.outcome
    assert ("end_turn", "the model finished its turn", "Seen.", "answer", 2, 10) == (
        outcome.code,
        outcome.reason,
        outcome.text,
        outcome.source,
        outcome.step,
        outcome.seq,
    )
    spent = result.spent
    assert (2, 2, 1, 7, 11) == (
        spent.steps,
        spent.requests,
        spent.calls,
        spent.usage.input,
        spent.cost_nanousd,
    )
    assert [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT] == [
        message.role for message in result.messages
    ]
    result.raise_for_limit()


async def test_a_result_is_short_to_print() -> None:
    """Printed, a result is one line: run, state, why it ended, and the first of the text; the text is there
    by name.
    """
    said = "A very long story. " * 40
    result = await Agent(ScriptedModel([say(said)])).run("Tell.", run_id="r")
    assert said == result.text
    assert f"<RunResult r COMPLETED (end_turn), step 1, text={said[:200] + '…'!r}>" == str(result)
    assert result.usage is result.spent.usage


async def test_raise_for_limit() -> None:
    """A run that a limit ended raises `LimitError` with its numbers, when it is asked to, and not before."""
    agent = runs.agent((call("look", path="a"),), policy={"limits": [{"type": "step", "value": 1}]})
    result = await agent.start("Do it.", run_id="r").result()
    assert "MAX_STEPS" == result.state
    with pytest.raises(LimitError, match="run r: limit 'step' reached: 1 of 1 steps at step 1"):
        result.raise_for_limit()


async def test_a_run_id_that_is_taken_is_refused() -> None:
    """A new run cannot be written over one that is there."""
    store = MemoryStore()
    await Agent(model=ScriptedModel([say("Done.")]), store=store).start("Do it.", run_id="r").result()
    head = await store.head("r")
    with pytest.raises(Exception, match="the store has a run 'r' already"):
        await Agent(model=ScriptedModel([say("Done.")]), store=store).start("Do it.", run_id="r").result()
    assert head == await store.head("r")


async def test_a_script_that_is_too_long_says_so() -> None:
    """Lines that nobody asked for are an error when the test asks."""
    model = ScriptedModel([say("Done."), say("Never.")])
    await Agent(model=model).start("Do it.").result()
    with pytest.raises(WrongUse, match="1 of 2 lines of the script were not used"):
        model.done()


def test_a_scripted_reply_streams_in_pieces() -> None:
    """Reasoning, text by lines and calls come as deltas, in this order."""
    reply = calls(("look", {"path": "a"}), text="One.\nTwo.")
    assert [
        TextDelta("One.\n"),
        TextDelta("Two."),
        CallDelta(0, "look", '{"path": "a"}'),
    ] == deltas(reply)
    assert [ReasoningDelta("Hm."), TextDelta("So.")] == deltas(say("So.", reasoning="Hm."))


async def test_what_the_clock_says_is_what_is_recorded() -> None:
    """A run begins at the instant of its clock."""
    store = MemoryStore()
    await runs.agent((say("Done."),), policy={}, store=store).start("Do it.", run_id="r").result()
    assert START == (await records_of(store, "r"))[0].at


async def test_a_tools_own_stream_of_words_is_not_the_models() -> None:
    """A tool's output is told as its event, not as a delta."""

    @tool
    async def talk() -> str:
        return "words"

    seen: list[Update] = []
    agent = Agent(model=ScriptedModel([call("talk"), say("Done.")]), tools=[talk])
    async for update in agent.start("Do it.").updates():
        seen.append(update)
    assert 2 == sum(isinstance(update, Finished) for update in seen)
