"""Changes that a comparison could hide, and runs that are unchanged however much happens in them."""

import json
import time
from functools import partial
from typing import Any

import anyio
import pytest

from refold.engine import Agent, ScriptedModel, call, calls, fail, say, tool
from refold.reducers.vocabulary import FailureClass
from refold.store.recordings import RecordedRun, encode_recording
from refold.testing import BehaviourChanged, Ignore, ObservedRun
from refold.testing.failures import Evidence
from refold.testing.live import compare_runs
from refold.testing.loaded_logs import recording_of
from refold.testing.matchers import Matchers
from refold.testing.recorder import record
from refold.testing.replays import ReplayOptions, replay

QUICK = {"retry": {"initial": 0, "jitter": {"add": 0}}}


@tool(replay="read_only")
def look(where: str = "here") -> str:
    """Look around. At most 10 times."""
    return "seen " * 40


@tool
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@tool
def broken() -> str:
    """Fail."""
    raise RuntimeError("it broke")


LINES = [call("look"), call("broken"), call("pay", cents=3), say("Done.")]


def make(lines: Any = LINES, **more: Any) -> Agent:
    policy = {**QUICK, **more.pop("policy", {})}
    return Agent(ScriptedModel(lines), **{"tools": [look, pay, broken], "policy": policy, **more})


def recorded(agent: Agent, **more: Any) -> list[RecordedRun]:
    return anyio.run(partial(record, agent, "Do it.", run_id="r", **more))


def compare(runs: list[RecordedRun], agent: Agent, ignore: Any = (), **more: Any) -> ObservedRun:
    how = ReplayOptions(matchers=Matchers(ignore), evidence=Evidence(what="", recording="r.jsonl"), **more)
    recordings = [recording_of(each, agent.registry) for each in runs]
    return anyio.run(replay, recordings, agent, "Do it.", how).run


def observed(agent: Agent, **more: Any) -> ObservedRun:
    return ObservedRun(recording_of(recorded(agent, **more)[0]).events)


@pytest.mark.parametrize(
    ("policy", "key"),
    [
        ({"tool_output": {"max": 50}}, "tool_output.max"),
        ({"texts": {"raised": "It failed: {problem}"}}, "texts.raised"),
        ({"redact": ["paid"]}, "redact"),
    ],
)
def test_policies_that_change_results(policy: dict[str, Any], key: str) -> None:
    """A replay takes results from the recording as they are: a cap, a text or redaction that would have
    changed one is found by the policy.
    """
    with pytest.raises(BehaviourChanged, match=f"the policy differs: {key}"):
        compare(recorded(make()), make(policy=policy))


def test_what_a_tool_declares() -> None:
    """Whether a call may be repeated, and how long it may take, decide what a crash or a slow day does."""
    changed = tool(name="pay", replay="idempotent", timeout=5)(pay.function)
    with pytest.raises(BehaviourChanged, match="the replay of a tool differs") as found:
        compare(recorded(make()), make(tools=[look, changed, broken]))
    assert "the timeout of a tool differs" in str(found.value)


def test_matchers_leave_states_and_tools_alone() -> None:
    """A matcher for texts reaches neither decisions nor descriptions of tools."""
    runs = recorded(make([say("Hm.")]))
    with pytest.raises(BehaviourChanged):
        compare(runs, make([say("Hm.")], policy={"end_of_turn": "wait"}), [Ignore(field="text")])

    @tool(name="look", replay="read_only")
    def other(where: str = "here") -> str:
        """Look around. At most 9999 times."""
        return ""

    for ignore in (["number"], [Ignore(message="tool")], [Ignore(message="look")]):
        with pytest.raises(BehaviourChanged, match="the description of a tool differs"):
            compare(recorded(make()), make(tools=[other, pay, broken]), ignore)
    compare(recorded(make()), make(tools=[other, pay, broken]), [Ignore("number", field="description")])


HUMAN = {
    "approvals": {"chain": [{"approver": "human", "tools": ["pay"]}, {"approver": "approve", "tools": ["*"]}]}
}


def approve(run: Any) -> None:
    run.answer({each.id: "approve" for each in run.pending})


def test_an_approval_that_is_gone() -> None:
    """A call that an operator approved, and that now just runs, has another permission."""
    gated, open_ = observed(make(policy=HUMAN), operator=approve), observed(make())
    found = compare_runs(gated, open_, Matchers())
    assert found is not None
    assert ("the permission of a call differs", "approved by user", "permitted") == (
        found[1].what,
        found[1].recorded,
        found[1].actual,
    )


def test_results_of_live_tools_beside_a_live_model() -> None:
    """Both are compared, and so is whether calls came in one response or in two."""
    one, other = observed(make()), observed(make(tools=[look, pay, tool(name="broken")(lambda: "fine")]))
    found = compare_runs(one, other, Matchers(), results=True)
    assert found is not None
    assert "the error of a call differs" == found[1].what
    apart, together = [call("look"), call("pay", cents=3)], [calls(("look", {}), ("pay", {"cents": 3}))]
    found = compare_runs(
        observed(make([*apart, say("ok")])), observed(make([*together, say("ok")])), Matchers()
    )
    assert found is not None
    assert "the turn of a call differs" == found[1].what


def helper(name: str, system: str, tools: Any = (), lines: Any = None) -> Agent:
    return Agent(
        ScriptedModel(lines or [say(f"{name} is done.")]), name=name, system=system, tools=tools, policy=QUICK
    )


def test_two_agents_of_one_name() -> None:
    """Each child run is compared with the agent that its call starts."""

    def top(second: str) -> Agent:
        tools = [helper("helper", "A.").as_tool("first"), helper("helper", second).as_tool("second")]
        return helper("top", "T.", tools, [call("second", task="Help."), say("Thanks.")])

    runs = recorded(top("B."))
    compare(runs, top("B."))
    with pytest.raises(BehaviourChanged, match=r"\+ C\."):
        compare(runs, top("C."))


def family() -> Agent:
    """An agent whose children have children, with limits that they inherit."""

    def below(name: str) -> Agent:
        lines = [calls(("look", {}), ("look", {"where": "there"})), say("g")]
        grandchild = helper("g", "G.", [look], lines).as_tool("g")
        return helper(name, "M.", [grandchild], [call("g", task="Go."), say("m")])

    middle = [below("m1"), below("m2")]
    lines = [calls(("m1", {"task": "Go."}), ("m2", {"task": "Go."})), say("Done.")]
    policy = {**QUICK, "limits": [{"type": "token", "value": 100_000}]}
    return Agent(
        ScriptedModel(lines), name="top", tools=[each.as_tool(each.name) for each in middle], policy=policy
    )


def test_families() -> None:
    """Children of children are compared with the limits of their own parents; recorded again, nothing
    differs.
    """
    runs = recorded(family())
    assert 5 == len(runs)
    compare(runs, family())
    assert {encode_recording(runs)} == {encode_recording(recorded(family())) for _ in range(3)}


def test_a_result_that_comes_too_late() -> None:
    """A thread that outlives its time limit is no part of a recording, and of a log of production none that
    counts.
    """

    @tool(timeout=0.02)
    def slow() -> str:
        """Take longer than allowed."""
        time.sleep(0.08)
        return "late"

    @tool
    async def wait() -> str:
        """Wait for the thread."""
        await anyio.sleep(0.15)
        return "waited"

    def agent(**more: Any) -> Agent:
        return make([call("slow"), call("wait"), say("Done.")], tools=[slow, wait], **more)

    runs = recorded(agent())
    assert not [each for each in runs[0].records if each.kind == "late_result"]
    compare(runs, agent())

    async def production() -> list[RecordedRun]:
        from refold.store import open_memory
        from refold.store.recordings import recorded_run

        store = open_memory()
        await agent(store=store).run("Do it.", run_id="r")
        return [await recorded_run(store, "r")]

    found = anyio.run(production)
    assert [each for each in found[0].records if each.kind == "late_result"]
    assert "COMPLETED" == compare(found, agent()).state


def test_filters_reach_every_text() -> None:
    """Messages, an operator's input, errors, child runs: what a filter removes is in no recording."""
    lines: list[Any] = [
        call("transfer_to_bob", task="Ask SECRET."),
        fail(FailureClass.OVERLOADED, "SECRET is busy", partial_text="SECRET"),
        *[say("SECRET?")] * 9,
    ]
    bob = helper("bob", "You know SECRET.", [], [say("SECRET says hello.")])
    agent = Agent(
        ScriptedModel(lines),
        name="top",
        system="SECRET.",
        handoffs=[bob],
        policy={**QUICK, "end_of_turn": "wait", "stream": None},
    )
    from refold.reducers.messages import Message
    from refold.reducers.vocabulary import Role

    def answer(run: Any) -> None:
        if run.state.spent.steps < 4:
            run.send("I am SECRET.")

    runs = recorded(
        agent,
        operator=answer,
        before_record=[lambda text: text.replace("SECRET", "NAME")],
        options={"messages": [Message(role=Role.USER, text="SECRET wrote.")]},
    )
    text = encode_recording(runs)
    assert 2 == len(runs)
    assert 8 <= text.count("NAME")
    assert "SECRET" not in text


def test_a_redacted_text_matches_what_it_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that is known where a run was recorded, and not where it is replayed, is no difference."""
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-hunter2-hunter2")
    runs = recorded(make(system="Your id is hunter2-hunter2-hunter2."))
    assert "[REDACTED]" in json.dumps(encode_recording(runs))
    monkeypatch.delenv("SHOP_API_KEY")
    compare(runs, make(system="Your id is hunter2-hunter2-hunter2."))
    with pytest.raises(BehaviourChanged):
        compare(runs, make(system="Your ID is hunter2-hunter2-hunter2."))
