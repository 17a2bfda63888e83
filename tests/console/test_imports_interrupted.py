"""`refold import` while something else happens: it dies, the file changes, another import runs; the next one
makes it whole.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from refold.console import imported_runs
from refold.console.conversations import Conversations
from refold.console.import_files import find_files
from refold.console.opened_files import FoundFile
from refold.engine.tenure import Tenure
from refold.importers.registry import importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.store.protocol import Head, Lease, Record, StoreUnavailable
from refold.store.sqlite import SqliteStore
from support.sessions import documents, session
from support.transcripts import path_of

SMALL, CALLS = "claude_code/tiny-1.0.jsonl", "claude_code/small-rejected-write.jsonl"


class Failing(SqliteStore):
    """A store whose appends fail after the first few."""

    left = 0

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        if Failing.left <= 0:
            raise StoreUnavailable("here", "the disk is full")
        Failing.left -= 1
        return await super().append(run, expected_seq, lease, records, release=release)


@pytest.mark.parametrize("appends", range(1, 5))
def test_a_half_imported_run_is_finished_by_the_next_import(
    refold: Refold, store: Path, monkeypatch: pytest.MonkeyPatch, appends: int
) -> None:
    """Whenever an import dies, importing again appends what is missing: the log is whole and audits clean."""
    monkeypatch.setattr(imported_runs, "EVENTS", 5)
    with monkeypatch.context() as patch:
        patch.setattr("refold.store.sqlite.SqliteStore", Failing)
        Failing.left = appends
        assert 4 == refold("import", path_of(CALLS), "--store", store).code
    ran = documents(refold("import", path_of(CALLS), "--store", store, "-o", "json").out)[0]["imported"][0]
    assert not ran["whole"]
    assert 0 < ran["added"] < ran["events"]
    for verb in ("verify", "audit"):
        assert 0 == refold(verb, "@last", "--store", store).code
    assert "nothing added" in refold("import", path_of(CALLS), "--store", store).out


def test_a_half_imported_run_of_another_version_is_left_alone(
    refold: Refold, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there and is not what would be derived now is no import of ours to finish: nothing is
    appended.
    """
    monkeypatch.setattr(imported_runs, "EVENTS", 7)
    with monkeypatch.context() as patch:
        patch.setattr("refold.store.sqlite.SqliteStore", Failing)
        Failing.left = 1
        refold("import", path_of(CALLS), "--store", store)
    before = refold("show", "@last", "--raw", "--store", store).out
    monkeypatch.setattr("refold.importers.derivation.facts.ADAPTER", "another")
    ran = refold("import", path_of(CALLS), "--store", store)
    assert 3 == ran.code
    assert "another version" in ran.err or "derives another event" in ran.err
    assert before == refold("show", "@last", "--raw", "--store", store).out


def test_what_is_added_while_a_file_is_read_is_the_next_imports(
    refold: Refold, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that goes on while it is imported is imported as it was at first: no half of what came
    later.
    """
    file = tmp_path / "a.jsonl"
    file.write_text(session("one"))
    alone = documents(refold("import", file, "--dry-run", "-o", "json").out)
    digest = Source.sha256

    def and_then_goes_on(source: Source) -> tuple[str, int]:
        found = digest(source)
        with file.open("a") as opened:
            opened.write(session("two"))
        return found

    monkeypatch.setattr(Source, "sha256", and_then_goes_on)
    found = documents(refold("import", file, "--dry-run", "-o", "json").out)
    assert alone == found


def test_a_file_that_is_changed_while_it_is_read_is_refused(
    refold: Refold, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file is written over while it is imported, that is said: its runs are of no file that ever
    was.
    """
    file = tmp_path / "a.jsonl"
    file.write_text(session("one"))
    digest = Source.sha256

    def and_then_changes(source: Source) -> tuple[str, int]:
        found = digest(source)
        file.write_text(session("two"))
        return found

    monkeypatch.setattr(Source, "sha256", and_then_changes)
    ran = refold("import", file, "--store", store)
    assert 3 == ran.code
    assert "changed while it was read" in ran.err


def test_a_file_that_cannot_be_read_stops_no_other(
    refold: Refold, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is gone, or fails to be read, when its turn comes is told of with exit code 4; the others
    are imported.
    """
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_text(session(name))
    listed = find_files(tmp_path)
    (tmp_path / "b.jsonl").unlink()

    def as_they_were(_: Sequence[Path]) -> Sequence[FoundFile]:
        return listed

    monkeypatch.setattr("refold.console.imports.find_files", as_they_were)
    ran = refold("import", tmp_path, "--store", store)
    assert 4 == ran.code
    assert "b.jsonl: not imported: cannot be read: " in ran.err
    assert 2 == len(json.loads(refold("ls", "--store", store, "-o", "json").out))


def test_a_pipe_in_a_files_place_is_not_waited_for(
    refold: Refold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that took a file's place after the folder was looked through holds nothing up."""
    file = tmp_path / "a.jsonl"
    file.write_text(session("one"))
    listed = find_files(tmp_path)
    file.unlink()
    os.mkfifo(file)

    def as_they_were(_: Sequence[Path]) -> Sequence[FoundFile]:
        return listed

    monkeypatch.setattr("refold.console.imports.find_files", as_they_were)
    assert "cannot be read: it is not a regular file" in refold("import", tmp_path, "--dry-run").err


def test_of_two_imports_at_once_one_adds_and_one_finds_it_there(
    refold: Refold, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that waited while another one imported the same adds nothing, and does not fail."""
    held = Tenure.hold
    between = [True]

    async def late(tenure: Tenure) -> Lease:
        if between and between.pop():
            with path_of(CALLS).open("rb") as file:
                for run in Transcript(Source.opened("x", file), importer("claude_code")).runs():
                    await imported_runs.add_run(tenure.store, Conversations(tenure.store), run)
        return await held(tenure)

    monkeypatch.setattr(Tenure, "hold", late)
    ran = refold("import", path_of(CALLS), "--store", store)
    assert 0 == ran.code
    assert "nothing added" in ran.out


def test_a_source_cannot_say_that_an_import_is_done(
    refold: Refold, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transcript with a remark that looks like the end of an import is finished by the next import all the
    same.
    """
    file = tmp_path / "a.json"
    steps: list[dict[str, Any]] = [
        {"step_id": 1, "source": "user", "message": "go"},
        {"step_id": 1, "source": "agent", "message": "I go"},
        {"step_id": 2, "source": "system", "message": "", "extra": {"context_management": {"type": "end:finished"}}},
        *({"step_id": 3 + each, "source": "agent", "message": f"{each}"} for each in range(20)),
    ]  # fmt: skip
    agent = {"name": "a", "version": "1", "model_name": "m"}
    file.write_text(
        json.dumps({"schema_version": "ATIF-v1.7", "session_id": "s", "agent": agent, "steps": steps})
    )
    monkeypatch.setattr(imported_runs, "EVENTS", 7)
    with monkeypatch.context() as patch:
        patch.setattr("refold.store.sqlite.SqliteStore", Failing)
        Failing.left = 4
        assert 4 == refold("import", file, "--store", store).code
    ran = documents(refold("import", file, "--store", store, "-o", "json").out)[0]["imported"][0]
    assert 0 < ran["added"] < ran["events"]
