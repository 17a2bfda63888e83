"""Cancelling, timing out, what is pending meanwhile, and results that come too late."""

from typing import Any

import msgspec
import pytest

from refold.reducers.effects import (
    CallModel,
    RunTool,
    Settle,
    WaitUntil,
    doubtful,
    idempotency_key,
    next_effects,
)
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import (
    CancelRequested,
    ClockRead,
    InputReceived,
    LateResult,
    NoteAdded,
    Output,
    RunForked,
    RunResumed,
    ToolReturned,
)
from refold.reducers.evolution import evolve
from refold.reducers.folds import advance
from refold.reducers.rules.order import RULES
from refold.reducers.state import NEW
from refold.reducers.vocabulary import FailureClass, ToolError
from support.scenario import SECOND, START, Scenario

LIMIT = {"type": "time", "value": 10, "credit": {"person": False}}
NO_JITTER = {"jitter": {"add": 0}}


def asking() -> Scenario:
    return Scenario({"limits": [LIMIT], "retry": NO_JITTER})


def calling() -> Scenario:
    scenario = asking()
    scenario.answer("", ("look", "{}"), ("act", "{}"))
    return scenario


def backing_off() -> Scenario:
    scenario = asking()
    scenario.fail()
    return scenario


def waiting() -> Scenario:
    scenario = Scenario({"limits": [LIMIT], "end_of_turn": "wait"})
    scenario.answer("well?")
    return scenario


def end(source: str, target: str, trigger: str, code: str, where: str) -> str:
    return f"state_changed from={source} to={target} trigger={trigger} code={code} where={where}"


@pytest.mark.parametrize(
    ("scenario", "source", "where", "settles"),
    [
        pytest.param(asking, "RUNNING", "model", [None], id="the model is being asked"),
        pytest.param(calling, "WAITING_FOR_TOOL", "tools", ["c1", "c2"], id="tools are running"),
        pytest.param(backing_off, "RUNNING", "waiting", [], id="in a back-off"),
        pytest.param(waiting, "WAITING_FOR_INPUT", "waiting", [], id="a person is asked"),
    ],
)
@pytest.mark.parametrize("how", ["cancel", "time"])
def test_stopping_in_each_state(
    scenario: Any, source: str, where: str, settles: list[str | None], how: str
) -> None:
    """What is in flight settles first, each call once; then one move, which says what was going on."""
    run = scenario()
    lines = run.cancel() if how == "cancel" else run.clock(10)
    last = (
        end(source, "CANCELLED", "cancel", "cancelled", where)
        if how == "cancel"
        else end(source, "TIMED_OUT", "time_out", "time_limit", where)
    )
    if not settles:
        assert last == lines[-1]
        return
    assert ([] if how == "cancel" else ["limit_reached"]) == [line.split()[0] for line in lines]
    assert settles == [effect.call for effect in next_effects(run.state) if isinstance(effect, Settle)]
    assert len(settles) == len(next_effects(run.state))
    if where == "model":
        assert [last] == run.fail(FailureClass.CANCELLED)
    else:
        assert [] == run.result("c2", error=ToolError.CANCELLED)
        assert [Settle(seq=4, call="c1")] == list(next_effects(run.state))
        assert [last] == run.result("c1", error=ToolError.IN_DOUBT)
    assert () == next_effects(run.state)


def test_an_answer_that_comes_while_settling_is_kept_and_its_calls_are_refused() -> None:
    """The model answers before it is cut off: the answer counts, its calls do not run."""
    run = asking()
    run.cancel()
    lines = run.answer("", ("act", "{}"))
    assert [
        "call_refused call=c1 why=skipped cause=stopped name=cancelled text=refused:stopped",
        end("RUNNING", "CANCELLED", "cancel", "cancelled", "model"),
    ] == lines
    assert 1 == run.state.spent.calls


def test_the_first_who_asks_is_named() -> None:
    """A second cancellation changes nothing; nor does a deadline that passes meanwhile."""
    run = calling()
    run.cancel(by="ann")
    assert [] == run.cancel(by="bob")
    assert [] == run.clock(60)
    run.result("c1")
    run.result("c2")
    assert run.state.outcome is not None
    assert ("cancelled", "cancelled by ann") == (run.state.outcome.code, run.state.outcome.reason)


def test_a_deadline_that_passes_before_a_failure_is_recorded() -> None:
    """After a failure past the deadline nothing is tried again: the run timed out."""
    run = asking()
    assert ["limit_reached", "state_changed"] == [line.split()[0] for line in run.fail(after=10)]
    assert "TIMED_OUT" == run.state.agent_state


def test_a_deadline_that_passes_with_the_last_result() -> None:
    """A batch that is complete only after the deadline ends the run, from where the machine was."""
    run = calling()
    run.result("c1")
    assert (
        end("WAITING_FOR_TOOL", "TIMED_OUT", "time_out", "time_limit", "between")
        == run.result("c2", after=10)[-1]
    )


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(ToolReturned(at=START, call="c7"), id="a call that was never made"),
        pytest.param(ToolReturned(at=START, call="c1"), id="a call that has its result"),
    ],
)
def test_late_results(fact: ToolReturned) -> None:
    """A result that nothing waits for is an annotation: kept, and without effect."""
    run = calling()
    run.result("c1", "first")
    before = run.state
    assert ["late_result"] == [line.split()[0] for line in run.feed(fact)]
    assert LateResult(at=fact.at, fact=fact) == run.log[-1]
    assert before == msgspec.structs.replace(run.state, seq=before.seq)


def test_late_results_after_the_end_keep_what_was_said() -> None:
    """After the end a result is kept with its words."""
    run = asking()
    run.answer("done")
    run.result("c9", "words")
    late = run.log[-1]
    assert isinstance(late, LateResult)
    assert isinstance(late.fact, ToolReturned)
    assert isinstance(late.content, Output)
    assert ("words", "c9", None) == (late.content.output, late.fact.call, late.fact.content)
    assert "COMPLETED" == run.state.agent_state


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(CancelRequested(at=START), id="cancel"),
        pytest.param(ClockRead(at=START, due=START), id="clock"),
        pytest.param(InputReceived(at=START), id="input"),
        pytest.param(RunResumed(at=START), id="resumed"),
        pytest.param(
            RunForked(at=START, run="r2", rules=RULES, parent="r1", parent_seq=4, parent_hash=""), id="forked"
        ),
    ],
)
def test_nothing_but_a_late_result_after_the_end(fact: Any) -> None:
    """A run that has ended takes no fact; to go on is to fork an earlier place."""
    run = asking()
    run.answer("done")
    with pytest.raises(UnexpectedEvent, match="has ended"):
        run.feed(fact)


def test_a_log_begins_with_its_beginning() -> None:
    """Neither a result nor an annotation can stand first: nothing could come after it."""
    with pytest.raises(UnexpectedEvent, match="begins with run_started"):
        advance(NEW, ToolReturned(at=1, call="c1"))
    with pytest.raises(UnexpectedEvent, match="begins with run_started"):
        evolve(NEW, NoteAdded(at=1, by="ann"))


def test_time_never_runs_backwards() -> None:
    """A fact that is older than the last event is refused."""
    run = asking()
    with pytest.raises(UnexpectedEvent, match="1 ns before"):
        run.feed(ClockRead(at=START - 1, due=START))


def test_input_that_nobody_asked_for() -> None:
    """A message while the model is being asked has no place."""
    with pytest.raises(UnexpectedEvent, match="does not wait for an operator"):
        asking().say("hello?")


def test_pending_effects() -> None:
    """What is pending is exactly what the log decided and has no fact of yet."""
    run = asking()
    assert (
        CallModel(seq=2, until=START + 10 * SECOND),
        WaitUntil(at=START + 10 * SECOND),
    ) == next_effects(run.state)
    run.answer("", ("look", "{}"), ("act", "{}"))
    first, second, clock = next_effects(run.state)
    assert isinstance(first, RunTool)
    assert ("c1", "look", 4) == (first.call, first.name, first.seq)
    assert isinstance(second, RunTool)
    assert "c2" == second.call
    assert WaitUntil(at=START + 10 * SECOND) == clock
    run.result("c2")
    assert (first, clock) == next_effects(run.state)
    assert (WaitUntil(at=START + SECOND), WaitUntil(at=START + 10 * SECOND)) == next_effects(
        backing_off().state
    )
    assert () == next_effects(NEW)


def test_in_order_runs_one_call_at_a_time() -> None:
    """With `batch: in_order` the next call starts when the one before it has its result."""
    run = Scenario({"batch": "in_order"})
    run.answer("", ("look", "{}"), ("act", "{}"), ("set", "{}"))
    pending = []
    for call in ("c1", "c2", "c3"):
        pending.append([effect.call for effect in next_effects(run.state) if isinstance(effect, RunTool)])
        run.result(call)
    assert [["c1"], ["c2"], ["c3"]] == pending


def test_in_order_refuses_what_was_never_begun() -> None:
    """A cancelled batch of which only the first call was begun: that one is settled, the others are
    refused.
    """
    run = Scenario({"batch": "in_order"})
    assert "tools_dispatched calls=[c1]" == run.answer("", ("act", "{}"), ("act", "{}"), ("act", "{}"))[0]
    assert ["tools_dispatched calls=[c2]"] == run.result("c1")
    assert [] == run.cancel()
    assert [
        "call_refused call=c3 why=skipped cause=stopped name=cancelled text=refused:stopped",
        "state_changed from=WAITING_FOR_TOOL to=CANCELLED trigger=cancel code=cancelled where=tools",
    ] == run.result("c2", error=ToolError.IN_DOUBT)


def test_in_order_leaves_in_doubt_only_what_was_begun() -> None:
    """After a crash the call that was begun is in doubt; those behind it were never begun, and are not."""
    run = Scenario({"batch": "in_order"})
    run.answer("", ("act", "{}"), ("act", "{}"))
    assert ("c1",) == doubtful(run.state)


def test_idempotency_keys() -> None:
    """The key of a call is the same for every attempt at it, and another for any other call or run."""
    assert idempotency_key("r1", "c1") == idempotency_key("r1", "c1")
    assert 3 == len({idempotency_key("r1", "c1"), idempotency_key("r1", "c2"), idempotency_key("r2", "c1")})
    assert 32 == len(idempotency_key("r1", "c1"))
