"""Edges of limits that only a mutant showed: time once promised, the first version of the rules, a clock that stands.

Each of these held a comparison or a number that could be another without any other test minding.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers.effects import WaitUntil, next_effects
from refold.reducers.events import ModelFailed, ModelRequested
from refold.reducers.messages import Usage
from refold.reducers.rules.order import RULES
from refold.reducers.usage import used
from refold.reducers.vocabulary import FailureClass
from support.scenario import SECOND, START, Scenario

TEN = {"limits": [{"type": "time", "value": 10}], "retry": {"initial": 0.125, "jitter": {"add": 0}}}
"""Ten seconds, and an eighth of a second before another attempt. A call gets a second at least."""


def under(rules: int, policy: dict[str, Any]) -> Scenario:
    """A run that was started under this version of the rules."""
    scenario = Scenario(policy)
    scenario.state = replace(scenario.state, setup=replace(scenario.state.setup, rules=rules))
    return scenario


def second_attempt(rules: int, began: float, failed: float) -> Scenario:
    """A step's request begins, fails, and is tried again an eighth of a second later."""
    scenario = under(rules, TEN)
    scenario.step()
    scenario.answer("", ("look", "{}"), after=began)
    scenario.result("c2")
    scenario.fail(after=failed - began)
    scenario.clock(0.125)
    return scenario


@pytest.mark.parametrize(
    ("rules", "began", "failed", "deadline"),
    [
        pytest.param(2, 9.5, 9.625, 10.5, id="before the limit: until when the first attempt had been given"),
        pytest.param(2, 9.5, 10.25, 10.5, id="after the limit: still so, and no second more"),
        pytest.param(2, 9.5, 10.375, 10.5, id="at that very instant: no time is left"),
        pytest.param(2, 5, 9.5, 10, id="the first was given more than the minimum: until the limit"),
        pytest.param(1, 9.5, 9.625, 10.75, id="version 1: the minimum anew"),
    ],
)
def test_another_attempt_is_not_given_the_minimum_again(
    rules: int, began: float, failed: float, deadline: float
) -> None:
    """What the first attempt was given bounds the next ones; under version 1 each began with its own minimum."""
    request = second_attempt(rules, began, failed).events(ModelRequested)[-1]
    assert 2 == request.attempt
    assert START + int(deadline * SECOND) == request.deadline


@pytest.mark.parametrize(("rules", "at"), [(1, 10), (2, 10.500000001)])
def test_promised_time_is_cut_off_only_under_version_1(rules: int, at: float) -> None:
    """A batch has its minimum though the limit trips before; under version 1 the limit's instant ended it."""
    scenario = under(rules, TEN)
    scenario.answer("", ("look", "{}"), after=9.5)
    instant = START + round(at * SECOND)
    assert [WaitUntil(at=instant)] == [
        effect for effect in next_effects(scenario.state) if isinstance(effect, WaitUntil)
    ]
    scenario.now = at
    assert bool(scenario.clock(0))


@pytest.mark.parametrize(("rules", "state"), [(1, "RUNNING"), (2, "BUDGET_EXCEEDED")])
@pytest.mark.parametrize(
    "limit", [{"type": "token", "value": 15}, {"type": "cost", "value": 0.000000007}], ids=["tokens", "cost"]
)
def test_what_a_failure_cost_is_looked_at_since_version_2(
    limit: dict[str, Any], rules: int, state: str
) -> None:
    """A budget that a failed request used up ends the run at once; under version 1 nobody looked."""
    scenario = under(rules, {"limits": [limit]})
    assert scenario.state.request is not None
    spent = Usage(input=10, output=5)
    asked = scenario.state.request.seq
    fact = ModelFailed(at=START, request=asked, failure=FailureClass.OVERLOADED, usage=spent, cost_nanousd=7)
    scenario.feed(fact)
    assert state == scenario.state.agent_state


@pytest.mark.parametrize(("late", "state"), [(False, "BUDGET_EXCEEDED"), (True, "TIMED_OUT")])
def test_after_a_failure_time_comes_before_budgets(late: bool, state: str) -> None:
    """Where a failed request used up both the time and a budget, the run timed out."""
    limits = [{"type": "token", "value": 15}, {"type": "time", "value": 10}]
    scenario = under(RULES, {"limits": limits})
    assert scenario.state.request is not None
    fact = ModelFailed(
        at=START + (10 * SECOND if late else 0),
        request=scenario.state.request.seq,
        failure=FailureClass.OVERLOADED,
        usage=Usage(input=10, output=5),
    )
    scenario.feed(fact)
    assert state == scenario.state.agent_state


def test_version_1_looks_at_limits_on_the_answer() -> None:
    """All but what version 2 added is asked under version 1 too."""
    scenario = under(1, {"limits": [{"type": "token", "value": 15}]})
    scenario.answer("", ("look", "{}"))
    assert "BUDGET_EXCEEDED" == scenario.state.agent_state


@pytest.mark.parametrize(("op", "state"), [(">=", "TIMED_OUT"), (">", "RUNNING")])
def test_before_the_first_response_exactly_nothing_has_elapsed(op: str, state: str) -> None:
    """A limit of 0 seconds that counts from the first response trips at once with `>=`, and with `>` does not."""
    scenario = Scenario({"limits": [{"type": "time", "value": 0, "op": op, "clock": "first_response"}]})
    assert state == scenario.state.agent_state
    assert 0 == used(scenario.state.policy.limits[0], scenario.state)
