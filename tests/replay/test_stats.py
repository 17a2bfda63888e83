"""`stats`: what was done, counted; and counts that add up."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.errors import DamagedLog
from refold.reducers.events import kind_of
from refold.replay.queries.stats import Counter, Latency, Stats, merge, stats
from refold.replay.reader import follow, stored_events
from refold.store import MemoryStore
from refold.store.protocol import UnknownRun
from refold.testing.strategies.driver import Driver
from support import runs
from support.following import looked_at
from support.forging import records_of, write
from support.queried import driven, kept

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def store() -> MemoryStore:
    """The run of the transcript in `support.runs`."""
    made = MemoryStore()
    await runs.recorded_run(made)
    return made


async def test_a_known_run(store: MemoryStore) -> None:
    """Of a known run: its events by kind, its tools, its end, what failed, what was refused and pruned."""
    found = await stats(store, runs.RUN)
    assert (1, 28, {"ERROR (repetition)": 1}) == (found.runs, found.events, found.ends)
    assert (5, 1, 0) == (found.requests, found.retries, found.latency.count)  # no time passes there
    assert {"overloaded": 1} == found.failures
    assert {"look", "act"} == set(found.tools)
    look = found.tools["look"]
    assert (2, 1, {}) == (look.returned, look.refused, look.errors)
    assert ({"repetition": 1}, {"tail": 2}) == (found.refusals, found.prunes)
    assert {"repetition: stop": 1} == found.trips
    assert 28 == sum(found.kinds.values())
    assert {"scripted": 1} == found.started_with


async def test_a_run_that_cannot_be_read_whole_counts_as_far_as_it_can(store: MemoryStore) -> None:
    """What stands before the damage is counted, and nothing of the event that cannot be read."""
    log = await records_of(store, runs.RUN)
    broken = MemoryStore()
    await write(broken, runs.RUN, [*log[:19], msgspec.structs.replace(log[19], body=b"{")])
    counter = Counter()
    records = [stored async for chunk in broken.read(runs.RUN) for stored in chunk]
    with pytest.raises(DamagedLog):
        looked_at(counter, records)
    assert (19, {"open": 1}) == (counter.result().events, counter.result().ends)


@pytest.mark.parametrize("at", [10, 17], ids="after event {}".format)
@pytest.mark.parametrize("order", [(runs.RUN, "f", "g"), ("g", "f", runs.RUN)], ids=" ".join)
async def test_what_a_fork_shares_is_counted_once(at: int, order: tuple[str, ...]) -> None:
    """Of a run and its forks together each event counts once, under its tool's name, in whatever order they
    are read.
    """
    store, shared = MemoryStore(), dict[str, int]()
    await runs.recorded_run(store)
    for fork in ("f", "g"):
        await runs.agent(store=store).fork(runs.RUN, at, fork_id=fork).result()
    counters = [(run, Counter(shared)) for run in order]
    for run, counter in counters:
        await follow(stored_events(store, run), counter)
    whole = merge(counter.result() for _, counter in counters)
    ends = [(await store.head(run)).seq for run in order]
    assert (sum(ends) - 2 * at, 3, 3) == (whole.events, whole.runs, sum(whole.ends.values()))
    assert whole.events == sum(whole.kinds.values())
    assert {"look", "act"} == set(whole.tools)
    assert whole.kinds["tool_returned"] == sum(tool.returned for tool in whole.tools.values())
    assert ends[1] == (await stats(store, "f")).events


async def test_a_fork_takes_its_own_time() -> None:
    """How long a fork took is told from its own first event: its parent may have ended long ago."""
    one = MemoryStore()
    await runs.recorded_run(one)
    await runs.agent(store=one).fork(runs.RUN, 17, fork_id="f").result()
    assert 1_000_000_000 == (await stats(one, "f")).elapsed.total


async def test_an_unknown_run(store: MemoryStore) -> None:
    """A run that is not there is named."""
    with pytest.raises(UnknownRun):
        await stats(store, "nobody")


def counted(driver: Driver) -> Stats:
    return looked_at(Counter(), kept(driver.log))


def frozen(found: Stats) -> bytes:
    return msgspec.json.encode(found, order="sorted")


@given(drivers=st.lists(driven(), min_size=3, max_size=3))
def test_counts_add_up(drivers: list[Driver]) -> None:
    """In whatever order and in whatever groups runs are counted, the counts are the same; nothing is changed
    by it.
    """
    one, two, three = map(counted, drivers)
    before = [frozen(each) for each in (one, two, three)]
    whole = frozen(merge([one, two, three]))
    assert whole == frozen(merge([merge([one, two]), three]))
    assert whole == frozen(merge([one, merge([two, three])]))
    assert whole == frozen(merge([three, one, two]))
    assert before == [frozen(each) for each in (one, two, three)]
    assert frozen(Stats()) == frozen(merge([]))
    assert before[0] == frozen(merge([one, Stats()]))
    assert whole == frozen(msgspec.json.decode(whole, type=Stats))


@given(driver=driven())
def test_counts_are_those_of_the_state(driver: Driver) -> None:
    """What is counted over the log is what the state has counted, and each event is counted once."""
    found, spent = counted(driver), driver.state.spent
    assert (found.requests, found.cost_nanousd or 0, found.input or 0) == (
        spent.requests, spent.cost_nanousd, spent.usage.input,
    )  # fmt: skip
    assert (found.output or 0, found.unpriced) == (spent.usage.output, spent.unpriced)
    assert found.kinds == {kind: sum(kind_of(event) == kind for event in driver.log) for kind in found.kinds}
    assert len(driver.log) == found.events
    assert 0 == found.latency.count  # nobody took the time


DURATIONS = st.lists(st.integers(0, 10**13) | st.integers(0, 100), min_size=1, max_size=60)


@given(durations=DURATIONS, share=st.integers(0, 100))
def test_a_quantile_is_near_the_true_one(durations: list[int], share: int) -> None:
    """A quantile is never below the true one, and at most a 32nd above it."""
    kept_ = Latency()
    for duration in durations:
        kept_.add(duration)
    rank = max(1, -(-len(durations) * share // 100))
    true = sorted(durations)[rank - 1]
    quantile = kept_.quantile(share)
    assert quantile is not None
    assert true <= quantile <= true + true // 32
    assert (sum(durations), max(durations), len(durations)) == (kept_.total, kept_.longest, kept_.count)


def test_of_no_durations() -> None:
    """Where nothing was measured, no quantile is known."""
    assert Latency().quantile(50) is None
