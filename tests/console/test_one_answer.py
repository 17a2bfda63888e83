"""A damaged log: `verify`, `show`, `audit`, `ls` and the page of the run name the same event, and one state
before it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.store.schema import SEQ_MASK
from support.edited import edited
from support.pages import read

EVENTS = 16


@tool(replay="read_only")
def look(at: int) -> str:
    """Look at something."""
    return f"seen {at}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    script = [call("look", at=1), call("look", at=2), say("Done.")]
    result = Agent(ScriptedModel(script), tools=[look], store=path).run_sync("Go on.", run_id="one")
    assert "COMPLETED" == result.state
    return path


EDITS = [
    pytest.param("UPDATE event SET body = body || ' ' WHERE key & {mask} = {seq}", id="a body"),
    pytest.param("UPDATE event SET at = at + 1 WHERE key & {mask} = {seq}", id="a time"),
    pytest.param("DELETE FROM event WHERE key & {mask} = {seq}", id="a row gone"),
]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("seq", range(2, EVENTS))
def test_damage_at_any_event(edit: str, seq: int, refold: Refold, store: Path, tmp_path: Path) -> None:
    """Wherever a log is damaged, what stands behind it counts for nothing in any of them."""
    edited(store, edit.format(mask=SEQ_MASK, seq=seq))

    def ask(*words: str) -> dict[str, Any]:
        ran = refold(*words, "one", "-o", "json", "--store", store)
        assert 3 == ran.code
        found: dict[str, Any] = json.loads(ran.out)
        return found

    verified, shown, audited = ask("verify"), ask("show"), ask("audit")
    file = tmp_path / "one.html"
    assert 3 == refold("report", "one", "--out", file, "--store", store).code
    page = read(file).data
    assert (
        seq - 1
        == verified["events"]
        == shown["events"]
        == page["about"]["events"]
        == page["checked"]["events"]
    )
    assert verified["agent_state"] == shown["agent_state"] == page["about"]["agent_state"] != "COMPLETED"
    assert shown["damaged"] == audited["damaged"] == page["about"]["damaged"] == page["judged"]["damaged"]
    assert (0, audited["decisions"]) == (page["end"], page["judged"]["decisions"])
    assert len(shown["turns"]) == len(page["turns"])
