"""`refold touched`: what a run changed, as a table and as JSON."""

import json
from pathlib import Path

import pytest

from console.conftest import EVIL, Refold
from refold.engine import Agent, ScriptedModel, call, say, tool


@tool(replay="read_only")
def bash(command: str) -> str:
    """Run a command."""
    return "ok"


@tool(replay="read_only")
def write_file(path: str) -> str:
    """Write a file."""
    return path


def ran(store: Path, *commands: str) -> None:
    """A run `r` whose model runs these commands."""
    script = [*(call("bash", command=command) for command in commands), say("Done.")]
    Agent(model=ScriptedModel(script), tools=[bash], store=str(store)).run_sync("Task", run_id="r")


def test_the_table(refold: Refold, store: Path) -> None:
    """A heading with counts, the first destructive call, and a row for each change."""
    ran(store, "touch a", "rm -rf build && git push", "eval $X")
    found = refold("touched", "r", "--store", store)
    assert found.code == 1
    head, first, columns, *rows = found.out.splitlines()
    assert "run r: 1 deletion, 1 push, 1 write, 1 host, 1 unread command" == head
    assert first.startswith("  first destructive call  e")
    assert first.endswith("rm -rf build")
    assert ["WHAT", "TARGET", "BY", "RESULT", "EVENT", "MAYBE", "UNDONE"] == columns.split()
    assert ["wrote", "deleted", "pushed", "reached", "unread"] == [row.split()[0] for row in rows]


@pytest.mark.parametrize(("command", "code"), [("ls", 0), ("eval $X", 125), ("rm x", 1)])
def test_exit_codes(refold: Refold, store: Path, command: str, code: int) -> None:
    """1 if something was changed, 125 if only unread commands may have changed something."""
    ran(store, command)
    assert code == refold("touched", "r", "--store", store).code


def test_json_and_hostile_names(refold: Refold, store: Path) -> None:
    """One document; a name cannot take over the terminal."""
    script = [call("write_file", path=EVIL), say("Done.")]
    Agent(model=ScriptedModel(script), tools=[write_file], store=str(store)).run_sync("Task", run_id="r")
    document = json.loads(refold("touched", "r", "--store", store, "-o", "json").out)
    assert ("r", "wrote") == (document["run"], document["changes"][0]["kind"])
    assert "\x1b" not in refold("touched", "r", "--store", store).out
