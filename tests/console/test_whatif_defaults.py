"""`refold whatif` with a policy file that names a few keys: which verdicts come from the defaults of the
others.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.reducers import parse

LONG = 20_000
PUSH = {"guard": "arguments", "name": "push", "tool": "look", "matches": "git push", "then": "stop"}


@tool(replay="read_only")
def look(path: str) -> str:
    """Return a long text for the path 'long', the path for others."""
    return "x" * LONG if path == "long" else path


@pytest.fixture
def runs(store: Path) -> Path:
    """Three runs under a policy without a limit and a cap: short, with a long output, and with a push."""
    policy = parse({"limits": [], "tool_output": {"max": None}, "retry": {"attempts": 7}})
    for name, path in (("short", "a"), ("long", "long"), ("pushes", "git push")):
        script = [call("look", path=path), say("Done.")]
        agent = Agent(model=ScriptedModel(script), tools=[look], store=str(store), policy=policy)
        assert agent.run_sync("Look", run_id=name).state == "COMPLETED"
    return store


def written(folder: Path, **keys: Any) -> Path:
    file = folder / "naive.json"
    file.write_text(json.dumps({"schema": "refold/v1", **keys}))
    return file


def test_verdicts_that_come_from_defaults_are_counted(refold: Refold, runs: Path, tmp_path: Path) -> None:
    """Text and JSON count the verdicts that keys outside the file cause, name the default, and give the
    --only option.
    """
    asked = ["whatif", "--all", "--policy", written(tmp_path, guards=[PUSH]), "--store", runs]
    note = (
        f"1 verdict comes from defaults that {tmp_path / 'naive.json'} does not set (tool_output.max: 16384). "
        "To test its rules alone: --only guards"
    )
    assert note == refold(*asked).out.splitlines()[-1]
    totals = json.loads(refold("-o", "json", *asked).out.splitlines()[-1])
    assert [note] == totals["notes"]


def test_the_row_names_the_default(refold: Refold, runs: Path, tmp_path: Path) -> None:
    """Only the verdict that a default causes names it, in the table, in the run in full, and in JSON."""
    file = written(tmp_path, guards=[PUSH])
    rows = refold("whatif", "--all", "--policy", file, "--store", runs).out.splitlines()
    assert ["long"] == [row.split()[0] for row in rows if "by default tool_output.max: 16384" in row]
    full = refold("whatif", "long", "--policy", file, "--store", runs).out
    assert "tool_output.max: 16384" in next(
        line for line in full.splitlines() if line.startswith("  default")
    )
    found = map(
        json.loads,
        refold("-o", "json", "whatif", "--all", "--policy", file, "--store", runs).out.splitlines(),
    )
    named = {each["whatif"]["run"]: each["whatif"]["defaults"] for each in found if "whatif" in each}
    assert {"short": [], "long": ["tool_output.max: 16384"], "pushes": []} == named


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"guards": [PUSH], "tool_output": {"max": 16384}}, id="the file names the cap"),
        pytest.param({"preset": "observed", "guards": [PUSH]}, id="a preset is named"),
    ],
)
def test_keys_that_are_named_are_no_defaults(
    refold: Refold, runs: Path, tmp_path: Path, keys: dict[str, Any]
) -> None:
    """No verdict is put down to a default where the file names the key, or a preset does."""
    said = refold("whatif", "--all", "--policy", written(tmp_path, **keys), "--store", runs).out
    assert "does not set" not in said


def test_set_names_a_key_too(refold: Refold, runs: Path, tmp_path: Path) -> None:
    """A key that --set gives is not a default of the file, nor is any with --only."""
    asked = ["whatif", "--all", "--policy", written(tmp_path, guards=[PUSH]), "--store", runs]
    for more in (["--set", "tool_output.max=16384"], ["--only", "guards"]):
        assert "does not set" not in refold(*asked, *more).out


def test_a_turn_that_ends_by_default(refold: Refold, store: Path, tmp_path: Path) -> None:
    """A run that goes on after a finished turn stops there by the default of `end_of_turn`, which the note
    names.
    """
    policy = parse({"end_of_turn": "continue", "limits": [{"type": "step", "value": 3}]})
    script = [say("One."), say("Two."), say("Three.")]
    Agent(model=ScriptedModel(script), tools=[look], store=str(store), policy=policy).run_sync(
        "Go", run_id="r"
    )
    said = refold("whatif", "r", "--policy", written(tmp_path, guards=[PUSH]), "--store", store).out
    assert "does not set (end_of_turn: complete). To test" in said
