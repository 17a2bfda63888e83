"""What somebody tried in order to make a run misbehave, or a log mislead: each once, with what must happen
instead.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers.effects import RunTool, next_effects
from refold.reducers.errors import PolicyError, RefoldError, UnexpectedEvent
from refold.reducers.events import (
    CallRefused,
    GuardTripped,
    LimitReached,
    MessageInjected,
    ModelResponded,
    SummaryRequested,
)
from refold.reducers.evolution import evolve
from refold.reducers.failures import overflows
from refold.reducers.folds import advance
from refold.reducers.machine import AgentState
from refold.reducers.messages import Gap
from refold.reducers.parser import parse
from refold.reducers.pending import find
from refold.reducers.vocabulary import FailureClass, StopReason
from support.scenario import Scenario

TOO_LONG = FailureClass.CONTEXT_OVERFLOW


def running(scenario: Scenario) -> list[RunTool]:
    """The calls that are to run now."""
    return [effect for effect in next_effects(scenario.state) if isinstance(effect, RunTool)]


def test_arguments_that_come_too_late_do_not_run() -> None:
    """An edit after its time counts as silence: what the next approver lets run is what the model wrote."""
    first = {"approver": "human", "timeout": 5, "on_timeout": "escalate"}
    scenario = Scenario({"approvals": {"chain": [first, {"approver": "human"}]}})
    scenario.answer("", ("act", '{"a": 1}'))
    scenario.approve(after=6, c1="edit")
    scenario.approve(c1="approve")
    assert [0] == [find(scenario.state, "", effect.call).edited for effect in running(scenario)]


def test_what_a_person_rejected_does_not_run_under_a_new_policy() -> None:
    """A policy that asks nobody any more lets the other calls run, and not the one that was rejected."""
    scenario = Scenario({"approvals": {"chain": [{"approver": "human"}]}})
    scenario.answer("", ("act", "{}"), ("look", "{}"))
    scenario.amend({"approvals": None})
    scenario.approve(c1="reject")
    assert ["c2"] == [call.call for call in running(scenario)]
    assert ["c1"] == [refusal.call for refusal in scenario.events(CallRefused)]


def test_a_chain_that_cannot_read_lets_nothing_run() -> None:
    """Where the arguments are missing the chain cannot judge, and the run ends rather than let the call
    run.
    """
    scenario = Scenario({"approvals": {"chain": [{"approver": "reject"}]}})
    probe = Scenario({"approvals": {"chain": [{"approver": "reject"}]}})
    probe.answer("", ("act", "{}"))
    answer = probe.events(ModelResponded)[-1]
    state, events = advance(scenario.state, replace(answer, content=None))
    assert AgentState.ERROR is state.agent_state
    assert "guard_failed" in [event.code for event in events if isinstance(event, GuardTripped)]


def no_summaries(scenario: Scenario) -> None:
    """Every summary that is asked for fails. Gives up where that has no end."""
    for _ in range(30):
        if scenario.state.summary is None:
            return
        scenario.fail_summary()
    raise AssertionError("summaries are asked for without end")


@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
def test_summaries_that_fail_end(order: list[str]) -> None:
    """Each pass is asked once after an overflow, in whatever order they stand; none gaining is an error."""
    passes = [{"do": "summarise", "name": name} for name in ("a", "b")]
    scenario = Scenario({"history": passes, "overflow": {"do": order, "max": 3}})
    no_summaries(scenario)
    scenario.answer("", ("look", "{}"))
    scenario.result("c1")
    no_summaries(scenario)
    before = len(scenario.events(SummaryRequested))
    scenario.fail(TOO_LONG)
    no_summaries(scenario)
    assert before + 2 == len(scenario.events(SummaryRequested))
    assert ("ERROR", "context_overflow") == (scenario.state.agent_state, scenario.outcome()[0])


REFUSED: list[Any] = [
    pytest.param(
        {"history": [{"do": "tail", "last": 9}], "overflow": {"do": ["tail", "tail"]}},
        "overflow.do[1]",
        id="a pass twice",
    ),
    pytest.param(
        {"overflow": {"do": [{"do": "tail", "last": 1}], "counts_step": False}},
        "overflow.max",
        id="steps given back without end",
    ),
    pytest.param({"overflow": {"patterns": ["a{99999999999}"]}}, "overflow.patterns[0]", id="a huge count"),
    pytest.param({"overflow": {"patterns": ["(" * 5000]}}, "overflow.patterns[0]", id="a deep pattern"),
    pytest.param({"overflow": {"patterns": ["(?!a)"]}}, "overflow.patterns[0]", id="look-around"),
    pytest.param(
        {"guards": [{"guard": "read_only", "name": "premature_end"}], "premature_end": {}},
        "guards[0].name",
        id="the name of a guard that the policy has by a key of its own",
    ),
    pytest.param(
        {"limits": [{"type": "step", "value": 3, "check": "response"}], "grace": {"on": ["step"]}},
        "grace.on[0]",
        id="grace where it is never granted",
    ),
]


@pytest.mark.parametrize(("policy", "path"), REFUSED)
def test_refused(policy: dict[str, Any], path: str) -> None:
    """A policy that could not end, could not be carried out, or hides in the rules' own counts is refused by
    path.
    """
    with pytest.raises(PolicyError) as refusal:
        parse(policy)
    assert path == refusal.value.path


def test_a_policy_that_is_too_deep() -> None:
    """However deep it is nested, it is refused in our words."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"x": deep}
    with pytest.raises(PolicyError, match="nested too deeply"):
        parse({"guards": [{"guard": "repetition", "deep": deep}]})


def test_a_long_complaint_is_not_searched_to_its_end() -> None:
    """Of what a provider says only the beginning is searched."""
    assert overflows("x" * 3990 + "too long", ("too long",))
    assert not overflows("x" * 4000 + "too long", ("too long",))


FORGED: list[Any] = [
    pytest.param(Gap(after=1, sources=((1, 99),)), id="a digest of messages that are not there"),
    pytest.param(Gap(after=1, source=1), id="a summary that nobody asked for"),
    pytest.param(
        Gap(after=1, sources=((1, 2),), source=1, per_message=1, total=1), id="a digest that is a summary too"
    ),
]


@pytest.mark.parametrize("gap", FORGED)
def test_forged_markers(gap: Gap) -> None:
    """A message that claims to stand for others, and cannot be shown, has no place in a log."""
    scenario = Scenario({"end_of_turn": "continue"})
    scenario.answer("so", after=1)
    said = scenario.events(MessageInjected)[-1]
    scenario.answer("", ("look", "{}"))
    state = scenario.state
    with pytest.raises(UnexpectedEvent):
        evolve(state, replace(said, gap=gap))


def test_a_grace_answer_that_no_limit_granted() -> None:
    """An answer to a last request without the limit that granted it is an error of ours, never a crash."""
    scenario = Scenario({"limits": [{"type": "step", "value": 1}], "grace": {"on": ["step"]}})
    scenario.step("look")
    ungranted = replace(scenario.state, limit=None)
    assert "grace" == (ungranted.request.event.purpose if ungranted.request else "")
    probe = Scenario({"limits": [{"type": "step", "value": 1}], "grace": {"on": ["step"]}})
    probe.step("look")
    probe.answer("done")
    with pytest.raises(RefoldError):
        advance(ungranted, probe.events(ModelResponded)[-1])


def test_a_deferred_limit_waits_for_what_the_answer_says() -> None:
    """A limit that is judged on the response and carried out later loses to a keyword of the same
    response.
    """
    policy = {
        "limits": [{"type": "token", "value": 15, "check": "response_deferred"}],
        "guards": [{"guard": "keywords", "words": ["done"]}],
    }
    scenario = Scenario(policy)
    scenario.answer("done", usage=(20, 5))
    assert "keyword" == scenario.outcome()[0]


def test_where_a_run_was_that_waited_for_an_approval() -> None:
    """Nothing had been started: it was waiting."""
    scenario = Scenario({"approvals": {"chain": [{"approver": "human"}]}})
    scenario.answer("", ("act", "{}"))
    scenario.cancel()
    assert scenario.state.outcome is not None
    assert "waiting" == scenario.state.outcome.event.where


def test_an_empty_answer_is_asked_again_after_a_cut_one() -> None:
    """What another recovery has answered is not counted as asked again."""
    scenario = Scenario({"empty": {"again": 1}})
    scenario.answer("", stop=StopReason.MAX_TOKENS)
    scenario.answer("")
    assert not scenario.state.ended
    scenario.answer("")
    assert "empty" == scenario.outcome()[0]


def test_a_last_word_of_thoughts_is_not_shown_again() -> None:
    """The grace request that follows an answer of nothing but thoughts is the same request."""
    scenario = Scenario(
        {"limits": [{"type": "step", "value": 1}], "grace": {"on": ["step"], "again_if_empty": 1}}
    )
    scenario.step("look")
    before = scenario.state.window.ranges
    scenario.answer("<think>hm</think>")
    assert before == scenario.state.window.ranges
    assert scenario.state.request is not None


def test_nobody_is_told_what_nobody_will_read() -> None:
    """An answer cut inside a call under a limit that ends the run is not told to go on."""
    scenario = Scenario(
        {
            "limits": [{"type": "token", "value": 15, "check": "response_deferred"}],
            "truncation": {"when": "either"},
        }
    )
    scenario.answer("so", ("look", '{"a'), stop=StopReason.MAX_TOKENS, usage=(20, 5))
    assert [] == scenario.events(MessageInjected)
    assert not scenario.events(LimitReached)[-1].deferred
