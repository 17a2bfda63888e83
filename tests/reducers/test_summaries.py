"""Summaries: an effect of its own. A model is asked, its answer is a fact, the replacement a decision."""

from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers.effects import CallModel, Settle, WaitUntil, next_effects
from refold.reducers.events import (
    ClockRead,
    HistoryPruned,
    MessageInjected,
    ModelRequested,
    RetryScheduled,
    SummaryRequested,
)
from refold.reducers.folds import advance
from refold.reducers.pending import asked_of, bare
from refold.reducers.state import Pending
from refold.reducers.views import summary_view
from refold.reducers.vocabulary import FailureClass, Role
from refold.reducers.window import refs
from support.scenario import SECOND, START, Scenario

# After two steps the window has six messages: system, task, and two pairs of a call and its result.
SUMMARISE: dict[str, Any] = {"do": "summarise", "name": "short", "when": {"messages": 5}, "keep_last": 2}


def summarising(steps: int = 2, policy: dict[str, Any] | None = None, **knob: Any) -> Scenario:
    scenario = Scenario({"history": [{**SUMMARISE, **knob}], **(policy or {})})
    for number in range(steps):
        scenario.step(text=f"thought {number}", output=f"found {number}")
    return scenario


def asked(scenario: Scenario) -> SummaryRequested:
    return scenario.events(SummaryRequested)[-1]


def test_the_summary_is_asked_for_before_the_request() -> None:
    """What lies between the pinned and the protected is covered; no request is made meanwhile."""
    scenario = summarising()
    assert ((3, 4),) == asked(scenario).messages
    assert ["state_changed", "summary_requested"] == scenario.kinds()
    (effect,) = next_effects(scenario.state)
    assert isinstance(effect, CallModel)
    assert (scenario.state.seq, None) == (effect.seq, effect.until)
    assert bare(asked(scenario)) == asked_of(scenario.state, effect.seq).event


def test_what_the_summarising_model_sees() -> None:
    """An instruction, and what is covered as one text: nothing of what stays."""
    scenario = summarising()
    said = summary_view(scenario.state, dict(enumerate(scenario.log, 1)))
    assert [Role.SYSTEM, Role.USER] == [message.role for message in said]
    assert ("thought 0" in said[1].text, "found 0" in said[1].text) == (True, True)
    assert "thought 1" not in said[1].text


def test_the_summary_takes_the_place_of_what_it_covers() -> None:
    """One internal message stands where the covered ones stood, and the request follows."""
    scenario = summarising()
    scenario.summary("in short")
    assert ["message_injected", "history_pruned", "model_requested"] == scenario.kinds()
    assert ["system", "user", "user", "assistant", "tool"] == [role for role, _ in scenario.seen()]
    assert "in short" in scenario.seen()[2][1]
    assert ((1, 2), (7, 7), (5, 6)) == scenario.events(ModelRequested)[-1].messages
    injected = scenario.events(MessageInjected)[-1]
    assert injected.gap
    assert (2, 2) == (injected.gap.covers, injected.gap.after)
    assert ("short", "summary") == (
        scenario.events(HistoryPruned)[-1].name,
        scenario.events(HistoryPruned)[-1].reason,
    )


def test_a_summary_is_no_step_but_its_usage_and_cost_count() -> None:
    """Steps and requests stay as they are; tokens and money grow."""
    scenario = summarising()
    before = scenario.state.spent
    scenario.summary("in short", usage=(100, 20), cost=7)
    after = scenario.state.spent
    assert (before.steps + 1, before.requests + 1) == (
        after.steps,
        after.requests,
    )  # the request that follows
    assert (100, 20) == (after.usage.input - before.usage.input, after.usage.output - before.usage.output)
    assert 7 == after.cost_nanousd - before.cost_nanousd


@pytest.mark.parametrize(
    ("limit", "ends"),
    [
        pytest.param({"type": "token", "value": 51}, False, id="one below"),
        pytest.param({"type": "token", "value": 50}, True, id="at"),
        pytest.param({"type": "token", "value": 50, "op": ">"}, False, id="strictly: at"),
        pytest.param({"type": "token", "value": 50, "check": "preflight"}, True, id="before the request"),
        pytest.param({"type": "cost", "value": 0.000000007}, True, id="money"),
    ],
)
def test_a_budget_that_a_summary_uses_up_ends_the_run(limit: dict[str, Any], ends: bool) -> None:
    """Two answers of 15 tokens and a summary of 20: no further request is made with nothing left."""
    scenario = summarising(policy={"limits": [limit]})
    scenario.summary("in short", usage=(15, 5), cost=7)
    assert ends == (scenario.state.agent_state == "BUDGET_EXCEEDED")


@pytest.mark.parametrize(("role", "place"), [("user", 2), ("system", 1)])
def test_role_and_place(role: str, place: int) -> None:
    """The summary has the role that the pass says; as a system message it stands behind the system prompt."""
    scenario = summarising(role=role)
    scenario.summary("in short")
    shown = scenario.seen()
    assert role == shown[place][0]
    assert "in short" in shown[place][1]


def test_the_next_summary_is_given_the_last() -> None:
    """It covers the one before and what came since, and stands for all of it."""
    scenario = summarising()
    scenario.summary("first")
    scenario.step(text="thought 2", output="found 2")
    said = summary_view(scenario.state, dict(enumerate(scenario.log, 1)))[1].text
    assert ("first" in said, "thought 1" in said, "thought 2" in said) == (True, True, False)
    scenario.summary("second")
    texts = [text for _, text in scenario.seen()]
    assert (False, True) == (any("first" in text for text in texts), any("second" in text for text in texts))
    gap = scenario.events(MessageInjected)[-1].gap
    assert 4 == (gap.covers if gap else 0)


def test_a_summary_is_asked_for_once_before_a_request() -> None:
    """With its condition still true the pass is not asked again before the next request; after it, it is."""
    scenario = summarising(steps=1, when={"always": True}, keep_last=0)
    scenario.summary("one")
    assert (1, True) == (len(scenario.events(SummaryRequested)), scenario.state.request is not None)
    scenario.step()
    assert 2 == len(scenario.events(SummaryRequested))


def test_the_passes_behind_a_summary_run_once_it_is_back() -> None:
    """They see the window with the summary in it; those before it have run already."""
    tail = {"do": "tail", "name": "fit", "last": 3, "when": {"messages": 4}}
    scenario = Scenario({"history": [SUMMARISE, tail]})
    scenario.step()
    assert [] == scenario.events(HistoryPruned)
    scenario.step()
    scenario.step() if scenario.state.request else None
    scenario.summary("short")
    assert ["short"] == [event.name for event in scenario.events(HistoryPruned)]
    assert scenario.state.request is not None


def test_max_output_and_deadline_are_in_the_request() -> None:
    """A summary has at most `max_output` tokens, and the time that is left."""
    scenario = summarising(policy={"limits": [{"type": "time", "value": 60}]}, max_output=77)
    call, wait = next_effects(scenario.state)
    assert isinstance(call, CallModel)
    assert (77, START + 60 * SECOND) == (asked_of(scenario.state, call.seq).event.max_output, call.until)
    assert WaitUntil(at=START + 60 * SECOND) == wait


def test_a_failure_is_skipped() -> None:
    """By default it is recorded, the history stays as it is, and the request is made; nothing is tried
    again.
    """
    scenario = summarising()
    assert ["summary_abandoned", "model_requested"] == [line.split()[0] for line in scenario.fail_summary()]
    assert "summary_abandoned name=short failure=overloaded" == scenario.last[0]
    assert 6 == scenario.state.window.count


def test_a_failure_may_end_the_run() -> None:
    """`on_failure: fail`: ERROR, with the failure's class."""
    scenario = summarising(on_failure="fail")
    scenario.fail_summary(FailureClass.OVERLOADED)
    assert scenario.state.outcome is not None
    assert ("ERROR", "provider:overloaded") == (scenario.state.agent_state, scenario.state.outcome.code)


def test_after_a_failure_it_is_asked_again_before_the_next_request_only() -> None:
    """The same request is not preceded by a second try; the next one is."""
    scenario = summarising()
    scenario.fail_summary()
    assert 1 == len(scenario.events(SummaryRequested))
    scenario.step()
    assert 2 == len(scenario.events(SummaryRequested))


def test_a_cancellation_while_it_is_pending() -> None:
    """It settles, and the run ends where the model was at work."""
    scenario = summarising()
    assert [] == scenario.cancel()
    assert (Settle(seq=scenario.state.summary.seq),) == next_effects(scenario.state)  # type: ignore[union-attr]
    scenario.fail_summary(FailureClass.CANCELLED)
    assert scenario.state.outcome is not None
    assert ("CANCELLED", "cancelled", "model") == (
        scenario.state.agent_state,
        scenario.state.outcome.code,
        scenario.state.outcome.event.where,
    )


def test_a_deadline_while_it_is_pending() -> None:
    """As for any request: what is in flight settles, then TIMED_OUT."""
    scenario = summarising(policy={"limits": [{"type": "time", "value": 10}]})
    assert ["limit_reached"] == [line.split()[0] for line in scenario.clock(11)]
    assert [Settle] == [type(effect) for effect in next_effects(scenario.state)]
    scenario.fail_summary(FailureClass.CANCELLED)
    assert "TIMED_OUT" == scenario.state.agent_state


def test_a_summary_that_comes_back_after_a_cancellation_is_not_used() -> None:
    """The run ends; its usage was paid for and counts."""
    scenario = summarising()
    scenario.cancel()
    scenario.summary("too late", usage=(9, 1))
    assert "CANCELLED" == scenario.state.agent_state
    assert [] == scenario.events(MessageInjected)
    assert 40 == scenario.state.spent.usage.input + scenario.state.spent.usage.output


def test_a_summary_that_is_begun_again_has_as_long_as_it_had() -> None:
    """After a crash its deadline moves by the time in which nobody had the run, as a request's does."""
    scenario = summarising(policy={"limits": [{"type": "time", "value": 60}]})
    scenario.resume(downtime=100)
    call = next_effects(scenario.state)[0]
    assert isinstance(call, CallModel)
    assert START + 160 * SECOND == call.until


def test_two_different_summaries_give_two_views() -> None:
    """What a summary says is seen by the model, and so is in the digest of the view."""
    views = set[str]()
    for text in ("one", "two"):
        scenario = summarising()
        scenario.summary(text)
        views.add(scenario.events(ModelRequested)[-1].view)
    assert 2 == len(views)


def test_two_different_digests_give_two_views() -> None:
    """A digest quotes messages: other words, another view."""
    views = set[str]()
    for text in ("one", "two"):
        digest = {"do": "digest", "when": {"messages": 5}, "keep_last": 2, "per_message": 50, "total": 500}
        scenario = Scenario({"history": [digest]})
        scenario.step(text=text)
        scenario.step()
        assert any(ref.sources for ref in refs(scenario.state.window))
        views.add(scenario.events(ModelRequested)[-1].view)
    assert 2 == len(views)


def test_a_time_limit_is_looked_at_before_the_request_that_a_summary_was_for() -> None:
    """The limits of the preflight are asked again when it is back."""
    scenario = summarising(policy={"limits": [{"type": "time", "value": 10}]})
    scenario.summary("short", after=10)
    assert "TIMED_OUT" == scenario.state.agent_state


@pytest.mark.parametrize(("after", "step"), [(1, 2), (2, 3), (3, 4)])
def test_after_step_is_asked_of_the_step_about_to_be_made(after: int, step: int) -> None:
    """s > n, s the step that is about to be requested."""
    history = [{**SUMMARISE, "when": {"after_step": after}, "keep_last": 0}]
    scenario = Scenario({"history": history})
    while scenario.state.summary is None:
        scenario.step()
    assert step == scenario.state.spent.steps + 1


@pytest.mark.parametrize("text", ["", "a", "longer than twelve characters"])
@pytest.mark.parametrize("total", [5, 40, 500])
def test_a_digest_is_as_long_as_it_is_said_to_be(text: str, total: int) -> None:
    """Its words are not in the decision, but their number is, and is right to the character."""
    digest = {"do": "digest", "when": {"messages": 5}, "keep_last": 2, "per_message": 12, "total": total}
    scenario = Scenario({"history": [digest]})
    scenario.step(text=text)
    scenario.step()
    shown = next(said for _, said in scenario.seen() if "end of the digest" in said)
    assert len(shown) == scenario.events(MessageInjected)[-1].size.chars


def test_a_limit_that_passes_while_a_summary_is_under_way_after_a_back_off_ends_the_run() -> None:
    """The clock of a time limit is not lost on a run that waited before, and now sums up: it would ring for
    ever.
    """
    limit = {"type": "time", "value": 100, "check": "response"}
    scenario = summarising(policy={"limits": [limit]})
    waited = RetryScheduled(attempt=1, delay=1, until=scenario.at, failure=FailureClass.NETWORK)
    backoff = Pending(seq=2, at=scenario.at, until=None, event=waited)
    state = replace(scenario.state, backoff=backoff)
    at = START + 101 * SECOND
    after, _ = advance(state, ClockRead(at=at, due=at))
    assert after.stopping is not None
    assert after.stopping.code == "time_limit"
