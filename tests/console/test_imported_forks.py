"""What goes on from the end of an imported run, or is made of it: forks, tests, smaller logs, exports,
pages.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from console.report.conftest import reported
from console.test_fork import pytested
from refold.engine import say
from refold.engine.models.script import Line
from support.sessions import row, session

Scripted = Callable[[Sequence[Line]], None]

CALL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a"}}
ASKED = row("user", 0, role="user", content="one")
CALLED = row("assistant", 1, role="assistant", id="m0", model="x", content=[CALL])
RETURNED = row("user", 2, role="user", content=[{"type": "tool_result", "tool_use_id": "t1", "content": "A"}])
ENDS = {
    "only a prompt": ASKED,
    "a person's message": session("one") + row("user", 2, role="user", content="and two?"),
    "a result": ASKED + CALLED + RETURNED,
}


@pytest.fixture(params=ENDS)
def run(request: pytest.FixtureRequest, refold: Refold, store: Path, tmp_path: Path) -> str:
    """An imported run whose source ends without having asked again."""
    file = tmp_path / "a.jsonl"
    file.write_text(ENDS[request.param])
    assert 0 == refold("import", file, "--store", store).code
    assert "WAITING_FOR_INPUT" == newest(refold, store)["agent_state"]
    return str(newest(refold, store)["run"])


def newest(refold: Refold, store: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(refold("ls", "--store", store, "-o", "json").out)[0]
    return found


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        pytest.param([], 0, id="as it stands"),
        pytest.param(["--say", "go on"], 1, id="with a message"),
        pytest.param(["--policy", "guardrails"], 0, id="under another policy"),
    ],
)
def test_a_fork_asks_where_the_source_did_not(
    refold: Refold, scripted: Scripted, store: Path, run: str, words: list[str], messages: int
) -> None:
    """A fork of the run's end goes on with the request, and all of it verifies and audits."""
    shown = json.loads(refold("view", run, "--store", store, "-o", "json").out)
    scripted([say("Done.")])
    ran = refold("fork", run, "--model", "other", "--tools", "", *words, "--store", store)
    fork = newest(refold, store)
    assert fork["run"] != run, ran.err
    for verb in ("verify", "audit"):
        assert 0 == refold(verb, fork["run"], run, "--store", store).code
    view = json.loads(refold("view", fork["run"], "--store", store, "-o", "json").out)
    assert view["asked"]
    assert "agrees" == view["sent"]
    assert len(shown["request"]["messages"]) + messages == len(view["request"]["messages"])
    assert "Done." in refold("show", fork["run"], "--store", store).out


@pytest.mark.slow
def test_a_test_of_such_a_run(refold: Refold, store: Path, run: str, tmp_path: Path) -> None:
    """It passes."""
    folder = tmp_path / "tests"
    folder.mkdir()
    ran = refold("testcase", run, "--out", folder / "test_it.py", "--store", store)
    assert 0 == ran.code, ran.err
    done = pytested(folder)
    assert 0 == done.returncode, done.stdout


def test_a_smaller_log_of_such_a_run(refold: Refold, store: Path, run: str, tmp_path: Path) -> None:
    """The smallest log that ends so audits clean, and ends so."""
    small = tmp_path / "small.db"
    ran = refold(
        "shrink", run, "--when", 'agent_state == "WAITING_FOR_INPUT"', "--out", small, "--store", store
    )
    assert 0 == ran.code, ran.err
    assert 0 == refold("audit", run, "--store", small).code
    assert "WAITING_FOR_INPUT" == newest(refold, small)["agent_state"]


def test_no_request_in_what_is_written_of_it(refold: Refold, store: Path, run: str, tmp_path: Path) -> None:
    """Neither the page nor an export has a request that was not made."""
    answers = json.loads(refold("stats", run, "--store", store, "-o", "json").out)["counts"]["requests"]
    assert answers == len(reported(store, run).calls)
    for format_ in ("markdown", "otel", "openai", "jsonl"):
        ran = refold("export", run, "--to", format_, "--store", store)
        assert 0 == ran.code, ran.err
        assert "model_requested" not in ran.out or answers
    found = json.loads(refold("export", run, "--to", "otel", "--store", store).out)
    spans = found["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert answers == sum(span["name"].startswith("chat") for span in spans)
