"""Shards on executors that lose workers, stay silent or break: each shard is ended once, with a reason if
unfinished.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import nullcontext
from functools import partial
from typing import Any, Self

import pytest

from refold.reducers.errors import ExternalFailure
from refold.replay.dispatch import Workers, run_task
from refold.replay.shards import Shard, ShardEnd

Plan = Mapping[str, Sequence[str]]
"""By run, what happens at each attempt: `lost`, `failed`, `cancelled`, `silent`; after these, it is done."""


class Cluster(Executor):
    """Follows a plan at once, and records the attempts."""

    def __init__(self, plan: Plan) -> None:
        self._plan = {run: list(attempts) for run, attempts in plan.items()}
        self.futures = defaultdict[str, list[Future[Any]]](list)
        self.order: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        shard = args[0]
        assert isinstance(shard, Shard)
        (run,) = shard.runs
        self.order.append(run)
        future: Future[Any] = Future()
        self.futures[run].append(future)
        attempts = self._plan.get(run)
        match attempts.pop(0) if attempts else "done":
            case "lost":
                future.set_exception(BrokenExecutor("killed"))
            case "failed":
                future.set_exception(ExternalFailure("no such file"))
            case "cancelled":
                future.cancel()
            case "done":
                future.set_result(fn(*args, **kwargs))
        return future


class Pool(Cluster):
    """Like a pool of processes, takes nothing more after it lost a worker."""

    def __init__(self, plan: Plan, begun: list[Self]) -> None:
        super().__init__(plan)
        begun.append(self)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        every = [future for futures in self.futures.values() for future in futures]
        if any(isinstance(future.exception(), BrokenExecutor) for future in every):
            raise BrokenExecutor("broken before")
        return super().submit(fn, *args, **kwargs)


def parts(*runs: str) -> list[Shard]:
    return [Shard(address="runs.db", runs=(run,), events=1) for run in runs]


def read(shard: Shard) -> Iterator[str]:
    yield from shard.runs


def process(work: Sequence[Shard], workers: Workers | Executor) -> tuple[list[str], dict[str, str]]:
    """The results in order, and the problems of the unfinished parts."""
    found = list(run_task(work, workers, read))
    ends = [each for each in found if isinstance(each, ShardEnd)]
    assert sorted(each.shard.name for each in ends) == sorted(shard.name for shard in work)
    told = {each.shard.runs[0]: each.problem for each in ends if each.problem}
    return [each for each in found if not isinstance(each, ShardEnd)], told


def patient(cluster: Cluster, **more: Any) -> Workers:
    return Workers(executor=cluster, alone=lambda: nullcontext(cluster), tries=3, **more)


def test_a_lost_worker_costs_nothing() -> None:
    """The part of a killed worker is processed again, and its results are where they would have been."""
    cluster = Cluster({"b": ["lost"]})
    assert (["a", "b", "c"], {}) == process(parts("a", "b", "c"), patient(cluster))
    assert 2 == len(cluster.futures["b"])


def test_a_part_that_killed_every_worker_is_named() -> None:
    """Its third and last attempt is made alone, after all others; then it is ended, with the reason."""
    cluster = Cluster({"b": ["lost"] * 9})
    found, told = process(parts("a", "b", "c"), patient(cluster))
    assert ["a", "c"] == found
    assert {"b": "its worker died on each of 3 attempts, on the last one alone: killed"} == told
    assert "abcbb" == "".join(cluster.order)


def test_parts_that_shared_a_worker_with_it_are_finished() -> None:
    """Parts that were lost twice beside others are finished alone."""
    cluster = Cluster({"a": ["lost"] * 2, "b": ["lost"] * 9, "c": ["lost"] * 2})
    found, told = process(parts("a", "b", "c"), patient(cluster))
    assert (["a", "c"], ["b"]) == (found, list(told))


def test_a_broken_pool_is_replaced() -> None:
    """Parts that were not begun when a pool broke go to another pool, and not to one process."""
    pools: list[Pool] = []
    workers = Workers(
        executor=Pool({"b": ["lost"]}, pools),
        replace=lambda: Pool({}, pools),
        alone=lambda: Pool({}, pools),
        tries=3,
        ahead=2,
    )
    assert (["a", "b", "c", "d"], {}) == process(parts("a", "b", "c", "d"), workers)
    assert [["a", "b"], ["b", "c", "d"]] == [sorted(pool.order) for pool in pools]


def test_one_part_breaks_three_pools() -> None:
    """A part that breaks whatever processes it costs three pools, and no other part."""
    pools: list[Pool] = []
    deadly = {"b": ["lost"] * 9}
    start = partial(Pool, deadly, pools)
    workers = Workers(executor=start(), replace=start, alone=start, tries=3, ahead=2)
    found, told = process(parts("a", "b", "c", "d"), workers)
    assert (["a", "c", "d"], ["b"]) == (found, list(told))
    assert 3 == sum("b" in pool.order for pool in pools)


def test_a_bare_executor_gets_each_part_once() -> None:
    """Nothing is known of an executor that a program brings: its lost parts are named."""
    cluster = Cluster({"b": ["lost"]})
    assert (["a", "c"], {"b": "killed"}) == process(parts("a", "b", "c"), cluster)


@pytest.mark.parametrize(
    ("outcome", "problem"), [("failed", "no such file"), ("cancelled", "CancelledError")]
)
def test_what_failed_is_not_tried_again(outcome: str, problem: str) -> None:
    """A task that failed would fail again, and a part that was cancelled is not taken up again."""
    cluster = Cluster({"b": [outcome]})
    assert (["a", "c"], {"b": problem}) == process(parts("a", "b", "c"), patient(cluster))
    assert 1 == len(cluster.futures["b"])


SILENT = "no part was finished within 0.01 s"


def test_a_silent_cluster_is_given_up() -> None:
    """Without any finished part for too long, all are named at once, submitted or not."""
    runs = "abcdef"
    cluster = Cluster({run: ["silent"] for run in runs})
    found, told = process(parts(*runs), patient(cluster, ahead=2, idle=0.01))
    assert ([], dict.fromkeys(runs, SILENT)) == (found, told)
    assert ["a", "b"] == cluster.order
    assert all(future.cancelled() for futures in cluster.futures.values() for future in futures)


def test_one_silent_part_holds_up_no_other() -> None:
    """A part that does not end is given up when all ahead of it are finished, and the rest is processed."""
    cluster = Cluster({"a": ["silent"]})
    found, told = process(parts("a", "b", "c", "d"), patient(cluster, ahead=2, idle=0.01))
    assert (["b", "c", "d"], {"a": SILENT}) == (found, told)


def test_a_cluster_that_was_killed_leaves_no_part_out() -> None:
    """If all workers are killed and nothing follows, lost parts are named as well as those not begun."""
    cluster = Cluster({"a": ["lost", "lost"], "b": ["silent"], "c": ["silent"]})
    found, told = process(parts("a", "b", "c"), patient(cluster, ahead=2, idle=0.01))
    assert ([], dict.fromkeys("abc", SILENT)) == (found, told)


def test_silence_alone_is_given_up_too() -> None:
    """The last attempt may hang as any other."""
    cluster = Cluster({"a": ["lost", "lost", "silent"], "b": ["lost", "lost"]})
    found, told = process(parts("a", "b"), patient(cluster, idle=0.01))
    assert ([], dict.fromkeys("ab", SILENT)) == (found, told)


def test_a_reader_who_stops_leaves_nothing_running() -> None:
    """Parts that nobody waits for any more are cancelled."""
    cluster = Cluster({"b": ["silent"], "c": ["silent"]})
    found = run_task(parts("a", "b", "c"), patient(cluster), read)
    assert "a" == next(found)
    found.close()
    assert [True, True] == [cluster.futures[run][0].cancelled() for run in "bc"]
