"""Approvals in whole runs: what a person is asked, what may run meanwhile, and what follows from an
answer.
"""

from typing import Any

import pytest

from refold.reducers.composition import approved
from refold.reducers.effects import RunTool, WaitUntil, next_effects
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import ApprovalAnswered, CallRefused, Manifest, ModelResponded
from refold.reducers.pending import find
from support.scenario import SECOND, START, Scenario

ASK = {"approver": "human"}


def scenario(*chain: dict[str, Any], **policy: Any) -> Scenario:
    return Scenario({"approvals": {"chain": list(chain)}, **policy})


def answer(run: Scenario, answers: dict[str, Any], *, after: float = 0, **arguments: str) -> list[str]:
    run.now += after
    return run.feed(approved(run.state, ApprovalAnswered(at=run.at), answers, arguments, "a note", b"salt"))


LOOK, ACT = ("look", "{}"), ("act", '{"what": "paint"}')
ASKS_FOR_ACT = {**ASK, "tools": ["act"]}
REST = {"approver": "approve"}
ASKED = "state_changed from=RUNNING to=WAITING_FOR_INPUT trigger=ask code=approval"
ANSWERED = "state_changed from=WAITING_FOR_INPUT to=RUNNING trigger=answered code=answered"
UNANSWERED = "state_changed from=WAITING_FOR_INPUT to=RUNNING trigger=answered code=unanswered"
CALLED = "state_changed from=RUNNING to=WAITING_FOR_TOOL trigger=call_tools code=tool_use"


def test_no_call_of_a_batch_starts_before_all_are_decided() -> None:
    """What is approved waits with what is asked about; then all that may run starts at once."""
    run = scenario(ASKS_FOR_ACT, REST)
    assert ["approval_requested guard=approvals calls=[c2] approver=chain[0]", ASKED] == run.answer(
        "", LOOK, ACT
    )
    assert () == next_effects(run.state)
    assert [ANSWERED, "tools_dispatched calls=[c1 c2]", CALLED] == answer(
        run, {"c2": "approve"}, after=3 * 86_400
    )
    assert 3 * 86_400 * SECOND == run.state.spent.person_wait


def test_a_batch_of_which_a_person_rejects_a_part() -> None:
    """The model is told that the call was rejected, and no more; the others run."""
    run = scenario(ASKS_FOR_ACT, REST)
    run.answer("", LOOK, ACT)
    assert [
        ANSWERED,
        "call_refused call=c2 why=rejected cause=guard name=approvals text=refused:rejected code=rejected measured={link:0}",
        "tools_dispatched calls=[c1]",
        CALLED,
    ] == answer(run, {"c2": "reject"})
    refusal = next(event for event in run.log if isinstance(event, CallRefused))
    assert refusal.content is not None
    assert refusal.content.texts[0].startswith("rejected")
    assert "a note" not in refusal.content.texts[0]


def test_a_batch_that_is_rejected_whole_goes_back_to_the_model() -> None:
    """With nothing left to run the model is asked again."""
    run = scenario({"approver": "reject"})
    assert [
        "call_refused call=c1 why=rejected cause=guard name=approvals text=refused:rejected code=rejected measured={link:0}",
        "model_requested step=2 attempt=1 messages=[[1 4]]",
    ] == run.answer("", ACT)


def test_an_edited_call_runs_with_the_new_arguments() -> None:
    """The effect names the event that has them; the model's own text stays in its message."""
    run = scenario(ASK)
    run.answer("", ACT)
    answer(run, {"c1": "edit"}, c1='{"what": "clean"}')
    (effect,) = next_effects(run.state)
    assert isinstance(effect, RunTool)
    edited = run.log[find(run.state, "", effect.call).edited - 1]
    assert isinstance(edited, ApprovalAnswered)
    assert edited.content is not None
    assert {"c1": '{"what": "clean"}'} == edited.content.arguments
    assert run.state.batch is not None
    said = run.log[run.state.batch.seq - 1]
    assert isinstance(said, ModelResponded)
    assert said.content is not None
    assert (ACT[1],) == said.content.arguments


def test_what_is_left_out_is_asked_again() -> None:
    """A second question about the calls that have no answer yet, with a time of its own."""
    run = scenario({**ASK, "timeout": 60})
    run.answer("", ACT, ACT)
    assert [
        ANSWERED,
        "approval_requested guard=approvals calls=[c2] approver=chain[0] deadline=+70s",
        ASKED,
    ] == answer(run, {"c1": "approve"}, after=10)
    assert [ANSWERED, "tools_dispatched calls=[c1 c2]", CALLED] == answer(run, {"c2": "approve"})


def test_silence() -> None:
    """The engine waits for the deadline; a clock read then is the answer, one read before is none."""
    run = scenario({**ASK, "timeout": 60}, limits=[{"type": "time", "value": 10}])
    run.answer("", ACT)
    assert (WaitUntil(at=START + 60 * SECOND),) == next_effects(run.state)
    assert [] == run.clock(59)
    assert [
        UNANSWERED,
        "call_refused call=c1 why=rejected cause=guard name=approvals text=refused:rejected code=rejected measured={link:0}",
        "model_requested step=2 attempt=1 messages=[[1 4]] deadline=+70s",
    ] == run.clock(1)


@pytest.mark.parametrize("late", [False, True], ids=["in words", "by silence"])
def test_a_person_ends_the_run(*, late: bool) -> None:
    """The call is rejected, its neighbours are skipped, each has its one result; then ERROR."""
    run = scenario({**ASKS_FOR_ACT, "timeout": 60, "on_timeout": "terminate"}, REST)
    run.answer("", LOOK, ACT)
    lines = run.clock(60) if late else answer(run, {"c2": "terminate"})
    assert [
        UNANSWERED if late else ANSWERED,
        "call_refused call=c2 why=rejected cause=guard name=approvals text=refused:rejected code=terminated measured={link:0}",
        "guard_tripped guard=approvals verdict=stop code=approval_terminated",
        "call_refused call=c1 why=skipped cause=guard name=approvals text=refused:terminated",
        "state_changed from=RUNNING to=ERROR trigger=fail code=approval_terminated",
    ] == lines


def test_a_run_that_is_cancelled_while_a_person_is_asked() -> None:
    """Nothing runs: the calls are refused, and the run is cancelled where it waited."""
    run = scenario(ASK)
    run.answer("", ACT)
    lines = run.cancel()
    assert "call_refused call=c1 why=skipped cause=stopped name=cancelled text=refused:stopped" == lines[0]
    assert lines[-1].startswith("state_changed from=WAITING_FOR_INPUT to=CANCELLED")


def test_calls_one_after_the_other_are_approved_together() -> None:
    """`in_order`, all are decided before the first runs, and none is asked about again."""
    run = scenario(ASK, batch="in_order")
    run.answer("", ACT, ACT)
    assert [ANSWERED, "tools_dispatched calls=[c1]", CALLED] == answer(
        run, {"c1": "approve", "c2": "approve"}
    )
    assert ["tools_dispatched calls=[c2]"] == run.result("c1")


def test_an_answer_about_calls_and_a_message_are_not_the_same() -> None:
    """Who is asked about calls cannot answer with a message: nothing is recorded."""
    run = scenario(ASK)
    run.answer("", ACT)
    before = run.state
    with pytest.raises(UnexpectedEvent, match="an approval"):
        run.say("go on")
    assert before == run.state


@pytest.mark.parametrize(
    ("policy", "word", "expected"),
    [
        pytest.param(None, "approve", "tools_dispatched calls=[c1]", id="under the same approvals"),
        pytest.param(None, "escalate", "tools_dispatched calls=[c1]", id="the chain goes on"),
        pytest.param([{"approver": "reject"}], "approve", "tools_dispatched calls=[c1]", id="under others"),
        pytest.param([REST], "escalate", "code=no_approval", id="others never saw the call"),
    ],
)
def test_a_fork_goes_on_with_the_question(
    policy: list[dict[str, Any]] | None, word: str, expected: str
) -> None:
    """A fork may be answered; other approvals let nothing run that they never saw, but what a person
    approves.
    """
    run = scenario(ASK, REST)
    run.answer("", ACT)
    assert [] == run.fork(None if policy is None else {"approvals": {"chain": policy}})
    assert any(expected in line for line in answer(run, {"c1": word}))


def test_handoff_comes_before_the_gate() -> None:
    """Of a handoff and others only the handoff meets the chain, under `dev` and `prod` alike."""
    tools = tuple(Manifest(name=name) for name in ("transfer_to_a", "transfer_to_b", "bash"))
    for preset in ("dev", "prod"):
        policy = {"approvals": {"preset": preset}, "guards": [{"guard": "handoff"}]}
        lines = Scenario(policy, tools=tools).answer(
            "", ("transfer_to_a", "{}"), ("transfer_to_b", "{}"), ("bash", "{}")
        )
        assert ["call_refused call=c2", "call_refused call=c3"] == [line[:20] for line in lines[:2]]
        assert "tools_dispatched calls=[c1]" == lines[2]
