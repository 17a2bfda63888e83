"""Edges of retries, fallbacks, recoveries and reminders that only a mutant showed.

Each of these held a comparison or a number that could be another without any other test minding.
"""

from typing import Any

import pytest

from refold.reducers.events import LimitNeared, ModelRequested, ResponseDiscarded, RetryScheduled
from refold.reducers.vocabulary import FailureClass
from support.scenario import SECOND, Scenario

BUSY = FailureClass.OVERLOADED
LIMITED = FailureClass.RATE_LIMIT
BROKEN = FailureClass.STREAM_BROKEN


def falling_back(*when: Any, stream: dict[str, Any] | None = None) -> Scenario:
    retry = {"attempts": 9, "jitter": {"add": 0}, "fallback": {"models": ["m2"], "when": list(when)}}
    return Scenario({"retry": retry, "stream": stream})


def test_attempts_go_on_where_the_failed_model_was_to_be_asked_again() -> None:
    """A model that is only left at an attempt leaves that attempt's number to the next one."""
    scenario = falling_back({"attempt": 2})
    scenario.fail(BUSY)
    scheduled = scenario.events(RetryScheduled)[-1]
    assert ("m2", 2, SECOND) == (scheduled.model, scheduled.attempt, scheduled.delay)


@pytest.mark.parametrize(
    ("attempt", "model"), [pytest.param(1, "m2", id="the first"), pytest.param(2, "", id="the second")]
)
def test_after_a_broken_stream_a_step_begins_with_its_first_attempt(attempt: int, model: str) -> None:
    """The next step's first request is attempt 1, so only `{attempt: 1}` gives it to another model."""
    scenario = falling_back({"attempt": attempt}, stream={"max": 9})
    scenario.fail(BROKEN)
    scenario.clock(1)
    request = scenario.events(ModelRequested)[-1]
    assert (2, 1, model) == (request.step, request.attempt, request.model)


def test_a_failure_of_another_class_is_no_broken_stream() -> None:
    """With `{stream_failures: 1}` the first other failure still asks the same model."""
    scenario = falling_back({"stream_failures": 1})
    scenario.fail(BUSY)
    assert "" == scenario.events(RetryScheduled)[-1].model


def test_a_model_that_an_amended_policy_asks_again_begins_with_a_first_failure() -> None:
    """What it failed before, of a class that is counted by itself, takes nothing from its new attempts."""

    def retry(*models: str) -> dict[str, Any]:
        fallback = {"models": models, "when": ["exhausted"]}
        return {"retry": {"jitter": {"add": 0}, "by_class": {LIMITED: {"attempts": 1}}, "fallback": fallback}}

    scenario = Scenario(retry("m2", "m3"))
    for failure in (LIMITED, LIMITED, LIMITED, BUSY):
        scenario.fail(failure)
        if scenario.state.model == "m3":
            scenario.amend(retry("m3", "m2"))
        scenario.clock(0)
    assert [("m2", 1, 0), ("m3", 1, 0), ("m2", 1, 0), ("m2", 2, SECOND)] == [
        (event.model, event.attempt, event.delay) for event in scenario.events(RetryScheduled)
    ]


def test_past_a_limit_nothing_remains() -> None:
    """The request beyond a limit with `>` is told that 0 remain, not less than none."""
    tiers = [{"name": "warning", "at": {"fraction": 1}}]
    limit = {"type": "step", "value": 1, "op": ">"}
    scenario = Scenario({"limits": [limit], "pressure": {"tiers": tiers, "counts": "next"}})
    scenario.step()
    (text,) = scenario.events(ModelRequested)[-1].request_only
    assert (2, 1, 0) == (text.values["n"], text.values["max"], text.values["remaining"])


def test_a_tier_that_stands_in_a_result_looks_at_the_last_message_of_all() -> None:
    """A window of more than one chunk ends with its last chunk: the results there are those of this step."""
    tiers = [{"name": "warning", "at": {"remaining": 5}, "place": "tool_result"}]
    scenario = Scenario({"limits": [{"type": "step", "value": 80}], "pressure": {"tiers": tiers}})
    scenario.step("look", "look")  # from here on every even message is an answer, the 128th too
    while scenario.state.spent.steps < 76:
        scenario.step()
    assert len(scenario.state.window.chunks) > 1
    assert ["warning"] == [text.tier for text in scenario.events(ModelRequested)[-1].request_only]


def test_each_empty_answer_has_its_number() -> None:
    """The warning says which empty answer in a row it is, from 1."""
    scenario = Scenario({"empty": {"again": 2}})
    scenario.answer()
    scenario.answer()
    assert [1, 2] == [event.count for event in scenario.events(ResponseDiscarded)]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        pytest.param([{"type": "time", "value": 60}], " 00:00:00 of 00:01:00.", id="a limit"),
        pytest.param([], " 00:00:00.", id="none"),
    ],
)
def test_progress_says_of_how_much(limits: list[dict[str, Any]], said: str) -> None:
    """With `show_limit` the limit stands behind the time, and where there is none nothing does."""
    scenario = Scenario({"limits": limits, "progress": {"every": 1, "show_limit": True}})
    assert scenario.seen()[-1][1].endswith(said)


def test_a_near_budget_is_warned_of_once() -> None:
    """One token of 16 is left after the first answer: people are told so, once."""
    scenario = Scenario({"limits": [{"type": "token", "value": 16}], "near": {"reserve_tokens": 1}})
    scenario.answer("", ("look", "{}"))
    assert ["budget"] == [event.of for event in scenario.events(LimitNeared)]
