"""`refold ls`: which runs, in which order, and what of them fits a terminal."""

import json
from pathlib import Path

import pytest
from rich.cells import cell_len

from console.conftest import Refold, record
from refold.console import ls
from refold.console.screen import Screen
from refold.engine import Agent, ScriptedModel, say

LONG = "a task of so many words that no terminal has room for all of them, not even a wide one " * 3


@pytest.fixture
def many(store: Path, waiting: str) -> list[str]:
    """Seven runs, four of which have ids that begin alike; the newest first."""
    ids = [f"who_when-{tail}" for tail in ("12345678", "12349999", "abcdef00", "abcdefff")]
    for run in ids:
        record(store, [say("Done.")], LONG, run_id=run)
    return [*reversed(ids), waiting, "aa22", "aa11"]


def listed(refold: Refold, store: Path, *words: str) -> list[str]:
    return [each["run"] for each in json.loads(refold("ls", *words, "-o", "json", "--store", store).out)]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_line_fits_a_terminal(
    width: int, refold: Refold, store: Path, many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line a run, none wider than the terminal; each begins with what names that run alone, and no more
    than needed.
    """
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(Screen, "live", True)
    head, *rows = refold("ls", "--store", store).out.splitlines()
    assert ["run", "age", "state", "turns", "cost", "from", "task"] == head.split()
    assert [] == [row for row in rows if cell_len(row) > width]
    named = [row.split()[0] for row in rows]
    assert many == [
        json.loads(refold("-o", "json", "state", each, "--store", store).out)["setup"]["run"]
        for each in named
    ]
    assert ["who_when-abcdeff", "who_when-abcdef0", "who_when-12349", "who_when-12345"] == named[:4]


def test_a_run_is_named_by_its_agent(
    refold: Refold, store: Path, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a run comes from no file, it is told whose it is; where nobody said that, which model was
    asked.
    """
    Agent(model=ScriptedModel([say("Done.")]), store=store, name="billing").run_sync("Pay.")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(Screen, "live", True)
    _, named, other, *_ = refold("ls", "--store", store).out.splitlines()
    assert ("billing" in named, "scripted" in other) == (True, True)


def test_piped_nothing_is_cut(refold: Refold, store: Path, many: list[str]) -> None:
    """Whoever reads a pipe gets whole ids."""
    assert many == [row.split()[0] for row in refold("ls", "--store", store).out.splitlines()[1:]]


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        pytest.param(["--state", "completed"], ["aa11"], id="a state, in any case"),
        pytest.param(["--state", "step_limit"], ["aa22"], id="the code of an end"),
        pytest.param(["--state", "MAX_STEPS", "--state", "completed"], ["aa22", "aa11"], id="any of several"),
        pytest.param(["--since", "1h"], ["bb33", "aa22", "aa11"], id="since an hour ago"),
        pytest.param(["--since", "2999-01-01"], [], id="since a date"),
        pytest.param(["--label", "kind=none"], [], id="a label that none has"),
        pytest.param(["--sort", "steps"], ["aa11", "aa22", "bb33"], id="the most turns first"),
        pytest.param(["--sort", "steps", "--most", "1"], ["aa11"], id="sorted before cut"),
        pytest.param(["--sort", "started"], ["bb33", "aa22", "aa11"], id="the last begun first"),
    ],
)
def test_which_runs_in_which_order(
    words: list[str], runs: list[str], refold: Refold, store: Path, waiting: str
) -> None:
    """All that was asked for must fit; what is not known comes last."""
    assert runs == listed(refold, store, *words)


def test_what_is_not_known_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown is not 0: a run that cost nothing stands before one of which nobody knows."""
    free, unknown = ls.RunLine(run="free", cost_nanousd=0), ls.RunLine(run="unknown")
    assert ls._measure(unknown, ls.Order.COST) < ls._measure(free, ls.Order.COST)


@pytest.mark.parametrize("text", ["yesterday", "2x", "-1d", "2026-13-01", "1e3d"])
def test_no_instant(text: str, refold: Refold, store: Path, waiting: str) -> None:
    """What is neither a time ago nor a date is refused, with examples of both."""
    ran = refold("ls", "--since", text, "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert "2d" in ran.err
    assert "2026-01-31" in ran.err


def test_none_is_so(refold: Refold, store: Path, waiting: str) -> None:
    """Where no run is in the state that was asked for, those that there are are named."""
    ran = refold("ls", "--state", "on_fire", "--store", store)
    assert (0, "") == (ran.code, ran.out)
    assert "COMPLETED" in ran.err
