"""`--executor`: wrong values, missing packages, and workers whose results could be wrong."""

import pickle
import socket
import sys
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold, record
from refold.console import cluster_task
from refold.console.cluster_task import ClusterExecutor, OtherWorker, check_events, installation, run_packed
from refold.engine import say
from refold.replay.shards import Shard
from support.cluster_tasks import read


@pytest.fixture
def one(store: Path) -> Path:
    """A store of one run."""
    record(store, [say("Done.")], run_id="run-1")
    return store


@pytest.mark.parametrize(
    "executor",
    [
        "",
        "dask",
        "threads",
        "dask://",
        "dask://host",
        "dask://host:port",
        "ray://:1",
        "http://host:1",
        "dask://h:1/x",
    ],
)
@pytest.mark.parametrize(
    "command", [["audit"], ["grep", "x"], ["stats"], ["whatif", "--set", "limits.step=1"]]
)
def test_what_no_executor_is_called(refold: Refold, one: Path, command: list[str], executor: str) -> None:
    """A wrong name is reported with what is expected, before anything is read."""
    ran = refold(*command, "--all", "--store", one, "--executor", executor)
    expected = f"--executor {executor!r}: expected process, dask://HOST:PORT, ray or ray://HOST:PORT"
    assert (2, f"refold: {expected}\n") == (ran.code, ran.err)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["--executor", "dask://h:1", "--jobs", "4"],
            "--jobs 4: is for processes of this machine, not for dask://h:1",
        ),
        (["--idle-timeout", "5"], "--idle-timeout 5: is for clusters: name one with --executor"),
    ],
)
def test_options_that_do_not_go_together(refold: Refold, one: Path, words: list[str], problem: str) -> None:
    """The number of workers is the cluster's, and processes of this machine end by themselves."""
    ran = refold("audit", "--all", "--store", one, *words)
    assert (2, True) == (ran.code, problem in ran.err)


@pytest.mark.parametrize(
    ("executor", "package", "extra"),
    [("dask://h:1", "distributed", "dask"), ("ray", "ray", "ray"), ("ray://h:1", "ray", "ray")],
)
def test_a_package_that_is_not_installed(
    refold: Refold, one: Path, executor: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the package and the extra."""
    monkeypatch.setitem(sys.modules, package, None)
    ran = refold("audit", "--all", "--store", one, "--executor", executor)
    told = f"--executor {executor}: needs the package {package}, which is not installed: pip install 'refold[{extra}]'"
    assert (2, f"refold: {told}\n") == (ran.code, ran.err)


def test_processes_need_no_cluster_package(
    refold: Refold, one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default imports neither library."""
    for package in ("distributed", "dask", "ray"):
        monkeypatch.setitem(sys.modules, package, None)
    assert 0 == refold("audit", "--all", "--store", one, "--executor", "process").code


@pytest.mark.slow
def test_no_scheduler_answers(refold: Refold, one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address without a scheduler is an external failure, named with what starts one."""
    monkeypatch.setattr("refold.console.dask_cluster._CONNECT", 1)
    with socket.socket() as bound:  # a port that nobody listens on
        bound.bind(("127.0.0.1", 0))
        address = f"dask://127.0.0.1:{bound.getsockname()[1]}"
        ran = refold("audit", "--all", "--store", one, "--executor", address)
    assert (4, "") == (ran.code, ran.out)
    assert f"--executor {address}: no Dask scheduler answers there" in ran.err
    assert "`dask scheduler` starts one" in ran.err


def run_here(expected: Any, packed: bytes) -> "Future[Any]":
    future: Future[Any] = Future()
    try:
        future.set_result(run_packed(expected, packed))
    except OtherWorker as error:
        future.set_exception(pickle.loads(pickle.dumps(error)))
    return future


def other_version(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """From now on this process is a worker with other versions."""
    here = {**installation(), **{name.replace("_", " "): version for name, version in versions.items()}}
    monkeypatch.setattr(cluster_task, "installation", lambda: here)


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        ({"refold": "9.9"}, "refold: 9.9, expected 0.1.0"),
        ({"decision_rules": "99"}, "decision rules: 99, expected"),
        ({"guard_repetition": "99"}, "guard repetition: 99, expected 1"),
        ({"guard_other": "1"}, "guard other: 1, expected not installed"),
    ],
)
def test_a_worker_with_other_versions_returns_nothing(
    one: Path, versions: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another refold, other rules or guards: the part has a reason, and no result that could be wrong."""
    executor = ClusterExecutor(run_here)
    other_version(monkeypatch, **versions)
    error = executor.submit(read, Shard(address=str(one), runs=("run-1",), events=4)).exception()
    assert isinstance(error, OtherWorker)
    assert problem in str(error)
    assert "install the same versions on all workers" in str(error)


def test_a_worker_without_a_guard_returns_nothing(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that is installed here must be installed there."""
    other_version(monkeypatch, guard_here="1")
    executor = ClusterExecutor(run_here)
    monkeypatch.undo()
    error = executor.submit(read, Shard(address=str(one), runs=("run-1",), events=4)).exception()
    assert "guard here: not installed, expected 1" in str(error)


def test_an_old_copy_of_the_store_is_not_read(one: Path) -> None:
    """A worker whose store has fewer events than here says so: an audit of it would be of another log."""
    check_events(Shard(address=str(one), runs=("run-1",), events=4))
    for shard in (
        Shard(address=str(one), runs=("run-1",), events=5),
        Shard(address=str(one), runs=("run-1", "run-2"), events=8),
    ):
        with pytest.raises(
            OtherWorker, match=f"has 4 of {shard.events} events: it is another store, or an old"
        ):
            check_events(shard)


def test_paths_are_sent_in_full(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may run in another directory."""
    monkeypatch.chdir(one.parent)
    sent: list[bytes] = []

    def send(expected: Any, packed: bytes) -> "Future[Any]":
        sent.append(packed)
        return Future()

    executor: Executor = ClusterExecutor(send)
    executor.submit(read, Shard(address=one.name, runs=("run-1",), events=4))
    _, shard, _ = pickle.loads(sent[0])
    assert str(one) == shard.address
