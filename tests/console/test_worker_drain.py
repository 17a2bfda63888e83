"""A deployment stops `refold worker` by SIGTERM: real processes, one after the other, over one file."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from console import laborious
from console.conftest import LABORIOUS, Refold, Started
from console.test_worker import TOOLS, listed, queued, takings, until, whole
from refold.engine import Agent
from refold.reducers.machine import AgentState
from refold.replay import events, state_at
from refold.store import open_store


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))
    monkeypatch.setenv("GATE", str(tmp_path / "gate"))


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGTERM, 0, id="SIGTERM"), pytest.param(signal.SIGINT, 130, id="Ctrl-C")],
)
def test_a_call_ends_before_its_worker(
    number: signal.Signals, code: int, started: Started, refold: Refold, store: Path, tmp_path: Path
) -> None:
    """Its result is recorded, queued runs are not taken, and the next worker goes on without repeating it."""
    queued(store, "run-1", "run-2")
    first = started("worker", "--concurrency", "1", "-o", "json", *TOOLS)
    until(lambda: bool(laborious.effects()))
    first.send_signal(number)
    time.sleep(0.2)  # it would have ended by now, if it did not wait for the call
    assert first.poll() is None
    (tmp_path / "gate").touch()
    out, _ = first.communicate(timeout=10)
    assert code == first.returncode, out
    news = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert [("taken_up", "run-1"), ("handed_over", "run-1")] == [(line["type"], line["run"]) for line in news]
    assert "calls" not in news[1]
    runs = listed(refold, store)
    assert {"queued"} == {runs[run]["engine"]["standing"] for run in ("run-1", "run-2")}
    assert 0 == refold("doubts", "--store", store).code
    second = started("worker", "--until-idle", *TOOLS)
    assert 0 == second.wait(20)
    assert [(first.pid, "run-1"), (second.pid, "run-2")] == laborious.effects()
    assert {"COMPLETED"} == {each["agent_state"] for each in listed(refold, store).values()}
    assert {"run-1": 2, "run-2": 1} == takings(store)
    assert 0 == refold("doubts", "--store", store).code
    assert whole(refold, store)


def test_a_call_takes_longer_than_the_drain(
    started: Started, refold: Refold, store: Path, tmp_path: Path
) -> None:
    """It is cut off and named, `doubts` lists it, and no worker repeats it."""
    queued(store, "run-1")
    first = started("worker", "--drain", "0.5", *TOOLS)
    until(lambda: bool(laborious.effects()))
    first.send_signal(signal.SIGTERM)
    out, _ = first.communicate(timeout=10)
    assert 0 == first.returncode, out
    assert "calls in progress have 0.5 s to end; a second signal ends at once" in out
    assert "left to other workers after event 6; outcome unknown: c1" in out
    doubts = refold("doubts", "-o", "json", "--store", store)
    assert (1, ["c1"]) == (doubts.code, [call["call"] for call in json.loads(doubts.out)["calls"]])
    (tmp_path / "gate").touch()
    assert 0 == started("worker", "--until-idle", *TOOLS).wait(20)
    assert [(first.pid, "run-1")] == laborious.effects()
    assert "COMPLETED" == listed(refold, store)["run-1"]["agent_state"]
    assert whole(refold, store)


def test_a_second_sigterm(started: Started, store: Path) -> None:
    """It ends a draining worker at once."""
    queued(store, "run-1")
    worker = started("worker", "--drain", "600", *TOOLS)
    until(lambda: bool(laborious.effects()))
    worker.send_signal(signal.SIGTERM)
    assert worker.stdout is not None
    assert any("a second signal ends at once" in line for line in worker.stdout)
    worker.send_signal(signal.SIGTERM)
    assert 143 == worker.wait(10)


def test_an_idle_worker_stops_at_once(started: Started, store: Path) -> None:
    """A drain lasts no longer than what is in progress."""
    queued(store)
    worker = started("worker", *TOOLS)
    assert worker.stdout is not None
    assert "takes runs from" in worker.stdout.readline()
    began = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert 0 == worker.wait(10)
    assert 5 > time.monotonic() - began


@pytest.mark.slow
def test_a_rolling_deployment_over_postgresql(postgres: str, tmp_path: Path) -> None:
    """Two workers create the tables of an empty database; one is stopped during its calls, and the other
    completes its runs: no call is repeated or in doubt.
    """
    argv = [sys.executable, str(LABORIOUS), "worker", "--store", postgres, "--listen", "0", *TOOLS]
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)) for _ in range(2)
        )
        for worker in (first, second):
            stack.callback(worker.kill)
            assert worker.stderr is not None
            assert any("takes runs from" in line for line in worker.stderr)
        runs = [f"run-{number}" for number in range(12)]
        anyio.run(_queue, postgres, runs)
        until(lambda: len(laborious.effects()) == 12)
        first.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        (tmp_path / "gate").touch()
        assert 0 == first.wait(20)
        until(lambda: all(state is AgentState.COMPLETED for state in anyio.run(_states, postgres, runs)))
        second.send_signal(signal.SIGTERM)
        assert 0 == second.wait(20)
    assert {first.pid, second.pid} == {process for process, _ in laborious.effects()}
    assert runs == sorted((run for _, run in laborious.effects()), key=runs.index)
    assert [] == anyio.run(_doubts, postgres, runs)


async def _queue(address: str, runs: list[str]) -> None:
    async with await open_store(address) as store:
        agent = Agent(model=laborious.Laborious(), tools=[laborious.work], store=store)
        for run in runs:
            await agent.start("Work.", run_id=run).detach()


async def _states(address: str, runs: list[str]) -> list[AgentState]:
    async with await open_store(address) as store:
        return [(await state_at(store, run))[0].agent_state for run in runs]


async def _doubts(address: str, runs: list[str]) -> list[str]:
    async with await open_store(address) as store:
        return [
            call
            for run in runs
            async for _, event in events(store, run)
            for call in getattr(event, "in_doubt", ())
        ]
