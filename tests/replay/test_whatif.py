"""`whatif`, rule by rule: what counts as the same for the world, what stops a run, and where evidence
ends.
"""

from typing import Any

import pytest

from refold.reducers.events import ClockRead, Manifest, RunForked
from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import FailureClass
from refold.replay.whatif.verdict import Spend, Verdict
from support.scenario import SECOND, Scenario
from support.stories import (
    ASK,
    IN_TIME,
    STEPS,
    Plain,
    Story,
    asked,
    cancelled_and_down,
    cut_off,
    failed_once,
    fell_back,
    in_order,
    out_of_time,
    steps,
    summed_up,
    taken_for_an_overflow,
    told,
    two_tools,
    waited,
)

ASK_OF_ACTS: Plain = {
    "approvals": {"chain": [{"approver": "human", "tools": ["act"]}, {"approver": "approve"}]}
}
ASK_FURTHER_DOWN: Plain = {
    "approvals": {"chain": [{"approver": "approve", "tools": ["nothing"]}, {"approver": "human"}]}
}
PREVIEWS: Plain = {"history": [{"do": "preview_results", "tokens": 1, "chars": 4, "lines": 2}]}
OVERFLOW = {"do": [{"do": "drop_oldest", "fraction": 0.5}], "patterns": ["broke"]}
ONCE = {"attempts": 3, "initial": 1, "jitter": {"add": 0}}


def pressed(tools: Any) -> Plain:
    """A tier of pressure from the first step on, that offers these tools."""
    tier = {"name": "late", "at": {"fraction": 0.1}, "tools": tools}
    return {**STEPS, "pressure": {"tiers": [tier]}}


def shortened(text: str) -> Plain:
    """Results that are shown shorter, with these words where something was cut."""
    aged = {"do": "age_results", "keep_last": 0, "soft": {"over": 9, "head": 2, "tail": 2}}
    return {"history": [aged], "texts": {"aged": text}}


def fallback(model: str) -> Plain:
    """Another model is asked at the second attempt."""
    return {"retry": {**ONCE, "fallback": {"models": [model], "when": [{"attempt": 2}]}}}


def summing(keep: int) -> Plain:
    """All but the newest messages are summed up, after three steps."""
    return {"history": [{"do": "summarise", "when": {"messages": 7}, "keep_first": 1, "keep_last": keep}]}


def reminded(seconds: int) -> Plain:
    """The model is told of the time limit, in a message of which four characters are left."""
    return {
        "limits": [{"type": "time", "value": seconds}],
        "progress": {"every": 1, "show_limit": True, "before_history": True},
        "history": [{"do": "trim_messages", "cap": 1}],
    }


IN_TOKENS = {"do": "trim_messages", "cap": 99, "codec": "bpe:o200k_base", "marker": "beside"}

AGREES = [
    pytest.param(
        {}, steps("ok"), {"limits": [{"type": "step", "value": 7}]}, id="a limit that is not reached"
    ),
    pytest.param({}, steps("ok"), {"near": {"fraction": 0.5}}, id="a warning that nobody but people gets"),
    pytest.param({}, steps("ok"), {"estimator": "bytes4"}, id="another estimate that nothing depends on"),
    pytest.param(
        {}, steps("ok"), {"limits": [{"type": "step", "value": 50, "name": "all"}]}, id="another name"
    ),
    pytest.param(
        {}, steps("ok", after=2), {"limits": [{"type": "time", "value": 9}]}, id="a deadline after the end"
    ),
    pytest.param(STEPS, steps("ok"), {**STEPS, "tool_output": {"max": 2}}, id="a cap that cuts nothing"),
    pytest.param({}, steps("ok"), {"history": [IN_TOKENS]}, id="a cap in tokens that no message exceeds"),
    pytest.param({"history": [IN_TOKENS]}, steps("ok"), {}, id="no cap, where a cap in tokens cut nothing"),
    pytest.param({}, steps("ok"), {"texts": {"continue": "On."}}, id="other words that were not said"),
    pytest.param(ASK, waited(4), IN_TIME, id="a deadline for a person who was in time"),
    pytest.param(
        {}, cut_off, {"limits": [{"type": "time", "value": 9}]}, id="a tool's own timeout, before ours"
    ),
    pytest.param(
        {"retry": ONCE}, failed_once, {"retry": {**ONCE, "attempts": 2}}, id="an attempt that was enough"
    ),
    pytest.param(
        reminded(300),
        steps("ok", after=1),
        reminded(200),
        id="other words of the harness, of which no more is shown than what is alike",
    ),
    pytest.param(
        {},
        cancelled_and_down,
        {"limits": [{"type": "time", "value": 4}]},
        id="a deadline while what was under way is brought to an end",
    ),
    pytest.param(
        {"guards": [{"guard": "tool_cap", "tools": ["look"], "max": 1}]},
        steps("ok"),
        {"guards": [{"guard": "tool_cap", "tools": ["look"], "max": 2}]},
        id="a guard that allows more than was done",
    ),
]


@pytest.mark.parametrize(("policy", "story", "other"), AGREES)
def test_what_makes_no_difference(policy: Plain, story: Story, other: Plain) -> None:
    """Nothing that the world does not see parts two runs."""
    found = told(policy, story, other)
    assert (Verdict.AGREE, "", 0, "") == (found.verdict, found.kind, found.seq, found.why)
    assert found.events >= found.fact > 0
    assert (found.agent_state, found.code) == (found.recorded_state, found.recorded_code)


STOPS = [
    pytest.param({}, steps("ok", "ok"), {"limits": [{"type": "step", "value": 1}]}, "step_limit", id="steps"),
    pytest.param(
        {}, steps("ok", "ok"), {"limits": [{"type": "token", "value": 16}]}, "token_budget", id="tokens"
    ),
    pytest.param(
        {},
        steps("ok", "ok"),
        {"guards": [{"guard": "repetition", "repeats": 1}]},
        "repetition",
        id="a guard at the second call",
    ),
    pytest.param(
        {"retry": ONCE}, failed_once, {"retry": {"attempts": 1}}, "provider:overloaded", id="no retry"
    ),
    pytest.param({"end_of_turn": "wait"}, steps(), {}, "end_turn", id="an answer that ends the run"),
    pytest.param(
        {"limits": [{"type": "step", "value": 1}]},
        steps("ok"),
        {"limits": [{"type": "message", "value": 4}]},
        "message_limit",
        id="another limit where the recorded one stopped it",
    ),
]


@pytest.mark.parametrize(("policy", "story", "other", "code"), STOPS)
def test_where_it_stops(policy: Plain, story: Story, other: Plain, code: str) -> None:
    """A policy that ends the run at a fact ends it there, and what was spent later is saved to the token."""

    def until_it_ends(run: Scenario) -> None:
        try:
            story(run)
        except AssertionError:  # the recorded policy has ended it, too
            assert run.state.ended

    found = told(policy, until_it_ends, other)
    assert (Verdict.STOPS, code, True, "end") == (found.verdict, found.code, found.exact, found.kind)
    assert 0 < found.fact <= found.seq <= found.events
    scenario = Scenario(policy)
    until_it_ends(scenario)
    spent = scenario.state.spent
    assert spent.usage.input == found.until.input + found.saved.input
    assert spent.steps == found.until.steps + found.saved.steps


def test_a_deadline_between_two_facts_stops_the_run_there() -> None:
    """A clock of the other policy rings before the fact; what was under way counts as spent, and that is
    said.
    """
    found = told({}, steps("ok", "ok", after=4), {"limits": [{"type": "time", "value": 6}]})
    assert (Verdict.STOPS, "TIMED_OUT", "time_limit") == (found.verdict, found.agent_state, found.code)
    assert not found.exact
    assert 6 * SECOND == found.until.duration
    # The second answer came at 8 seconds: it was asked for at 4, and would have been cut off.
    assert Spend(steps=1, input=10, output=5, duration=6 * SECOND) == found.saved


DIVERGES = [
    pytest.param(
        {}, steps("ok"), {"history": [{"do": "tail", "last": 1}]}, "view", 2, id="a message left out"
    ),
    pytest.param(
        {"history": [{"do": "tail", "last": 1}]},
        steps("ok"),
        {},
        "view",
        2,
        id="a message that had been left out",
    ),
    pytest.param({}, steps("ok"), {"nudge": True}, "texts", 1, id="a text in each request"),
    pytest.param(
        {"nudge": True},
        steps("ok"),
        {"nudge": True, "texts": {"nudge": "Go on."}},
        "texts",
        1,
        id="the same text in other words",
    ),
    pytest.param(
        {},
        steps("ok"),
        {"limits": [{"type": "step", "value": 1}], "grace": {"on": ["step"]}},
        "texts",
        2,
        id="one last request",
    ),
    pytest.param({}, in_order, {"batch": "in_order"}, "calls", 1, id="one call at a time"),
    pytest.param({}, steps("ok"), ASK, "calls", 1, id="a person is asked first"),
    pytest.param(ASK, waited(1), {}, "calls", 1, id="a person is not asked"),
    pytest.param(ASK, waited(7), IN_TIME, "clock", 1, id="a person who would have been too late"),
    pytest.param(
        {"retry": ONCE}, failed_once, {"retry": {**ONCE, "initial": 2}}, "wait", 1, id="a longer pause"
    ),
    pytest.param(
        {"end_of_turn": "continue"}, steps(), {"end_of_turn": "wait"}, "request", 2, id="a person's turn"
    ),
    pytest.param(
        {}, steps("ok"), {"end_of_turn": "continue"}, "end", 2, id="the record ends, the run goes on"
    ),
    pytest.param(
        {}, steps("12345"), {"tool_output": {"max": 4}}, "output", 2, id="an output that would be cut"
    ),
    pytest.param({"tool_output": {"max": 4}}, steps("12345"), {}, "output", 1, id="an output that was cut"),
    pytest.param({}, steps("zqx-1234"), {"redact": [r"zqx-\d+"]}, "redaction", 2, id="a secret to hide"),
    pytest.param(
        {"redact": [r"zqx-\d+"]}, steps("[REDACTED]"), {}, "redaction", 1, id="a secret that was hidden"
    ),
    pytest.param(
        {}, cut_off, {"texts": {"timeout": "Too slow."}}, "wording", 1, id="an error in other words"
    ),
    pytest.param({"overflow": OVERFLOW}, failed_once, {}, "overflow", 1, id="an overflow that only one sees"),
    pytest.param(
        {"limits": [{"type": "time", "value": 5}]},
        cut_off,
        {"limits": []},
        "cut_off",
        1,
        id="more time for a call",
    ),
    pytest.param(
        {"limits": [{"type": "time", "value": 5}], "overflow": {"patterns": ["took too long"]}},
        taken_for_an_overflow,
        {"limits": [], "overflow": {"patterns": ["took too long"]}},
        "cut_off",
        1,
        id="more time for a request whose timeout was taken for an overflow",
    ),
    pytest.param(
        {"limits": [{"type": "time", "value": 5}]},
        out_of_time,
        {},
        "end",
        1,
        id="the recorded one is brought to an end",
    ),
    pytest.param(ASK, two_tools, ASK_OF_ACTS, "question", 1, id="a question about fewer calls"),
    pytest.param(
        ASK, two_tools, ASK_FURTHER_DOWN, "question", 1, id="the same question, by another link of the chain"
    ),
    pytest.param({}, steps("a long result" * 20), PREVIEWS, "view", 2, id="a preview of a result"),
    pytest.param(fallback("a"), fell_back, fallback("b"), "model", 1, id="another model"),
    pytest.param(pressed("all"), steps("ok"), pressed("none"), "tools", 1, id="other tools"),
    pytest.param(
        shortened("gone"),
        steps("a long result"),
        shortened("missing"),
        "view",
        2,
        id="other words in a message",
    ),
    pytest.param(summing(1), summed_up, summing(3), "summary", 3, id="a summary of other messages"),
    pytest.param(
        {},
        cut_off,
        {"limits": [{"type": "time", "value": 4.5}], "call_timeout": {"whole_seconds": True}},
        "cut_off",
        1,
        id="a call's own bound before the deadline",
    ),
]


@pytest.mark.parametrize(("policy", "story", "other", "kind", "turn"), DIVERGES)
def test_where_evidence_ends(policy: Plain, story: Story, other: Plain, kind: str, turn: int) -> None:
    """What the world would be asked otherwise is the end of the evidence, by its kind and in its turn."""
    found = told(policy, story, other)
    assert (Verdict.DIVERGES, kind, turn) == (found.verdict, found.kind, found.turn)
    assert Spend() == found.saved
    assert found.why
    assert found.state


def test_what_fired_is_told() -> None:
    """Guards and limits of the other policy are named with the fact at which they spoke, warnings too."""
    other = {
        "limits": [{"type": "step", "value": 2}, {"type": "token", "value": 40}],
        "near": {"reserve_tokens": 30},
    }
    found = told({}, steps("ok", "ok", "ok"), other)
    assert [("limit:token", "warn", "near_limit"), ("limit:step", "stop", "step_limit")] == [
        (each.who, each.said, each.code) for each in found.fired
    ]
    assert all(0 < each.fact <= found.fact for each in found.fired)


def test_the_decisions_that_part() -> None:
    """Both sides are shown: what was recorded, and what follows under the other policy."""
    found = told({}, steps("ok"), {"limits": [{"type": "step", "value": 1}]})
    assert found.recorded is not None
    assert found.derived is not None
    assert '"kind":"model_requested"' in found.recorded
    assert '"kind":"limit_reached"' in found.derived


def test_an_amendment_is_the_other_policys_too() -> None:
    """A policy stands in the place of whatever was in force; a change changes each of them."""
    scenario = Scenario({})
    scenario.answer("", ("look", "{}"))
    scenario.amend({"limits": [{"type": "step", "value": 1}]})
    scenario.result("c1")
    assert AgentState.MAX_STEPS is scenario.state.agent_state
    assert Verdict.DIVERGES is asked(scenario.log, {}).verdict
    assert Verdict.AGREE is asked(scenario.log, None).verdict
    assert Verdict.AGREE is asked(scenario.log, {"limits": [{"type": "step", "value": 1}]}).verdict


def test_a_fork_stands_where_it_stood() -> None:
    """A fork is followed though the other run's log is longer by then; no time passes between its parent and
    it.
    """
    scenario = Scenario({})
    scenario.step()
    scenario.now += 100
    fork = RunForked(
        at=scenario.at, run="r2", rules=1, parent="r1", parent_seq=scenario.state.seq, parent_hash="00",
        downtime=100 * SECOND,
    )  # fmt: skip
    scenario.feed(fork)
    scenario.answer("done", after=1)
    noted: Plain = {
        "limits": [{"type": "token", "value": 40}, {"type": "time", "value": 50}],
        "near": {"reserve_tokens": 30},
    }
    assert Verdict.AGREE is asked(scenario.log, noted).verdict


def test_a_run_that_is_stopped_ends_the_evidence_at_once() -> None:
    """Where only the recorded run is told to stop, the two part there, and not when it has settled."""
    scenario = Scenario({"limits": [{"type": "time", "value": 5}]})
    out_of_time(scenario)
    clock = next(seq for seq, event in enumerate(scenario.log, 1) if isinstance(event, ClockRead))
    found = asked(scenario.log, {})
    assert ("end", clock) == (found.kind, found.fact)


def test_a_run_of_its_own_under_other_limits() -> None:
    """A call that starts a run hands on what is left: other limits there end the evidence where it begins."""
    scenario = Scenario({}, tools=(Manifest(name="ask_bob", agent="bob"),))
    scenario.answer("", ("ask_bob", "{}"))
    budget = {"limits": [{"type": "token", "value": 900}]}
    assert "child" == asked(scenario.log, budget).kind
    assert Verdict.AGREE is asked(scenario.log, {"limits": [{"type": "step", "value": 9}]}).verdict


def test_a_failure_of_another_class_by_the_other_policys_patterns() -> None:
    """What only the other policy takes for an overflow is one there."""
    found = told({"retry": ONCE}, failed_once, {"retry": ONCE, "overflow": {**OVERFLOW, "do": None}})
    assert ("context_overflow", FailureClass.CONTEXT_OVERFLOW) == (found.code, "context_overflow")
