"""Digests of the state: what one holds, all that a later decision may go by, and when one is recorded."""

from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers.errors import NewerLog
from refold.reducers.events import (
    ApprovalRequested,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    NoteAdded,
    RetryScheduled,
    StateDigested,
    SummaryRequested,
    SummaryReturned,
    kind_of,
)
from refold.reducers.evolution import evolve, state_digest
from refold.reducers.folds import fold
from refold.reducers.limits import LimitHit, LimitUnit
from refold.reducers.machine import AgentState, Trigger
from refold.reducers.messages import Gap, Size, TextCut
from refold.reducers.state import (
    Batch,
    CallState,
    LastAnswer,
    LastFailure,
    Mark,
    Observed,
    Pending,
    Remembered,
    RunState,
    Spent,
    Stopping,
)
from refold.reducers.vocabulary import FailureClass, Role, StopReason
from refold.reducers.window import MessageRef, Shown, append, digest_references, refs
from support.scenario import Scenario

ASKED = ModelRequested(step=1, attempt=1, view="", messages=(), input_tokens=0)
FAILED = ModelFailed(at=1, request=2, failure=FailureClass.TIMEOUT)
RESPONDED = ModelResponded(at=1, request=2, stop=StopReason.END_TURN)
WAITS = RetryScheduled(attempt=2, delay=1, until=9, failure=FailureClass.TIMEOUT)
HIT = LimitHit(
    name="step", type="step", measure="usage", scope="run", check="preflight", op=">=", unit=LimitUnit.STEPS,
    value=1, used=1, exceeded_by=0, at=1, step=1,
)  # fmt: skip


def waiting(event: Any) -> Any:
    return Pending(seq=2, at=1, until=3, event=event)


OTHER: dict[str, Any] = {
    "seq": 99,
    "at": 99,
    "fact_at": 99,
    "agent_state": AgentState.WAITING_FOR_TOOL,
    "came_from": AgentState.RUNNING,
    "window": append(
        Scenario({}).state.window, MessageRef(number=9, role=Role.USER, seq=1, unit=9, size=Size())
    ),
    "messages": 99,
    "spent": Spent(steps=99),
    "lineage": Mark(at=99),
    "origin": Mark(at=99),
    "turn": Mark(at=99),
    "step": Mark(at=99),
    "model": "other",
    "parts": (3,),
    "failed_at": 9,
    "overflowed": True,
    "eased": True,
    "pruned_by": "tail",
    "deferred": HIT,
    "summary": waiting(SummaryRequested(name="s", messages=((1, 1),))),
    "summed_up": Remembered(seq=3, event=SummaryReturned(at=1, request=2, size=Size())),
    "approval": waiting(ApprovalRequested(guard="approvals", calls=("c1",), approver="chain[0]")),
    "observed": Observed(upto=3),
    "request": waiting(replace(ASKED, attempt=2)),
    "batch": Batch(seq=3, number=3, calls=(CallState(id="c1", name="look", position=0),)),
    "backoff": waiting(WAITS),
    "asked_at": 9,
    "stopping": Stopping(trigger=Trigger.CANCEL, code="cancelled", reason="cancelled by ann", where="model"),
    "answer": LastAnswer(seq=3, event=RESPONDED, asked=ASKED),
    "failure": LastFailure(seq=3, event=FAILED, asked=waiting(ASKED)),
    "limit": HIT,
    "unattended": True,
    "no_request": True,
}
"""Of each field another value than a run has that has just begun."""

ELSEWHERE = {
    "setup": "the events that founded the run say it",
    "guards": "each guard's own state has a digest of its own",
    "digested": "the number of the event that holds the digest",
    "outcome": "a run that has ended is not digested",
}


@pytest.mark.parametrize("field", sorted(set(RunState.__struct_fields__) - ELSEWHERE.keys()))
def test_no_field_of_the_state_is_left_out(field: str) -> None:
    """States that differ in one field have other digests, whatever field it is."""
    state = Scenario({}).state
    assert OTHER[field] != getattr(state, field)
    assert state_digest(state).state != state_digest(replace(state, **{field: OTHER[field]})).state


REF: dict[str, Any] = {
    "number": 9,
    "role": Role.TOOL,
    "seq": 9,
    "part": 9,
    "unit": 9,
    "size": Size(chars=9),
    "call": "c9",
    "pinned": False,
    "preview": 9,
    "gap": Gap(covers=9),
    "sources": (MessageRef(number=1, role=Role.USER, seq=1, unit=1, size=Size()),),
}


@pytest.mark.parametrize("field", MessageRef.__struct_fields__)
def test_no_field_of_a_reference_is_left_out(field: str) -> None:
    """Windows of which one reference differs in one field have other digests in the state's, whatever field
    it is.
    """
    state = Scenario({}).state
    first, *rest = refs(state.window)
    if field == "shown":
        other: Any = shown()
    else:
        other = REF[field]
    changed = replace(first, **{field: other})
    assert first != changed
    again = state.window
    for ref in (changed, *rest):
        again = append(again, ref)
    before = state.window
    for ref in (first, *rest):
        before = append(before, ref)
    assert digest_references(before) != digest_references(again)
    assert (
        state_digest(replace(state, window=before)).state != state_digest(replace(state, window=again)).state
    )


def shown() -> Shown:
    return Shown(seq=9, whole=Size(chars=9), cuts=(TextCut(head=1, tail=1),))


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
    run = Scenario()
    one = state_digest(run.state).state
    run.resume()
    assert one != state_digest(run.state).state
    assert state_digest(fold(run.log)).state == state_digest(run.state).state


def test_a_digest_under_unknown_rules_cannot_be_judged() -> None:
    """What a newer version digests is not known here: that is said, and nothing is claimed."""
    state = Scenario().state
    newer = replace(state, setup=replace(state.setup, rules=99))
    with pytest.raises(NewerLog, match="decision rules version 99"):
        state_digest(newer)
