"""The one more request that a limit may grant, without tools; and where the text of the outcome is from."""

from typing import Any

import pytest

from refold.reducers.events import ModelRequested
from refold.reducers.vocabulary import FailureClass, StopReason
from support.scenario import SECOND, Scenario

STEP = {"type": "step", "value": 1}
NOWAIT: dict[str, Any] = {"jitter": {"add": 0}, "attempts": 2}


def graced(
    limit: dict[str, Any] | None = None, name: str = "step", again: int = 0, **policy: Any
) -> Scenario:
    """A run that has reached its limit after a step with a call, and is asked for its last word."""
    grace = {"on": [name], "again_if_empty": again}
    scenario = Scenario({"limits": [limit or STEP], "grace": grace, "retry": NOWAIT, **policy})
    if scenario.state.spent.steps:
        scenario.step(text="let me look")
    return scenario


def ended(scenario: Scenario) -> tuple[str, str, str, str]:
    return str(scenario.state.agent_state), *scenario.outcome()


@pytest.mark.parametrize(
    ("limit", "name", "end"),
    [
        pytest.param(STEP, "step", ("MAX_STEPS", "step_limit"), id="step"),
        pytest.param({"type": "step", "value": 0}, "step", ("MAX_STEPS", "step_limit"), id="step 0"),
        pytest.param(
            {"type": "message", "value": 4}, "message", ("BUDGET_EXCEEDED", "message_limit"), id="message"
        ),
        pytest.param(
            {"type": "token", "measure": "estimate", "value": 8},
            "token_estimate",
            ("BUDGET_EXCEEDED", "token_estimate"),
            id="token_estimate",
        ),
    ],
)
def test_at_a_limit_one_more_request_is_made(limit: dict[str, Any], name: str, end: tuple[str, str]) -> None:
    """No tools, the text `grace`, request-only; it is no step; the state is the limit's, the answer the
    outcome.
    """
    scenario = graced(limit, name)
    request = scenario.events(ModelRequested)[-1]
    assert ("grace", (), ["grace"]) == (
        request.purpose,
        request.tools,
        [t.text for t in request.request_only],
    )
    steps = scenario.state.spent.steps
    scenario.answer("this was done")
    assert (end[0], end[1], "grace", "this was done") == ended(scenario)
    assert steps == scenario.state.spent.steps
    assert "this was done" == scenario.log[scenario.state.outcome.answer - 1].content.text  # type: ignore


def test_a_limit_that_is_not_named_grants_none() -> None:
    """Only the limits in `on` do."""
    limits = [STEP, {"type": "message", "value": 100}]
    scenario = Scenario({"limits": limits, "grace": {"on": ["message"]}})
    scenario.step()
    assert "MAX_STEPS" == scenario.state.agent_state


def test_calls_in_the_last_word_are_refused() -> None:
    """They have their results, and nothing is dispatched."""
    scenario = graced()
    scenario.answer("and so", ("look", "{}"))
    assert ["call_refused", "state_changed"] == scenario.kinds()
    assert "text=refused:limit" in scenario.last[0]
    assert ("MAX_STEPS", "step_limit", "grace", "and so") == ended(scenario)


EMPTY = ["", " \n", "<think>hm</think>", "<think>hm</think> \n<think>so</think>", "<think>never closed"]


@pytest.mark.parametrize("text", EMPTY)
def test_again_if_empty(text: str) -> None:
    """No text left after its thinking is removed: the same request again, so often, and then the limit's
    end.
    """
    scenario = graced(again=2)
    first = scenario.events(ModelRequested)[-1]
    for number in (2, 3):
        scenario.answer(text)
        requests = [one for one in scenario.events(ModelRequested) if one.purpose == "grace"]
        assert number == len(requests)
        assert (first.request_only, first.tools, first.step) == (
            requests[-1].request_only,
            requests[-1].tools,
            requests[-1].step,
        )
    scenario.answer(text)
    assert ("MAX_STEPS", "step_limit", "none", "") == ended(scenario)


@pytest.mark.parametrize("text", EMPTY)
def test_an_empty_last_word_leaves_the_fallback(text: str) -> None:
    """Thinking is no text: the fallback is the outcome."""
    scenario = graced(fallback="sorry")
    scenario.answer(text)
    assert ("MAX_STEPS", "step_limit", "fallback", "") == ended(scenario)


def test_text_beside_thinking_is_an_answer() -> None:
    """Something is left: no second request."""
    scenario = graced(again=2, fallback="sorry")
    scenario.answer("<think>hm</think>done")
    assert ("MAX_STEPS", "grace") == (scenario.state.agent_state, scenario.state.outcome.source)  # type: ignore


def test_a_second_last_word_is_the_outcome() -> None:
    """Asked again, it answered."""
    scenario = graced(again=1)
    scenario.answer("")
    scenario.answer("done")
    assert ("MAX_STEPS", "step_limit", "grace", "done") == ended(scenario)


def test_a_failure_is_retried_as_any_other_with_the_same_text_and_no_tools() -> None:
    """The second attempt is the same request."""
    scenario = graced()
    scenario.fail()
    scenario.clock(1)
    one, two = scenario.events(ModelRequested)[-2:]
    assert ("grace", 2, one.request_only, one.tools, one.step, one.view) == (
        two.purpose,
        two.attempt,
        two.request_only,
        two.tools,
        two.step,
        two.view,
    )
    scenario.answer("done")
    assert ("MAX_STEPS", "step_limit", "grace", "done") == ended(scenario)


def test_a_failure_for_good_leaves_the_fallback() -> None:
    """The state is the limit's, never ERROR; what was said beside calls that ran is no answer."""
    scenario = graced(fallback="sorry")
    scenario.fail()
    scenario.clock(1)
    scenario.fail()
    assert ("MAX_STEPS", "step_limit", "fallback", "") == ended(scenario)


@pytest.mark.parametrize(
    "failure", [FailureClass.AUTH, FailureClass.CONTEXT_OVERFLOW, FailureClass.STREAM_BROKEN]
)
def test_no_recovery_for_the_last_word(failure: FailureClass) -> None:
    """Neither an overflow nor a broken stream makes another step of it."""
    overflow = {"do": [{"do": "tail", "last": 1}]}
    scenario = graced(overflow=overflow, fallback="sorry")
    for _ in range(2):
        scenario.fail(failure, partial="half")
        if scenario.state.backoff:
            scenario.clock(9)
        if scenario.state.ended:
            break
    assert ("MAX_STEPS", "step_limit", "fallback", "") == ended(scenario)


def test_the_failures_of_the_last_step_do_not_count() -> None:
    """Its attempts and its window are the grace request's own."""
    retry = {"attempts": 5, "jitter": {"add": 0}, "window": 10, "by_class": {"rate_limit": {"attempts": 2}}}
    scenario = Scenario({"limits": [STEP], "grace": {"on": ["step"]}, "retry": retry})
    scenario.fail(FailureClass.RATE_LIMIT)
    scenario.clock(1)
    scenario.answer("", ("look", "{}"), after=20)
    scenario.result("c1")
    scenario.fail(FailureClass.RATE_LIMIT)
    assert scenario.state.backoff is not None
    scenario.clock(1)
    assert scenario.state.request is not None


def test_cancelled_during_the_last_word() -> None:
    """A person's word is the last one."""
    scenario = graced()
    scenario.cancel()
    scenario.fail(FailureClass.CANCELLED)
    assert "CANCELLED" == scenario.state.agent_state


def test_out_of_time_during_the_last_word() -> None:
    """A time limit is a deadline for this request too."""
    scenario = Scenario({"limits": [STEP, {"type": "time", "value": 10}], "grace": {"on": ["step"]}})
    scenario.step()
    assert ["limit_reached"] == [line.split()[0] for line in scenario.clock(11)]
    scenario.fail(FailureClass.CANCELLED)
    assert "TIMED_OUT" == scenario.state.agent_state


def test_a_finished_turn_on_the_last_step_needs_no_last_word() -> None:
    """COMPLETED at any n, and then there is no grace request."""
    scenario = Scenario({"limits": [STEP], "grace": {"on": ["step"]}})
    scenario.answer("done")
    assert ("COMPLETED", "end_turn", "answer", "done") == ended(scenario)


def test_the_last_word_carries_no_tier() -> None:
    """One last word: no pressure beside it."""
    tiers = [{"name": "warning", "at": {"fraction": 0.1}}]
    scenario = graced(pressure={"tiers": tiers})
    assert ["grace"] == [text.text for text in scenario.events(ModelRequested)[-1].request_only]


def test_a_cut_last_word_is_the_outcome_as_it_is() -> None:
    """It is not recovered: no steps are left; and partial answers before it are no part of it."""
    scenario = Scenario({"limits": [{"type": "step", "value": 2}], "grace": {"on": ["step"]}})
    scenario.answer("one", stop=StopReason.MAX_TOKENS)
    scenario.answer("two", stop=StopReason.MAX_TOKENS)
    scenario.answer("to sum", stop=StopReason.MAX_TOKENS)
    assert ("MAX_STEPS", "step_limit", "grace", "to sum") == ended(scenario)


@pytest.mark.parametrize(
    ("fallback", "source"),
    [pytest.param("sorry", "fallback", id="one"), pytest.param(None, "none", id="none")],
)
def test_a_limit_that_leaves_no_text(fallback: str | None, source: str) -> None:
    """Without a grace request: the fallback, if there is one; it is never a message."""
    scenario = Scenario({"limits": [{"type": "step", "value": 0}], "fallback": fallback})
    assert ("MAX_STEPS", "step_limit", source, "") == ended(scenario)
    assert 2 == scenario.state.window.count


def test_a_limit_that_leaves_a_text() -> None:
    """The response that crosses a budget is recorded, and its text is the outcome."""
    scenario = Scenario({"limits": [{"type": "token", "value": 1}], "fallback": "sorry"})
    scenario.answer("so far", ("look", "{}"))
    assert ("BUDGET_EXCEEDED", "token_budget", "partial", "so far") == ended(scenario)


def test_an_error_has_no_fallback() -> None:
    """It is for limits."""
    scenario = Scenario({"fallback": "sorry"})
    scenario.fail(FailureClass.AUTH)
    assert ("ERROR", "provider:auth", "none", "") == ended(scenario)


def test_waits_of_the_step_before_are_credited_once() -> None:
    """A last word that succeeds at once brings no credit for the waits of another request."""
    limit = {"type": "time", "value": 100, "credit": {"retry": "on_success"}}
    grace = {"on": ["step"], "again_if_empty": 1}
    scenario = Scenario({"limits": [STEP, limit], "grace": grace, "retry": NOWAIT})
    scenario.fail()
    scenario.clock(1)
    scenario.step()
    scenario.answer("")
    assert SECOND == scenario.state.spent.succeeded_wait
