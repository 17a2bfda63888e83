"""A run that began without a message, as some sources record them, beside one whose messages were erased."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold

ROW: dict[str, Any] = {
    "id": 0,
    "timestamp": "2025-01-01",
    "source": "environment",
    "action": "recall",
    "args": {},
}


@pytest.fixture
def empty(refold: Refold, store: Path, tmp_path: Path) -> str:
    """An imported run without a message."""
    (tmp_path / "mine.json").write_text(json.dumps([ROW]))
    told = json.loads(
        refold(
            "import", str(tmp_path / "mine.json"), "--format", "openhands", "-o", "json", "--store", store
        ).out
    )
    return str(told["imported"][0]["run"])


def test_a_run_that_was_asked_nothing(refold: Refold, store: Path, empty: str) -> None:
    """No task is told as `-`, and never as one that was erased."""
    for words in (["show", empty], ["ls"]):
        out = refold(*words, "--store", store).out
        assert "(erased)" not in out
    assert ["task", "-"] in [
        line.split() for line in refold("show", empty, "--store", store).out.splitlines()
    ]
    assert "" == json.loads(refold("show", empty, "-o", "json", "--store", store).out)["task"]


def test_a_task_that_was_erased(refold: Refold, store: Path, finished: str) -> None:
    """A task that is gone is told as erased."""
    assert 0 == refold("erase", f"{finished}@e1", "--why", "mistyped", "--yes", "--store", store).code
    assert "(erased)" in refold("show", finished, "--store", store).out
