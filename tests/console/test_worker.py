"""`refold worker`, and what is left to it: real processes over one file, killed, stopped and racing."""

import contextlib
import json
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from console import laborious
from console.conftest import EVIL, Refold, Started
from console.test_hostile import dangerous
from refold.engine import Agent, ScriptedModel, calls, say, todos
from refold.store import SqliteStore

Scripted = Callable[[list[Any]], None]

TOOLS = ("--tools", "laborious:work")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))
    monkeypatch.setenv("GATE", str(tmp_path / "gate"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the model of `laborious` the one that every command in this process gets."""
    monkeypatch.setattr("refold.console.agents.model_at", laborious.resolve)


def queued(store: Path, *runs: str) -> None:
    """Runs that wait for a worker."""

    async def queue() -> None:
        async with await SqliteStore.open(store) as opened:
            agent = Agent(model=laborious.Laborious(), tools=[laborious.work], store=opened)
            for run in runs:
                await agent.start("Work.", run_id=run).detach()

    anyio.run(queue)


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, for ten seconds at most."""
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def listed(refold: Refold, store: Path) -> dict[str, dict[str, Any]]:
    """The runs of the store as `ls` has them."""
    return {each["run"]: each for each in json.loads(refold("ls", "-o", "json", "--store", store).out)}


def takings(store: Path) -> dict[str, int]:
    """How often each run was taken up."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        taken = connection.execute("SELECT run FROM log WHERE kind = 'run_resumed'").fetchall()
    return Counter(run for (run,) in taken)


def whole(refold: Refold, store: Path) -> bool:
    """Whether all logs verify and audit."""
    return [0, 0] == [refold(word, "--all", "--store", store).code for word in ("verify", "audit")]


def test_two_workers(started: Started, refold: Refold, store: Path, tmp_path: Path) -> None:
    """Of twenty runs each is taken up by one of two workers, which drive at the same time, and works once."""
    runs = [f"run-{number:02}" for number in range(20)]
    queued(store, *runs)
    workers = [
        started("worker", "--until-idle", "--concurrency", "4", "-o", "json", *TOOLS) for _ in range(2)
    ]
    until(lambda: len(laborious.effects()) == 8)
    assert {worker.pid for worker in workers} == {process for process, _ in laborious.effects()}
    (tmp_path / "gate").touch()
    told = [worker.communicate(timeout=30)[0] for worker in workers]
    assert [0, 0] == [worker.returncode for worker in workers], told
    assert runs == sorted(run for _, run in laborious.effects())
    news = [json.loads(line) for line in "".join(told).splitlines() if line.startswith("{")]
    assert set(runs) == {line["run"] for line in news if line["type"] == "put_down"}
    assert dict.fromkeys(runs, 1) == takings(store)
    assert {"COMPLETED"} == {each["agent_state"] for each in listed(refold, store).values()}
    assert whole(refold, store)


@pytest.mark.slow
def test_a_worker_is_killed(started: Started, refold: Refold, store: Path, tmp_path: Path) -> None:
    """Killed in the middle of a tool, its run is another's when the lease has run out, and the tool does not
    run again.
    """
    queued(store, "run-1")
    first = started("worker", "--lease", "0.5", *TOOLS)
    until(lambda: bool(laborious.effects()))
    first.kill()
    first.wait()
    assert "abandoned" == listed(refold, store)["run-1"]["engine"]["standing"]
    for words in (["ls"], ["show", "run-1"]):
        assert (
            f"refold resume run-1 --store {store}   its engine is gone"
            in refold(*words, "--store", store).err
        )
    (tmp_path / "gate").touch()
    second = started("worker", "-o", "json", *TOOLS)
    assert second.stdout is not None
    news = [next(json.loads(line) for line in second.stdout if line.startswith("{")) for _ in range(2)]
    second.send_signal(signal.SIGTERM)
    assert 0 == second.wait(10)
    assert [("taken_up", "run-1"), ("put_down", "run-1")] == [(line["type"], line["run"]) for line in news]
    assert [(first.pid, "run-1")] == laborious.effects()
    assert "COMPLETED" == listed(refold, store)["run-1"]["agent_state"]
    assert whole(refold, store)


@pytest.mark.usefixtures("here")
def test_resume_after_a_kill(started: Started, refold: Refold, store: Path, tmp_path: Path) -> None:
    """A run whose engine was killed on this machine is resumed at once, however long its lease is."""
    queued(store, "run-1")
    worker = started("worker", "--lease", "600", *TOOLS)
    until(lambda: bool(laborious.effects()))
    driven = listed(refold, store)["run-1"]["engine"]
    assert "driven" == driven["standing"]
    assert 0 < driven["seconds"] <= 600
    assert f"driven by process {worker.pid} on" in refold("ls", "--store", store).out
    worker.kill()
    worker.wait()
    ran = refold("resume", "run-1", "--tools", "console.laborious:work", "--store", store)
    assert 0 == ran.code, ran.err
    assert 1 == len(laborious.effects())


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGTERM, 0, id="SIGTERM"), pytest.param(signal.SIGINT, 130, id="Ctrl-C")],
)
def test_a_worker_is_stopped(
    number: signal.Signals, code: int, started: Started, refold: Refold, store: Path
) -> None:
    """Told to stop without a drain, it leaves its runs as they stand, for others to take up at once."""
    queued(store, "run-1")
    worker = started("worker", "--drain", "0", *TOOLS)
    until(lambda: bool(laborious.effects()))
    worker.send_signal(number)
    out, _ = worker.communicate(timeout=10)
    assert code == worker.returncode, out
    assert "Traceback" not in out
    assert "left to other workers after event 6; outcome unknown: c1" in out
    assert {"standing": "queued", "holder": "", "seconds": 0.0} == listed(refold, store)["run-1"]["engine"]
    assert whole(refold, store)


def test_a_second_signal(
    started: Started, refold: Refold, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends a worker at once, whatever a tool does; the log is whole."""
    monkeypatch.setenv("STUBBORN", "")
    queued(store, "run-1")
    worker = started("worker", *TOOLS)
    until(lambda: bool(laborious.effects()))
    worker.send_signal(signal.SIGTERM)
    assert worker.stdout is not None
    assert any("a second signal ends at once" in line for line in worker.stdout)
    worker.send_signal(signal.SIGINT)
    assert 130 == worker.wait(10)
    assert "abandoned" == listed(refold, store)["run-1"]["engine"]["standing"]
    assert whole(refold, store)


def test_nobody_reads(started: Started, refold: Refold, store: Path, tmp_path: Path) -> None:
    """A worker whose lines nobody takes any more ends without a word, and leaves its runs to others."""
    queued(store, "run-1", "run-2")
    worker = started("worker", "--concurrency", "1", *TOOLS)
    until(lambda: bool(laborious.effects()))
    assert worker.stdout is not None
    worker.stdout.close()
    (tmp_path / "gate").touch()
    assert 141 == worker.wait(10)
    runs = listed(refold, store)
    assert ["COMPLETED", "RUNNING"] == [runs[run]["agent_state"] for run in ("run-1", "run-2")]
    assert "queued" == runs["run-2"]["engine"]["standing"]


def empty(path: Path) -> None:
    """Make a store without runs."""

    async def make() -> None:
        async with await SqliteStore.open(path):
            pass

    anyio.run(make)


def test_nothing_to_do(refold: Refold, store: Path) -> None:
    """With --until-idle a worker over an empty store ends at once, well; one over no store at all is
    refused.
    """
    ran = refold("worker", "--until-idle", "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert "the file does not exist" in ran.err
    empty(store)
    ran = refold("worker", "--until-idle", "--store", store)
    assert (0, "") == (ran.code, ran.out)
    assert f"takes runs from {store}, up to 8 at a time" in ran.err


@pytest.mark.usefixtures("here")
def test_a_run_that_cannot_be_driven(refold: Refold, store: Path) -> None:
    """A run whose tools the worker lacks is told with what to add, left to others, and keeps nobody from the
    next one.
    """
    queued(store, "run-1")
    ran = refold("worker", "--until-idle", "-o", "json", "--store", store)
    (line,) = map(json.loads, ran.out.splitlines())
    assert ("failed", "run-1", 60.0) == (line["type"], line["run"], line["again"])
    assert "add --tools module:attribute" in line["problem"]
    assert 1 == ran.code
    later = listed(refold, store)["run-1"]["engine"]
    assert "queued" == later["standing"]
    assert "RUNNING, waits for" in refold("ls", "--store", store).out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["--tools", "no.such:tool"], "ModuleNotFoundError", id="a module that is not there"),
        pytest.param(["--tools", "files"], "--root DIR", id="files without a root"),
        pytest.param(["--concurrency", "0"], "concurrency", id="no run at a time"),
        pytest.param(["--drain", "-1"], "drain", id="a drain of no time"),
        pytest.param(["--lease", "0"], "lease", id="no lease at all"),
    ],
)
def test_what_a_worker_cannot_have(words: list[str], says: str, refold: Refold, store: Path) -> None:
    """Wrong use is said before a store is made."""
    ran = refold("worker", *words, "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert says in ran.err
    assert not store.exists()


def test_run_detached(refold: Refold, scripted: Scripted, store: Path) -> None:
    """It is recorded and not begun; its id alone is the result, so that a script can take it."""
    scripted([say("Hi.")])
    ran = refold("run", "Greet", "--detach", "--store", store)
    run = ran.out.strip()
    assert 0 == ran.code, ran.err
    assert [run] == list(listed(refold, store))
    assert f"refold worker --store {store}" in ran.err
    assert f"refold show {run} --store {store}" in ran.err
    assert "RUNNING, waits for a worker" in refold("ls", "--store", store).out
    ran = refold("worker", "--until-idle", "--store", store)
    assert 0 == ran.code
    assert ["run", run, "put", "down,", "COMPLETED:"] == ran.out.splitlines()[-1].split()[3:8]
    assert None is listed(refold, store)[run]["engine"]


def test_run_detached_as_json(refold: Refold, scripted: Scripted, store: Path) -> None:
    """One line with the run and for whom it waits."""
    scripted([])
    told = json.loads(refold("run", "Greet", "--detach", "-o", "json", "--store", store).out)
    assert ("left", "RUNNING", 2, "a worker") == (
        told["type"],
        told["state"],
        told["events"],
        told["waits_for"],
    )


@pytest.fixture
def asking(store: Path) -> str:
    """A run that asks about two calls."""
    both = calls(("write_todos", {"items": []}), ("write_todos", {"items": []}))
    policy = {"approvals": {"chain": [{"approver": "human"}]}}
    agent = Agent(model=ScriptedModel([both]), tools=todos(), policy=policy, store=store)
    return agent.run_sync("Plan.", run_id="ask").run


def test_answers_left_to_a_worker(refold: Refold, scripted: Scripted, store: Path, asking: str) -> None:
    """Each answer is recorded where neither model nor tools are; when all are there, a worker goes on."""
    ran = refold("approve", asking, "c1", "--detach", "--store", store)
    assert (0, asking) == (ran.code, ran.out.strip())
    assert "the run waits for approval of c2" in ran.err
    assert f"refold approve {asking} c2 --store {store}" in ran.err
    ran = refold("reject", asking, "c2", "--by", f"ann {EVIL}", "--why", EVIL, "--detach", "--store", store)
    assert "the run waits for a worker" in ran.err
    scripted([say("Planned.")])
    assert 0 == refold("worker", "--until-idle", "--store", store).code
    assert "COMPLETED" == listed(refold, store)[asking]["agent_state"]
    assert whole(refold, store)
    assert set() == dangerous(ran.out + ran.err)


def test_a_message_left_to_a_worker(refold: Refold, scripted: Scripted, store: Path, waiting: str) -> None:
    """A run that waits for a message takes it without an engine, and a worker goes on."""
    ran = refold("resume", waiting, "--message", "Go on.", "--detach", "--store", store)
    assert (0, waiting) == (ran.code, ran.out.strip())
    assert "waits for a worker" in refold("ls", "--store", store).out
    ran = refold("resume", waiting, "--message", "Twice.", "--detach", "--store", store)
    assert 2 == ran.code
    assert "accepts a message only in WAITING_FOR_INPUT" in ran.err


@pytest.mark.usefixtures("here")
def test_a_run_that_another_machine_has(refold: Refold, store: Path, waiting: str) -> None:
    """Whoever comes second is told who has the run and for how long, and how to watch and to stop it: exit
    code 4.
    """
    queued(store, "run-1")

    async def hold() -> None:
        async with await SqliteStore.open(store) as opened:
            for run in ("run-1", waiting):
                await opened.lease(run, holder="far.example:77:x.1:abcd", seconds=90)

    anyio.run(hold)
    for words in (
        ["resume", "run-1", "--tools", "console.laborious:work"],
        ["resume", waiting, "--message", "Go on.", "--detach"],
    ):
        ran = refold(*words, "--store", store)
        assert (4, "") == (ran.code, ran.out)
        first, second = ran.err.splitlines()
        run = words[1]
        assert first.startswith(f"refold: run {run} is driven by process 77 on far.example, whose lease has ")
        assert f"`refold show {run} --follow --store {store}` watches it" in second
        assert f"`refold cancel {run} --store {store}` stops it" in second


def test_cancel_fences_a_worker_out(started: Started, refold: Refold, store: Path) -> None:
    """A run is cancelled under its worker, which tells that it lost it, stops the tool, and goes on with
    others.
    """
    queued(store, "run-1")
    worker = started("worker", "--lease", "0.6", "-o", "json", *TOOLS)
    until(lambda: bool(laborious.effects()))
    ran = refold("cancel", "run-1", "--store", store)
    assert 0 == ran.code, ran.err
    assert "CANCELLED" in ran.out
    assert "  c1  work  run run-1" in ran.out.splitlines()
    assert worker.stdout is not None
    news = [next(json.loads(line) for line in worker.stdout if line.startswith("{")) for _ in range(2)]
    assert [("taken_up", "run-1"), ("lost", "run-1")] == [(line["type"], line["run"]) for line in news]
    worker.send_signal(signal.SIGTERM)
    assert 0 == worker.wait(10)
    assert "CANCELLED" == listed(refold, store)["run-1"]["agent_state"]
    assert whole(refold, store)
