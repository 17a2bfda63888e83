"""`refold whatif` under rules over arguments: the call that is named, the order of a table, JSON, and rules
that fit nothing.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from refold.engine import Agent, ScriptedModel, call, say, tool

EVIL = "\x1b[31mred\x1b]0;owned\x07"


@tool(replay="read_only")
def look(path: str) -> str:
    """Look at a file."""
    return path


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def pushed(store: Path, name: str, *commands: str) -> None:
    """A run in the store whose model looks at these paths."""
    script = [*(call("look", path=command) for command in commands), say("Done.")]
    Agent(model=ScriptedModel(script), tools=[look], store=str(store)).run_sync(
        f"Task of {name}", run_id=name
    )


@pytest.fixture
def rule(tmp_path: Path) -> Path:
    """A policy with a rule over arguments."""
    policy = tmp_path / "rule.json"
    guard = {
        "guard": "arguments",
        "tool": "look",
        "matches": r"git\s+push",
        "unless": "--dry-run",
        "then": "stop",
    }
    policy.write_text(json.dumps({"schema": "refold/v1", "guards": [guard]}))
    return policy


def test_the_call_and_the_rule_are_named(refold: Refold, store: Path, rule: Path) -> None:
    """Of one run the reason names tool, main argument and rule, on one harmless line, and the exit code is
    1.
    """
    pushed(store, "bad", "git push --dry-run", f"cd x && {EVIL}\n git  push")
    said = refold("whatif", "bad", "--policy", rule, "--store", store)
    why = next(line for line in said.out.splitlines() if line.startswith("  why"))
    assert why.startswith("  why         blocked: look `cd x && \\x1b[31mred")
    assert why.endswith(r"git push` matches rule guards[0] `git\s+push`, unless `--dry-run`")
    assert (1, False) == (said.code, "\x1b" in said.out)


def test_what_stops_comes_first(refold: Refold, store: Path, rule: Path) -> None:
    """Of many runs those that stop come first, with when they began, their task and the call; those that
    agree are counted.
    """
    for name, commands in (("a", ["ls"]), ("b", ["git push"]), ("c", ["ls", "git push"]), ("d", [])):
        pushed(store, name, *commands)
    words = ("whatif", "--all", "--policy", rule, "--policy", "paperbench", "--store", store)
    head, *rows = refold(*words).out.splitlines()
    assert ["RUN", "BEGAN", "TASK"] == head.split()[:3]
    stops, diverges = [row for row in rows if "STOPS e" in row], [row for row in rows if "STOPS e" not in row]
    assert rows[:2] == stops
    assert {"b", "c"} == {row.split()[0] for row in stops}
    assert all("Task of " in row and "look `git push`, rule guards[0]" in row for row in stops)
    assert diverges
    alone = refold(*words[:4], "--store", store).out
    assert "and 2 runs AGREE under" in alone
    assert "AGREES\n" in refold(*words[:4], "--every", "--store", store).out


def test_json_has_no_json_in_its_texts(refold: Refold, store: Path, rule: Path) -> None:
    """The decisions that part, the other run's state and the call are objects, in `whatif` and in
    `--view`.
    """
    pushed(store, "bad", "git push")
    found, totals = lines(refold("whatif", "bad", "--policy", rule, "--store", store, "-o", "json").out)
    verdict = found["whatif"]
    assert ("call_refused", "c1") == (verdict["derived"]["kind"], verdict["derived"]["call"])
    assert "tools_dispatched" == verdict["recorded"]["kind"]
    assert "ERROR" == verdict["state"]["agent_state"]
    subject = {"call": "c1", "tool": "look", "argument": "git push", "rule": "guards[0]", "pattern": r"git\s+push", "unless": "--dry-run"}  # fmt: skip
    assert subject == verdict["subject"]
    assert ({}, []) == (totals["inconclusive"], totals["unfit"])
    view = refold("whatif", "--view", "bad@t1", "--set", "nudge=true", "--store", store, "-o", "json").out
    assert not isinstance(json.loads(view)["found"]["derived"], str)


@pytest.mark.parametrize(
    ("tool_", "code", "said"),
    [
        pytest.param("l*", 0, "AGREE", id="a glob that fits"),
        pytest.param("lok", 125, "guards[0].tool matches nothing in any of these runs", id="a misspelt name"),
        pytest.param("look|edit", 125, "guards[0].tool matches nothing in any of these runs", id="alternatives, which no glob has"),
    ],
)  # fmt: skip
def test_a_rule_that_fits_nothing_is_no_success(
    tool_: str, code: int, said: str, refold: Refold, store: Path, tmp_path: Path
) -> None:
    """If a rule fits nothing in any of the runs, nothing was tested: the exit code is 125, though nothing
    differs.
    """
    pushed(store, "a", "ls")
    pushed(store, "b")
    policy = tmp_path / "rule.json"
    guard = {"guard": "arguments", "tool": tool_, "matches": "mkfs"}
    policy.write_text(json.dumps({"schema": "refold/v1", "guards": [guard]}))
    found = refold("whatif", "--all", "--policy", policy, "--store", store)
    assert (code, True) == (found.code, said in found.out), found.out
