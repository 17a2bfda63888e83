"""`assert_same_decisions`: a policy, or another model, over recorded runs."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.reducers.errors import Inconclusive, WrongUse
from refold.store.recordings import write_recording
from refold.testing import DecisionsChanged, ObservedRun, assert_same_decisions
from refold.testing.loaded_logs import recording_of
from refold.testing.recorder import record
from support.transcripts import path_of


@tool
def pay(cents: int) -> str:
    """Pay."""
    return "paid"


def write(folder: Path, runs: dict[str, list[Any]], policy: Any = None) -> Path:
    """A folder with recordings of runs, by name and script."""
    folder.mkdir()
    for name, lines in runs.items():
        agent = Agent(ScriptedModel([*lines, say("Done.")]), tools=[pay], policy=policy)
        found = anyio.run(partial(record, agent, "Pay.", run_id=name))
        write_recording(folder / f"{name}.jsonl", found)
    return folder


RUNS: dict[str, list[Any]] = {
    "one": [call("pay", cents=30)],
    "two": [call("pay", cents=30), call("pay", cents=99)],
}
REFUSING = {
    "guards": [{"guard": "arguments", "tool": "pay", "matches": "99", "then": "refuse", "name": "no-99"}]
}


def test_a_policy_that_changes_nothing(tmp_path: Path) -> None:
    """The number of runs that were compared is returned."""
    folder = write(tmp_path / "a", RUNS)
    assert 2 == assert_same_decisions(folder, policy={"limits": [{"type": "step", "value": 40}]})
    assert 1 == assert_same_decisions(folder / "one.jsonl", policy=REFUSING)


def test_something_is_newly_stopped(tmp_path: Path) -> None:
    """Each run that is decided otherwise is named, with its event and the rule."""
    folder = write(tmp_path / "a", RUNS)
    with pytest.raises(DecisionsChanged) as changed:
        assert_same_decisions(folder, policy=REFUSING)
    assert "1 run is decided otherwise, of 2" == changed.value.what
    (line,) = changed.value.changes
    assert line.startswith("two@e10: diverges: ")
    assert "no-99" in line


def test_something_is_newly_permitted(tmp_path: Path) -> None:
    """A policy that no longer refuses what was refused fails just so."""
    folder = write(tmp_path / "a", RUNS, REFUSING)
    with pytest.raises(DecisionsChanged, match=r"two@e\d+: diverges"):
        assert_same_decisions(folder, policy={})


def test_two_folders(tmp_path: Path) -> None:
    """The same calls, permissions and ends in both, run by run."""
    first = write(tmp_path / "a", RUNS)
    assert 2 == assert_same_decisions(first, write(tmp_path / "b", RUNS))
    other = write(tmp_path / "c", {"one": [call("pay", cents=31)], "three": []})
    with pytest.raises(DecisionsChanged) as changed:
        assert_same_decisions(first, other)
    assert [
        "two: only in the first",
        "three: only in the second",
        'one@e3: the arguments of a call differ (cents) (c1 pay): {"cents":30} -> {"cents":31}',
    ] == list(changed.value.changes)
    assert 1 == assert_same_decisions(first / "one.jsonl", other / "one.jsonl", ignore=["number"])


def test_observed_runs(tmp_path: Path) -> None:
    """A run that a fixture returned, without a file."""
    agent = Agent(ScriptedModel([call("pay", cents=30), say("Done.")]), tools=[pay])
    (found,) = anyio.run(partial(record, agent, "Pay.", run_id="r"))
    run = ObservedRun(recording_of(found).events)
    assert 1 == assert_same_decisions(run, run, policy=REFUSING)


def test_what_nobody_can_tell() -> None:
    """Inconclusive is an error of its own, unless it is allowed."""
    path = path_of("claude_code/api-retry.jsonl.zst")
    policy = {"limits": [{"type": "cost", "value": 0.000001}]}
    with pytest.raises(Inconclusive, match="inconclusive"):
        assert_same_decisions(path, policy=policy)
    assert 1 == assert_same_decisions(path, policy=policy, allow_inconclusive=True)


def test_nothing_to_compare(tmp_path: Path) -> None:
    """A test that compares nothing is an error, not a success."""
    (tmp_path / "empty").mkdir()
    for wrong, message in (
        (partial(assert_same_decisions, tmp_path / "empty", policy={}), "no runs: nothing would be compared"),
        (partial(assert_same_decisions, tmp_path / "no", policy={}), "no such file or folder"),
        (partial(assert_same_decisions, tmp_path), "expected a second folder of runs, or policy="),
    ):
        with pytest.raises(WrongUse, match=message):
            wrong()
