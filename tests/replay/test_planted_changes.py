"""The gate: a change planted in a decision is found where it was planted, and called what it is.

Each log was written by a real engine and is rewritten by somebody who may write the store, so the chain holds
and `verify` has nothing to say: only deriving the decisions again can tell. Expectations are written by hand.
"""

from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from refold.reducers.events import (
    DECISIONS,
    ApprovalRequested,
    CallRefused,
    ContentErased,
    Decision,
    GuardTripped,
    HistoryPruned,
    MessageInjected,
    MessageTrimmed,
    ModelRequested,
    RetryScheduled,
    StateChanged,
    StateDigested,
    SummaryRequested,
    ToolsDispatched,
    kind_of,
)
from refold.reducers.events.decisions import RequestText, Said
from refold.reducers.limits import LimitHit
from refold.reducers.machine import AgentState, Trigger
from refold.reducers.messages import Gap, Size, TokenCut
from refold.reducers.vocabulary import Cause, FailureClass, Refusal, Role, Verdict
from refold.replay import Audit, DecisionDifference, Finding, audit, verify
from refold.store import MemoryStore, SqliteStore
from refold.store.protocol import Record
from support import runs
from support.forging import (
    Forgery,
    changed,
    doubled,
    dropped,
    event_of,
    invented,
    recorded,
    records_of,
    swapped,
    write,
)
from support.planted import rarer_kinds

pytestmark = pytest.mark.anyio

CHANGED, MISSING, EXTRA, REORDERED = (
    DecisionDifference.CHANGED,
    DecisionDifference.MISSING,
    DecisionDifference.EXTRA,
    DecisionDifference.REORDERED,
)


@pytest.fixture(scope="module")
async def short_log() -> list[Record]:
    """The log of the transcript in `support.runs`."""
    store = MemoryStore()
    await runs.recorded_run(store)
    return await records_of(store, runs.RUN)


@pytest.fixture(scope="module")
async def long_log() -> list[Record]:
    """A log with a state digest."""
    store = MemoryStore()
    await runs.recorded_run(store, runs.LONG_SCRIPT, runs.LONG_POLICY)
    return await records_of(store, runs.RUN)


async def audited(log: list[Record]) -> Audit:
    store = MemoryStore()
    await write(store, runs.RUN, log)
    return await audit(store, runs.RUN)


def first(found: Audit) -> tuple[int, DecisionDifference, str, tuple[str, ...]]:
    finding: Finding = found.findings[0]
    return finding.seq, finding.difference, finding.kind, finding.fields


async def test_the_log_is_the_one_that_is_expected(short_log: list[Record]) -> None:
    """The engine wrote exactly the transcript that the expectations below count on."""
    assert list(runs.TRANSCRIPT) == [f"{seq} {record.kind}" for seq, record in enumerate(short_log, 1)]


async def test_an_unchanged_log_is_clean(short_log: list[Record], long_log: list[Record]) -> None:
    """A log that nobody changed audits clean, and every decision in it was derived again."""
    short, long = await audited(short_log), await audited(long_log)
    assert (True, 28, 10, 18, 0, "ERROR") == (
        short.clean,
        short.events,
        short.facts,
        short.decisions,
        short.differences,
        short.agent_state,
    )
    assert (True, 0, "COMPLETED") == (long.clean, long.differences, long.agent_state)


CHANGES: list[tuple[int, dict[str, Any], type[Decision]]] = [
    (2, {"input_tokens": 1}, ModelRequested),
    (2, {"step": 2}, ModelRequested),
    (4, {"delay": 5}, RetryScheduled),
    (6, {"attempt": 3}, ModelRequested),
    (8, {"calls": ("c1",)}, ToolsDispatched),
    (8, {"deadline": 99}, ToolsDispatched),
    (9, {"reason": "because I say so"}, StateChanged),
    (12, {"code": "lunch"}, StateChanged),
    (13, {"view": "00" * 32}, ModelRequested),
    (15, {"cause": Cause.NUDGE}, MessageInjected),
    (15, {"content": Said(texts=("[harness] Stop.",))}, MessageInjected),
    (16, {"kept": ((1, 2), (5, 6))}, HistoryPruned),
    (16, {"reason": "whim"}, HistoryPruned),
    (26, {"guard": "another"}, GuardTripped),
    (26, {"measured": {"repeats": 9, "allowed": 1}}, GuardTripped),
    (27, {"why": Refusal.REJECTED}, CallRefused),
    (28, {"reason": "it was tired"}, StateChanged),
    (28, {"target": AgentState.COMPLETED, "trigger": Trigger.COMPLETE}, StateChanged),
]


@pytest.mark.parametrize(
    ("seq", "fields", "kind"),
    [
        pytest.param(seq, fields, kind, id=f"{kind_of(kind)} {seq} {'+'.join(fields)}")
        for seq, fields, kind in CHANGES
    ],
)
async def test_a_changed_field_is_named(
    short_log: list[Record], seq: int, fields: dict[str, Any], kind: type[Decision]
) -> None:
    """A decision with another value is found at its number, as changed, in the fields that differ."""
    found = await audited(changed(seq, **fields)(short_log))
    expected = tuple(name for name in kind.__struct_fields__ if name in fields)
    assert (seq, CHANGED, kind_of(kind), expected) == first(found)
    assert not found.clean


async def test_erased_words_hide_no_forged_field(short_log: list[Record]) -> None:
    """A decision whose words were erased is held against all that its body says: a size beside them is
    named.
    """
    event = event_of(short_log[14])
    assert isinstance(event, MessageInjected)
    shorter = replace(event.size, chars=1)
    for forgery, differences in ((changed(15), 0), (changed(15, size=shorter), 1)):
        store, log = MemoryStore(), forgery(short_log)
        await write(store, runs.RUN, log)
        notice = ContentErased(at=log[-1].at, seqs=(15,), by="ann", why="a name")
        lease = await store.lease(runs.RUN, holder="ann")
        await store.erase(runs.RUN, len(log), lease, [15], recorded(notice, notice.at))
        found = await audit(store, runs.RUN)
        assert differences == found.differences
        assert not differences or (15, CHANGED, "message_injected") == first(found)[:3]


def another(member: StrEnum) -> StrEnum:
    return next(each for each in type(member) if each is not member)


BY_NAME = {
    "after": 1,
    "cause": "stream",
    "content": Said(texts=("planted",)),
    "deadline": 12345,
    "max_output": 12345,
    "of": "time",
    "outcome": "fallback",
    "gap": Gap(after=1, sources=((1, 1),)),
    "purpose": "grace",
    "request_only": (RequestText(role=Role.USER, text="continue", cause=Cause.NUDGE, size=Size(tokens=1)),),
    "token_cuts": (TokenCut(codec="bpe:o200k_base", cap=1, cuts=()),),
    "tools": ("look",),
    "where": "model",
}


def other(field: str, value: Any) -> Any:
    """A value of the field's type that is not this one."""
    if field in BY_NAME:
        return BY_NAME[field]
    match value:
        case StrEnum():
            return another(value)
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case dict():
            return {**value, "planted": "1"}
        case tuple():
            return value[:-1]
        case LimitHit():
            return replace(value, used=value.used + 1)
    raise AssertionError(f"{field}: say by name what another value is")


def others(field: str, value: Any) -> list[Any]:
    """Values that are not this one: of a size one for each of its numbers."""
    if not isinstance(value, Size):
        return [other(field, value)]
    return [replace(value, **{name: other(name, getattr(value, name))}) for name in Size.__struct_fields__]


async def test_every_field_of_every_decision_counts(short_log: list[Record], long_log: list[Record]) -> None:
    """There is no field of any decision in these logs that could be changed without being named."""
    visited = set[str]()
    digest = long_log[: runs.DIGEST_AT]
    for log, numbers in ((short_log, range(1, 29)), (digest, (runs.DIGEST_AT,)), *rarer_kinds(short_log)):
        for seq in numbers:
            event = event_of(log[seq - 1])
            if not isinstance(event, Decision):
                continue
            for field in event.__struct_fields__:
                for planted in others(field, getattr(event, field)):
                    found = await audited(changed(seq, **{field: planted})(log))
                    misfit = f"event {seq}: the content of {kind_of(event)} does not match its body"
                    assert misfit in found.damaged or (seq, CHANGED, kind_of(event), (field,)) == first(found)
            visited.add(kind_of(event))
    assert {kind_of(kind) for kind in DECISIONS} == visited


@pytest.mark.parametrize("seq", [2, 4, 6, 8, 9, 12, 13, 15, 16, 17, 19, 20, 22, 23, 24, 26, 27, 28])
async def test_a_removed_decision_is_missing(short_log: list[Record], seq: int) -> None:
    """A decision that follows from its fact and is not in the log is missed where it should stand."""
    found = await audited(dropped(seq)(short_log))
    assert (seq, MISSING, short_log[seq - 1].kind, ()) == first(found)
    assert found.findings[0].recorded is None
    assert short_log[seq - 1].kind in (found.findings[0].derived or "")


@pytest.mark.parametrize("seq", [2, 4, 6, 8, 9, 12, 13, 15, 16, 17, 19, 20, 22, 23, 24, 26, 27, 28])
async def test_a_doubled_decision_is_extra(short_log: list[Record], seq: int) -> None:
    """A decision that stands twice is extra the second time, also where the state has no place for it."""
    found = await audited(doubled(seq)(short_log))
    assert (seq + 1, EXTRA, short_log[seq - 1].kind, ()) == first(found)
    assert found.findings[0].derived is None


def trimmed() -> MessageTrimmed:
    return MessageTrimmed(
        message=2,
        cause=Cause.HISTORY,
        name="m",
        reason="r",
        before=2,
        size=Size(tokens=1, chars=1, digest=""),
    )


INVENTED = [
    pytest.param(3, ModelRequested(step=1, attempt=1, view="", messages=(), input_tokens=0), id="a request"),
    pytest.param(8, ToolsDispatched(calls=("c1",)), id="a dispatch"),
    pytest.param(
        9,
        CallRefused(call="c2", why=Refusal.SKIPPED, cause=Cause.GUARD, name="g", text="refused:guard"),
        id="a refusal",
    ),
    pytest.param(4, RetryScheduled(attempt=2, delay=0, until=0, failure=FailureClass.OTHER), id="a retry"),
    pytest.param(
        12, GuardTripped(guard="g", version=1, verdict=Verdict.WARN, code="c"), id="a guard's warning"
    ),
    pytest.param(
        13,
        MessageInjected(role=Role.USER, text="continue", cause=Cause.NUDGE, size=Size(chars=0, tokens=0)),
        id="a message",
    ),
    pytest.param(
        13,
        HistoryPruned(
            name="n", reason="r", before=5, after=2, tokens_before=0, tokens_after=0, kept=((1, 2),)
        ),
        id="a pruning",
    ),
    pytest.param(
        29,
        StateChanged(
            source=AgentState.ERROR,
            target=AgentState.RUNNING,
            trigger=Trigger.ANSWERED,
            code="c",
            reason="r",
        ),
        id="a move out of the end",
    ),
    pytest.param(3, StateDigested(state=""), id="a digest"),
    pytest.param(3, trimmed(), id="a trimming, which no rule decides yet"),
    pytest.param(
        3,
        ApprovalRequested(guard="approvals", calls=("c1",), approver="ann"),
        id="an approval, which no rule decides yet",
    ),
    pytest.param(
        3, SummaryRequested(name="n", messages=((1, 2),)), id="a summary, which no rule decides yet"
    ),
]


@pytest.mark.parametrize(("seq", "event"), INVENTED)
async def test_an_invented_decision_is_extra(short_log: list[Record], seq: int, event: Decision) -> None:
    """A decision that follows from nothing is extra, at the number where it was put in."""
    found = await audited(invented(seq, event)(short_log))
    assert (seq, EXTRA, kind_of(event), ()) == first(found)


@pytest.mark.parametrize("seq", [8, 12, 15, 16, 19, 22, 23, 26, 27])
async def test_two_decisions_in_the_wrong_order_are_reordered(short_log: list[Record], seq: int) -> None:
    """Two decisions of one fact that stand the wrong way round are found at the first of them, as
    reordered.
    """
    found = await audited(swapped(seq)(short_log))
    assert (seq, REORDERED) == first(found)[:2]


@pytest.mark.parametrize(
    ("forgery", "expected"),
    [
        pytest.param(dropped(258), (258, MISSING, "state_digested", ()), id="missing"),
        pytest.param(doubled(258), (259, EXTRA, "state_digested", ()), id="extra"),
        pytest.param(swapped(257), (257, REORDERED, "state_changed", ()), id="reordered"),
        pytest.param(changed(258, state="00" * 32), (258, CHANGED, "state_digested", ("state",)), id="lies"),
        pytest.param(
            changed(258, guards={"repetition": "00" * 32}),
            (258, CHANGED, "state_digested", ("guards",)),
            id="lies about a guard",
        ),
    ],
)
async def test_digests_of_the_state(
    long_log: list[Record], forgery: Forgery, expected: tuple[int, DecisionDifference, str, tuple[str, ...]]
) -> None:
    """A digest of the state that is missing, doubled, misplaced or wrong is found at event 258."""
    assert "state_digested" == long_log[runs.DIGEST_AT - 1].kind
    seq, difference, kind, fields = first(await audited(forgery(long_log)))
    assert expected[:2] == (seq, difference)
    assert difference is REORDERED or expected[2:] == (kind, fields)


async def test_a_lying_digest_does_not_verify(long_log: list[Record]) -> None:
    """`verify`, too, derives a recorded digest of the state again, and names the event that lies."""
    store = MemoryStore()
    await write(store, runs.RUN, changed(258, state="00" * 32)(long_log))
    found = await verify(store, runs.RUN)
    assert found.problem is not None
    assert (258, "state_digested") == (found.problem.seq, found.problem.kind)
    assert "the state of the log here differs" in found.problem.problem


async def test_both_sides_and_the_state_before(short_log: list[Record]) -> None:
    """A finding shows what was recorded, what follows instead, the fact that decided, and the state before
    it.
    """
    (finding,) = (await audited(changed(16, reason="whim")(short_log))).findings
    recorded, derived = (
        msgspec.json.decode(finding.recorded or ""),
        msgspec.json.decode(finding.derived or ""),
    )
    before = msgspec.json.decode(finding.state)
    assert ("whim", "window", 14) == (recorded["reason"], derived["reason"], finding.fact)
    assert (15, 7) == (before["seq"], before["window"]["count"])


async def test_the_audit_goes_on_from_what_was_recorded(short_log: list[Record]) -> None:
    """After a difference the log is followed, not the derivation: later differences are found as well."""
    log = changed(28, reason="it was tired")(changed(9, code="lunch")(short_log))
    found = await audited(changed(26, code="boredom")(log))
    assert [(9, ("code",)), (26, ("code",))] == [(each.seq, each.fields) for each in found.findings]
    assert 2 == found.differences


async def test_a_decision_before_its_fact(short_log: list[Record]) -> None:
    """A decision that stands before the fact from which it follows is extra there."""
    assert (14, EXTRA, "message_injected", ()) == first(await audited(swapped(14)(short_log)))


async def test_in_a_real_file(short_log: list[Record], tmp_path: Path) -> None:
    """In a SQLite file, too, a forged log holds together for `verify`, and `audit` finds the change."""
    async with await SqliteStore.open(tmp_path / "forged.db", durability="process") as store:
        await write(store, runs.RUN, changed(16, reason="whim")(short_log))
        assert (await verify(store, runs.RUN)).whole
        assert (16, CHANGED, "history_pruned", ("reason",)) == first(await audit(store, runs.RUN))
