"""What counts against a limit: since a turn, a run or a lineage began."""

import pytest

from refold.reducers.meters import used
from support.scenario import SECOND, Scenario


@pytest.mark.parametrize(
    ("scope", "steps"),
    [
        pytest.param("turn", 1, id="a turn begins with a person's message"),
        pytest.param("run", 2, id="a run does not"),
        pytest.param("lineage", 2, id="nor does the lineage"),
    ],
)
def test_scopes_within_a_run(scope: str, steps: int) -> None:
    """Steps count since the scope began: a turn anew with each message of a person."""
    scenario = Scenario({"limits": [{"type": "step", "value": 2, "scope": scope}], "end_of_turn": "wait"})
    scenario.answer("one")
    scenario.say("again")
    scenario.answer("two")
    scenario.say("and again")
    ended = scenario.state.agent_state == "MAX_STEPS"
    assert (scope != "turn") == ended
    assert steps == (2 if ended else scenario.state.spent.steps - scenario.state.turn.spent.steps)


@pytest.mark.parametrize(
    ("scope", "continues"),
    [
        pytest.param("turn", True, id="turn"),
        pytest.param("run", True, id="run"),
        pytest.param("lineage", False, id="lineage inherits what the prefix spent"),
    ],
)
def test_scopes_across_a_fork(scope: str, continues: bool) -> None:
    """In a fork a turn and the run count from the fork on, the lineage from the very start."""
    scenario = Scenario({"limits": [{"type": "token", "value": 40, "scope": scope}]})
    scenario.answer("", ("look", "{}"), usage=(20, 10))
    scenario.fork()
    scenario.result("c1")
    scenario.answer("done", usage=(5, 5))
    assert ("COMPLETED" if continues else "BUDGET_EXCEEDED") == scenario.state.agent_state


@pytest.mark.parametrize(
    ("kind", "before_say", "turn", "run", "lineage"),
    [
        pytest.param("step", 1, 0, 0, 1, id="step"),
        pytest.param("token", 15, 0, 0, 15, id="token"),
        pytest.param("cost", 2, 0, 0, 2, id="cost"),
    ],
)
def test_what_is_used_by_scope(kind: str, before_say: int, turn: int, run: int, lineage: int) -> None:
    """A person's message begins a turn; a fork a turn and a run; the lineage never begins anew."""
    limits = [
        {"type": kind, "name": scope, "value": None, "scope": scope} for scope in ("turn", "run", "lineage")
    ]
    scenario = Scenario({"limits": limits, "end_of_turn": "wait"})

    def amounts() -> list[int]:
        return [used(limit, scenario.state) for limit in scenario.state.policy.limits]

    scenario.answer("one", cost=2)
    assert [before_say] * 3 == amounts()
    scenario.say("more")
    step = kind == "step"  # the request that follows is a step of the new turn
    assert [step, before_say + step, before_say + step] == amounts()
    scenario.answer("two", cost=2)
    scenario.fork()
    assert [turn, run, 2 * lineage] == amounts()


@pytest.mark.parametrize(
    ("scope", "expected"), [("turn", 1), ("run", 4), ("lineage", 4)], ids=["turn", "run", "lineage"]
)
def test_time_by_scope(scope: str, expected: int) -> None:
    """Time counts since the scope began."""
    limit = {"type": "time", "value": None, "scope": scope, "credit": {"person": False}}
    scenario = Scenario({"limits": [limit], "end_of_turn": "wait"})
    scenario.answer("one", after=1)
    scenario.say("more", after=2)
    scenario.answer("two", after=1)
    assert expected * SECOND == used(scenario.state.policy.limits[0], scenario.state)
