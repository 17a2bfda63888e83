"""Nudge and progress: what every request, or every so many, is told beside the window; and the clock that is
told.
"""

from typing import Any

import pytest

from refold.reducers.events import MessageInjected, ModelRequested
from refold.reducers.text import hours_minutes_seconds
from refold.reducers.vocabulary import FailureClass
from support.scenario import SECOND, Scenario


def causes(scenario: Scenario) -> list[str]:
    return [event.cause for event in scenario.events(MessageInjected)]


def told(scenario: Scenario) -> list[list[str]]:
    """The texts of each request, in order."""
    return [[text.text for text in event.request_only] for event in scenario.events(ModelRequested)]


def test_the_nudge_is_in_every_request_and_in_no_window() -> None:
    """It is the last thing that the model sees, and never kept."""
    scenario = Scenario({"nudge": True})
    scenario.step()
    assert [["nudge"], ["nudge"]] == told(scenario)
    assert "one small step" in scenario.seen()[-1][1]
    assert 1 == sum("one small step" in text for _, text in scenario.seen())
    assert [] == causes(scenario)


def test_the_order_of_texts_in_a_request() -> None:
    """Progress, the hint after an overflow, what guards warn of, the nudge, and pressure last."""
    scenario = Scenario(
        {
            "limits": [{"type": "step", "value": 10}],
            "pressure": {"tiers": [{"name": "warning", "at": {"fraction": 0.1}}]},
            "nudge": True,
            "progress": {"every": 1, "kept": False},
            "overflow": {"do": [{"do": "drop_oldest", "fraction": 0.4}], "hint": True},
            "guards": [{"guard": "stall"}],
        }
    )
    for _ in range(4):
        scenario.answer("", ("look", "{}"))
        scenario.result(f"c{scenario.state.spent.calls}", "same")
    scenario.fail(FailureClass.CONTEXT_OVERFLOW)
    texts = told(scenario)[-1]
    stall = [text for text in texts if text.startswith("stall:")]
    assert stall
    assert ["progress", "overflow", *stall, "nudge", "pressure:warning"] == texts


@pytest.mark.parametrize("every", [1, 2, 3])
def test_every_so_many_steps(every: int) -> None:
    """When s % every == 0, s the step about to be made."""
    scenario = Scenario({"progress": {"every": every}})
    for _ in range(6):
        scenario.step()
    steps, said = list[int](), 0
    for event in scenario.log:
        if isinstance(event, MessageInjected):
            said += 1
        if isinstance(event, ModelRequested):
            if said:
                steps.append(event.step)
            said = 0
    assert [step for step in range(1, 8) if step % every == 0] == steps


@pytest.mark.parametrize("kept", [True, False])
def test_kept_or_for_one_request(kept: bool) -> None:
    """Kept it is an internal message of the window; else a text of that request, and gone after it."""
    scenario = Scenario({"progress": {"every": 2, "kept": kept}})
    scenario.step()
    assert (["progress"] if kept else []) == causes(scenario)
    assert ([] if kept else ["progress"]) == told(scenario)[-1]
    assert "Time used" in scenario.seen()[-1][1]
    scenario.step()
    assert kept == any("Time used" in text for _, text in scenario.seen())


@pytest.mark.parametrize(
    ("before", "order"),
    [
        pytest.param(True, ["message_injected", "history_pruned"], id="P6"),
        pytest.param(False, ["history_pruned", "message_injected"], id="P8"),
    ],
)
def test_before_or_after_the_history(before: bool, order: list[str]) -> None:
    """Before, the passes count it among the messages; after, they do not."""
    history = [{"do": "tail", "last": 2, "when": {"messages": 4}}]
    scenario = Scenario({"progress": {"every": 3, "before_history": before}, "history": history})
    scenario.step()
    scenario.step()
    kinds = [kind for kind in scenario.kinds() if kind in order]
    assert order == kinds


def test_progress_is_said_once_though_a_summary_comes_between() -> None:
    """The request that a summary was for does not say it a second time."""
    history = [{"do": "summarise", "when": {"messages": 5}, "keep_last": 2}]
    scenario = Scenario({"progress": {"every": 1, "before_history": True}, "history": history})
    scenario.step()
    while scenario.state.summary is None:
        scenario.step()
    before = causes(scenario).count("progress")
    scenario.summary("short")
    assert before == causes(scenario).count("progress")


def test_a_retry_is_told_nothing_new() -> None:
    """Another attempt is the same step."""
    scenario = Scenario({"progress": {"every": 1}})
    scenario.fail()
    scenario.clock(100)
    assert ["progress"] == causes(scenario)


def kept(scenario: Scenario) -> str:
    said = scenario.events(MessageInjected)[-1].content
    return said.texts[0] if said else ""


@pytest.mark.parametrize(
    ("clock", "credit", "expected"),
    [
        pytest.param("wall", "planned", "00:00:12", id="wall: the waits are in it"),
        pytest.param("productive", "planned", "00:00:02", id="productive: they are not"),
        pytest.param("productive", "on_success", "00:00:02", id="of a request that succeeded"),
        pytest.param("productive", "none", "00:00:12", id="nothing is credited: nothing is left out"),
    ],
)
def test_clock(clock: str, credit: str, expected: str) -> None:
    """Ten seconds of back-off between two of work."""
    scenario = Scenario(
        {
            "limits": [{"type": "time", "value": 1000, "credit": {"retry": credit}}],
            "retry": {"initial": 10, "jitter": {"add": 0}},
            "progress": {"every": 2, "clock": clock},
        }
    )
    scenario.fail(after=1)
    scenario.clock(10)
    scenario.answer("", ("look", "{}"), after=1)
    scenario.result("c1")
    assert f" {expected}." in kept(scenario)


def test_productive_without_a_time_limit_is_wall_time() -> None:
    """There is nothing that says what is credited."""
    policy = {"retry": {"initial": 10, "jitter": {"add": 0}}, "progress": {"every": 2, "clock": "productive"}}
    scenario = Scenario({**policy, "limits": []})
    scenario.fail(after=1)
    scenario.clock(10)
    scenario.step()
    assert " 00:00:11." in kept(scenario)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param([{"type": "time", "value": 5400}], "01:30:00", id="of how much"),
        pytest.param(
            [{"type": "time", "value": 7200}, {"type": "time", "name": "b", "value": 60}],
            "00:01:00",
            id="the least",
        ),
    ],
)
def test_show_limit(limits: list[dict[str, Any]], expected: str) -> None:
    """With `show_limit` the text is given the smallest time limit."""
    scenario = Scenario({"limits": limits, "progress": {"every": 1, "show_limit": True}})
    assert f" of {expected}." in kept(scenario)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "00:00:00"),
        (0.999999999, "00:00:00"),
        (1, "00:00:01"),
        (59.6, "00:00:59"),
        (60, "00:01:00"),
        (3599.999, "00:59:59"),
        (3600, "01:00:00"),
        (86400, "24:00:00"),
        (360000, "100:00:00"),
    ],
)
def test_hours_minutes_seconds(seconds: float, expected: str) -> None:
    """Whole seconds toward zero; hours are not wrapped at 24."""
    assert expected == hours_minutes_seconds(int(seconds * SECOND))
