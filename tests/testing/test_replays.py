"""Recorded and replayed: without a change nothing differs, whatever the run does; a change is found."""

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

from refold.engine import Agent, ScriptedModel, call, calls, fail, say, tool
from refold.reducers.events import kind_of
from refold.reducers.presets import PRESETS
from refold.reducers.vocabulary import FailureClass, StopReason
from refold.store.recordings import RecordedRun, encode_recording, read_recording, write_recording
from refold.testing import BehaviourChanged
from refold.testing.failures import Evidence
from refold.testing.loaded_logs import recording_of
from refold.testing.matchers import Matchers
from refold.testing.recorder import record
from refold.testing.replays import Replayed, ReplayOptions, replay

QUICK = {"retry": {"initial": 0, "jitter": {"add": 0}}}


@tool(replay="read_only")
def look(where: str = "here") -> str:
    """Look."""
    return f"{where}: " + "seen " * 40


@tool
async def act(seconds: float = 0) -> str:
    """Act."""
    await anyio.sleep(seconds)
    return "done"


@tool(timeout=0.01)
async def hang() -> str:
    """Never return."""
    await anyio.sleep_forever()
    return ""


def simple(*lines: Any, **more: Any) -> Callable[..., Agent]:
    """A function that makes an agent with a script."""

    def make(**changes: Any) -> Agent:
        policy = {**QUICK, **more.get("policy", {})}
        model = ScriptedModel([*lines, *[say("Done.")] * 50], context=100_000)
        return Agent(model, **{"tools": [look, act, hang], **more, "policy": policy, **changes})

    return make


def boss(**changes: Any) -> Agent:
    """An agent that hands a part of its task to another."""
    bob = Agent(
        ScriptedModel([call("act"), say("Bob is done.")]),
        tools=[act],
        name="bob",
        system=changes.pop("bobs", "You are Bob."),
        policy=QUICK,
    )
    lines = [call("transfer_to_bob", task="Do it."), say("There.")]
    return Agent(ScriptedModel(lines), tools=[look], handoffs=[bob], name="boss", policy=QUICK, **changes)


HUMAN = {
    "approvals": {"chain": [{"approver": "human", "tools": ["act"]}, {"approver": "approve", "tools": ["*"]}]}
}
SUMMARY = {"history": [{"do": "summarise", "keep_first": 1, "keep_last": 1, "when": {"messages": 3}}]}
RUNS: dict[str, Callable[..., Agent]] = {
    "an answer": simple(say("Hello.")),
    "tools": simple(call("look"), calls(("act", {}), ("look", {"where": "there"})), say("Done.")),
    "slow tools in parallel": simple(
        calls(("act", {"seconds": 0.02}), ("look", {}), ("act", {})), say("Done.")
    ),
    "a tool that is cut off": simple(calls(("hang", {}), ("look", {})), say("Done.")),
    "broken arguments and no such tool": simple(calls(("act", '{"a": '), ("nothing", {})), say("Done.")),
    "failures": simple(fail(), fail(FailureClass.RATE_LIMIT), call("look"), fail(), say("Done.")),
    "a failure that ends it": simple(fail(FailureClass.AUTH)),
    "a truncated response": simple(say("Half", stop=StopReason.MAX_TOKENS), say("of it.")),
    "an operator": simple(calls(("act", {}), ("look", {})), call("act"), say("Done."), policy=HUMAN),
    "a limit": simple(*[call("look")] * 9, policy={"limits": [{"type": "step", "value": 3}]}),
    "grace": simple(
        *[call("look")] * 3,
        say("Done."),
        policy={"limits": [{"type": "step", "value": 3}], "grace": {"on": ["step"]}},
    ),
    "a summary": simple(call("look"), call("look"), say("Seen."), say("Done."), policy=SUMMARY),
    "repetition": simple(*[call("look")] * 6, say("Done."), policy={"guards": [{"guard": "repetition"}]}),
    "turns": simple(say("And?"), say("Well."), policy={"end_of_turn": "wait"}),
    "child runs": boss,
    **{
        f"preset {name}": simple(
            call("look"),
            calls(("look", {}), ("act", {})),
            say("Done."),
            policy={"preset": name, "limits": [{"type": "step", "value": 8}]},
        )
        for name in PRESETS
    },
}


def answer(run: Any) -> None:
    """An operator who approves everything, and says one thing more."""
    if run.pending:
        run.answer({each.id: "approve" for each in run.pending})
    elif run.state.spent.steps < 2:
        run.send("Go on.")


def recorded(make: Callable[..., Agent]) -> list[RecordedRun]:
    return anyio.run(partial(record, make(), "Do it.", run_id="r", operator=answer))


def replayed(
    runs: list[RecordedRun], agent: Agent, *, operated: bool = False, task: str = "Do it."
) -> Replayed:
    how = ReplayOptions(
        matchers=Matchers(),
        evidence=Evidence(what="", recording="r.jsonl"),
        operator=answer if operated else None,
    )
    recordings = [recording_of(each, agent.registry) for each in runs]
    return anyio.run(replay, recordings, agent, task, how)


@pytest.mark.parametrize("name", RUNS)
def test_nothing_changed(name: str, tmp_path: Any) -> None:
    """The replay records the same events, with recorded answers and with an operator's; recorded again, the
    file is the same to the byte.
    """
    make = RUNS[name]
    runs = recorded(make)
    write_recording(tmp_path / "r.jsonl", runs)
    read = read_recording(tmp_path / "r.jsonl")
    assert runs == read
    for operated in (False, True):
        found = replayed(read, make(), operated=operated)
        assert recording_of(runs[0]).events == found.run.events
    assert encode_recording(runs) == encode_recording(recorded(make))


@pytest.mark.parametrize("name", RUNS)
def test_a_changed_prompt_is_found(name: str) -> None:
    """Wherever the run goes, another system prompt is found at its first event."""
    make = RUNS[name]
    runs = recorded(make)
    with pytest.raises(BehaviourChanged) as changed:
        replayed(runs, make(system="Be kind."))
    assert "r@e1" == changed.value.evidence.place


def test_a_change_below_is_found() -> None:
    """The prompt of an agent that a call hands its task to is compared as well."""
    runs = recorded(boss)
    assert 2 == len(runs)
    with pytest.raises(BehaviourChanged) as changed:
        replayed(runs, boss(bobs="You are Robert."))
    assert "+ You are Robert." in str(changed.value)
    assert changed.value.evidence.place.startswith(runs[1].run)


def test_a_summary_is_replayed() -> None:
    """The model is asked for it in the recording, and not in the replay."""
    runs = recorded(RUNS["a summary"])
    assert "summary_returned" in {kind_of(event) for event in recording_of(runs[0]).events}


def test_a_recording_that_breaks_off() -> None:
    """A run that waits at the end of its recording, or was cut off there, agrees up to that point."""
    runs = anyio.run(partial(record, RUNS["an operator"](), "Do it.", run_id="r"))
    assert "WAITING_FOR_INPUT" == replayed(runs, RUNS["an operator"]()).run.state


def test_more_answers_than_recorded() -> None:
    """An operator who answers what was left open makes a run that the recording does not have."""
    runs = anyio.run(partial(record, RUNS["an operator"](), "Do it.", run_id="r"))
    with pytest.raises(BehaviourChanged):
        replayed(runs, RUNS["an operator"](), operated=True)


def test_fewer_answers_than_recorded() -> None:
    """An operator who stays away where an answer was recorded is found at once."""
    runs = recorded(RUNS["an operator"])
    how = ReplayOptions(
        matchers=Matchers(), evidence=Evidence(what="", recording="r"), operator=lambda run: None
    )
    agent = RUNS["an operator"]()
    with pytest.raises(BehaviourChanged, match="the operator does not answer, and an answer was recorded"):
        anyio.run(replay, [recording_of(each) for each in runs], agent, "Do it.", how)
