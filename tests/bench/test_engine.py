"""The benchmark of the engine runs: for a handful of steps, and never by the clock."""

import asyncio
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from bench import contenders, engine, run
from bench.contenders import Contender, Missing
from bench.engine_steps import Alone, alone, beginning, counts, memory, together

STORES = ("memory", "process", "fsync")
POLICIES = ("unpruned", "tail of 100")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_is_measured_around_numbers_of_steps(store: str, policy: str, tmp_path: Path) -> None:
    """A run takes all its steps, and has a figure for each number that it came past."""
    told = asyncio.run(alone(store, str(tmp_path), policy, steps=20, texts="long", patience=60))
    assert (20, {10}) == (told.reached, set(told.at))


def test_a_run_without_patience_ends_where_it_is(tmp_path: Path) -> None:
    """The figure of a run that was stopped is that of the steps that it took."""
    told = asyncio.run(alone("memory", str(tmp_path), "unpruned", steps=1_000, texts="short", patience=0))
    assert told.reached < 1_000


@pytest.mark.parametrize("store", STORES)
def test_runs_at_once_are_measured(store: str, tmp_path: Path) -> None:
    """As many runs as were asked for go on together, and their lag is told in order."""
    told = asyncio.run(together(store, str(tmp_path), "tail of 100", runs=3, steps=4))
    assert 0 < told.rate
    assert told.lag_p50 <= told.lag_p99 <= told.lag_max


def test_calls_are_those_of_one_step(tmp_path: Path) -> None:
    """A step is counted by itself: twice as many steps are not twice as many calls."""
    once, twice = (
        asyncio.run(counts("memory", str(tmp_path), "unpruned", skipped=3, steps=steps)) for steps in (5, 10)
    )
    assert 0 < twice.python < 1.5 * once.python
    assert 0 < once.handles


def test_memory_is_that_of_a_run(tmp_path: Path) -> None:
    """The text in the window of a run of three steps is the task, three answers and three results."""
    told = asyncio.run(memory("memory", str(tmp_path), "unpruned", runs=2, steps=3))
    assert 3 * 900 < told.window < 3 * 1_000
    assert told.window < told.traced


def test_a_run_begins_and_ends(tmp_path: Path) -> None:
    """An agent, a start and an end each take some time."""
    told = asyncio.run(beginning("memory", str(tmp_path), runs=2))
    assert min(told.agent, told.start, told.end) > 0


def test_a_contender_answers(tmp_path: Path) -> None:
    """A script in a process of its own says what it measures, and answers in the kind that was asked for."""
    with Contender("engine_steps.py") as ours:
        assert "refold" in ours.versions
        words = {"store": "memory", "folder": str(tmp_path), "policy": "unpruned", "texts": "short"}
        assert 20 == ours.ask(Alone, "alone", **words, steps=20, patience=60).reached


def test_a_contender_that_stops_is_missing() -> None:
    """Whoever asks a script that cannot run is told so."""
    with pytest.raises(Missing, match="exit code 2"), Contender("none.py"):
        pass


def test_an_environment_that_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The last line that pip said is the reason; nothing counts as installed."""

    def refused(words: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, words, stderr="trying\nERROR: no such registry\n")

    monkeypatch.setattr(contenders, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(subprocess, "run", refused)
    with pytest.raises(Missing, match="no such registry"):
        contenders.contender("langgraph")
    assert [] == list(tmp_path.rglob("installed"))


@pytest.mark.slow
def test_everything_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`make bench ARGS=engine` prints each table and the aims, and goes on without those that are missing."""

    def missing(name: str) -> Contender:
        raise Missing("no registry")

    monkeypatch.setattr(engine, "contender", missing)
    monkeypatch.setattr(engine, "ENVIRONMENTS", tmp_path / "environments")
    monkeypatch.setattr(engine, "RUNS", {1: 2, 200: 2})
    monkeypatch.setattr(engine, "ALONE", (20, 21))
    monkeypatch.setattr(engine, "BESIDE", (2,))
    monkeypatch.setattr(engine, "BEGUN", 2)
    monkeypatch.setattr(engine, "HELD", (2, 2))
    monkeypatch.setattr(sys, "argv", ["run.py", "engine", "--rounds", "1"])
    run.main()
    printed = capsys.readouterr().out
    assert "langgraph is not measured: no registry" in printed
    assert "lag at p99" in printed.partition("the aims")[2]


def test_an_unknown_part_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another word than a part's name is refused, and the parts are listed."""
    monkeypatch.setattr(sys, "argv", ["run.py", "engines"])
    with pytest.raises(SystemExit):
        run.main()
    assert "engines: expected some of core" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("needed", "name"), [("langgraph", "langgraph"), ("pydantic_ai", "pydantic_ai")])
def test_others_are_measured(needed: str, name: str) -> None:
    """Where what is measured beside us is installed, each of its cases takes three steps."""
    pytest.importorskip(needed)
    module = importlib.import_module(f"bench.{name}_steps")
    assert set(engine.CASES[name]) == set(module.CASES)
    for case in module.CASES.values():
        assert isinstance(case(3), float)
