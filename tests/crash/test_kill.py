"""Processes killed with SIGKILL, at moments that a seed chooses, until their runs end all the same."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

import anyio
import msgspec
import pytest

from refold.reducers import codec
from refold.reducers.events import RunResumed, ToolReturned
from refold.reducers.vocabulary import ToolError
from refold.replay import audit, verify
from refold.store import SqliteStore

PROCESS = Path(__file__).with_name("agent_process.py")
RUNS, KILLS = 6, 100
AT_ONCE = 2
PATIENCE = 30.0


class Fate(msgspec.Struct):
    """What became of one run."""

    kills: int = 0
    reported: int = 0  # the highest event number that a subscriber was ever told
    lost: int = 0  # kills after which the log lacked an event that had been reported


class Starter:
    """The process that starts agents and kills them, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._pipe = folder / f"{threading.get_ident()}.pipe"
        os.mkfifo(self._pipe)
        self._process = subprocess.Popen(
            [sys.executable, str(PROCESS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def go(self, path: Path, run: str, effects: Path) -> BinaryIO:
        """Start an agent; what it says."""
        self._say("\t".join(["go", str(path), run, str(effects), str(self._pipe)]))
        return self._pipe.open("rb")

    def end(self, command: str) -> int:
        """`kill` it, or `wait` for it; its status."""
        self._say(command)
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE)
        self._pipe.unlink()

    def _say(self, command: str) -> None:
        assert self._process.stdin is not None
        print(command, file=self._process.stdin, flush=True)


def numbers(said: bytes) -> list[int]:
    """The event numbers in what a process said; a line that it had no time to end does not count."""
    return [int(line) for line in said.splitlines(keepends=True) if line.endswith(b"\n")]


def wait_a_moment(chance: random.Random, said: BinaryIO) -> bytes:
    """Let the process work: mostly until it told of some events, sometimes for any time.

    What it said until then.
    """
    heard = b""
    if chance.random() < 0.15:
        time.sleep(chance.uniform(0, 0.05))  # while it opens its store, or wherever it is
        return heard
    for _ in range(chance.randint(1, 9)):
        heard += said.readline()
    until = time.perf_counter() + chance.uniform(0, 0.003)
    while time.perf_counter() < until:
        pass
    return heard


async def head(path: Path, run: str) -> int:
    async with await SqliteStore.open(path) as store:
        return (await store.head(run)).seq


def drive(folder: Path, number: int, kills: int) -> Fate:
    """Kill a run so many times, or until it ends; then let it end."""
    chance, fate = random.Random(number), Fate()
    path, run, effects = folder / f"{number}.db", f"run{number}", folder / f"{number}.effects"
    starter = Starter(folder)
    try:
        while fate.kills < kills:
            with starter.go(path, run, effects) as said:
                heard = wait_a_moment(chance, said)
                status = starter.end("kill")
                fate.reported = max([fate.reported, *numbers(heard + said.read())])
            fate.lost += anyio.run(head, path, run) < fate.reported
            if status != signal.SIGKILL:  # it was quicker
                break
            fate.kills += 1
        with starter.go(path, run, effects) as said:
            fate.reported = max([fate.reported, *numbers(said.read())])
        assert status in (0, signal.SIGKILL)
        assert 0 == starter.end("wait")
    finally:
        starter.close()
    return fate


async def judge(path: Path, run: str, lines: list[str], fate: Fate) -> Counter[str]:
    async with await SqliteStore.open(path, readonly=True) as store:
        verified, judged = await verify(store, run), await audit(store, run)
        events = [codec.decode(each.kind, each.body) async for chunk in store.read(run) for each in chunk]
    acted = Counter(line for line in lines if line.startswith("act "))
    returned = [event for event in events if isinstance(event, ToolReturned)]
    assert verified.problem is None
    assert judged.clean
    assert "COMPLETED" == verified.agent_state
    assert fate.reported <= len(events)
    assert 0 == fate.lost
    assert [] == [line for line, times in acted.items() if times > 1]
    # Each result that is no doubt is of a call whose effect is there.
    happened = {line.split()[1] for line in lines}
    assert {event.call for event in returned if event.error is None} <= happened
    assert all(event.error in (None, ToolError.IN_DOUBT) for event in returned)
    doubts = sum(event.error is ToolError.IN_DOUBT for event in returned)
    repeats = Counter(line for line in lines if not line.startswith("act "))
    return Counter(
        events=len(events),
        resumed=sum(isinstance(event, RunResumed) for event in events),
        in_doubt=doubts,
        acted=len(acted),
        repeated=sum(times - 1 for times in repeats.values()),
    )


@pytest.mark.slow
def test_killed_a_hundred_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs killed a hundred times over verify, audit clean and end; nothing reported is missing, nothing done
    twice.
    """
    began, fates, begun = time.perf_counter(), list[Fate](), 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while sum(fate.kills for fate in fates) < KILLS:
            left = KILLS - sum(fate.kills for fate in fates)
            batch = range(begun, begun + min(RUNS, -(-left // 4)))
            fates += pool.map(partial(drive, tmp_path, kills=-(-left // len(batch))), batch)
            begun = batch.stop
    total = Counter[str]()
    for number, fate in enumerate(fates):
        effects = tmp_path / f"{number}.effects"
        found = anyio.run(
            judge, tmp_path / f"{number}.db", f"run{number}", effects.read_text().splitlines(), fate
        )
        total += found
    kills = sum(fate.kills for fate in fates)
    assert kills >= KILLS
    assert total["resumed"] > 0
    with capsys.disabled():
        figures = ", ".join(f"{count} {name}" for name, count in total.items())
        print(f"\n{kills} kills over {len(fates)} runs in {time.perf_counter() - began:.0f} s: {figures}")
