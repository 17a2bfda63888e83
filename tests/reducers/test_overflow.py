"""The context was too long: what says so, what is done about it, how often, and what the model is told."""

from typing import Any

import pytest

from refold.reducers.events import ContextOverflowed, HistoryPruned, MessageTrimmed, ModelRequested
from refold.reducers.vocabulary import FailureClass, StopReason
from support.scenario import Scenario

TOO_LONG = FailureClass.CONTEXT_OVERFLOW
TAIL = {"do": "tail", "name": "cut", "last": 1, "when": {"messages": 1000}}


def overflowing(knob: dict[str, Any], steps: int = 2, **policy: Any) -> Scenario:
    """A run with a few steps behind it, so that there is something to drop."""
    scenario = Scenario({"retry": {"jitter": {"add": 0}}, "overflow": knob, **policy})
    for _ in range(steps):
        scenario.step()
    return scenario


ERROR = ("ERROR", "context_overflow")


@pytest.mark.parametrize(
    ("patterns", "message", "overflows"),
    [
        pytest.param(["too big"], "It is Too Big.", True, id="any case"),
        pytest.param(["to+ big"], "toooo big", True, id="a regular expression"),
        pytest.param(["too big"], "it broke", False, id="another failure"),
        pytest.param(None, "it broke", False, id="none of its own"),
    ],
)
def test_patterns(patterns: list[str] | None, message: str, overflows: bool) -> None:
    """A pattern in a failure's text makes it an overflow, whatever class it had."""
    scenario = overflowing({"patterns": patterns, "do": [{"do": "tail", "last": 1}]})
    scenario.fail(FailureClass.BAD_REQUEST, message=message)
    assert overflows == bool(scenario.events(HistoryPruned))
    assert ("RUNNING" if overflows else "ERROR") == scenario.ended()[0]


def test_a_pass_by_name_runs_whatever_its_when_says() -> None:
    """The window is far below the pass's threshold, and is cut all the same; then the request again, as a
    step.
    """
    scenario = overflowing({"do": ["cut"]}, history=[TAIL])
    assert [
        "context_overflowed uncounted_steps=0",
        "history_pruned name=cut before=6 after=2",
        "model_requested step=4 attempt=1 messages=[[1 2]]",
    ] == [
        line.split(" saw")[0].split(" tokens_before")[0] if "history" in line else line
        for line in scenario.fail(TOO_LONG)
    ]


def test_a_pass_may_stand_in_the_overflow_itself() -> None:
    """An inline pass is none of the history's."""
    scenario = overflowing({"do": [{"do": "drop_oldest", "fraction": 0.5}]})
    scenario.fail(TOO_LONG)
    assert ["drop_oldest"] == [event.name for event in scenario.events(HistoryPruned)]
    assert scenario.state.request is not None


def test_several_passes_run_in_their_order_and_the_history_after_them() -> None:
    """Those of the overflow first, each once."""
    late = {"do": "tail", "name": "late", "last": 1, "when": {"messages": 3}}
    scenario = overflowing(
        {"do": [{"do": "tail", "name": "a", "last": 4}, {"do": "tail", "name": "b", "last": 2}]},
        steps=3,
        history=[{**late, "when": {"messages": 100}}],
    )
    scenario.fail(TOO_LONG)
    assert [("a", "overflow"), ("b", "overflow")] == [
        (event.name, event.reason) for event in scenario.events(HistoryPruned)
    ]


def test_no_progress_is_an_error_at_once() -> None:
    """A pass that changes nothing cannot help, and the same request is not made again."""
    scenario = overflowing({"do": [{"do": "tail", "last": 100}]})
    requests = len(scenario.events(ModelRequested))
    scenario.fail(TOO_LONG)
    assert ERROR == scenario.ended()
    assert requests == len(scenario.events(ModelRequested))


def test_no_progress_of_the_overflows_passes_is_not_made_good_by_the_history() -> None:
    """It is the passes of the overflow that have to help."""
    scenario = overflowing(
        {"do": [{"do": "tail", "name": "all", "last": 100}]},
        steps=1,
        history=[{"do": "tail", "name": "h", "last": 1, "when": {"after_step": 2}}],
    )
    scenario.fail(TOO_LONG)
    assert ERROR == scenario.ended()


def test_an_empty_list_of_passes_is_no_progress() -> None:
    """`do: []` changes nothing: ERROR."""
    scenario = overflowing({"do": []})
    scenario.fail(TOO_LONG)
    assert ERROR == scenario.ended()


@pytest.mark.parametrize("most", [0, 1, 2])
def test_max(most: int) -> None:
    """So many reactions, and one more is ERROR; the hint in the request does not count as one."""
    scenario = overflowing({"do": [{"do": "tail", "last": 1}], "max": most, "hint": True})
    for _ in range(most):
        scenario.fail(TOO_LONG)
        assert scenario.state.request is not None
        scenario.step()
        scenario.step()
    scenario.fail(TOO_LONG)
    assert ERROR == scenario.ended()


@pytest.mark.parametrize(
    ("counts", "steps"),
    [pytest.param(True, 4, id="it costs a step"), pytest.param(False, 3, id="given back")],
)
def test_counts_step(counts: bool, steps: int) -> None:
    """The request after an overflow is the next step, or with `counts_step: false` the same one again."""
    scenario = overflowing({"do": [{"do": "tail", "last": 1}], "counts_step": counts, "max": 9})
    scenario.fail(TOO_LONG)
    assert steps == scenario.events(ModelRequested)[-1].step
    assert steps == scenario.state.spent.steps


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param(True, ("MAX_STEPS", "step_limit"), id="the last step overflowed"),
        pytest.param(False, ("RUNNING", ""), id="and was given back"),
    ],
)
def test_an_overflow_on_the_last_step(counts: bool, expected: tuple[str, str]) -> None:
    """The step limit is looked at before the request that follows: a step given back may be made again."""
    knob = {"do": [{"do": "tail", "last": 1}], "counts_step": counts, "max": 9}
    scenario = overflowing(knob, limits=[{"type": "step", "value": 3}])
    scenario.fail(TOO_LONG)
    assert expected == scenario.ended()


@pytest.mark.parametrize("hint", [True, False])
def test_the_hint_rides_on_the_next_request_only(hint: bool) -> None:
    """It is shown once, last, and is in no later request nor in the window."""
    scenario = overflowing({"do": [{"do": "tail", "last": 1}], "hint": hint})
    scenario.fail(TOO_LONG)
    texts = [text.text for text in scenario.events(ModelRequested)[-1].request_only]
    assert (["overflow"] if hint else []) == texts
    assert hint == ("had become too long" in scenario.seen()[-1][1])
    scenario.step()
    assert () == scenario.events(ModelRequested)[-1].request_only
    assert not any("had become too long" in text for _, text in scenario.seen())


def test_do_null_is_a_failure_like_any_other() -> None:
    """It is not retried, and ends with the code of its own."""
    scenario = overflowing({"do": None})
    scenario.fail(TOO_LONG)
    assert ERROR == scenario.ended()


def test_without_the_knob_an_overflow_is_an_error() -> None:
    """No knob, no reaction."""
    scenario = Scenario()
    scenario.fail(TOO_LONG)
    assert ERROR == scenario.ended()


STOPS = {"stops": ["model_length"], "do": [{"do": "tail", "last": 1}]}


def test_a_stop_of_the_provider_counts_as_an_overflow() -> None:
    """The answer is kept, its calls are refused, the passes run, the next request follows."""
    scenario = overflowing(STOPS)
    scenario.answer("so", ("look", "{}"), stop=StopReason.OTHER, stop_raw="model_length")
    assert [
        "call_refused",
        "context_overflowed",
        "history_pruned",
        "model_requested",
    ] == scenario.kinds()
    assert "text=refused:overflow" in scenario.last[0]
    assert [] == [line for line in scenario.last if "tools_dispatched" in line]


def test_an_answer_without_calls_that_stopped_so_is_no_end_of_the_turn() -> None:
    """The text is kept in the log, and the model is asked again."""
    scenario = overflowing({**STOPS, "do": [{"do": "drop_oldest", "fraction": 0.5}]})
    scenario.answer("half", stop=StopReason.MAX_TOKENS, stop_raw="model_length")
    assert ["context_overflowed", "history_pruned", "model_requested"] == scenario.kinds()
    assert ("assistant", "half") == scenario.seen()[-1]


def test_another_stop_is_none() -> None:
    """Only the words that the policy names count."""
    scenario = overflowing(STOPS)
    scenario.answer("done", stop_raw="length")
    assert ("COMPLETED", "end_turn") == scenario.ended()


def test_limits_of_the_response_win_over_the_reaction_to_a_stop() -> None:
    """R3 is looked at after R2: a budget that this answer reached is not overshot by another request."""
    scenario = overflowing(STOPS, limits=[{"type": "token", "value": 45}])
    scenario.answer("so", ("look", "{}"), stop=StopReason.OTHER, stop_raw="model_length", usage=(10, 5))
    assert ("BUDGET_EXCEEDED", "token_budget") == scenario.ended()


def test_keywords_are_met_by_an_answer_that_overflowed() -> None:
    """R5 is asked of every response."""
    scenario = overflowing(STOPS, guards=[{"guard": "keywords", "words": ["DONE"]}])
    scenario.answer("all done", stop=StopReason.OTHER, stop_raw="model_length")
    assert ("COMPLETED", "keyword") == scenario.ended()


SINGLE = {
    "single_patterns": ["one message"],
    "do": [
        {"do": "trim_messages", "single": True, "cap": 12, "last": None, "roles": ["tool"]},
        {"do": "drop_oldest", "fraction": 0.5},
    ],
}


@pytest.mark.parametrize(
    ("message", "trims"),
    [
        pytest.param("One Message is too long", True, id="one message is"),
        pytest.param("too long", False, id="all of them are"),
    ],
)
def test_single(message: str, trims: bool) -> None:
    """A pass for single messages runs only if the provider complained about one."""
    scenario = Scenario({"overflow": SINGLE})
    scenario.step()
    scenario.step(output="x" * 400)
    scenario.fail(TOO_LONG, message=message)
    assert trims == bool(scenario.events(MessageTrimmed))
    assert 1 == len(scenario.events(HistoryPruned))


SUMMARISE = {"do": "summarise", "name": "compress", "keep_last": 2, "when": {"messages": 1000}}


def test_a_summary_inside_an_overflow() -> None:
    """The summary is asked for, takes the place of what it covers, and only then the request is made, with
    the hint.
    """
    scenario = overflowing({"do": ["compress"], "hint": True}, history=[SUMMARISE])
    assert ["context_overflowed", "summary_requested"] == [
        line.split()[0] for line in scenario.fail(TOO_LONG)
    ]
    assert ["message_injected", "history_pruned", "model_requested"] == [
        line.split()[0] for line in scenario.summary("in short")
    ]
    assert ["overflow"] == [text.text for text in scenario.events(ModelRequested)[-1].request_only]
    assert 1 == len(scenario.events(ContextOverflowed))


def test_the_passes_behind_a_summary_run_when_it_is_back() -> None:
    """An overflow's passes go on where the summary interrupted them."""
    knob = {"do": ["compress", {"do": "tail", "name": "rest", "last": 2}]}
    scenario = overflowing(knob, steps=3, history=[SUMMARISE])
    scenario.fail(TOO_LONG)
    scenario.summary("in short")
    assert ["compress", "rest"] == [event.name for event in scenario.events(HistoryPruned)]


def test_a_summary_that_fails_is_no_progress() -> None:
    """With nothing dropped the same request would overflow again: ERROR at once."""
    scenario = overflowing({"do": ["compress"]}, history=[SUMMARISE])
    scenario.fail(TOO_LONG)
    scenario.fail_summary()
    assert ERROR == scenario.ended()


def test_a_summary_that_fails_behind_a_pass_that_helped_is_no_error() -> None:
    """Something was dropped: the request is made again."""
    knob = {"do": [{"do": "tail", "name": "first", "last": 4}, "compress"]}
    scenario = overflowing(knob, steps=3, history=[SUMMARISE])
    scenario.fail(TOO_LONG)
    scenario.fail_summary()
    assert scenario.state.request is not None


def test_cancel_and_deadline_come_before_the_overflow() -> None:
    """F1 comes before F2."""
    scenario = overflowing({"do": [{"do": "tail", "last": 1}]}, limits=[{"type": "time", "value": 5}])
    scenario.fail(TOO_LONG, after=5)
    assert ("TIMED_OUT", "time_limit") == scenario.ended()
