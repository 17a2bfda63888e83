"""The totals of `refold whatif`: rules that fit nothing, the words of JSON, names of rules, and what is
counted once.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from console.conftest import Refold
from refold.console.screen import Screen
from refold.engine import Agent, ScriptedModel, call, say, tool


@tool(name="Bash", replay="read_only")
def bash(command: str) -> str:
    """Return the command."""
    return command


@pytest.fixture
def runs(store: Path) -> Path:
    """Two runs that push, and one that lists."""
    for name, command in (("one", "git push"), ("two", "git push -f"), ("three", "ls")):
        script = [call("Bash", command=command), say("Done.")]
        Agent(model=ScriptedModel(script), tools=[bash], store=str(store)).run_sync("Go", run_id=name)
    return store


def rule(folder: Path, **keys: Any) -> Path:
    file = folder / "rule.json"
    guard = {"guard": "arguments", "name": "push", "matches": "git push", "then": "stop", **keys}
    file.write_text(json.dumps({"schema": "refold/v1", "guards": [guard]}))
    return file


def test_agreement_of_rules_that_fit_nothing_is_counted(refold: Refold, runs: Path, tmp_path: Path) -> None:
    """The headline counts runs that agree because a rule fits nothing, and the totals suggest the name in its
    own case.
    """
    said = refold("whatif", "--all", "--policy", rule(tmp_path, tool="*bash"), "--store", runs)
    assert "3 runs, AGREES 3 (3 of them: a rule matches nothing)" in said.out
    assert "guards[0].tool matches nothing in any of these runs; did you mean 'Bash'?" in said.out
    assert 125 == said.code


@pytest.mark.parametrize(
    ("tool", "meant"),
    [
        pytest.param("*bash", "; did you mean 'Bash'?", id="a glob in another case"),
        pytest.param("bash", "; did you mean 'Bash'?", id="a name in another case"),
        pytest.param("BASH*", "; did you mean 'Bash'?", id="a glob in capitals"),
        pytest.param("Bahs", "; did you mean 'Bash'?", id="a slip of the pen"),
        pytest.param("mcp__*", "", id="a tool that is not there"),
    ],
)
def test_a_tool_is_suggested_for_one_run_and_for_many(
    tool: str, meant: str, refold: Refold, runs: Path, tmp_path: Path
) -> None:
    """A glob distinguishes case: it fits no call of a tool in another case, and the same tool is suggested
    everywhere.
    """
    file = rule(tmp_path, tool=tool)
    for asked in (["one"], ["one", "two"], ["--all"]):
        said = refold("whatif", *asked, "--policy", file, "--store", runs)
        assert 125 == said.code
        assert ("did you mean" in said.out) == bool(meant), asked
        assert meant in said.out, asked


def test_json_and_text_use_the_same_words(refold: Refold, runs: Path, tmp_path: Path) -> None:
    """JSON has `cut_short` as the text has `cut short`, counts a stop once, and names the rule."""
    asked = ["whatif", "--all", "--policy", rule(tmp_path), "--store", runs]
    text = refold(*asked).out
    *verdicts, totals = map(json.loads, refold("-o", "json", *asked).out.splitlines())
    assert ({"arguments": 2}, {"push": 2}) == (totals["totals"]["cut_short"], totals["totals"]["fired"])
    assert ["cut", "short", "arguments", "2"] in map(str.split, text.splitlines())
    assert ["fired", "push", "2", "in", "2", "runs"] in map(str.split, text.splitlines())
    assert ["push (guards[0])"] * 2 == [
        each["whatif"]["subject"]["rule"] for each in verdicts if each["whatif"]["subject"]
    ]


def test_a_narrow_table_has_the_call_and_the_rule(
    refold: Refold, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a terminal of 80 columns a row of one policy gives its room to the verdict: the call and the rule
    can be read.
    """
    task = "Look after the repository of the web shop and tell me what you did, step by step. " * 3
    for name in ("one", "two"):
        script = [call("Bash", command="git push origin main"), say("Done.")]
        Agent(model=ScriptedModel(script), tools=[bash], store=str(store)).run_sync(task, run_id=name)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(Screen, "live", True)
    said = refold("whatif", "--all", "--policy", rule(tmp_path), "--store", store)
    rows = [line for line in said.out.splitlines() if line.startswith(("one", "two"))]
    assert ["STOPS", "STOPS"] == [re.findall("STOPS|AGREE", row)[0] for row in rows]
    assert [] == [row for row in rows if "git push origin main" not in row or "push (guards[0])" not in row]
    assert [] == [row for row in rows if cell_len(row) > 80]
