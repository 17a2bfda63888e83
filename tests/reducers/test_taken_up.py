"""Resuming, forking and amending: a run that goes on after a crash, elsewhere, or under another policy."""

import pytest

from refold.reducers.effects import RunTool, Settle, WaitUntil, doubtful, next_effects
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import RunForked
from refold.reducers.rules.order import RULES
from refold.reducers.vocabulary import Doubt, ToolError
from support.scenario import SECOND, START, TOOLS, Scenario


@pytest.mark.parametrize(
    ("tool", "in_doubt"),
    [
        pytest.param("look", False, id="read_only runs again"),
        pytest.param("set", False, id="idempotent runs again"),
        pytest.param("act", True, id="at_most_once never"),
        pytest.param("unheard_of", False, id="a name outside the manifest has no code"),
    ],
)
def test_what_is_in_doubt(tool: str, in_doubt: bool) -> None:
    """A started call without a result is in doubt unless its tool may run again."""
    run = Scenario()
    run.answer("", (tool, "{}"))
    assert (("c1",) if in_doubt else ()) == doubtful(run.state)


def test_resuming_with_doubt() -> None:
    """A call in doubt is settled, not run; the others run again under the same key; the run goes on."""
    run = Scenario()
    run.answer("", ("look", "{}"), ("act", "{}"))
    before = next_effects(run.state)
    assert [] == run.resume("c2", downtime=60)
    assert (before[0], Settle(seq=4, call="c2")) == next_effects(run.state)
    assert () == doubtful(run.state)
    assert [] == run.resolve("c2", Doubt.UNKNOWN)
    assert [] == run.result("c2", error=ToolError.IN_DOUBT)
    assert [
        "state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done",
        "model_requested step=2 attempt=1 messages=[[1 5]]",
    ] == run.result("c1")
    assert 60 * SECOND == run.state.spent.downtime


@pytest.mark.parametrize("call", ["c9", "c1"])
def test_doubt_about_a_call_that_is_not_open(call: str) -> None:
    """Neither an unknown call nor one with a result can be in doubt."""
    run = Scenario()
    run.answer("", ("act", "{}"), ("act", "{}"))
    run.result("c1")
    with pytest.raises(UnexpectedEvent, match=f"no call {call} is open"):
        run.resume(call)


def test_only_a_doubt_can_be_resolved() -> None:
    """Nobody resolves what is not in doubt."""
    run = Scenario()
    run.answer("", ("act", "{}"))
    with pytest.raises(UnexpectedEvent, match="not in doubt"):
        run.resolve("c1", Doubt.HAPPENED)


def test_a_model_call_in_doubt_is_made_again() -> None:
    """After a crash the same request is pending."""
    run = Scenario()
    before = next_effects(run.state)
    run.resume(downtime=5)
    assert before == next_effects(run.state)


def test_a_fork_goes_on_where_the_prefix_stood() -> None:
    """What is pending in the prefix is pending in the fork; what the fork does not change stays."""
    run = Scenario({"retry": {"jitter": {"add": 0}}})
    run.answer("", ("look", "{}"))
    before = next_effects(run.state)[0]
    assert isinstance(before, RunTool)
    assert [] == run.fork(seed=9)
    (after,) = next_effects(run.state)
    assert isinstance(after, RunTool)
    assert (before.call, before.key, before.seq) == (after.call, after.key, after.seq)
    setup = run.state.setup
    assert ("r2", 9, "m", TOOLS) == (setup.run, setup.seed, setup.model, setup.tools)
    assert [
        "state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done",
        "model_requested step=2 attempt=1 messages=[[1 4]]",
    ] == run.result("c1")


def test_a_fork_under_another_policy() -> None:
    """The fork's own policy decides from the fork on."""
    run = Scenario()
    run.fork({"end_of_turn": "wait"})
    run.answer("hi")
    assert "WAITING_FOR_INPUT" == run.state.agent_state


def test_a_fork_names_its_place() -> None:
    """A fork that claims another place in its parent's log is refused."""
    run = Scenario()
    fact = RunForked(at=START, run="r2", rules=RULES, parent="r1", parent_seq=1, parent_hash="")
    with pytest.raises(UnexpectedEvent, match="forks at event 1, not at 2"):
        run.feed(fact)


def test_an_amended_policy_is_in_force_from_there_on() -> None:
    """An amendment derives nothing by itself; the next decision follows the new policy."""
    run = Scenario()
    assert [] == run.amend({"limits": [{"type": "step", "value": 1}]})
    run.answer("", ("look", "{}"))
    assert (
        "state_changed from=RUNNING to=MAX_STEPS trigger=exhaust_steps code=step_limit"
        == run.result("c1")[-1]
    )


def test_an_amended_time_limit_moves_the_deadline() -> None:
    """More time, given while the model is being asked, is waited for."""
    run = Scenario({"limits": [{"type": "time", "value": 10}]})
    run.amend({"limits": [{"type": "time", "value": 30}]})
    assert WaitUntil(at=START + 30 * SECOND) in next_effects(run.state)
    assert [] == run.clock(20)
