"""Retries at work: which failure is tried again, after how long, and of which model."""

from typing import Any

import pytest

from refold.reducers.effects import CallModel, WaitUntil, next_effects
from refold.reducers.events import ModelRequested, RetryScheduled
from refold.reducers.vocabulary import FailureClass
from support.scenario import SECOND, START, Scenario

RATE, BUSY, AUTH = FailureClass.RATE_LIMIT, FailureClass.OVERLOADED, FailureClass.AUTH
BROKEN = FailureClass.STREAM_BROKEN


def retrying(**retry: Any) -> Scenario:
    return Scenario({"retry": {"jitter": {"add": 0}, **retry}, "stream": None})


def fail(scenario: Scenario, *failures: FailureClass) -> bool:
    """Fail so often, each wait waited for; whether a request is under way after all."""
    for failure in failures:
        scenario.fail(failure)
        if scenario.state.backoff is not None:
            scenario.clock((scenario.state.backoff.event.until - scenario.at) / SECOND)
    return scenario.state.request is not None


def delays(scenario: Scenario) -> list[float]:
    return [event.delay / SECOND for event in scenario.events(RetryScheduled)]


def models(scenario: Scenario) -> list[str]:
    """Of which model each request asked, "" for the run's."""
    return [event.model for event in scenario.events(ModelRequested)]


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_attempts_include_the_first(attempts: int) -> None:
    """So many requests of one step, and then ERROR with the class."""
    scenario = retrying(attempts=attempts)
    assert fail(scenario, *[BUSY] * (attempts - 1))
    assert not fail(scenario, BUSY)
    assert attempts == scenario.state.spent.requests
    assert scenario.state.outcome is not None
    assert "provider:overloaded" == scenario.state.outcome.code


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        pytest.param([RATE, RATE], [30, 60], id="linear: initial, initial + step"),
        pytest.param([BUSY, BUSY], [1, 2], id="the others as before"),
        pytest.param([BUSY, RATE, BUSY, RATE], [1, 30, 2, 60], id="each has a count of its own"),
        pytest.param([RATE, BUSY], [30, 1], id="whichever comes first"),
    ],
)
def test_by_class_delays(failures: list[FailureClass], expected: list[float]) -> None:
    """A class with numbers of its own counts its own failures."""
    scenario = retrying(by_class={"rate_limit": {"initial": 30, "step": 30, "max": 300}})
    fail(scenario, *failures)
    assert expected == delays(scenario)


@pytest.mark.parametrize(
    ("failures", "continues"),
    [
        pytest.param([RATE], True, id="its first"),
        pytest.param([RATE, RATE], False, id="its second is one too many"),
        pytest.param([BUSY, BUSY, RATE], True, id="others do not count against it"),
        pytest.param([RATE, BUSY, BUSY], True, id="nor it against them"),
        pytest.param([RATE, BUSY, BUSY, BUSY], False, id="who have three"),
    ],
)
def test_by_class_attempts(failures: list[FailureClass], continues: bool) -> None:
    """A class's `attempts` are its own."""
    scenario = retrying(attempts=3, by_class={"rate_limit": {"attempts": 2}})
    assert continues == fail(scenario, *failures)


@pytest.mark.parametrize(
    ("window", "requests"),
    [
        pytest.param(1, 2, id="a wait that ends with the window fits"),
        pytest.param(0.999999999, 1, id="one that ends a nanosecond later does not"),
        pytest.param(3, 3, id="1 + 2 s"),
        pytest.param(2.999999999, 2, id="just not"),
    ],
)
def test_window(window: float, requests: int) -> None:
    """Seconds since the step's first failure; elapsed + delay beyond it is no retry.

    `attempts: null` needs it.
    """
    scenario = retrying(attempts=None, window=window)
    fail_on = 0
    while scenario.state.request is not None:
        fail(scenario, BUSY)
        fail_on += 1
    assert requests == fail_on


def test_the_window_is_the_steps_own() -> None:
    """It begins anew with the next step's first failure."""
    scenario = retrying(attempts=None, window=2)
    fail(scenario, BUSY)
    scenario.answer("", ("look", "{}"), after=100)
    scenario.result("c1")
    assert fail(scenario, BUSY)


def test_attempts_null_with_a_time_limit_go_on_until_time_is_up() -> None:
    """As often as the limit allows."""
    policy = {
        "retry": {"attempts": None, "jitter": {"add": 0}, "max": 1},
        "limits": [{"type": "time", "value": 99}],
    }
    scenario = Scenario(policy)
    assert fail(scenario, *[BUSY] * 50)
    scenario.fail(BUSY, after=60)
    assert "TIMED_OUT" == scenario.state.agent_state


def falling_back(*when: Any, models: tuple[str, ...] = ("m2", "m3"), **retry: Any) -> Scenario:
    return retrying(**{"attempts": 2, "fallback": {"models": models, "when": when}, **retry})


def test_exhausted() -> None:
    """Attempts used up: the next in the list, at once, whose attempts start anew; after the last ERROR."""
    scenario = falling_back("exhausted")
    fail(scenario, *[BUSY] * 5)
    assert ["", "", "m2", "m2", "m3", "m3"] == models(scenario)
    assert [1, 2, 1, 2, 1, 2] == [event.attempt for event in scenario.events(ModelRequested)]
    assert [1, 0, 1, 0, 1] == delays(scenario)
    assert not fail(scenario, BUSY)


def test_exhausted_is_not_unretryable() -> None:
    """A failure that is not retried moves on only where the policy says so."""
    assert not fail(falling_back("exhausted"), AUTH)


def test_unretryable() -> None:
    """Even `auth` moves to the next model at once; what is retryable does not."""
    scenario = falling_back("unretryable")
    fail(scenario, AUTH)
    assert ["", "m2"] == models(scenario)
    scenario = falling_back("unretryable")
    assert not fail(scenario, BUSY, BUSY)


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        pytest.param(2, ["", "m2", "m2"], id="the second"),
        pytest.param(3, ["", "", "m2"], id="the third"),
    ],
)
def test_from_an_attempt_on(attempt: int, expected: list[str]) -> None:
    """`{attempt: n}`: the n-th attempt asks another model."""
    scenario = falling_back({"attempt": attempt}, models=("m2",), attempts=3)
    fail(scenario, BUSY, BUSY)
    assert expected == models(scenario)


def test_the_attempt_is_the_steps_whatever_the_classes_count() -> None:
    """A class with a count of its own does not put off the other model."""
    by_class = {"rate_limit": {"attempts": 9}}
    scenario = falling_back({"attempt": 3}, models=("m2",), attempts=9, by_class=by_class)
    fail(scenario, BUSY, RATE)
    assert ["", "", "m2"] == models(scenario)


def test_a_classs_own_attempts_start_anew_with_another_model() -> None:
    """The failures of the first model do not count against the second."""
    scenario = falling_back("exhausted", models=("m2",), by_class={"rate_limit": {"attempts": 2}})
    fail(scenario, RATE, RATE, RATE)
    assert ["", "", "m2", "m2"] == models(scenario)


def test_no_other_model_beyond_the_window() -> None:
    """A wait that would end beyond it ends all candidates."""
    scenario = falling_back("exhausted", window=2, attempts=9)
    assert fail(scenario, BUSY)
    assert not fail(scenario, BUSY)
    assert ["", ""] == models(scenario)


@pytest.mark.parametrize(
    ("sticky", "next_model"), [pytest.param(False, "", id="the first"), pytest.param(True, "m2", id="sticky")]
)
def test_after_a_success(sticky: bool, next_model: str) -> None:
    """A success returns to the first, unless `sticky`; the effect asks the model that the decision says."""
    fallback = {"models": ["m2"], "when": ["unretryable"], "sticky": sticky}
    scenario = retrying(fallback=fallback)
    fail(scenario, AUTH)
    call = next_effects(scenario.state)[0]
    assert isinstance(call, CallModel)
    assert scenario.state.request is not None
    assert (call.seq, "m2") == (scenario.state.request.seq, scenario.state.request.event.model)
    scenario.step()
    assert next_model == models(scenario)[-1]


def test_only_a_success_returns_to_the_first() -> None:
    """An overflow on the second model is followed by a request to the second model."""
    scenario = Scenario(
        {
            "retry": {"fallback": {"models": ["m2"], "when": ["unretryable"]}},
            "overflow": {"do": [{"do": "tail", "last": 1}]},
        }
    )
    scenario.step()
    scenario.step()
    scenario.fail(AUTH)
    scenario.clock(0)
    scenario.fail(FailureClass.CONTEXT_OVERFLOW)
    assert "m2" == models(scenario)[-1]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param({"max": 9}, ["", "", "m2", "m2", "m3"], id="recovered streams: each a step"),
        pytest.param(None, ["", "", "m2", "m2", "m3"], id="as attempts"),
    ],
)
def test_stream_failures(stream: dict[str, Any] | None, expected: list[str]) -> None:
    """`{stream_failures: 2}`: after two broken streams of one model the next is asked."""
    fallback = {"models": ["m2", "m3"], "when": [{"stream_failures": 2}]}
    policy = {"retry": {"attempts": 9, "jitter": {"add": 0}, "fallback": fallback}, "stream": stream}
    scenario = Scenario(policy)
    fail(scenario, *[BROKEN] * 4)
    assert expected == models(scenario)


def test_other_failures_are_no_stream_failures() -> None:
    """Only broken streams count there."""
    scenario = falling_back({"stream_failures": 2}, attempts=9)
    fail(scenario, BUSY, BUSY, BUSY)
    assert [""] * 4 == models(scenario)


def test_a_retried_request_shows_the_same_texts_and_offers_the_same_tools() -> None:
    """Every attempt at a step is the same request, of another model too."""
    tiers = [{"name": "warning", "at": {"fraction": 0.1}, "tools": {"without": ["act"]}}]
    scenario = Scenario(
        {
            "limits": [{"type": "step", "value": 3}],
            "pressure": {"tiers": tiers},
            "nudge": True,
            "progress": {"every": 1, "kept": False},
            "retry": {"attempts": 2, "fallback": {"models": ["m2"], "when": ["exhausted"]}},
        }
    )
    assert fail(scenario, BUSY, BUSY)
    first, *others = scenario.events(ModelRequested)
    assert ["progress", "nudge", "pressure:warning"] == [text.text for text in first.request_only]
    for other in others:
        assert (first.request_only, first.tools, first.step) == (other.request_only, other.tools, other.step)
    assert first.view == others[0].view != others[1].view


def test_a_provider_s_wait_is_a_lower_bound() -> None:
    """`retry_after` lengthens a wait, and never shortens one."""
    scenario = retrying(initial=5)
    scenario.fail(BUSY, retry_after=9 * SECOND)
    scenario.clock(9)
    scenario.fail(BUSY, retry_after=1 * SECOND)
    assert [9, 10] == delays(scenario)


def test_a_model_that_an_amended_policy_no_longer_has_is_the_last() -> None:
    """Nobody knows where in the new list it would stand: no other one follows it."""
    scenario = falling_back("unretryable")
    fail(scenario, AUTH)
    fallback = {"models": ["m4", "m5"], "when": ["unretryable"]}
    scenario.amend({"retry": {"fallback": fallback}})
    assert not fail(scenario, AUTH)


RETRIED = {"rate_limit", "overloaded", "timeout", "network", "stream_broken"}


@pytest.mark.parametrize("failure", FailureClass)
def test_classes(failure: FailureClass) -> None:
    """By default five classes are tried again; every other ends the run with its class as code."""
    scenario = Scenario({"retry": {"initial": 2, "jitter": {"add": 0}}, "stream": None})
    scenario.fail(failure)
    if failure in RETRIED:
        assert [f"retry_scheduled attempt=2 delay=2000000000 until=+2s failure={failure}"] == scenario.last
    else:
        code = "context_overflow" if failure == "context_overflow" else f"provider:{failure}"
        assert [f"state_changed from=RUNNING to=ERROR trigger=fail code={code}"] == scenario.last


@pytest.mark.parametrize("classes", [[], ["auth"]])
def test_the_policy_names_the_classes(classes: list[str]) -> None:
    """A class that the policy does not name is not tried again; one that it names is."""
    scenario = Scenario({"retry": {"classes": classes}})
    scenario.fail(FailureClass.AUTH)
    assert ("RUNNING" if classes else "ERROR") == scenario.state.agent_state
    other = Scenario({"retry": {"classes": classes}})
    other.fail(FailureClass.RATE_LIMIT)
    assert "ERROR" == other.state.agent_state


def test_attempts_run_out() -> None:
    """`attempts` counts the first one: after 3 of 3 the run gives up, naming class, attempt and step."""
    scenario = Scenario({"retry": {"attempts": 3, "jitter": {"add": 0}}})
    assert ["retry_scheduled attempt=2 delay=1000000000 until=+1s failure=timeout"] == scenario.fail(
        FailureClass.TIMEOUT
    )
    assert ["model_requested step=1 attempt=2 messages=[[1 2]]"] == scenario.clock(1)
    assert ["retry_scheduled attempt=3 delay=2000000000 until=+3s failure=network"] == scenario.fail(
        FailureClass.NETWORK
    )
    assert ["model_requested step=1 attempt=3 messages=[[1 2]]"] == scenario.clock(2)
    assert ["state_changed from=RUNNING to=ERROR trigger=fail code=provider:timeout"] == scenario.fail(
        FailureClass.TIMEOUT
    )
    outcome = scenario.state.outcome
    assert outcome is not None
    assert "the model request failed (timeout) at attempt 3 of step 1" == outcome.reason


def test_each_step_has_its_attempts_anew() -> None:
    """A success resets the count: the next step's first failure is attempt 1 again."""
    scenario = Scenario({"retry": {"attempts": 2, "jitter": {"add": 0}}})
    scenario.fail()
    scenario.clock(1)
    scenario.answer("", ("look", "{}"))
    scenario.result("c1")
    assert ["retry_scheduled attempt=2 delay=1000000000 until=+2s failure=overloaded"] == scenario.fail()


@pytest.mark.parametrize(
    ("after", "lines"),
    [
        pytest.param(0.999999999, [], id="a nanosecond too early"),
        pytest.param(1, ["model_requested step=1 attempt=2 messages=[[1 2]]"], id="at the instant"),
        pytest.param(5, ["model_requested step=1 attempt=2 messages=[[1 2]]"], id="late"),
    ],
)
def test_the_wait_is_over_when_the_clock_says_so(after: float, lines: list[str]) -> None:
    """Nothing but a clock read at or past `until` ends a back-off."""
    scenario = Scenario({"retry": {"jitter": {"add": 0}}})
    scenario.fail()
    assert (WaitUntil(at=START + SECOND),) == next_effects(scenario.state)
    assert lines == scenario.clock(after)


def test_waits_are_counted() -> None:
    """What was waited, and not what was planned, is the retry wait that was spent."""
    scenario = Scenario({"retry": {"jitter": {"add": 0}}})
    scenario.fail()
    scenario.clock(3)
    assert 3 * SECOND == scenario.state.spent.retry_wait
