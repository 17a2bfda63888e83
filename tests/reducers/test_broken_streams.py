"""Streams that broke: asked for again, or gone on from what had arrived; and what limits say to them."""

from typing import Any

import pytest

from refold.reducers.effects import CallModel, WaitUntil, next_effects
from refold.reducers.events import RetryScheduled
from refold.reducers.vocabulary import FailureClass
from support.scenario import SECOND, START, Scenario

BROKEN = FailureClass.STREAM_BROKEN


def stream(most: int = 2, **policy: Any) -> Scenario:
    return Scenario({"stream": {"max": most}, "retry": {"jitter": {"add": 0}}, **policy})


def test_a_broken_stream_of_which_nothing_arrived_is_asked_for_again_as_a_new_step() -> None:
    """Back off for one second, then the same request, as step 2, with nothing kept of the first."""
    scenario = stream()
    assert ["retry_scheduled attempt=1 cause=stream delay=1000000000 failure=stream_broken until=+1s"] == [
        " ".join([line.split()[0], *sorted(line.split()[1:])]) for line in scenario.fail(BROKEN)
    ]
    assert (WaitUntil(at=START + SECOND),) == next_effects(scenario.state)
    assert ["model_requested step=2 attempt=1 messages=[[1 2]]"] == scenario.clock(1)


def test_text_that_had_arrived_is_kept_and_gone_on_from() -> None:
    """The partial text is a message, `interrupted` follows it, and the outcome is both texts."""
    scenario = stream()
    assert ["retry_scheduled", "message_injected"] == [
        line.split()[0] for line in scenario.fail(BROKEN, partial="half a ")
    ]
    assert ["model_requested step=2 attempt=1 messages=[[1 4]]"] == scenario.clock(1)
    roles = [role for role, _ in scenario.seen()]
    assert ["system", "user", "assistant", "user"] == roles
    assert ("assistant", "half a ") == scenario.seen()[2]
    assert ["interrupted"] == scenario.injected()
    scenario.answer("sentence")
    assert ("end_turn", "answer", "half a sentence") == scenario.outcome()


def test_of_a_stream_in_which_a_call_had_begun_all_is_dropped() -> None:
    """Neither the text nor the call is shown, and nothing is said about it."""
    scenario = stream()
    scenario.fail(BROKEN, partial="let me", calls=1)
    scenario.clock(1)
    assert [] == scenario.injected()
    assert ["system", "user"] == [role for role, _ in scenario.seen()]


def test_an_answer_of_nothing_at_all_is_a_broken_stream() -> None:
    """Ended without text, call and usage: asked again after a wait; with usage it is an empty answer."""
    scenario = stream()
    assert ["retry_scheduled"] == [line.split()[0] for line in scenario.answer("", usage=(0, 0))]
    scenario.clock(1)
    assert (2, "RUNNING") == (scenario.state.spent.steps, scenario.state.agent_state)
    scenario.answer("", usage=(1, 0))
    assert ("COMPLETED", "empty") == scenario.ended()


def test_broken_and_silent_streams_have_one_count_and_wait_by_it() -> None:
    """The second wait is twice the first, whichever way the stream broke; the third is one too many."""
    scenario = stream()
    scenario.fail(BROKEN)
    scenario.clock(1)
    scenario.answer("", usage=(0, 0))
    assert [SECOND, 2 * SECOND] == [event.delay for event in scenario.events(RetryScheduled)]
    scenario.clock(2)
    scenario.fail(BROKEN)
    assert ("ERROR", "stream_broken") == scenario.ended()


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("silent", [False, True], ids=["broken", "silent"])
def test_stream_max(most: int, silent: bool) -> None:
    """Exactly `max` are asked for again; the next is ERROR."""
    scenario = stream(most)
    for _ in range(most):
        scenario.answer("", usage=(0, 0)) if silent else scenario.fail(BROKEN)
        scenario.clock(100)
    assert scenario.state.request is not None
    scenario.answer("", usage=(0, 0)) if silent else scenario.fail(BROKEN)
    assert ("ERROR", "stream_broken") == scenario.ended()


def test_stream_max_0_is_a_failure_like_any() -> None:
    """Another attempt at the same step, until the attempts are used up."""
    scenario = Scenario({"stream": {"max": 0}, "retry": {"attempts": 2, "jitter": {"add": 0}}})
    scenario.fail(BROKEN)
    assert ["model_requested step=1 attempt=2 messages=[[1 2]]"] == scenario.clock(1)
    scenario.fail(BROKEN)
    assert ("ERROR", "provider:stream_broken") == scenario.ended()


def test_a_broken_stream_of_a_class_that_is_not_retried_is_a_failure_like_any() -> None:
    """Only a retryable class is recovered."""
    scenario = stream(retry={"classes": ["overloaded"]})
    scenario.fail(BROKEN)
    assert ("ERROR", "provider:stream_broken") == scenario.ended()


def test_a_broken_stream_at_the_step_limit_leaves_its_text_as_the_outcome() -> None:
    """Nothing is injected, MAX_STEPS follows, and the outcome is what had arrived, not an older answer."""
    scenario = stream(limits=[{"type": "step", "value": 2}])
    scenario.step(text="older")
    scenario.fail(BROKEN, partial="newer")
    scenario.clock(1)
    assert [] == scenario.injected()
    assert ("step_limit", "partial", "newer") == scenario.outcome()


def test_a_time_limit_wins_over_a_broken_stream() -> None:
    """F1 comes before F3."""
    scenario = stream(limits=[{"type": "time", "value": 5}])
    scenario.fail(BROKEN, partial="half", after=5)
    assert ("TIMED_OUT", "time_limit") == scenario.ended()


def test_a_provider_may_ask_for_a_longer_wait_of_a_broken_stream() -> None:
    """`retry_after` is a lower bound here too."""
    scenario = stream()
    scenario.fail(BROKEN, retry_after=7 * SECOND)
    assert (WaitUntil(at=START + 7 * SECOND),) == next_effects(scenario.state)


def test_a_wait_that_is_over_is_no_effect_while_a_summary_is_pending() -> None:
    """The clock is not read again and again for an instant that has passed."""
    history = [{"do": "summarise", "when": {"messages": 5}, "keep_last": 1}]
    scenario = stream(history=history)
    scenario.step()
    scenario.fail(BROKEN, partial="one")
    scenario.clock(1)
    assert scenario.state.summary is not None
    assert [CallModel] == [type(effect) for effect in next_effects(scenario.state)]
