"""What is typed to start a run: a task from a file or a pipe, tools named twice, functions that are tools."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

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
        pytest.param([""], "TASK '' is empty", id="nothing"),
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


MODULE = """
from pathlib import Path
{}
def feed(animal: str) -> str:
    \"\"\"Feed.\"\"\"
    return animal

{}
def _hidden() -> str:
    return ""

{}
def wash(animal: str) -> str:
    \"\"\"Wash.\"\"\"
    return animal
"""
TOOL = "@__import__('refold.engine').engine.tool(replay='read_only')"


@pytest.mark.parametrize(
    ("given", "offered", "note"),
    [
        pytest.param((TOOL, "", TOOL), ["feed", "wash"], "", id="its tools"),
        pytest.param(("", "", TOOL), ["wash"], "", id="its tools, and no functions beside them"),
        pytest.param(("", "", ""), ["feed", "wash"], "tools without @tool: feed, wash. ", id="its functions"),
    ],
)
def test_a_whole_module_of_tools(
    given: tuple[str, str, str],
    offered: list[str],
    note: str,
    refold: Refold,
    scripted: Scripted,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--tools module` offers what is public in it, with one line about plain functions, which names no file
    of ours.
    """
    name = f"zoo_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(*given))
    monkeypatch.syspath_prepend(tmp_path)
    scripted([say("Done.")])
    ran = refold("run", "Go.", "--tools", name, "--store", store, "-o", "json")
    assert 0 == ran.code, ran.err
    tools = json.dumps(started_with(refold, store)).replace("\\", "")
    assert offered == [each for each in ("feed", "_hidden", "wash") if f'"{each}"' in tools]
    said = [line for line in ran.err.splitlines() if "@tool" in line]
    assert [f"note: {note}"] * bool(note) == [line[: len(f"note: {note}")] for line in said]
    assert "validation.py" not in ran.err


@pytest.mark.parametrize(
    ("word", "says"),
    [
        pytest.param(
            "no_such_zoo",
            "ModuleNotFoundError: No module named 'no_such_zoo'; expected files, ",
            id="no module",
        ),
        pytest.param("refold.engine.models", "the module defines no tools and no functions", id="no tools"),
        pytest.param(
            "file s", "expected files, files-ro, todos, shell, module or module:attribute", id="no name"
        ),
    ],
)
def test_a_word_that_names_no_tools(word: str, says: str, refold: Refold, store: Path) -> None:
    """It is refused with the words that there are."""
    ran = refold("run", "Go.", "--tools", word, "--store", store)
    assert 2 == ran.code
    assert says in ran.err
