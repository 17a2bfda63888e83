"""Recoveries: answers cut at the output limit, streams that broke, answers of nothing; and what limits say to them."""

from typing import Any

import pytest

from refold.reducers.effects import CallModel, WaitUntil, next_effects
from refold.reducers.events import MessageInjected, RetryScheduled
from refold.reducers.vocabulary import FailureClass, StopReason
from support.scenario import SECOND, START, Scenario

CUT = StopReason.MAX_TOKENS
BROKEN = FailureClass.STREAM_BROKEN
WHOLE, HALF = ("look", "{}"), ("look", '{"q": "ha')
# Off unless a test says otherwise: one recovery at a time.
QUIET: dict[str, Any] = {"stream": None, "retry": {"jitter": {"add": 0}}}


def truncation(**knob: Any) -> Scenario:
    return Scenario({**QUIET, "truncation": knob})


def ended(scenario: Scenario) -> tuple[str, str]:
    outcome = scenario.state.outcome
    return str(scenario.state.agent_state), outcome.code if outcome else ""


def texts(scenario: Scenario) -> list[str]:
    return [event.text for event in scenario.events(MessageInjected)]


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
    assert (["truncated"] if recovers else []) == texts(scenario)
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
        assert (number, "RUNNING") == (texts(scenario).count("truncated"), ended(scenario)[0])
        scenario.answer("half", stop=CUT)
    assert scenario.state.request is not None
    scenario.answer("half", stop=CUT)
    assert (most, ("COMPLETED", "truncated")) == (texts(scenario).count("truncated"), ended(scenario))


def test_nothing_gives_a_recovery_back() -> None:
    """Good answers between do not reset the count."""
    scenario = truncation(max=1)
    scenario.answer("half", stop=CUT)
    scenario.step()
    scenario.answer("half", stop=CUT)
    assert ("COMPLETED", "truncated") == ended(scenario)


@pytest.mark.parametrize(
    ("scope", "again_in_turn", "again_in_fork"),
    [
        pytest.param("turn", True, True, id="turn"),
        pytest.param("run", False, True, id="run"),
        pytest.param("lineage", False, False, id="lineage"),
    ],
)
@pytest.mark.parametrize("knob", ["truncation", "stream", "overflow"])
def test_scopes_of_recoveries(knob: str, scope: str, again_in_turn: bool, again_in_fork: bool) -> None:
    """A count begins anew with its scope: with a person's message, with a fork, or never."""
    policy = {
        **QUIET,
        "end_of_turn": "wait",
        "overflow": {"do": [{"do": "tail", "last": 1}], "max": 1, "scope": scope},
        "truncation": {"max": 1, "scope": scope} if knob == "truncation" else None,
        "stream": {"max": 1, "scope": scope} if knob == "stream" else None,
    }

    def recover(scenario: Scenario) -> bool:
        if knob == "overflow":
            scenario.step()
            scenario.fail(FailureClass.CONTEXT_OVERFLOW)
        elif knob == "stream":
            scenario.fail(BROKEN)
            if scenario.state.backoff:
                scenario.clock(100)
        else:
            scenario.answer("half", stop=CUT)
        return scenario.state.request is not None

    for ways in (["turn"], ["fork"]):
        scenario = Scenario(policy)
        assert recover(scenario)
        scenario.answer("done")
        if ways == ["turn"]:
            scenario.say("again")
            assert again_in_turn == recover(scenario)
        else:
            scenario.say("again")
            scenario.fork()
            assert again_in_fork == recover(scenario)


def test_truncation_max_0_is_off() -> None:
    """0 switches it off: a cut answer is a finished turn, whatever `exhausted` says."""
    scenario = truncation(max=0, exhausted="fail")
    scenario.answer("half", stop=CUT)
    assert ("COMPLETED", "truncated") == ended(scenario)


def test_truncation_max_0_leaves_incomplete_calls_to_fail_by_themselves() -> None:
    """0 switches it off for broken calls too: they are run as any, and fail as bad arguments."""
    scenario = truncation(when="either", max=0)
    assert "tools_dispatched" in " ".join(scenario.answer("", HALF, stop=CUT))


def test_needs_text() -> None:
    """With `needs_text` an answer without text is not recovered, one with text is."""
    scenario = truncation(needs_text=True)
    scenario.answer("half", stop=CUT)
    assert ["truncated"] == texts(scenario)
    scenario.answer(" ", stop=CUT)
    assert ["truncated"] == texts(scenario)


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
    assert (state, "truncated") == ended(scenario)


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
    assert ["truncated", "progress"] == texts(scenario)
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
    assert ["truncated"] * (steps - 1) == texts(scenario)
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
    assert ("MAX_STEPS", "step_limit") == ended(scenario)
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
    assert ("BUDGET_EXCEEDED", "token_budget") == ended(scenario)
    assert ("token_budget", "partial", "half") == scenario.outcome()


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
    assert ["interrupted"] == texts(scenario)
    scenario.answer("sentence")
    assert ("end_turn", "answer", "half a sentence") == scenario.outcome()


def test_of_a_stream_in_which_a_call_had_begun_all_is_dropped() -> None:
    """Neither the text nor the call is shown, and nothing is said about it."""
    scenario = stream()
    scenario.fail(BROKEN, partial="let me", calls=1)
    scenario.clock(1)
    assert [] == texts(scenario)
    assert ["system", "user"] == [role for role, _ in scenario.seen()]


def test_an_answer_of_nothing_at_all_is_a_broken_stream() -> None:
    """Ended without text, call and usage: asked again after a wait; with usage it is an empty answer."""
    scenario = stream()
    assert ["retry_scheduled"] == [line.split()[0] for line in scenario.answer("", usage=(0, 0))]
    scenario.clock(1)
    assert (2, "RUNNING") == (scenario.state.spent.steps, scenario.state.agent_state)
    scenario.answer("", usage=(1, 0))
    assert ("COMPLETED", "empty") == ended(scenario)


def test_broken_and_silent_streams_have_one_count_and_wait_by_it() -> None:
    """The second wait is twice the first, whichever way the stream broke; the third is one too many."""
    scenario = stream()
    scenario.fail(BROKEN)
    scenario.clock(1)
    scenario.answer("", usage=(0, 0))
    assert [SECOND, 2 * SECOND] == [event.delay for event in scenario.events(RetryScheduled)]
    scenario.clock(2)
    scenario.fail(BROKEN)
    assert ("ERROR", "stream_broken") == ended(scenario)


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
    assert ("ERROR", "stream_broken") == ended(scenario)


def test_stream_max_0_is_a_failure_like_any() -> None:
    """Another attempt at the same step, until the attempts are used up."""
    scenario = Scenario({"stream": {"max": 0}, "retry": {"attempts": 2, "jitter": {"add": 0}}})
    scenario.fail(BROKEN)
    assert ["model_requested step=1 attempt=2 messages=[[1 2]]"] == scenario.clock(1)
    scenario.fail(BROKEN)
    assert ("ERROR", "provider:stream_broken") == ended(scenario)


def test_a_broken_stream_of_a_class_that_is_not_retried_is_a_failure_like_any() -> None:
    """Only a retryable class is recovered."""
    scenario = stream(retry={"classes": ["overloaded"]})
    scenario.fail(BROKEN)
    assert ("ERROR", "provider:stream_broken") == ended(scenario)


def test_stream_and_truncation_have_counts_of_their_own() -> None:
    """A broken stream uses up no truncation recovery, nor the other way round."""
    scenario = stream(1, truncation={"max": 1})
    scenario.fail(BROKEN, partial="a")
    scenario.clock(1)
    scenario.answer("b", stop=CUT)
    assert scenario.state.request is not None
    scenario.answer("c")
    assert ("end_turn", "answer", "abc") == scenario.outcome()


def test_a_broken_stream_at_the_step_limit_leaves_its_text_as_the_outcome() -> None:
    """Nothing is injected, MAX_STEPS follows, and the outcome is what had arrived, not an older answer."""
    scenario = stream(limits=[{"type": "step", "value": 2}])
    scenario.step(text="older")
    scenario.fail(BROKEN, partial="newer")
    scenario.clock(1)
    assert [] == texts(scenario)
    assert ("step_limit", "partial", "newer") == scenario.outcome()


def test_a_time_limit_wins_over_a_broken_stream() -> None:
    """F1 comes before F3."""
    scenario = stream(limits=[{"type": "time", "value": 5}])
    scenario.fail(BROKEN, partial="half", after=5)
    assert ("TIMED_OUT", "time_limit") == ended(scenario)


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
    scenario = Scenario({**QUIET, "empty": knob})
    for _ in range(answers):
        scenario.answer(" \n")
    assert expected == ended(scenario)
    assert 2 == scenario.state.window.count
    assert min(answers + (expected[0] == "RUNNING"), 50) == scenario.state.spent.steps


def test_empty_answers_are_counted_in_a_row() -> None:
    """An answer with something in it lets the count begin anew."""
    scenario = Scenario({**QUIET, "empty": {"again": 1, "then": "fail"}})
    scenario.answer("")
    scenario.step()
    scenario.answer("")
    assert "RUNNING" == ended(scenario)[0]
    scenario.answer("")
    assert ("ERROR", "empty_answers") == ended(scenario)


def test_a_new_turn_has_its_own_empty_answers() -> None:
    """What was empty in the last turn does not count in this one."""
    scenario = Scenario({**QUIET, "end_of_turn": "wait", "empty": {"again": 1}})
    scenario.answer("")
    scenario.answer("")
    assert "WAITING_FOR_INPUT" == ended(scenario)[0]
    scenario.say("well?")
    scenario.answer("")
    assert scenario.state.request is not None


def test_empty_is_not_looked_at_with_continue() -> None:
    """The model is told to go on, as after any answer without calls."""
    scenario = Scenario({**QUIET, "empty": {"again": 0, "then": "fail"}, "end_of_turn": "continue"})
    scenario.answer("")
    assert ["continue"] == texts(scenario)


def test_a_cut_empty_answer_is_truncation_first() -> None:
    """R14 comes before R16."""
    scenario = Scenario({**QUIET, "empty": {"again": 0, "then": "fail"}})
    scenario.answer("", stop=CUT)
    assert ["truncated"] == texts(scenario)


def failing(**knob: Any) -> Scenario:
    scenario = Scenario({**QUIET, "premature_end": knob})
    scenario.step(output="FAILED 2 tests")
    return scenario


def test_premature_end_sends_back_and_counts() -> None:
    """Twice it is sent back to its failures, the third time the turn is finished."""
    scenario = failing()
    for number in (1, 2):
        scenario.answer("")
        assert ["premature_end"] * number == texts(scenario)
    scenario.answer("")
    assert ("COMPLETED", "empty") == ended(scenario)


def test_premature_end_comes_before_empty() -> None:
    """R15 comes before R16: what is to be asked again is told why."""
    scenario = Scenario({**QUIET, "premature_end": {}, "empty": {"again": 0, "then": "fail"}})
    scenario.step(output="FAILED")
    scenario.answer("")
    assert ["premature_end"] == texts(scenario)


def test_premature_end_injects_nothing_at_the_step_limit() -> None:
    """Nobody would read it: MAX_STEPS."""
    scenario = Scenario({**QUIET, "premature_end": {}, "limits": [{"type": "step", "value": 2}]})
    scenario.step(output="FAILED")
    scenario.answer("")
    assert [] == texts(scenario)
    assert ("MAX_STEPS", "step_limit") == ended(scenario)


def test_continue_is_not_injected_at_the_step_limit() -> None:
    """A continue is for the next request, and there is none."""
    scenario = Scenario({**QUIET, "end_of_turn": "continue", "limits": [{"type": "step", "value": 1}]})
    scenario.answer("done?")
    assert [] == texts(scenario)
    assert ("step_limit", "partial", "done?") == scenario.outcome()


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
    assert expected == ended(scenario)


def test_a_filtered_answer_with_calls_runs_them() -> None:
    """R13 is asked of answers without calls only."""
    scenario = Scenario()
    assert "tools_dispatched" in " ".join(scenario.answer("", WHOLE, stop=StopReason.CONTENT_FILTER))
