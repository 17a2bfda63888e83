"""A family of runs, killed again and again: however often, each call has one child, and no act is done
twice.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import anyio
import pytest

from refold.reducers import codec
from refold.reducers.events import ChildEnded, Event, RunResumed, RunStarted
from refold.reducers.meters import child_run_id
from refold.replay import audit, verify
from refold.store import SqliteStore
from refold.store.protocol import Store

TESTS = Path(__file__).parents[1]
RUN, KILLS, CALLS = "family", 40, 6


class Starter:
    """The process that starts agents and kills them, one at a time."""

    def __init__(self, process: "subprocess.Popen[str]", pipe: Path) -> None:
        self._process, self._pipe = process, pipe

    def go(self, *words: object) -> BinaryIO:
        """Start an agent; it tells of each append."""
        self._say("\t".join(["go", *map(str, words), str(self._pipe)]))
        return self._pipe.open("rb")

    def end(self, command: str) -> int:
        """`kill` it, or `wait` for it; its status, as `waitpid` gave it."""
        self._say(command)
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def _say(self, command: str) -> None:
        assert self._process.stdin is not None
        print(command, file=self._process.stdin, flush=True)


@contextmanager
def starter(folder: Path) -> Iterator[Starter]:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [sys.executable, "-m", "crash.children_process"],
        cwd=TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Starter(process, pipe)


async def events_of(store: Store, run: str) -> list[Event]:
    return [codec.decode(each.kind, each.body) async for chunk in store.read(run) for each in chunk]


async def judge(path: Path, lines: list[str]) -> int:
    """Hold every log of the family against what it should say. How often an engine took one of them up."""
    async with await SqliteStore.open(path, readonly=True) as store:
        logs = {run: await events_of(store, run) async for chunk in store.runs() for run, _ in chunk}
        for run in logs:
            assert (await verify(store, run)).problem is None
            assert (await audit(store, run)).clean
        ends = [event for event in logs[RUN] if isinstance(event, ChildEnded)]
        heads = {end.run: await store.head(end.run) for end in ends}
    children = [child_run_id(RUN, f"c{number}") for number in range(1, CALLS + 1)]
    assert {RUN, *children} == logs.keys()
    assert sorted(children) == sorted(end.run for end in ends)
    for end in ends:
        assert (end.head_seq, end.head_hash) == (heads[end.run].seq, heads[end.run].hash.hex())
        opening = logs[end.run][0]
        assert isinstance(opening, RunStarted)
        assert opening.parent is not None
        assert (RUN, end.call) == (opening.parent.run, opening.parent.call)
    assert {1} >= set(Counter(lines).values())
    assert {line.split()[0] for line in lines} <= set(children)
    return sum(isinstance(event, RunResumed) for log in logs.values() for event in log)


@pytest.mark.slow
def test_killed_at_any_moment_a_family_of_runs_ends_once(tmp_path: Path) -> None:
    """After every kill the parent alone is resumed, and each call ends with one child whose log goes on."""
    chance, path, effects = random.Random(7), tmp_path / "runs.db", tmp_path / "effects"
    kills = 0
    with starter(tmp_path) as process:
        while kills < KILLS:
            with process.go(path, RUN, effects) as told:
                for _ in range(chance.randint(1, 6)):
                    told.readline()
                until = time.perf_counter() + chance.uniform(0, 0.003)
                while time.perf_counter() < until:
                    pass
                status = process.end("kill")
            if status != signal.SIGKILL:  # it was quicker
                break
            kills += 1
        with process.go(path, RUN, effects) as told:
            told.read()
        assert 0 == process.end("wait")
    resumed = anyio.run(judge, path, effects.read_text().splitlines())
    assert kills >= 10
    assert resumed >= 10
