"""`--executor ray`, with a fake in the place of Ray: connections, lost workers and errors of tasks."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.conftest import Refold, record
from refold.console.executors import ExecutorOptions, start_workers
from refold.engine import say
from refold.replay.dispatch import run_task
from refold.replay.shards import Shard, ShardEnd, Task, shards
from support import cluster_tasks, fake_ray
from support.fake_ray import FakeRay

MISSING = "No module named 'missing_on_workers'"
RUNS = ["run-0", "run-1", "run-2"]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """What was asked of Ray."""
    return fake_ray.install(monkeypatch)


@pytest.fixture
def many(store: Path) -> Path:
    """A store of three runs."""
    for run in RUNS:
        record(store, [say("Done.")], run_id=run)
    return store


@pytest.mark.parametrize(("executor", "address"), [("ray", None), ("ray://head:10001", "ray://head:10001")])
def test_ray_says_what_one_process_says(
    refold: Refold, ray: FakeRay, many: Path, executor: str, address: str | None
) -> None:
    """The output is the same. A part may lose three workers, and the connection is closed."""
    words = ["audit", "--all", "--store", many, "-o", "json"]
    assert refold(*words) == refold(*words, "--executor", executor)
    assert [address, 2, "shutdown"] == ray.calls


def test_no_cluster_answers(refold: Refold, ray: FakeRay, many: Path) -> None:
    """A wrong address is an external failure, named with what starts a cluster."""
    ran = refold("audit", "--all", "--store", many, "--executor", "ray://gone:1")
    assert (4, "") == (ran.code, ran.out)
    assert "--executor ray://gone:1: no Ray cluster answers there: ray client connection timeout" in ran.err


def end_worker(shard: Shard) -> Iterator[str]:
    """Kill the worker that gets the second run."""
    if RUNS[1] in shard.runs:
        sys.exit(9)
    yield from shard.runs


@pytest.mark.parametrize(
    ("task", "finished", "problem"),
    [
        (end_worker, [RUNS[0], RUNS[2]], "3 workers died while they processed it"),
        (
            cluster_tasks.import_missing,
            [],
            f"a worker cannot import what it needs: {MISSING}; install it on all workers",
        ),
    ],
)
def test_what_ray_could_not_process_is_named(
    ray: FakeRay, many: Path, task: Task[str], finished: list[str], problem: str
) -> None:
    """A part that killed its workers, and one that a worker could not read, are named with a short reason."""
    work = shards(many, [(run, 1) for run in RUNS], 1)
    with start_workers(ExecutorOptions(executor="ray"), work) as workers:
        found = list(run_task(work, workers, task))
    assert finished == [each for each in found if not isinstance(each, ShardEnd)]
    assert {problem} == {each.problem for each in found if isinstance(each, ShardEnd) and each.problem}
