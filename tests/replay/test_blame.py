"""`blame`: which event last changed a field, and which did before that."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.reducers.evolution import encode_value
from refold.reducers.guards import BUILTIN
from refold.reducers.state import NEW, Spent
from refold.replay.queries.blame import Blamer, Look, blame, make_look
from refold.replay.queries.conditions import BadQuestion
from refold.replay.queries.rows import STATE_FIELDS
from refold.replay.reader import event_of, fold_event, run_follower
from refold.store import MemoryStore
from refold.store.protocol import UnknownRun
from refold.testing.strategies.driver import Driver
from support import runs
from support.following import looked_at
from support.queried import driven, kept
from support.state_fields import fields_of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def store() -> MemoryStore:
    """The run of the transcript in `support.runs`."""
    made = MemoryStore()
    await runs.recorded_run(made)
    return made


@pytest.mark.parametrize(
    ("field", "seqs", "value"),
    [
        pytest.param("calls", [25, 18, 7], "4", id="a number"),
        pytest.param("agent_state", [28, 22, 20, 12, 9], '"ERROR"', id="a text"),
        pytest.param("ended", [28], "true", id="a flag"),
        pytest.param("setup.model", [1], '"scripted"', id="a path"),
        pytest.param("setup.policy.guards.0.repeats", [1], "1", id="a path through a list"),
        pytest.param("outcome.event.code", [28], '"repetition"', id="a path that leads nowhere at first"),
        pytest.param("guards.0.own.count", [25, 1], "1", id="what a guard remembers"),
        pytest.param("summary", [], "", id="what never was"),
        pytest.param("guards.repetition.own.count", [25, 1], "1", id="a member of a list by its name"),
        pytest.param("spent.tally.nothing", [], "", id="a key that never was"),
        pytest.param("spent.tally.guard.a\\.b", [], "", id="a dot within a key"),
        pytest.param("batch.calls.c99.error", [], "", id="a call that never was"),
    ],
)
async def test_who_changed_it(store: MemoryStore, field: str, seqs: list[int], value: str) -> None:
    """Of a known run: the events that changed a field, the newest first, and what it is in the end."""
    found = await blame(store, runs.RUN, field)
    assert (seqs, len(seqs)) == ([change.seq for change in found.changes], found.count)
    assert value == found.value
    if seqs:
        assert value == found.changes[0].after


async def test_up_to_an_event(store: MemoryStore) -> None:
    """What came after an event is not told when that is asked for."""
    found = await blame(store, runs.RUN, "calls", upto=20)
    assert ([18, 7], 20, "3") == ([change.seq for change in found.changes], found.events, found.value)


async def test_the_last_ones_are_kept(store: MemoryStore) -> None:
    """Of many changes the last are kept, and all are counted."""
    found = await blame(store, runs.RUN, "seq", most=3)
    assert ([28, 27, 26], 28) == ([change.seq for change in found.changes], found.count)


async def test_money_is_in_dollars(store: MemoryStore) -> None:
    """Amounts are told as they are asked about: in dollars and seconds, to the last digit."""
    state = NEW
    assert "0" == make_look("spent_usd")(state)
    spent = Spent(cost_nanousd=1_500_000_001)
    assert "1.500000001" == make_look("spent_usd")(replace(state, spent=spent))
    assert "2" == make_look("elapsed")(replace(state, at=3_000_000_000, fact_at=2_000_000_000))


@pytest.mark.parametrize(
    ("field", "at", "said"),
    [
        pytest.param("stps", 1, "did you mean steps?", id="a name"),
        pytest.param("spent.stps", 7, "did you mean steps?", id="a part of a path"),
        pytest.param("batch.calls.c1.eror", 16, "did you mean error?", id="a part of a member"),
        pytest.param("outcome.event.cod", 15, "did you mean code?", id="a part of what is not always there"),
        pytest.param("guards.repetiton.own", 8, "did you mean repetition?", id="a member's name"),
        pytest.param("guards.7.own", 8, "expected repetition", id="a place in a list that is shorter"),
        pytest.param("guards.repetition.own.cuont", 23, "did you mean count?", id="a part of a memory"),
        pytest.param("spent.tally.guard.a.b", 21, "written \\.", id="what is below a number"),
        pytest.param("agent_state.x", 13, "agent_state has no parts", id="what is below a name"),
        pytest.param("__class__", 1, "unknown field", id="what is none of the state's"),
        pytest.param("", 1, "unknown field ''", id="nothing"),
    ],
)
async def test_what_is_refused(store: MemoryStore, field: str, at: int, said: str) -> None:
    """A field that no state has is refused, with the nearest that there is."""
    with pytest.raises(BadQuestion) as error:
        await blame(store, runs.RUN, field)
    assert at == error.value.at
    assert said in str(error.value)


async def test_an_unknown_run(store: MemoryStore) -> None:
    """A run that is not there is named."""
    with pytest.raises(UnknownRun):
        await blame(store, "nobody", "calls")


async def test_it_is_written_out_only_where_it_may_have_changed(store: MemoryStore) -> None:
    """A value that is the same object as before is not made text again: a window is as long as the run."""
    look, made = make_look("setup"), list[object]()

    def text(value: object) -> str:
        made.append(value)
        return look.text(value)

    found = await run_follower(Blamer(runs.RUN, "setup", Look(look.pick, text)), store, runs.RUN)
    assert ([1], 2) == ([change.seq for change in found.changes], len(made))


@given(driver=driven())
def test_the_paths_of_changes_are_read(driver: Driver) -> None:
    """Each path under which a change of a state is told leads to that value, and to no mistake."""
    state = NEW
    for stored in kept(driver.log):
        state = fold_event(state, stored, event_of(stored), BUILTIN)
    for path, value in fields_of(state).items():
        told = make_look(path)(state)
        assert told
        if path in ("setup.policy", "setup.tools") or value.endswith(' entries"'):
            continue
        assert msgspec.json.decode(value) == msgspec.json.decode(told)


PATHS = st.sampled_from(
    [
        *STATE_FIELDS,
        "window.ranges",
        "spent",
        "spent.usage.input",
        "batch.calls",
        "batch.calls.0.result",
        "batch.calls.c1.result",
        "guards",
        "outcome",
    ]
)


@given(driver=driven(), field=PATHS)
def test_the_last_change_is_what_folding_twice_tells(driver: Driver, field: str) -> None:
    """The last change is the last event around which the folded field differs, and its sides are the two
    values.
    """
    look, log = make_look(field), kept(driver.log)
    values, state = [look(NEW)], NEW
    for stored in log:
        state = fold_event(state, stored, event_of(stored), BUILTIN)
        values.append(look(state))
    try:
        found = looked_at(Blamer("r1", field, look), log, BUILTIN)
    except BadQuestion:  # the run has no such call
        assert len(set(values)) == 1
        return
    changed = [seq for seq in range(1, len(values)) if values[seq] != values[seq - 1]]
    assert (len(changed), values[-1]) == (found.count, found.value)
    assert changed[-20:] == [change.seq for change in reversed(found.changes)]
    for change in found.changes:
        assert (values[change.seq - 1], values[change.seq]) == (change.before, change.after)
    if field in STATE_FIELDS and field not in (
        "spent_usd",
        "elapsed",
        "downtime",
        "retry_wait",
        "person_wait",
    ):
        assert encode_value(STATE_FIELDS[field].of(state)).decode() == found.value
