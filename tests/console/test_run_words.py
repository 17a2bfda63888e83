"""What is typed to start a run: a task from a file or a pipe, tools named twice, functions that are tools."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from refold.engine import call, say, tool

Scripted = Callable[[list[Any]], None]
STARTED: list[str] = []


def look(place: str) -> str:
    """Look somewhere."""
    print("looking")  # as anybody's tool may
    return place


@tool(replay="read_only")
def count() -> int:
    """Count."""
    return 3


def started_with(refold: Refold, store: Path) -> dict[str, Any]:
    """What the last run says that it was started with."""
    ran = refold("show", "@last", "--raw", "--store", store)
    first: dict[str, Any] = json.loads(ran.out.splitlines()[0])
    return first


@pytest.mark.parametrize("task", ["-", "@task.txt"])
def test_a_task_may_come_from_elsewhere(
    task: str, refold: Refold, scripted: Scripted, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The run's task is what the file says, or stdin, and not how it was named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.txt").write_text("Count the\napples.", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Count the\napples.")))
    scripted([say("Three.")])
    assert 0 == refold("run", task, "--store", store).code
    assert "Count the\\napples." in json.dumps(started_with(refold, store))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param([""], "TASK '': is empty", id="nothing"),
        pytest.param(["@none.txt"], "none.txt cannot be read", id="no such file"),
        pytest.param(["@broken.txt"], "is not UTF-8 at byte 0", id="no text"),
        pytest.param(["Go", "--model", ""], "--model '': expected provider:model", id="a model without a name"),
    ],
)  # fmt: skip
def test_what_is_no_task_starts_nothing(
    words: list[str], says: str, refold: Refold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, and no store."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.txt").write_bytes(b"\xff")
    ran = refold("run", *words, "--store", tmp_path / "runs.db")
    assert (2, True, False) == (ran.code, says in ran.err, (tmp_path / "runs.db").exists())


@pytest.mark.parametrize(
    "words",
    [
        ["--tools", "console.test_run_words:look,console.test_run_words:count"],
        ["--tools", "console.test_run_words:look", "--tools", "console.test_run_words:count"],
    ],
    ids=["by commas", "twice"],
)
@pytest.mark.filterwarnings("ignore:tools without @tool")
def test_every_tool_that_is_named_is_there(
    words: list[str], refold: Refold, scripted: Scripted, store: Path
) -> None:
    """A plain function too; and nothing that one prints comes between the lines of JSON."""
    scripted([call("look", place="here"), say("Here.")])
    ran = refold("run", "Look.", *words, "--store", store, "-o", "json")
    assert 0 == ran.code, ran.err
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert ("result", True) == (lines[-1]["type"], "looking" in ran.err)
    tools = json.dumps(started_with(refold, store))
    assert '"look' in tools.replace("\\", "")
    assert '"count' in tools.replace("\\", "")
