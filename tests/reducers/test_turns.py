"""The end of a turn: what an answer means that calls no tools."""

from typing import Any

import pytest

from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import StopReason
from support.scenario import Scenario

DONE = "state_changed from=RUNNING to=COMPLETED trigger=complete code="
ASK = "state_changed from=RUNNING to=WAITING_FOR_INPUT trigger=ask code=end_turn"
FILTERED = "state_changed from=RUNNING to=ERROR trigger=fail code=content_filter"
GO_ON = "message_injected role=user text=continue cause=end_of_turn"


def said(lines: list[str]) -> list[str]:
    return [line.split(" content")[0] for line in lines]


@pytest.mark.parametrize(
    ("end_of_turn", "text", "stop", "lines"),
    [
        pytest.param("complete", "hi", "end_turn", [DONE + "end_turn"], id="complete"),
        pytest.param("complete", "hi", "stop_sequence", [DONE + "end_turn"], id="a stop sequence"),
        pytest.param("complete", "hi", "other", [DONE + "end_turn"], id="an unknown stop"),
        pytest.param("complete", "hi", "tool_use", [DONE + "end_turn"], id="tool_use without a call"),
        pytest.param("complete", "hi", "max_tokens", [DONE + "truncated"], id="cut at the output limit"),
        pytest.param("complete", "", "max_tokens", [DONE + "truncated"], id="cut before the first word"),
        pytest.param("complete", "", "end_turn", [DONE + "empty"], id="nothing"),
        pytest.param("complete", " \n\t", "end_turn", [DONE + "empty"], id="white space is nothing"),
        pytest.param("complete", "hi", "content_filter", [FILTERED], id="filtered"),
        pytest.param("continue", "hi", "content_filter", [FILTERED], id="filtered, though it should go on"),
        pytest.param("wait", "", "content_filter", [FILTERED], id="filtered, though a person should"),
        pytest.param(
            "continue",
            "hi",
            "end_turn",
            [GO_ON, "model_requested step=2 attempt=1 messages=[[1 4]]"],
            id="continue",
        ),
        pytest.param(
            "continue",
            "",
            "end_turn",
            [GO_ON, "model_requested step=2 attempt=1 messages=[[1 3]]"],
            id="continue after nothing: an empty answer is no message",
        ),
        pytest.param(
            "continue",
            "hi",
            "max_tokens",
            [GO_ON, "model_requested step=2 attempt=1 messages=[[1 4]]"],
            id="continue after a cut answer",
        ),
        pytest.param("wait", "hi", "end_turn", [ASK], id="wait"),
        pytest.param("wait", "", "max_tokens", [ASK], id="wait after nothing"),
    ],
)
def test_end_of_turn(end_of_turn: str, text: str, stop: str, lines: list[str]) -> None:
    """What follows an answer without calls is what the policy says of a finished turn."""
    scenario = Scenario({"end_of_turn": end_of_turn, "truncation": None})
    assert lines == said(scenario.answer(text, stop=StopReason(stop)))


@pytest.mark.parametrize(
    ("text", "stop", "code", "source", "answer"),
    [
        pytest.param("hi", "end_turn", "end_turn", "answer", 3, id="an answer"),
        pytest.param("hi", "max_tokens", "truncated", "answer", 3, id="a cut answer"),
        pytest.param("", "end_turn", "empty", "none", None, id="no answer"),
    ],
)
def test_outcome(text: str, stop: str, code: str, source: str, answer: int | None) -> None:
    """The outcome names the event with the answer, and says so if there is none."""
    scenario = Scenario({"truncation": None})
    scenario.answer(text, stop=StopReason(stop))
    outcome = scenario.state.outcome
    assert outcome is not None
    assert (code, source, answer, 1, 4) == (
        outcome.code,
        outcome.source,
        outcome.answer,
        outcome.step,
        outcome.seq,
    )


def test_a_run_that_ends_otherwise_has_its_latest_text_as_a_partial_answer() -> None:
    """What the model said last before a limit stands as `partial`."""
    scenario = Scenario({"limits": [{"type": "step", "value": 1}]})
    scenario.answer("thinking", ("look", "{}"))
    scenario.result("c1")
    outcome = scenario.state.outcome
    assert outcome is not None
    assert ("step_limit", "partial", 3) == (outcome.code, outcome.source, outcome.answer)


def test_nobody_reads_a_message_after_the_last_step() -> None:
    """At the step limit nothing is injected: the next preflight says MAX_STEPS."""
    scenario = Scenario({"end_of_turn": "continue", "limits": [{"type": "step", "value": 1}]})
    kinds = [line.split()[0] for line in scenario.answer("hi")]
    assert ["limit_reached", "state_changed"] == kinds
    assert AgentState.MAX_STEPS == scenario.state.agent_state
    assert ("step_limit", "partial", "hi") == scenario.outcome()


def test_a_persons_message_goes_on() -> None:
    """An answer of a person moves the machine back and the model is asked again, with the message."""
    scenario = Scenario({"end_of_turn": "wait"})
    scenario.answer("well?")
    assert [
        "state_changed from=WAITING_FOR_INPUT to=RUNNING trigger=answered code=answered",
        "model_requested step=2 attempt=1 messages=[[1 4]]",
    ] == scenario.say("yes")


def test_calls_make_a_turn_go_on_whatever_the_stop_reason() -> None:
    """An answer with calls is not finished, also if its stop reason says so."""
    for stop in StopReason:
        scenario = Scenario()
        scenario.answer("", ("look", "{}"), stop=stop)
        assert AgentState.WAITING_FOR_TOOL == scenario.state.agent_state


@pytest.mark.parametrize(
    ("knob", "answers", "expected"),
    [
        pytest.param({}, 1, ("COMPLETED", "empty"), id="by default the first is a finished turn"),
        pytest.param({"again": 2}, 2, ("RUNNING", ""), id="asked again twice"),
        pytest.param({"again": 2}, 3, ("COMPLETED", "empty"), id="the third is the end"),
        pytest.param({"again": 2, "then": "fail"}, 3, ("ERROR", "empty_answers"), id="which may be an error"),
        pytest.param({"again": 0, "then": "fail"}, 1, ("ERROR", "empty_answers"), id="at once"),
        pytest.param({"again": None, "then": "fail"}, 49, ("RUNNING", ""), id="null: for ever"),
        pytest.param({"again": None}, 50, ("MAX_STEPS", "step_limit"), id="until the steps end"),
    ],
)
def test_empty(knob: dict[str, Any], answers: int, expected: tuple[str, str]) -> None:
    """No text and no calls: asked again `again` times, nothing of it kept, each a step; then `then`."""
    scenario = Scenario({"empty": knob})
    for _ in range(answers):
        scenario.answer(" \n")
    assert expected == scenario.ended()
    assert 2 == scenario.state.window.count
    assert min(answers + (expected[0] == "RUNNING"), 50) == scenario.state.spent.steps


def test_empty_answers_are_counted_in_a_row() -> None:
    """An answer with something in it lets the count begin anew."""
    scenario = Scenario({"empty": {"again": 1, "then": "fail"}})
    scenario.answer("")
    scenario.step()
    scenario.answer("")
    assert "RUNNING" == scenario.ended()[0]
    scenario.answer("")
    assert ("ERROR", "empty_answers") == scenario.ended()


def test_a_new_turn_has_its_own_empty_answers() -> None:
    """What was empty in the last turn does not count in this one."""
    scenario = Scenario({"end_of_turn": "wait", "empty": {"again": 1}})
    scenario.answer("")
    scenario.answer("")
    assert "WAITING_FOR_INPUT" == scenario.ended()[0]
    scenario.say("well?")
    scenario.answer("")
    assert scenario.state.request is not None


def test_empty_is_not_looked_at_with_continue() -> None:
    """The model is told to go on, as after any answer without calls."""
    scenario = Scenario({"empty": {"again": 0, "then": "fail"}, "end_of_turn": "continue"})
    scenario.answer("")
    assert ["continue"] == scenario.injected()


def test_a_cut_empty_answer_is_truncation_first() -> None:
    """R14 comes before R16."""
    scenario = Scenario({"empty": {"again": 0, "then": "fail"}})
    scenario.answer("", stop=StopReason.MAX_TOKENS)
    assert ["truncated"] == scenario.injected()


def test_premature_end_comes_before_empty() -> None:
    """R15 comes before R16: what is to be asked again is told why."""
    scenario = Scenario({"premature_end": {}, "empty": {"again": 0, "then": "fail"}})
    scenario.step(output="FAILED")
    scenario.answer("")
    assert ["premature_end"] == scenario.injected()


def test_premature_end_injects_nothing_at_the_step_limit() -> None:
    """Nobody would read it: MAX_STEPS."""
    scenario = Scenario({"premature_end": {}, "limits": [{"type": "step", "value": 2}]})
    scenario.step(output="FAILED")
    scenario.answer("")
    assert [] == scenario.injected()
    assert ("MAX_STEPS", "step_limit") == scenario.ended()


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        pytest.param("fail", ("ERROR", "content_filter"), id="by default an error"),
        pytest.param("complete", ("COMPLETED", "refused"), id="or an end"),
    ],
)
def test_refusal(refusal: str, expected: tuple[str, str]) -> None:
    """The provider's filter stopped the answer."""
    scenario = Scenario({"refusal": refusal})
    scenario.answer("", stop=StopReason.CONTENT_FILTER)
    assert expected == scenario.ended()
