"""Audits in bulk: shards, executors that fail, and totals that merge in any order."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial, reduce
from itertools import permutations
from operator import add
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.reducers.guards import BUILTIN, Registry
from refold.replay.audit import audit
from refold.replay.bulk import AuditedRun, RunFinding, Totals, audit_all, audit_shard, sum_totals
from refold.replay.dispatch import Workers
from refold.replay.shards import Shard, shards
from refold.store import SqliteStore
from refold.store.packer import pack
from support.forging import changed, records_of, write

pytestmark = pytest.mark.anyio


def builtin() -> Registry:
    """What is handed to workers must be importable there."""
    return BUILTIN


@tool(replay="read_only")
def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs, some with a guard that reads what was said."""
    path = tmp_path_factory.mktemp("bulk") / "runs.db"
    for number in range(5):
        model = ScriptedModel([call("look", place=f"{number}"), say("Done.")])
        policy: dict[str, Any] = {"guards": [{"guard": "repetition", "repeats": 3}]} if number % 2 else {}
        agent = Agent(model=model, tools=[look], policy=policy, store=path)
        agent.run_sync("Look.", run_id=f"run-{number}", seed=number)
    return path


async def sizes(path: Path) -> list[tuple[str, int]]:
    async with await SqliteStore.open(path, readonly=True) as opened:
        return [(run, head.seq) async for chunk in opened.runs() for run, head in chunk]


async def test_many_runs_are_judged_as_each_by_itself(store: Path) -> None:
    """A run among many has the very audit that it has alone, with all or without any of what nobody reads."""
    work = shards(store, await sizes(store), 10)
    judged = {each.run: each.audit for shard in work for each in audit_shard(shard)}
    async with await SqliteStore.open(store, readonly=True) as opened:
        assert {run: await audit(opened, run) for run, _ in await sizes(store)} == judged


async def test_every_run_is_in_one_shard(store: Path) -> None:
    """However they are cut, no run is left out, and none is judged twice."""
    runs = await sizes(store)
    for size in (1, 10, 25, 1_000):
        assert [run for run, _ in runs] == [run for shard in shards(store, runs, size) for run in shard.runs]
        assert sum(count for _, count in runs) == sum(shard.events for shard in shards(store, runs, size))


async def test_an_executor_may_be_handed_in(store: Path) -> None:
    """Whoever brings an executor of their own gets the same totals as without."""
    work = shards(store, await sizes(store), 10)
    with ThreadPoolExecutor(2) as executor:
        assert audit_all(work, None, builtin) == audit_all(work, executor, builtin)


class Dying(Executor):
    """Loses the first piece of work, as a machine does that is switched off."""

    def __init__(self) -> None:
        self._first = True

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        if self._first:
            future.set_exception(RuntimeError("the machine went away"))
        else:
            future.set_result(fn(*args, **kwargs))
        self._first = False
        return future


async def test_what_was_not_checked_is_named(store: Path) -> None:
    """A worker that dies takes its shard with it, which is named, and no other."""
    work = shards(store, await sizes(store), 1)
    totals = audit_all(work, Dying(), builtin)
    assert (RunFinding(work[0].name, "the machine went away"),) == totals.unchecked
    assert (4, 4) == (totals.runs, totals.clean)


class Broken(Executor):
    """Takes one piece of work and then no more, as a pool of processes does of which one died."""

    def __init__(self) -> None:
        self._taken = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        self._taken += 1
        if self._taken > 1:
            raise BrokenProcessPool("a process died")
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


async def test_an_executor_may_break_while_it_is_handed_work(store: Path) -> None:
    """What a broken executor no longer takes is named as not checked, and what it did counts."""
    work = shards(store, await sizes(store), 1)
    totals = audit_all(work, Broken(), builtin)
    assert sorted(RunFinding(shard.name, "a process died") for shard in work[1:]) == list(totals.unchecked)
    assert (1, 1) == (totals.runs, totals.clean)


def dies(shard: Shard, registry: Callable[[], Registry]) -> tuple[AuditedRun, ...]:
    """What a shard does that kills its worker."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ()


class Deadly(ProcessPoolExecutor):
    """Real processes, of which one is killed by a certain run."""

    def __init__(self, run: str) -> None:
        super().__init__(1, mp_context=multiprocessing.get_context("spawn"))
        self._run = run

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        shard = args[0]
        assert isinstance(shard, Shard)
        return super().submit(dies if self._run in shard.runs else fn, *args, **kwargs)


@pytest.mark.slow
async def test_a_part_that_kills_its_worker_takes_no_other_with_it(store: Path) -> None:
    """A pool of real processes breaks, and all but the part that broke it is audited all the same."""
    work = shards(store, await sizes(store), 1)
    start = partial(Deadly, "run-3")
    with start() as executor:
        workers = Workers(executor=executor, replace=start, alone=start, tries=3)
        totals = audit_all(work, workers, builtin)
    assert (4, 1, True) == (totals.clean, len(totals.unchecked), "run-3" in totals.unchecked[0].name)


def test_a_file_that_is_gone_is_unchecked(tmp_path: Path) -> None:
    """A shard whose file cannot be read is named, and the audit of the others goes on."""
    totals = audit_all([Shard(address=str(tmp_path / "gone.db"), runs=("x",), events=1)], None, builtin)
    assert ["the file does not exist" in each.why for each in totals.unchecked] == [True]


async def test_a_bundle_is_a_shard(store: Path, tmp_path: Path) -> None:
    """Runs in a bundle are audited where they are, and come to what they came to in the store."""
    bundle = tmp_path / "two.zip"
    async with await SqliteStore.open(store, readonly=True) as opened:
        await pack(opened, ["run-1", "run-2"], bundle)
    found = audit_shard(Shard(address=str(bundle)))
    in_store = audit_shard(Shard(address=str(store), runs=("run-1", "run-2")))
    assert in_store == found


async def test_a_changed_decision_is_found_among_many(store: Path, tmp_path: Path) -> None:
    """A run whose decision was changed differs, with its first place, and the others are clean."""
    edited = tmp_path / "edited.db"
    async with await SqliteStore.open(edited) as into, await SqliteStore.open(store, readonly=True) as opened:
        for run, _ in await sizes(store):
            records = await records_of(opened, run)
            at = next(place for place, record in enumerate(records) if record.kind == "state_changed")
            if run == "run-2":
                records = changed(at + 1, reason="because")(records)
            await write(into, run, records)
    totals = audit_all(shards(edited, await sizes(edited)), None, builtin)
    assert (["run-2"], 4) == ([each.name for each in totals.differing], totals.clean)
    assert "the first at event" in totals.differing[0].why


def any_totals() -> st.SearchStrategy[Totals]:
    named = st.lists(st.builds(RunFinding, st.sampled_from("abcd"), st.sampled_from("xy")), max_size=2)
    counts = st.dictionaries(st.sampled_from("123"), st.integers(1, 9), max_size=2)
    listed = named.map(lambda found: tuple(sorted(found)))
    return st.builds(
        Totals,
        runs=st.integers(0, 9),
        events=st.integers(0, 9),
        differing=listed,
        unchecked=listed,
        rules=counts,
    )


@given(parts=st.lists(any_totals(), min_size=2, max_size=3))
def test_totals_merge_in_any_order(parts: Sequence[Totals]) -> None:
    """Whatever is done first, all of it comes to the same."""
    assert 1 == len({str(reduce(add, order, Totals())) for order in permutations(parts)})


def test_a_run_of_which_nothing_is_there() -> None:
    """A run without an event is damaged, not clean."""
    assert (0, 1) == (
        (totals := sum_totals([AuditedRun(run="x", damaged="gone")])).clean,
        len(totals.damaged),
    )
