"""Requests of imported runs: none is decided that the source does not show, wherever one looks."""

import io
import json
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from refold.console.main import main
from support.sessions import row, session
from support.transcripts import FOLDER, manifest

# Of these the manifest counts no rows that report a sub-agent's, rows of another request or of a message in
# parts as messages, or not all.
_OTHERWISE_COUNTED = {
    "atif/terminus-2-summarization.cont-1.json",
    "claude_code/call-without-result.jsonl",
    "claude_code/every-row-type-redacted.jsonl",
    "codex/every-row-type-redacted-0.146.jsonl",
    "codex/finished-0.114.jsonl",
    "openai_agents/generated-guardrail-max-turns.jsonl",
    "otel/copilot-chat.db",
    "pi/large-session-v1.jsonl",
    "swe_agent/ctf-baby-encryption.traj",
    "swe_agent/gpt4-test-repo.traj",
}
# Why a limit that every run keeps to may not be judged all the same.
_REASONS = (
    "the record has results without their calls",
    "data of the source may be missing",
    "the source has calls that are in no fact",
    "the record has no model request",
)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every transcript of the repository."""
    store = tmp_path_factory.mktemp("imported") / "runs.db"
    told(store, "import", FOLDER)
    return store


def told(store: Path, *words: object) -> list[Any]:
    """The JSON documents that a command writes, a line each."""
    return [json.loads(line) for line in written(store, *words).splitlines()]


def written(store: Path, *words: object) -> str:
    """What a command writes, as JSON."""
    out = io.StringIO()
    with redirect_stdout(out):
        main([*map(str, words), "--store", str(store), "-o", "json"])
    return out.getvalue()


def turns(store: Path, run: str) -> list[dict[str, Any]]:
    """The turns of a run, as they are shown."""
    found: list[dict[str, Any]] = json.loads(written(store, "show", run))["turns"]
    return found


def listed(store: Path) -> list[dict[str, Any]]:
    """All runs of a store."""
    found: list[dict[str, Any]] = told(store, "ls", "--most", 1000)[0]
    return found


def counted(store: Path, *runs: str) -> tuple[int, int, int]:
    """Of these runs the requests, the answers, the failures."""
    counts = told(store, "stats", *runs)[0]["counts"]
    answers = sum(model["answers"] for model in counts["models"].values())
    return counts["requests"], answers, sum(counts["failures"].values())


@pytest.mark.slow
def test_each_request_was_answered_or_failed(everything: Path) -> None:
    """No run of any transcript has a request that nothing in its source answered, refused or interrupted."""
    for run in (each["run"] for each in listed(everything)):
        requests, answers, failures = counted(everything, run)
        assert answers + failures == requests, run


@pytest.mark.slow
def test_there_are_as_many_requests_as_the_manifest_has_answers(everything: Path) -> None:
    """What was counted from the bytes without us bounds what may be decided."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    for run in listed(everything):
        file = f"{run['labels']['source.format']}/{run['labels']['source.file']}".removesuffix(".zst")
        files[file].append(run["run"])
    rows = {row["file"]: row["assistant_messages"] for row in manifest()}
    assert {"inspect/cancelled-no-samples.json"} == set(rows) - set(files)  # it has no run
    for file in (set(files) & set(rows)) - _OTHERWISE_COUNTED:
        requests, _, failures = counted(everything, *files[file])
        assert int(rows[file]) == requests - failures, file


@pytest.mark.slow
def test_a_limit_of_the_steps_that_were_taken_stops_nothing(everything: Path) -> None:
    """Whoever allows as many steps as a run took is never told that this would have ended it."""
    runs: defaultdict[int, list[str]] = defaultdict(list)
    for run in (each["run"] for each in listed(everything)):
        taken = [turn["step"] for turn in turns(everything, run) if turn["stop"] or _failed(turn)]
        runs[max(taken, default=0)].append(run)
    verdicts: dict[str, dict[str, Any]] = {}
    for steps, names in runs.items():
        found = told(everything, "whatif", *names, "--set", f"limits.step={steps}")
        verdicts |= {each["whatif"]["run"]: each["whatif"] for each in found if "whatif" in each}
    assert {each["run"] for each in listed(everything)} == verdicts.keys()
    assert {"agree", "inconclusive"} == {each["verdict"] for each in verdicts.values()}
    unjudged = {run: each for run, each in verdicts.items() if each["verdict"] == "inconclusive"}
    assert [] == [run for run, each in unjudged.items() if not each["why"].startswith(_REASONS)]


@pytest.mark.slow
def test_no_turn_without_an_answer(everything: Path) -> None:
    """`show` has a turn without an answer only where the source shows a failure or an interruption."""
    for run in (each["run"] for each in listed(everything)):
        assert all(turn["stop"] or _failed(turn) for turn in turns(everything, run)), run


def _failed(turn: dict[str, Any]) -> bool:
    return any("failed" in mark for mark in turn["marks"])


@pytest.fixture
def asked(refold: Refold, store: Path, tmp_path: Path) -> str:
    """A session that ends with what a person asked."""
    file = tmp_path / "a.jsonl"
    file.write_text(session("one") + row("user", 2, role="user", content="and two?"))
    assert 0 == refold("import", file, "--store", store).code
    return str(listed(store)[0]["run"])


def test_at_the_end_the_machine_waits(refold: Refold, store: Path, asked: str) -> None:
    """Behind a question that nobody answered stands why nothing follows, and the log stands."""
    events = refold("show", asked, "--all", "--store", store).out
    assert "no_request: the source shows no request after this" in events
    assert 1 == events.count(" model_requested ")
    for verb in ("verify", "audit"):
        assert 0 == refold(verb, asked, "--store", store).code


def test_what_the_model_would_be_shown_there(refold: Refold, store: Path, asked: str) -> None:
    """`view` of such a run shows what the next request would show, and says that there was none."""
    ran = refold("view", asked, "--store", store)
    assert 0 == ran.code
    assert "and two?" in ran.out
    assert "the source shows no request after this" in " ".join(ran.out.split())


@pytest.mark.parametrize("change", ["limits.message=3", "limits.step=1"])
def test_no_limit_is_judged_on_what_was_not_asked(store: Path, asked: str, change: str) -> None:
    """A limit that only the next request could reach ends nothing there."""
    assert "agree" == told(store, "whatif", asked, "--set", change)[0]["whatif"]["verdict"]
