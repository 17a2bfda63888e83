"""`bisect`: the first event after which something is true, and the first at which two logs part."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.workload import answered, begun, returned
from refold.engine import call, say
from refold.reducers import advance
from refold.reducers.errors import DamagedLog
from refold.reducers.events import Event
from refold.reducers.state import RunState
from refold.replay import state_at
from refold.replay.queries.diffs import STRETCH, DifferenceFinder, bisect
from refold.replay.queries.divergence import divergence
from refold.replay.queries.language import Question
from refold.replay.queries.rows import state_question
from refold.store import MemoryStore
from refold.store.protocol import UnknownRun
from refold.testing.strategies.driver import Driver
from support import runs
from support.following import looked_at
from support.forging import changed, dropped, records_of, write
from support.queried import driven, holding, kept

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def store() -> MemoryStore:
    """The run of the transcript in `support.runs`, and a long one."""
    made = MemoryStore()
    await runs.recorded_run(made)
    return made


@pytest.fixture(scope="module")
def long() -> list[Event]:
    """A run of more events than are looked at in one stretch."""
    state, group = begun({"limits": []})
    log = [*group]
    for _ in range(300):
        state, group = advance(state, answered(state, 0))
        log += group
        state, group = advance(state, returned(state, 0))
        log += group
    return log


@pytest.mark.parametrize(
    ("text", "seq", "how"),
    [
        pytest.param("calls >= 2", 7, "halving", id="a counter"),
        pytest.param("calls > 0 and seq > 8", 9, "halving", id="two"),
        pytest.param("ended", 28, "halving", id="the end"),
        pytest.param("waiting", 4, "every event", id="something that passes"),
        pytest.param('agent_state == "WAITING_FOR_TOOL"', 9, "every event", id="a state"),
        pytest.param("seq > 0", 1, "halving", id="at once"),
        pytest.param("calls > 100", 0, "halving", id="never"),
        pytest.param('model == "other"', 0, "every event", id="never, asked everywhere"),
    ],
)
async def test_the_first_event(store: MemoryStore, text: str, seq: int, how: str) -> None:
    """Of a known run: after which event it was first so, and how that was found."""
    found = await bisect(store, runs.RUN, state_question(text))
    assert (seq or None, how) == (found.seq, found.how)
    if seq:
        assert runs.TRANSCRIPT[seq - 1] == f"{seq} {found.kind}"
        (before, _), (after, _) = [await state_at(store, runs.RUN, upto) for upto in (seq - 1 or None, seq)]
        assert state_question(text).matches(after)
        assert seq == 1 or not state_question(text).matches(before)
        assert set(state_question(text).names) == set(found.fields)


async def test_an_unknown_run(store: MemoryStore) -> None:
    """A run that is not there is named."""
    with pytest.raises(UnknownRun):
        await bisect(store, "nobody", state_question("ended"))


async def test_a_damaged_log_is_read_up_to_there(store: MemoryStore) -> None:
    """What became true before the damage is found; what did not is not known."""
    log = await records_of(store, runs.RUN)
    broken = MemoryStore()
    await write(broken, runs.RUN, [*log[:19], msgspec.structs.replace(log[19], body=b"{")])
    assert 4 == (await bisect(broken, runs.RUN, state_question("waiting"))).seq
    with pytest.raises(DamagedLog):
        await bisect(broken, runs.RUN, state_question("calls > 100"))


def first(question: Question[RunState], log: list[Event], *, halving: bool) -> tuple[int, int, int]:
    """The first event, its turn, and how often was asked."""
    found = looked_at(DifferenceFinder("r1", question, halving=halving), kept(log))
    return found.seq or 0, found.turn, found.asked


COUNTERS = st.sampled_from(["calls", "requests", "tokens", "spent_usd", "elapsed", "seq"])
LASTING = st.builds("{} > {}".format, COUNTERS, st.integers(0, 2000) | st.integers(0, 30)) | st.sampled_from(
    [
        "ended",
        "ended or calls > 2",
        "not (tokens <= 3 or calls < 1)",
        "elapsed > 3 and calls >= 1",
        "seq >= 0",
    ]
)


@given(driver=driven(), text=LASTING)
def test_halving_finds_what_asking_everywhere_finds(driver: Driver, text: str) -> None:
    """Of a question that lasts, halving finds the same event as asking every state."""
    question = state_question(text)
    assert question.lasts
    assert first(question, driver.log, halving=False)[:2] == first(question, driver.log, halving=True)[:2]


@pytest.mark.parametrize("seq", [1, 2, STRETCH - 1, STRETCH, STRETCH + 1, 2 * STRETCH, 1000, 1203])
def test_halving_a_long_log(long: list[Event], seq: int) -> None:
    """Wherever in its stretch it becomes true, it is found, with few questions."""
    question = state_question(f"seq >= {seq}")
    assert len(long) > 4 * STRETCH
    found, _, asked = first(question, long, halving=True)
    assert seq == found
    assert asked <= len(long) // STRETCH + 10
    assert (seq, seq) == (first(question, long, halving=False)[0], first(question, long, halving=False)[2])


async def test_two_copies_part_where_one_was_changed(long: list[Event]) -> None:
    """A copy of a log is the same up to the event that was changed, and that is found by few looks at
    hashes.
    """
    one = await holding(r1=long)
    other = MemoryStore()
    records = await records_of(one, "r1")
    place = next(n for n in range(699, len(records)) if records[n].kind == "tool_returned")
    forged = changed(place + 1, error="raised")(records)
    await write(other, "r1", forged)
    found = await divergence((one, other), ("r1", "r1"))
    assert ("hashes", place) == (found.by, found.same)
    assert (place + 1, place + 1) == found.seqs
    assert ["error"] == [field.field for field in found.fields]
    assert found.looks <= len(records).bit_length() + 2


async def test_a_copy_that_was_cut_off(store: MemoryStore) -> None:
    """A log that ends before the other parts from it there."""
    cut = MemoryStore()
    await write(cut, runs.RUN, (await records_of(store, runs.RUN))[:20])
    found = await divergence((store, cut), (runs.RUN, runs.RUN))
    assert ("hashes", 20, (21, None)) == (found.by, found.same, found.seqs)
    assert "the log ends" == found.fields[0].right


async def test_the_same_log_does_not_part(store: MemoryStore) -> None:
    """A log is the same as itself to its end, and that is one look a bit of its length."""
    found = await divergence((store, store), (runs.RUN, runs.RUN))
    assert (28, "hashes", ()) == (found.same, found.by, found.fields)
    assert found.looks <= 6


async def test_logs_written_apart_agree_by_their_digests(long: list[Event]) -> None:
    """Two runs of other ids share no hash; where their states were digested alike, they agree up to there."""
    longer = await holding(a=long, b=[*long[:-4]])
    found = await divergence((longer, longer), ("a", "b"))
    digests = [seq for seq, event in enumerate(long, 1) if type(event).__name__ == "StateDigested"]
    assert ("digests", digests[-1]) == (found.by, found.same)
    assert (len(long) - 3, None) == found.seqs


async def test_logs_that_share_nothing_are_compared_event_by_event() -> None:
    """Two runs that were recorded apart, at other times, part where they say something else, not where they
    were recorded.
    """
    made = MemoryStore()
    for run, path in (("a", "x"), ("b", "x"), ("c", "y")):
        script = (call("look", path=path), say("Done."))
        await runs.agent(script, policy={}, store=made).start("Do it.", run_id=run).result()
    same = await divergence((made, made), ("a", "b"))
    assert ("nothing", 0, ()) == (same.by, same.same, same.fields)
    found = await divergence((made, made), ("a", "c"))
    assert ("model_responded", "model_responded") == found.kinds
    assert "arguments" == found.fields[0].field


async def test_a_missing_event_is_seen_by_its_kind(store: MemoryStore) -> None:
    """Where one log lacks an event, the kinds that stand there are told."""
    log = await records_of(store, runs.RUN)
    other = MemoryStore()
    await write(other, runs.RUN, dropped(15)(log))
    found = await divergence((store, other), (runs.RUN, runs.RUN))
    assert (("message_injected", "history_pruned"), (15, 15)) == (found.kinds, found.seqs)


async def test_results_in_another_order_do_not_part(store: MemoryStore) -> None:
    """Which of two parallel calls came back first is chance, and no difference; what they say still is."""
    log = await records_of(store, runs.RUN)
    other, wrong = MemoryStore(), MemoryStore()
    swapped = [*log[:9], log[10], log[9], *log[11:]]
    await write(other, runs.RUN, swapped)
    found = await divergence((store, other), (runs.RUN, runs.RUN))
    assert (9, ()) == (found.same, found.fields)
    await write(wrong, runs.RUN, changed(10, error="raised")(swapped))
    found = await divergence((store, wrong), (runs.RUN, runs.RUN))
    assert ((11, 10), ["error"]) == (found.seqs, [field.field for field in found.fields])
