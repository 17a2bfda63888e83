"""The end of a turn: what an answer means that calls no tools."""

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
