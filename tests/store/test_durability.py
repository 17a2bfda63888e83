"""What each durability promises, by what is left after a kill and after a power cut."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from refold.store import GENESIS, Head, SqliteStore, check
from refold.store.access import Durability
from refold.store.testing import events
from store.acknowledging import RUNS

HERE = Path(__file__).parent
TURNS = 40
"""So many turns write more than 4 MB, after which SQLite begins its write-ahead log anew."""


@pytest.fixture(scope="session")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that keeps what was flushed."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("synced") / "synced.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, HERE / "synced.c", "-ldl"], check=True)
    return library


@contextmanager
def running(
    path: Path, durability: Durability, environment: dict[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, HERE / "acknowledging.py", path, durability],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged(process: "subprocess.Popen[str]") -> int:
    """The number of every run's last event, of whose append the process was told that it is there."""
    assert process.stdout is not None
    return int(process.stdout.readline())


def go_on(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


async def whole(path: Path) -> list[int]:
    """The numbers of the runs' last events; every chain holds."""
    async with await SqliteStore.open(path) as store:
        seqs = list[int]()
        for number in range(RUNS):
            previous = Head(seq=0, hash=GENESIS)
            for event in await events(store, f"run-{number}"):
                assert check(event, previous) is None
                previous = Head(seq=event.seq, hash=event.hash)
            seqs.append(previous.seq)
        return seqs


@pytest.mark.slow
def test_fsync_survives_a_power_cut(tmp_path: Path, synced: Path) -> None:
    """At every moment at which appends had returned, what was flushed by then has all of them."""
    kept, cut = tmp_path / "kept", tmp_path / "cut"
    kept.mkdir()
    with running(tmp_path / "runs.db", "fsync", {"LD_PRELOAD": str(synced), "SYNCED": str(kept)}) as process:
        for turn in range(TURNS):
            seq = acknowledged(process)
            if turn < 3 or turn > TURNS - 15 or turn % 5 == 0:
                shutil.copytree(kept, cut)
                assert [seq] * RUNS == anyio.run(whole, cut / "runs.db")
                shutil.rmtree(cut)
            go_on(process)
    assert (tmp_path / "runs.db").stat().st_size > 2**20  # else no checkpoint was among what was tried


def test_process_flushes_no_append(tmp_path: Path, synced: Path) -> None:
    """With `process` an append waits for no disk: what was flushed after some turns is what was before."""
    kept = tmp_path / "kept"
    kept.mkdir()
    with running(
        tmp_path / "runs.db", "process", {"LD_PRELOAD": str(synced), "SYNCED": str(kept)}
    ) as process:
        acknowledged(process)
        before = {each.name: each.read_bytes() for each in kept.iterdir()}
        for _ in range(5):
            go_on(process)
            acknowledged(process)
        assert before == {each.name: each.read_bytes() for each in kept.iterdir()}


def test_process_is_whole_after_a_power_cut(tmp_path: Path, synced: Path) -> None:
    """With `process` the last appends may be gone after a power cut, and what is there is whole."""
    kept = tmp_path / "kept"
    kept.mkdir()
    with running(
        tmp_path / "runs.db", "process", {"LD_PRELOAD": str(synced), "SYNCED": str(kept)}
    ) as process:
        for _ in range(TURNS):
            seq = acknowledged(process)
            go_on(process)
        acknowledged(process)
    left = anyio.run(whole, kept / "runs.db")
    assert 0 < min(left) <= max(left) < seq


@pytest.mark.parametrize("durability", ["fsync", "process"])
@pytest.mark.parametrize("turns", [1, 2, 5, TURNS])
def test_a_killed_process_loses_no_append(tmp_path: Path, durability: Durability, turns: int) -> None:
    """Killed as soon as its appends have returned, a process leaves all of them, at either durability."""
    with running(tmp_path / "runs.db", durability, {}) as process:
        for _ in range(turns - 1):
            acknowledged(process)
            go_on(process)
        seq = acknowledged(process)
        process.kill()
    assert [seq] * RUNS == anyio.run(whole, tmp_path / "runs.db")
