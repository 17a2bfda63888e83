"""Logs whose chain holds and that are wrong all the same: newer, out of time, out of order, or without a
guard.
"""

from typing import Any

import msgspec
import pytest

from refold.engine import say
from refold.reducers.errors import Damaged, NewerLog
from refold.reducers.events import DECISIONS, ContentErased, GuardTripped, ModelResponded, Output, kind_of
from refold.reducers.machine import AgentState, Trigger
from refold.reducers.vocabulary import Refusal
from refold.replay import audit, verify
from refold.store import MemoryStore
from refold.store.protocol import Record, UnknownRun
from support import edits, families, golden, runs
from support.clocks import START
from support.forging import Forgery, changed, dropped, recorded, records_of, swapped, write
from support.scenario import SALT, Scenario

pytestmark = pytest.mark.anyio

DECIDED = frozenset(map(kind_of, DECISIONS))


@pytest.fixture(scope="module")
async def log() -> list[Record]:
    """The log of the transcript in `support.runs`."""
    store = MemoryStore()
    await runs.recorded_run(store)
    return await records_of(store, runs.RUN)


async def forged(log: list[Record], forgery: Forgery) -> MemoryStore:
    store = MemoryStore()
    await write(store, runs.RUN, forgery(log))
    return store


def raw(seq: int, *, kind: str | None = None, at: int | None = None, **fields: Any) -> Forgery:
    """Event `seq` with another header, or with these fields in its body, whatever any decoder says."""

    def forge(log: list[Record]) -> list[Record]:
        old = log[seq - 1]
        body = msgspec.json.encode(msgspec.json.decode(old.body) | fields)
        new = msgspec.structs.replace(old, kind=kind or old.kind, at=old.at if at is None else at, body=body)
        return [*log[: seq - 1], new, *log[seq:]]

    return forge


WRONG = [
    pytest.param(raw(10, at=5), 10, "ns before that of the event before it", id="a header goes back in time"),
    pytest.param(
        changed(10, at=START + 77),
        10,
        "its header has the time",
        id="two instants",
    ),
    pytest.param(
        changed(10, content=Output(output="something else")),
        10,
        "the digest in its body does not match its payload",
        id="words that the body does not vouch for",
    ),
    pytest.param(
        changed(9, target=AgentState.COMPLETED, trigger=Trigger.COMPLETE, source=AgentState.WAITING_FOR_TOOL),
        9,
        "no move 'complete' from",
        id="a move that the table lacks",
    ),
    pytest.param(
        changed(9, target=AgentState.COMPLETED),
        9,
        "no move 'call_tools' from RUNNING to",
        id="a wrong target",
    ),
    pytest.param(dropped(1), 1, "a log begins with", id="no beginning"),
    pytest.param(lambda log: [*log[:1], *log], 2, "the run has already started", id="two beginnings"),
    pytest.param(dropped(8), 9, "was never dispatched", id="a result of a call that nobody started"),
    pytest.param(swapped(2), 2, "no request made at event 2 is open", id="an answer before its request"),
    pytest.param(raw(1, run="r2"), 1, "its body is of run r2", id="another run's beginning"),
    pytest.param(raw(11, size="big"), 11, "body of tool_returned cannot be read", id="a wrong type"),
    pytest.param(lambda log: [*log, log[-1]], 29, "the run has ended", id="an event after the end"),
]


@pytest.mark.parametrize(("forgery", "seq", "said"), WRONG)
async def test_what_cannot_stand_is_damaged(log: list[Record], forgery: Forgery, seq: int, said: str) -> None:
    """A log with a chain that holds fails at the event that cannot stand there, and is called damaged."""
    found = await verify(await forged(log, forgery), runs.RUN)
    assert found.problem is not None
    assert (seq, False) == (found.problem.seq, found.unjudged)
    assert said in found.problem.problem


NEWER = [
    pytest.param(raw(10, kind="tool_dreamt"), 10, "tool_dreamt", id="a kind"),
    pytest.param(raw(13, colour="red"), 13, "colour", id="a field"),
]


@pytest.mark.parametrize(("forgery", "seq", "said"), NEWER)
async def test_what_is_unknown_is_newer(log: list[Record], forgery: Forgery, seq: int, said: str) -> None:
    """A kind or a field that this version does not know cannot be judged: exit code 125, not 3."""
    store = await forged(log, forgery)
    found = await verify(store, runs.RUN)
    assert found.problem is not None
    assert (seq, True) == (found.problem.seq, found.unjudged)
    assert said in found.problem.problem
    with pytest.raises(NewerLog, match=said) as caught:
        await audit(store, runs.RUN)
    assert (125, 3) == (caught.value.exit_code, Damaged.exit_code)


async def test_newer_rules_are_not_judged_by_older_ones(log: list[Record]) -> None:
    """A log whose decisions were made by rules that are not known here is not audited by others."""
    with pytest.raises(NewerLog, match="decision rules version 99"):
        await audit(await forged(log, raw(1, rules=99)), runs.RUN)


async def test_an_unknown_annotation_is_passed_by(log: list[Record]) -> None:
    """An annotation of a kind that this version does not know changes nothing in either judgement."""
    note = Record(
        at=log[-1].at, kind="dreamt", body=msgspec.json.encode({"annotation": "dreamt", "at": log[-1].at})
    )
    store = await forged(log, lambda log: [*log, note])
    found, judged = await verify(store, runs.RUN), await audit(store, runs.RUN)
    assert (True, 29, "ERROR") == (found.whole, found.events, found.agent_state)
    assert (True, 29, 18) == (judged.clean, judged.events, judged.decisions)


async def test_damage_ends_an_audit_and_keeps_what_was_found(log: list[Record]) -> None:
    """An audit that meets an event that cannot stand says so, beside the differences before it."""
    store = await forged(log, lambda log: changed(4, delay=5)(raw(11, size="big")(log)))
    found = await audit(store, runs.RUN)
    assert [4] == [each.seq for each in found.findings]
    assert "event 11" in found.damaged
    assert not found.clean


async def test_a_guard_that_is_not_installed_is_named(log: list[Record]) -> None:
    """Without a guard's code its decision is unreplayable and every other one is derived again."""
    found = await audit(await forged(log, list), runs.RUN, registry={})
    assert ("repetition: not installed",) == found.blind
    assert [(26, "unreplayable", "guard_tripped")] == [
        (each.seq, str(each.difference), each.kind) for each in found.unreplayable
    ]
    assert (0, 18, "ERROR", "", False) == (
        found.differences,
        found.decisions,
        found.agent_state,
        found.damaged,
        found.clean,
    )


async def test_a_guard_that_is_not_installed_hides_nothing_else(log: list[Record]) -> None:
    """A change in a decision that is not the missing guard's is found all the same."""
    store = await forged(log, changed(16, reason="whim"))
    found = await audit(store, runs.RUN, registry={})
    assert ([16], [26]) == ([each.seq for each in found.findings], [each.seq for each in found.unreplayable])


@pytest.mark.parametrize("name", ["step", "limit:step", "limit", "refused:limit"])
async def test_a_guard_that_is_not_installed_excuses_nothing_of_a_limit(name: str) -> None:
    """Whatever the missing guard is called: what a limit refused is the limit's, and a change in it is
    found.
    """
    limits = [{"type": "step", "value": 1, "check": "response"}]
    run = Scenario({"limits": limits, "guards": [{"guard": "read_only", "name": name}]})
    run.answer("", ("look", "{}"))
    log = [recorded(event, run.at, SALT) for event in run.log]
    place = [record.kind for record in log].index("call_refused") + 1
    found = await audit(await forged(log, changed(place, why=Refusal.REJECTED)), runs.RUN, registry={})
    assert ([place], []) == ([each.seq for each in found.findings], list(found.unreplayable))


async def test_a_missing_guard_spoils_only_its_own_digest() -> None:
    """A digest of the state still agrees, and still verifies, where one guard of several is not installed;
    what that one would have said is not known.
    """
    store = MemoryStore()
    await runs.recorded_run(store, runs.LONG_SCRIPT, runs.LONG_POLICY)
    found, judged = await verify(store, runs.RUN, {}), await audit(store, runs.RUN, {})
    assert (True, 1) == (found.whole, found.digests)
    assert (0, (), ("repetition: not installed",)) == (judged.differences, judged.unreplayable, judged.blind)
    assert (False, judged.facts) == (judged.clean, judged.unasked)


async def test_the_silence_of_a_guard_that_cannot_be_asked_is_no_verdict() -> None:
    """Whoever cuts a guard's decisions out of a log, and erases what it read, or has it audited elsewhere, is
    told that it is not known.
    """
    config = {"guards": [{"guard": "repetition", "repeats": 2}]}
    uncut, cut = Scenario(config), Scenario(config, registry={})
    for run in (uncut, cut):
        while not run.state.ended and run.state.spent.calls < 5:
            run.answer("", ("look", "{}"))
            if run.state.batch is not None:
                run.result(f"c{run.state.spent.calls}", "there")
    assert any(isinstance(event, GuardTripped) for event in uncut.log)
    log = edits.log_of(cut.log)
    store = await forged(log, list)
    assert (await verify(store, runs.RUN)).whole
    assert not (await audit(store, runs.RUN)).clean
    elsewhere = await audit(store, runs.RUN, registry={})
    assert (0, (), False) == (elsewhere.differences, elsewhere.unreplayable, elsewhere.clean)
    answers = [seq for seq, event in enumerate(cut.log, 1) if isinstance(event, ModelResponded)]
    notice = ContentErased(at=cut.at, seqs=tuple(answers), by="ann", why="a name")
    lease = await store.lease(runs.RUN, holder="ann")
    await store.erase(runs.RUN, len(log), lease, answers, recorded(notice, notice.at))
    assert (await verify(store, runs.RUN)).whole
    found = await audit(store, runs.RUN)
    assert (0, (), False) == (found.differences, found.unreplayable, found.clean)


@pytest.mark.parametrize("judge", [verify, audit])
async def test_no_run_no_judgement(judge: Any) -> None:
    """A run that the store lacks is an error, not a clean log of no events."""
    with pytest.raises(UnknownRun, match="'nobody'"):
        await judge(MemoryStore(), "nobody")


@pytest.mark.parametrize("name", golden.names())
async def test_words_of_a_decision_that_are_gone_with_their_digest(name: str) -> None:
    """A decision that says something, and has no words nor a digest of them, is told: no erasure leaves it
    so.
    """
    log = edits.log_of(golden.events(name))
    for seq, record in enumerate(log, 1):
        if record.kind in DECIDED and record.content is not None:
            bare = msgspec.structs.replace(record, content=None)
            said = edits.told(edits.chained([*log[: seq - 1], bare, *log[seq:]]))
            assert said.startswith("verify: "), (seq, said)


@pytest.mark.parametrize("part", ["body", "content"])
@pytest.mark.parametrize("name", golden.names())
async def test_what_can_be_read_in_two_ways(name: str, part: str) -> None:
    """A field that stands twice is told in every event: SQLite goes by the first of them, and a reader of
    JSON by the last.
    """
    log = edits.log_of(golden.events(name))
    for seq, record in enumerate(log[:40], 1):
        text = getattr(record, part)
        if (
            text not in (None, b"{}") and record.kind != "run_forked"
        ):  # whose body is written anew with the chain
            first, value = next(iter(msgspec.json.decode(text).items()))
            twice = b"{" + msgspec.json.encode({first: value})[1:-1] + b"," + text[1:]
            other = msgspec.structs.replace(record, **{part: twice})
            said = edits.told(edits.chained([*log[: seq - 1], other, *log[seq:]]))
            assert "duplicate field" in said, (seq, said)


async def test_a_child_that_was_edited_is_told_by_its_parent() -> None:
    """Whoever edits a child's log has edited what its parent says of it, too, or the parent's log is at odds
    with it.
    """
    store, forged_store = MemoryStore(), MemoryStore()
    agent = families.boss(
        families.hand_on(), say("Done."), to=[families.writer(say("Written."))], store=store
    )
    await agent.start("Go.", run_id=families.PARENT).result()
    assert (await verify(store, families.PARENT)).whole
    parent, child = [await records_of(store, run) for run in (families.PARENT, families.CHILD)]
    place = next(place for place, record in enumerate(child, 1) if record.kind == "model_responded")
    await write(forged_store, families.PARENT, parent)
    assert (await verify(forged_store, families.PARENT)).whole, "a child may be elsewhere"
    await write(forged_store, families.CHILD, changed(place, cost_nanousd=7)(child))
    assert (await verify(forged_store, families.CHILD)).whole, "of itself it says nothing else"
    found = (await verify(forged_store, families.PARENT)).problem
    assert found is not None
    assert ("child_ended", True) == (found.kind, "with a hash that is not in that run's log" in found.problem)
