"""Limits that are near: warnings of which the model is not told."""

from typing import Any

import pytest

from refold.reducers.events import LimitNeared
from support.scenario import SECOND, Scenario

NANO = 1e-9


def near(scenario: Scenario) -> list[tuple[str, Any, Any]]:
    """Of each warning what is near, the limit and the threshold."""
    return [(event.of, event.limit.name, event.threshold) for event in scenario.events(LimitNeared)]


@pytest.mark.parametrize(("after", "warns"), [(7.999999999, False), (8, True), (9, True)])
def test_near_fraction(after: float, warns: bool) -> None:
    """Before a request, when elapsed >= f x the smallest limit above 0; the model is not told."""
    limits = [{"type": "time", "name": "long", "value": 100}, {"type": "time", "name": "short", "value": 10}]
    scenario = Scenario({"limits": limits, "near": {"fraction": 0.8}})
    scenario.now = after
    scenario.step()
    assert ([("time", "short", 8 * SECOND)] if warns else []) == near(scenario)
    assert "RUNNING" == scenario.state.agent_state
    assert ["system", "user", "assistant", "tool"] == [role for role, _ in scenario.seen()]


def test_near_fraction_once_a_run() -> None:
    """One warning, however many requests follow; a fork is another run."""
    scenario = Scenario({"limits": [{"type": "time", "value": 100}], "near": {"fraction": 0.01}})
    scenario.now = 5
    scenario.step()
    scenario.step()
    assert 1 == len(near(scenario))


@pytest.mark.parametrize(
    ("reserve", "warns"),
    [
        pytest.param(84, False, id="one below"),
        pytest.param(85, True, id="at"),
        pytest.param(86, True, id="above"),
    ],
)
def test_near_reserve_of_tokens(reserve: int, warns: bool) -> None:
    """100 - 15 are left: a warning if that is no more than the reserve; then the calls run as ever."""
    scenario = Scenario({"limits": [{"type": "token", "value": 100}], "near": {"reserve_tokens": reserve}})
    scenario.answer("", ("look", "{}"))
    assert ([("budget", "token", 100 - reserve)] if warns else []) == near(scenario)
    assert scenario.state.batch is not None


@pytest.mark.parametrize(("cost", "warns"), [(89, False), (90, True), (91, True)])
def test_near_reserve_of_money(cost: int, warns: bool) -> None:
    """A tenth of the limit, in nano-dollars."""
    limits = [{"type": "cost", "value": 100 * NANO}]
    scenario = Scenario({"limits": limits, "near": {"reserve_cost_fraction": 0.1}})
    scenario.answer("", ("look", "{}"), cost=cost)
    assert warns == bool(near(scenario))


def test_near_reserve_of_money_is_rounded_half_up() -> None:
    """0.1 x 5 nano-dollars is half a one: 1. So 4 used of 5 are near."""
    limits = [{"type": "cost", "value": 5 * NANO}]
    scenario = Scenario({"limits": limits, "near": {"reserve_cost_fraction": 0.1}})
    scenario.answer("", ("look", "{}"), cost=4)
    assert [("budget", "cost", 4)] == near(scenario)


@pytest.mark.parametrize("value", [None, 0])
def test_near_skips_limits_that_are_null_or_0(value: int | None) -> None:
    """There is nothing to be near to."""
    limits = [{"type": "token", "value": value, "op": ">", "check": "preflight"}]
    scenario = Scenario({"limits": limits, "near": {"reserve_tokens": 1000}})
    scenario.answer("", ("look", "{}"))
    assert [] == near(scenario)


@pytest.mark.parametrize(("scope", "warnings"), [("turn", 2), ("run", 1), ("lineage", 1)])
def test_near_reserves_once_a_scope(scope: str, warnings: int) -> None:
    """One warning a scope."""
    scenario = Scenario(
        {
            "limits": [{"type": "token", "value": 1000}],
            "near": {"reserve_tokens": 1000, "scope": scope},
            "end_of_turn": "wait",
        }
    )
    scenario.step()
    scenario.answer("one")
    scenario.say("more")
    scenario.step()
    assert warnings == len(near(scenario))


def test_near_is_looked_at_after_the_budgets() -> None:
    """A budget that is used up is not near: it is reached."""
    scenario = Scenario({"limits": [{"type": "token", "value": 15}], "near": {"reserve_tokens": 5}})
    scenario.answer("", ("look", "{}"))
    assert [] == near(scenario)
