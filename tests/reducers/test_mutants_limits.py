"""Edges of limits that only a mutant showed: what another attempt is given, a clock that stands.

Each of these held a comparison or a number that could be another without any other test minding.
"""

from typing import Any

import pytest

from refold.reducers.events import ModelFailed, ModelRequested
from refold.reducers.messages import Usage
from refold.reducers.meters import used
from refold.reducers.vocabulary import FailureClass
from support.scenario import SECOND, START, Scenario

TEN = {"limits": [{"type": "time", "value": 10}], "retry": {"initial": 0.125, "jitter": {"add": 0}}}
"""Ten seconds, and an eighth of a second before another attempt. A call gets a second at least."""


def second_attempt(began: float, failed: float) -> Scenario:
    """A step's request begins, fails, and is tried again an eighth of a second later."""
    scenario = Scenario(TEN)
    scenario.step()
    scenario.answer("", ("look", "{}"), after=began)
    scenario.result("c2")
    scenario.fail(after=failed - began)
    scenario.clock(0.125)
    return scenario


@pytest.mark.parametrize(
    ("began", "failed", "deadline"),
    [
        pytest.param(9.5, 9.625, 10.5, id="before the limit: until when the first attempt had been given"),
        pytest.param(9.5, 10.25, 10.5, id="after the limit: still so, and no second more"),
        pytest.param(9.5, 10.375, 10.5, id="at that very instant: no time is left"),
        pytest.param(5, 9.5, 10, id="the first was given more than the minimum: until the limit"),
    ],
)
def test_another_attempt_is_not_given_the_minimum_again(began: float, failed: float, deadline: float) -> None:
    """What the first attempt was given bounds the next ones."""
    request = second_attempt(began, failed).events(ModelRequested)[-1]
    assert 2 == request.attempt
    assert START + int(deadline * SECOND) == request.deadline


@pytest.mark.parametrize(
    "limit", [{"type": "token", "value": 15}, {"type": "cost", "value": 0.000000007}], ids=["tokens", "cost"]
)
def test_what_a_failure_cost_is_looked_at(limit: dict[str, Any]) -> None:
    """A budget that a failed request used up ends the run at once."""
    scenario = Scenario({"limits": [limit]})
    assert scenario.state.request is not None
    spent = Usage(input=10, output=5)
    asked = scenario.state.request.seq
    fact = ModelFailed(at=START, request=asked, failure=FailureClass.OVERLOADED, usage=spent, cost_nanousd=7)
    scenario.feed(fact)
    assert "BUDGET_EXCEEDED" == scenario.state.agent_state


@pytest.mark.parametrize(("late", "state"), [(False, "BUDGET_EXCEEDED"), (True, "TIMED_OUT")])
def test_after_a_failure_time_comes_before_budgets(late: bool, state: str) -> None:
    """Where a failed request used up both the time and a budget, the run timed out."""
    limits = [{"type": "token", "value": 15}, {"type": "time", "value": 10}]
    scenario = Scenario({"limits": limits})
    assert scenario.state.request is not None
    fact = ModelFailed(
        at=START + (10 * SECOND if late else 0),
        request=scenario.state.request.seq,
        failure=FailureClass.OVERLOADED,
        usage=Usage(input=10, output=5),
    )
    scenario.feed(fact)
    assert state == scenario.state.agent_state


@pytest.mark.parametrize(("op", "state"), [(">=", "TIMED_OUT"), (">", "RUNNING")])
def test_before_the_first_response_exactly_nothing_has_elapsed(op: str, state: str) -> None:
    """A limit of 0 seconds that counts from the first response trips at once with `>=`, and with `>` does
    not.
    """
    scenario = Scenario({"limits": [{"type": "time", "value": 0, "op": op, "clock": "first_response"}]})
    assert state == scenario.state.agent_state
    assert 0 == used(scenario.state.policy.limits[0], scenario.state)
