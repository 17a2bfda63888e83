"""Answers cut at the output limit: gone on from, put together, or the end; and what limits say to them."""

from typing import Any

import pytest

from refold.reducers.vocabulary import StopReason
from support.scenario import Scenario

CUT = StopReason.MAX_TOKENS
WHOLE, HALF = ("look", "{}"), ("look", '{"q": "ha')

# Off unless a test says otherwise: one recovery at a time.
QUIET: dict[str, Any] = {"stream": None, "retry": {"jitter": {"add": 0}}}


def truncation(**knob: Any) -> Scenario:
    return Scenario({**QUIET, "truncation": knob})


@pytest.mark.parametrize(
    ("when", "text", "calls", "stop", "recovers"),
    [
        pytest.param("no_calls", "half", (), CUT, True, id="no_calls: text without calls"),
        pytest.param("no_calls", "", (), CUT, True, id="no_calls: empty text qualifies"),
        pytest.param("no_calls", "", (HALF,), CUT, True, id="no_calls: an incomplete call is none"),
        pytest.param("no_calls", "", (HALF, WHOLE), CUT, False, id="no_calls: not beside a complete call"),
        pytest.param("no_calls", "", (WHOLE,), CUT, False, id="no_calls: not with a complete call"),
        pytest.param("no_calls", "half", (), StopReason.END_TURN, False, id="a finished turn was not cut"),
        pytest.param("no_calls", "half", (), StopReason.STOP_SEQUENCE, False, id="nor was a stop sequence"),
        pytest.param("no_calls", "half", (), StopReason.OTHER, False, id="nor any other stop"),
        pytest.param("broken_calls", "half", (), CUT, False, id="broken_calls: not without a call"),
        pytest.param("broken_calls", "", (HALF,), CUT, True, id="broken_calls: an incomplete call"),
        pytest.param("broken_calls", "", (WHOLE, HALF), CUT, True, id="broken_calls: beside a complete one"),
        pytest.param(
            "broken_calls", "", (WHOLE,), CUT, False, id="broken_calls: not with complete ones only"
        ),
        pytest.param("broken_calls", "", (HALF,), StopReason.TOOL_USE, False, id="broken_calls: not cut"),
        pytest.param("either", "half", (), CUT, True, id="either: no calls"),
        pytest.param("either", "", (WHOLE, HALF), CUT, True, id="either: an incomplete call"),
        pytest.param("either", "", (WHOLE,), CUT, False, id="either: not with complete ones only"),
    ],
)
def test_when_an_answer_counts_as_cut(
    when: str, text: str, calls: tuple[tuple[str, str], ...], stop: StopReason, recovers: bool
) -> None:
    """Each `when` takes exactly its own kind of answers; the model is then asked to go on, as a new step."""
    scenario = truncation(when=when)
    scenario.answer(text, *calls, stop=stop)
    assert (["truncated"] if recovers else []) == scenario.injected()
    assert recovers == (scenario.state.request is not None and scenario.state.spent.steps == 2)


def test_incomplete_calls_are_refused_and_hidden_complete_ones_refused_beside_them() -> None:
    """What was never finished is not shown; a complete call beside it has a refusal for its result."""
    scenario = truncation(when="broken_calls")
    scenario.answer("let me", WHOLE, HALF, stop=CUT)
    assert [
        "call_refused call=c2 why=skipped cause=truncation text=refused:truncated hidden=True",
        "call_refused call=c1 why=skipped cause=truncation text=refused:truncated",
    ] == [line.split(" metadata")[0] for line in scenario.last[:2]]
    roles = [role for role, _ in scenario.seen()]
    assert ["system", "user", "assistant", "tool", "user"] == roles


def test_of_an_answer_of_nothing_but_an_incomplete_call_nothing_is_shown() -> None:
    """No provider takes a message without text and calls: it leaves the window with its calls."""
    scenario = truncation(when="either")
    scenario.answer("", HALF, stop=CUT)
    assert ["system", "user", "user"] == [role for role, _ in scenario.seen()]


def test_text_beside_an_incomplete_call_is_shown_without_the_call() -> None:
    """The words stay, and the provider is sent no call without its result."""
    scenario = truncation(when="either")
    scenario.answer("let me", HALF, stop=CUT)
    assert [("assistant", "let me")] == [said for said in scenario.seen() if said[0] == "assistant"]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_truncation_max(most: int) -> None:
    """Exactly `max` recoveries are made, then the next cut answer is the end."""
    scenario = truncation(max=most)
    for number in range(most):
        assert (number, "RUNNING") == (scenario.injected().count("truncated"), scenario.ended()[0])
        scenario.answer("half", stop=CUT)
    assert scenario.state.request is not None
    scenario.answer("half", stop=CUT)
    assert (most, ("COMPLETED", "truncated")) == (scenario.injected().count("truncated"), scenario.ended())


def test_nothing_gives_a_recovery_back() -> None:
    """Good answers between do not reset the count."""
    scenario = truncation(max=1)
    scenario.answer("half", stop=CUT)
    scenario.step()
    scenario.answer("half", stop=CUT)
    assert ("COMPLETED", "truncated") == scenario.ended()


def test_truncation_max_0_is_off() -> None:
    """0 switches it off: a cut answer is a finished turn, whatever `exhausted` says."""
    scenario = truncation(max=0, exhausted="fail")
    scenario.answer("half", stop=CUT)
    assert ("COMPLETED", "truncated") == scenario.ended()


def test_truncation_max_0_leaves_incomplete_calls_to_fail_by_themselves() -> None:
    """0 switches it off for broken calls too: they are run as any, and fail as bad arguments."""
    scenario = truncation(when="either", max=0)
    assert "tools_dispatched" in " ".join(scenario.answer("", HALF, stop=CUT))


def test_needs_text() -> None:
    """With `needs_text` an answer without text is not recovered, one with text is."""
    scenario = truncation(needs_text=True)
    scenario.answer("half", stop=CUT)
    assert ["truncated"] == scenario.injected()
    scenario.answer(" ", stop=CUT)
    assert ["truncated"] == scenario.injected()


@pytest.mark.parametrize(
    ("exhausted", "calls", "state"),
    [
        pytest.param("complete", (), "COMPLETED", id="complete"),
        pytest.param("complete", (HALF,), "COMPLETED", id="complete, a call incomplete"),
        pytest.param("fail", (), "ERROR", id="fail"),
        pytest.param("fail", (HALF,), "ERROR", id="fail, a call incomplete"),
        pytest.param("fail_if_broken", (), "COMPLETED", id="fail_if_broken: no call"),
        pytest.param("fail_if_broken", (HALF,), "ERROR", id="fail_if_broken: a call is incomplete"),
    ],
)
def test_exhausted(exhausted: str, calls: tuple[tuple[str, str], ...], state: str) -> None:
    """What a cut answer means once no recovery is left."""
    scenario = truncation(when="either", max=1, exhausted=exhausted)
    scenario.answer("half", stop=CUT)
    scenario.answer("half", *calls, stop=CUT)
    assert (state, "truncated") == scenario.ended()


@pytest.mark.parametrize(
    ("stitch", "text"),
    [
        pytest.param(True, "onetwothree", id="the texts of all, nothing between"),
        pytest.param(False, "three", id="without: the last one's"),
    ],
)
def test_stitch(stitch: bool, text: str) -> None:
    """The outcome is the texts of consecutive partial answers and the last."""
    scenario = truncation(stitch=stitch)
    scenario.answer("one", stop=CUT)
    scenario.answer("two", stop=CUT)
    scenario.answer("three")
    assert ("end_turn", "answer", text) == scenario.outcome()


def test_a_batch_between_ends_the_stitching() -> None:
    """Only consecutive partial answers are one text."""
    scenario = truncation()
    scenario.answer("one", stop=CUT)
    scenario.step()
    scenario.answer("two")
    assert ("end_turn", "answer", "two") == scenario.outcome()


def test_a_new_turn_ends_the_stitching() -> None:
    """What was said in an earlier turn is no part of this one's outcome."""
    scenario = Scenario({**QUIET, "end_of_turn": "wait", "limits": [{"type": "token", "value": 60}]})
    scenario.answer("one", stop=CUT)
    scenario.answer("two")
    scenario.say("again")
    scenario.answer("three", usage=(60, 0))
    assert ("token_budget", "partial", "three") == scenario.outcome()


def test_kept_progress_between_two_partial_answers_does_not_end_the_stitching() -> None:
    """The harness's clock is no answer of the model: they are still consecutive."""
    scenario = Scenario({**QUIET, "progress": {"every": 2}})
    scenario.answer("one", stop=CUT)
    assert ["truncated", "progress"] == scenario.injected()
    scenario.answer("two")
    assert ("end_turn", "answer", "onetwo") == scenario.outcome()


@pytest.mark.parametrize(
    ("steps", "text"),
    [pytest.param(1, "one", id="the first answer was cut"), pytest.param(2, "onetwo", id="the second too")],
)
def test_nothing_is_injected_once_the_step_limit_is_reached(steps: int, text: str) -> None:
    """No request follows that could read it: MAX_STEPS, and the partial answers are the outcome."""
    scenario = Scenario({**QUIET, "limits": [{"type": "step", "value": steps}]})
    for said in ("one", "two")[:steps]:
        scenario.answer(said, stop=CUT)
    assert ["truncated"] * (steps - 1) == scenario.injected()
    assert ("step_limit", "partial", text) == scenario.outcome()


def test_blank_partial_answers_leave_the_fallback() -> None:
    """Two answers that were cut before a word was said leave no text: the fallback is the outcome."""
    policy = {**QUIET, "limits": [{"type": "step", "value": 2}], "fallback": "sorry"}
    scenario = Scenario(policy)
    scenario.answer("", stop=CUT)
    scenario.answer("", stop=CUT)
    assert ("step_limit", "fallback", "") == scenario.outcome()


def test_broken_calls_at_the_step_limit_are_refused_and_nothing_is_injected() -> None:
    """The calls have their results, and the limit is the end."""
    scenario = Scenario({**QUIET, "limits": [{"type": "step", "value": 1}], "truncation": {"when": "either"}})
    scenario.answer("", HALF, stop=CUT)
    assert ("MAX_STEPS", "step_limit") == scenario.ended()
    assert ["call_refused", "limit_reached", "state_changed"] == scenario.kinds()


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param({"type": "token", "value": 15}, id="tokens at the response"),
        pytest.param({"type": "token", "value": 15, "check": "response_deferred"}, id="deferred, at once"),
        pytest.param({"type": "token", "value": 15, "check": "preflight"}, id="before the next request"),
    ],
)
def test_limits_win_over_truncation(limit: dict[str, Any]) -> None:
    """A cut answer that reaches a limit is not recovered beyond it."""
    scenario = Scenario({**QUIET, "limits": [limit]})
    scenario.answer("half", stop=CUT)
    assert ("BUDGET_EXCEEDED", "token_budget") == scenario.ended()
    assert ("token_budget", "partial", "half") == scenario.outcome()
