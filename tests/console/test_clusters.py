"""Commands over many runs on a Dask cluster of real processes: results are those of one process, also when
workers are killed.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Ran, Refold, record
from refold.console.executors import ExecutorOptions, start_workers
from refold.engine import call, say
from refold.replay.dispatch import run_task
from refold.replay.shards import ShardEnd, Task, shards
from support import cluster_tasks, dask_cluster

pytestmark = pytest.mark.slow

RUNS = [f"run-{number:02}" for number in range(8)]


def start_cluster(workers: int) -> Iterator[str]:
    """A cluster of as many processes; its address as an option. A worker may be killed twice by one task."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
    }
    with subprocess.Popen(
        [sys.executable, dask_cluster.__file__, str(workers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip().replace("tcp:", "dask:")
        process.communicate()


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Two workers."""
    yield from start_cluster(2)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of eight runs."""
    path = tmp_path_factory.mktemp("many") / "runs.db"
    for run in RUNS:
        record(path, [call("look", path=run), say("Done.")], run_id=run)
    return path


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "audit.SHARD_OF_A_STORE",
        "queries.GREP_SHARD",
        "queries.STATS_SHARD",
        "whatif.SHARD_OF_A_STORE",
    ):
        monkeypatch.setattr(f"refold.console.{name}", 20)


QUESTIONS = {
    "audit": ["audit"],
    "grep": ["grep", "type:tool or type:model"],
    "stats": ["stats"],
    "whatif": ["whatif", "--set", "limits.step=1"],
}


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_cluster_says_what_processes_say(
    refold: Refold, many: Path, cluster: str, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output is the same, byte by byte, also for a path that holds in this directory only."""
    monkeypatch.chdir(many.parent)
    words = [*QUESTIONS[question], "--all", "--store", many.name, "-o", "json"]
    alone, shared = refold(*words), refold(*words, "--executor", cluster)
    assert alone == shared
    assert alone.out


def test_a_bundle_is_audited_by_a_cluster(refold: Refold, many: Path, cluster: str, tmp_path: Path) -> None:
    """A bundle is one part, which a worker reads from its file; damage is told as without a cluster."""
    whole, cut = tmp_path / "whole.zip", tmp_path / "cut.zip"
    assert 0 == refold("pack", *RUNS, "--store", many, "--out", whole).code
    cut.write_bytes(whole.read_bytes()[:-10])
    words = ["audit", whole, cut, "-o", "json"]
    alone, shared = refold(*words, "--jobs", "2"), refold(*words, "--executor", cluster)
    assert alone == shared
    assert (3, len(RUNS) + 1) == (shared.code, len(shared.out.splitlines()))


def process(address: str, task: Task[str], store: Path, **options: Any) -> tuple[list[str], dict[str, str]]:
    """The results of a task for one part per run, in order, and the problems by run."""
    work = shards(store, [(run, 1) for run in RUNS], 1)
    with start_workers(ExecutorOptions(executor=address, **options), work) as workers:
        found = list(run_task(work, workers, task))
    problems = {
        each.shard.runs[0]: each.problem for each in found if isinstance(each, ShardEnd) and each.problem
    }
    return [each for each in found if not isinstance(each, ShardEnd)], problems


def test_a_killed_worker_costs_nothing(many: Path, cluster: str, tmp_path: Path) -> None:
    """What a worker was doing when it was killed is done by another, and its results stand in their place."""
    mark = tmp_path / "killed"
    assert (RUNS, {}) == process(cluster, partial(cluster_tasks.die_once, run=RUNS[3], mark=mark), many)
    assert mark.exists()


def test_a_part_that_kills_every_worker_is_named(many: Path, cluster: str) -> None:
    """All others are finished, also those that waited for the same workers."""
    found, problems = process(cluster, partial(cluster_tasks.die, run=RUNS[3]), many)
    assert sorted({*RUNS} - {RUNS[3]}) == sorted(found)
    assert [RUNS[3]] == list(problems)
    assert "alone: 2 workers died while they processed it" in problems[RUNS[3]]


def test_a_worker_that_lacks_a_module_is_named(many: Path, cluster: str) -> None:
    """A failed import is a problem of the part, and no worker leaves the cluster for it."""
    found, problems = process(cluster, cluster_tasks.import_missing, many)
    assert ([], set(RUNS)) == (found, {*problems})
    assert "No module named 'missing_on_workers'; install it on all workers" in problems[RUNS[0]]


def test_a_cluster_without_workers_is_given_up(refold: Refold, many: Path) -> None:
    """The audit says that it waits, ends after the time that was given, and names what it did not check."""
    for empty in start_cluster(0):
        words = ["audit", "--all", "--store", many, "--idle-timeout", "1", "--executor", empty]
        ran: Ran = refold(*words)
        assert 4 == ran.code
        assert "has no workers yet; giving up after 1 s without one" in ran.err
        assert "0 runs: 0 of them clean, NOT ALL" in ran.out
        assert "NOT CHECKED" in ran.out
        assert "no part was finished within 1 s" in " ".join(ran.out.split())
