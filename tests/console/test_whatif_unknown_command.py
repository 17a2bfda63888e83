"""`refold whatif` over transcripts that lack what the policy asks after: a headline, a cell, a line, an exit
code.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from support.transcripts import path_of

BARE = "tau_bench/airline-one-run.json"  # calls and answers; no tools, tokens, prices, times
OTHER = "swe_agent/gpt4-pydicom-1458.traj"  # so is this


@pytest.fixture
def bare(refold: Refold, store: Path) -> Path:
    """A store with the run of one transcript."""
    assert 0 == refold("import", path_of(BARE), "--store", store).code
    return store


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        pytest.param(["limits.cost=1000"], "cost limits", id="no prices"),
        pytest.param(["limits.token=1000000000"], "token limits", id="no tokens"),
        pytest.param(["limits.time=1000000"], "time limits", id="no times"),
        pytest.param(["limits.step=500", "limits.cost=1000"], "cost limits", id="and a limit that is judged"),
        pytest.param(["guards.read_only.batches=1"], "which are read-only", id="no classes of tools"),
    ],
)
def test_what_is_not_known_is_no_agreement(
    refold: Refold, bare: Path, settings: list[str], missing: str
) -> None:
    """A policy that asks after what was not recorded is not judged, says so first, says what is missing, and
    is 125.
    """
    said = refold("whatif", "@last", *(f"--set={each}" for each in settings), "--store", bare)
    assert 125 == said.code
    assert ": inconclusive from event " in said.out.splitlines()[0]
    assert missing in said.out
    assert "AGREE" not in said.out


def test_what_is_not_known_in_a_table(refold: Refold, bare: Path) -> None:
    """Of several runs no cell, and no total, says of a run that was not judged that it agrees."""
    assert 0 == refold("import", path_of(OTHER), "--store", bare).code
    said = refold("whatif", "--all", "--set", "limits.cost=1000", "--store", bare)
    assert 125 == said.code
    assert 2 == refold("whatif", "--all", "--every", "--set", "limits.cost=1000", "--store", bare).out.count(
        "inconclusive e"
    )
    assert "inconclusive  2 runs: cost limits" in said.out
    assert "limits.cost=1000: 2 runs, inconclusive 2\n" in said.out
    assert "AGREE" not in said.out


def test_what_is_not_known_as_json(refold: Refold, bare: Path) -> None:
    """The verdict is a word of its own, in the run and in the totals."""
    said = refold("whatif", "@last", "--set", "limits.cost=1000", "--store", bare, "-o", "json").out
    run, totals = (json.loads(line) for line in said.splitlines())
    assert "inconclusive" == run["whatif"]["verdict"]
    assert {"inconclusive": 1} == totals["totals"]["verdicts"]


STRANGE: dict[str, dict[str, Any]] = {
    "another provider's call": {"content": [{"toolUse": {"toolUseId": "a", "name": "rm", "input": {}}}]},
    "a call of another kind": {"content": [{"type": "mcp_tool_use", "id": "a", "name": "rm", "input": {}}]},
    "calls that are no list": {"content": "I will.", "tool_calls": {"id": "a", "function": {"name": "rm"}}},
    "calls that are text": {"content": "I will.", "tool_calls": "rm"},
    "calls by another name": {"content": "I will.", "toolCalls": [{"name": "rm"}]},
}


@pytest.mark.parametrize("message", STRANGE)
def test_a_call_in_a_form_that_is_not_known(
    message: str, refold: Refold, store: Path, tmp_path: Path
) -> None:
    """What looks like a call and is read as none is told at the import, and no policy is said to agree."""
    file = tmp_path / "messages.json"
    rows = [{"role": "user", "content": "Clean up."}, {"role": "assistant", **STRANGE[message]}]
    file.write_text(json.dumps([*rows, {"role": "assistant", "content": "Done."}]))
    said = refold("import", file, "--store", store)
    assert (1, True) == (said.code, "may be a call" in said.out)
    assert 125 == refold("whatif", "@last", "--set", "limits.step=9", "--store", store).code


def test_unknown_figures_are_null(refold: Refold, bare: Path) -> None:
    """In JSON no figure that nobody told is 0: not the tokens, nor the cost, nor how long it took."""
    said = refold("whatif", "@last", "--set", "limits.step=2", "-o", "json", "--store", bare)
    found = json.loads(said.out.splitlines()[0])["whatif"]
    for part in ("until", "saved"):
        told = found[part]
        assert told["steps"] > 0
        assert [None] * 4 == [told[name] for name in ("input", "output", "cost_nanousd", "duration")]


def test_a_limit_that_the_least_reaches_is_reached(refold: Refold, bare: Path) -> None:
    """Where another limit ends the run for certain, it stops there at the latest, and what it saves is a
    least.
    """
    said = refold("whatif", "@last", "--set=limits.step=2", "--set=limits.token=1000000", "--store", bare)
    assert 1 == said.code
    assert said.out.splitlines()[0].endswith(", in turn 2, at the latest")
    assert "recorded, at least: it may have stopped earlier" in said.out
    assert "inconclusive  token limits" in said.out


@pytest.mark.parametrize("approver", ["reject", "human"])
def test_a_call_of_a_tool_that_nobody_listed_is_judged(
    refold: Refold, bare: Path, tmp_path: Path, approver: str
) -> None:
    """A policy that lets no call run is another one for a run that made calls, whatever tools its source
    lists.
    """
    policy = tmp_path / "careful.yaml"
    policy.write_text(
        f"schema: refold/v1\npreset: observed\napprovals: {{chain: [{{approver: {approver}}}]}}\n"
    )
    said = refold("whatif", "@last", "--policy", policy, "--store", bare)
    assert (1, True) == (said.code, "DIVERGES" in said.out.splitlines()[0])
