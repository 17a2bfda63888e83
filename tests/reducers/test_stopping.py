"""Cancelling, timing out, resuming, forking, amending, and results that come too late."""

from typing import Any

import msgspec
import pytest

from refold.reducers.checkpoint import state_digest
from refold.reducers.effects import (
    CallModel,
    RunTool,
    Settle,
    WaitUntil,
    doubtful,
    idempotency_key,
    next_effects,
)
from refold.reducers.errors import NewerLog, UnexpectedEvent
from refold.reducers.events import (
    CancelRequested,
    ClockRead,
    InputReceived,
    LateResult,
    ModelRequested,
    NoteAdded,
    Output,
    RunForked,
    RunResumed,
    StateDigested,
    ToolReturned,
    kind_of,
)
from refold.reducers.evolution import evolve
from refold.reducers.folds import advance, fold
from refold.reducers.rules.order import RULES
from refold.reducers.state import NEW
from refold.reducers.vocabulary import Doubt, FailureClass, ToolError
from support.scenario import SECOND, START, TOOLS, Scenario

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
    with pytest.raises(UnexpectedEvent, match="not waiting for a person"):
        asking().say("hello?")


# Effects


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
    """A cancelled batch of which only the first call was begun: that one is settled, the others are refused."""
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


# Resuming


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


# Forks and amendments


def test_a_fork_goes_on_where_the_prefix_stood() -> None:
    """What is pending in the prefix is pending in the fork; what the fork does not change stays."""
    run = Scenario({"retry": NO_JITTER})
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
    run = asking()
    run.amend({"limits": [{"type": "time", "value": 30}]})
    assert WaitUntil(at=START + 30 * SECOND) in next_effects(run.state)
    assert [] == run.clock(20)


# Digests


def test_a_digest_every_256_events() -> None:
    """A group of events that ends 256 events or more after the last digest ends with the next."""
    run = Scenario({"limits": []})
    for number in range(1, 160):
        run.answer("", ("look", "{}"))
        run.result(f"c{number}")
    seqs = [seq for seq, event in enumerate(run.log, 1) if isinstance(event, StateDigested)]
    assert 3 == len(run.log) // 256
    assert 3 == len(seqs)
    for last, seq in zip((0, *seqs), seqs, strict=False):
        assert 256 <= seq - 1 - last < 256 + 5
        before = run.log[seq - 2]
        assert isinstance(before, ModelRequested) or kind_of(before) == "state_changed"


def test_annotations_do_not_put_off_a_digest() -> None:
    """Whatever lies between: the first group that ends far enough after the last digest has one."""
    run = Scenario({"limits": []})
    state = run.state
    for place in range(300):
        state = evolve(state, NoteAdded(at=run.at + place, by="me"))
    run.state = state
    run.now += 1
    assert run.answer("", ("look", "{}"))[-1].startswith("state_digested")


def test_digests_tell_states_apart() -> None:
    """Two states that differ in a number, an instant or the window have different digests."""
    from refold.reducers.checkpoint import state_digest

    run = Scenario()
    one = state_digest(run.state).state
    run.resume()
    assert one != state_digest(run.state).state
    assert state_digest(fold(run.log)).state == state_digest(run.state).state


def test_a_digest_under_unknown_rules_cannot_be_judged() -> None:
    """What a newer version digests is not known here: that is said, and nothing is claimed."""
    state = asking().state
    newer = msgspec.structs.replace(state, setup=msgspec.structs.replace(state.setup, rules=99))
    with pytest.raises(NewerLog, match="decision rules version 99"):
        state_digest(newer)
