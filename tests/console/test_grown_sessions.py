"""A session that went on since it was imported is the same run: its new events are appended."""

import json
import random
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from console.conftest import Refold
from console.test_repeated_imports import CALLED, RETURNED, by_hand, imported, listed, note
from refold.console import imported_runs
from refold.console.imported_runs import Growth
from refold.console.main import main
from refold.importers.source import Source
from refold.importers.transcript import TranscriptRun
from refold.reducers import codec
from refold.reducers.events import Annotation, kind_of
from refold.store import SqliteStore
from refold.store.protocol import StoreUnavailable
from support.driving import events_of
from support.sessions import documents, session
from support.transcripts import FILES, path_of

ONE, TWO, THREE = (session(*words) for words in (["one"], ["one", "two"], ["one", "two", "three"]))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def written(refold: Refold, store: Path, file: Path, text: str) -> dict[str, Any]:
    """The only run of the file, once it says this and was imported."""
    file.write_text(text)
    return imported(refold, store, file)


def sound(refold: Refold, store: Path, run: str) -> None:
    for verb in ("verify", "audit"):
        ran = refold(verb, run, "--store", store)
        assert 0 == ran.code, ran.out


def said(store: Path, run: str) -> list[tuple[str, str]]:
    """What a log says but for its annotations: kinds, and words of the world."""

    async def read() -> list[tuple[str, str]]:
        async with await SqliteStore.open(store, readonly=True) as opened:
            log = await events_of(opened, run)
        return [
            (kind_of(event), (codec.encode(event).content or b"").decode())
            for event in log
            if not isinstance(event, Annotation)
        ]

    return anyio.run(read)


def test_what_came_since_is_appended(refold: Refold, store: Path, file: Path) -> None:
    """One run, the same id, sound; and in it all that the whole file says at once."""
    first = written(refold, store, file, ONE)
    second = written(refold, store, file, TWO)
    third = written(refold, store, file, THREE)
    assert {first["run"]} == {second["run"], third["run"]} == set(listed(refold, store))
    assert 0 < second["added"] < second["events"]
    assert [] == second["related"] == third["related"]
    sound(refold, store, first["run"])
    for word in ("re: one", "re: two", "re: three"):
        assert word in refold("grep", f'"{word}"', first["run"], "--store", store).out
    other = file.with_name("other.db")
    whole = written(refold, other, file, THREE)
    assert said(other, whole["run"]) == said(store, first["run"])


def test_each_part_is_found_to_be_there(refold: Refold, store: Path, file: Path) -> None:
    """An import of any of the files adds nothing then, and says that it is there."""
    run = written(refold, store, file, ONE)["run"]
    for text in (TWO, THREE):
        written(refold, store, file, text)
    events = listed(refold, store)[run]["events"]
    for text in (ONE, TWO, THREE):
        again = written(refold, store, file, text)
        assert (run, 0, 0, True) == (again["run"], again["added"], again["differs"], again["whole"])
    assert events == listed(refold, store)[run]["events"]


def test_a_call_that_was_open_gets_its_result(refold: Refold, store: Path, file: Path) -> None:
    """What the source had not come to was told as open, and is not any more."""
    first = written(refold, store, file, CALLED)
    assert "open" == first["end"]
    second = written(refold, store, file, RETURNED)
    assert (first["run"], "open") == (second["run"], second["end"])
    sound(refold, store, first["run"])
    assert [] == listed(refold, store)[first["run"]]["unanswered"]


@pytest.mark.parametrize("what", ["erased", "noted", "an answer", "the beginning"])
def test_what_is_not_surely_the_same_is_another_run(
    refold: Refold, store: Path, file: Path, what: str
) -> None:
    """Where the log cannot be derived again from the file, a run of its own has all of it."""
    run = written(refold, store, file, ONE)["run"]
    grown = TWO
    if what == "erased":
        assert 0 == refold("erase", f"{run}@e1", "--why", "a name", "--yes", "--store", store).code
    elif what == "noted":
        note(store, run)
    elif what == "an answer":
        grown = TWO.replace("re: one", "re: won")
    else:
        grown = TWO.replace('"content": "one"', '"content": "uno"')
    second = written(refold, store, file, grown)
    assert run != second["run"]
    assert 2 == len(listed(refold, store))
    sound(refold, store, second["run"])


@pytest.mark.parametrize("what", ["erased", "noted", "went on in another run"])
def test_what_grew_is_found_whatever_was_done_to_it_since(
    refold: Refold, store: Path, file: Path, what: str
) -> None:
    """The file as it was imported last adds nothing: what was erased of it does not come back."""
    run = written(refold, store, file, ONE)["run"]
    assert run == written(refold, store, file, TWO)["run"]
    if what == "erased":
        assert 0 == refold("erase", f"{run}@e1", "--why", "a name", "--yes", "--store", store).code
    else:
        note(store, run)
    runs = {run}
    if what == "went on in another run":
        runs.add(written(refold, store, file, THREE)["run"])
        assert 2 == len(runs)
    again = written(refold, store, file, TWO)
    assert (run, 0, 0, True) == (again["run"], again["added"], again["differs"], again["whole"])
    assert ([1] if what == "erased" else []) == again["erased"]
    assert runs == set(listed(refold, store))
    sound(refold, store, run)


@pytest.mark.parametrize("text", [TWO, THREE], ids=["the same file", "a file that grew"])
def test_what_was_edited_is_never_said_to_be_equal(
    refold: Refold, store: Path, file: Path, text: str
) -> None:
    """Not even where no file says any more what stood there: all of the file is another run."""
    run = written(refold, store, file, ONE)["run"]
    written(refold, store, file, TWO)
    edited = "SELECT min(key) FROM event WHERE kind = 'source_recorded' AND body LIKE '%end:%'"
    by_hand(store, f"UPDATE event SET body = replace(body, 'end:', 'end:x') WHERE key = ({edited})")
    again = written(refold, store, file, text)
    assert run != again["run"]
    assert 3 == refold("verify", run, "--store", store).code
    sound(refold, store, again["run"])


def test_what_was_edited_behind_an_older_file_is_told(refold: Refold, store: Path, file: Path) -> None:
    """All that the older file gives is there, and what came since is not what was written: exit code 3, never
    equal.
    """
    run = written(refold, store, file, ONE)["run"]
    written(refold, store, file, TWO)
    by_hand(store, "UPDATE event SET content = replace(content, 're: two', 're: too')")
    file.write_text(ONE)
    again = refold("import", file, "--store", store)
    assert 3 == again.code
    assert "equal" not in again.out
    assert f"{run}  already imported, and its log was edited after the events of this file" in again.out


def test_an_import_that_died_in_the_middle_is_finished(
    refold: Refold, store: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was appended until then stays, and the next import adds the rest: in the same run, nothing
    twice.
    """
    run = written(refold, store, file, ONE)["run"]
    append, left = SqliteStore.append, [2]

    async def dies(store: SqliteStore, *given: Any) -> Any:
        if not left[0]:
            raise StoreUnavailable("runs.db", "the disk is gone", outcome_known=True)
        left[0] -= 1
        return await append(store, *given)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "append", dies)
        patch.setattr(imported_runs, "EVENTS", 4)
        file.write_text(session("one", *(f"word {number}" for number in range(12))))
        assert 4 == refold("import", file, "--store", store).code
    half = listed(refold, store)[run]["events"]
    done = imported(refold, store, file)
    assert (run, done["events"] - half) == (done["run"], done["added"])
    sound(refold, store, run)
    other = file.with_name("other.db")
    assert said(other, imported(refold, other, file)["run"]) == said(store, run)


LINES = [name for name in FILES if name.split("/")[0] in ("claude_code", "codex", "pi", "gemini_cli")]


@pytest.mark.parametrize("name", LINES)
def test_real_sessions_in_parts(refold: Refold, store: Path, file: Path, name: str) -> None:
    """Imported wherever they break off, and then whole: what the newest run says is what the whole file says,
    and it is sound.

    Mostly it is one run. Where the source broke off in the middle of an answer, it is another one.
    """
    lines = _lines(name)
    if len(lines) < 4:
        pytest.skip("it has no parts")
    chance = random.Random(name)
    for upto in (*sorted(chance.sample(range(1, len(lines)), 3)), len(lines)):
        file.write_bytes(b"".join(lines[:upto]))
        refold("import", file, "--store", store)
    last = documents(refold("import", file, "--store", store, "-o", "json").out)[0]["imported"]
    other = file.with_name("other.db")
    whole = documents(refold("import", file, "--store", other, "-o", "json").out)[0]["imported"]
    for run, alone in zip(last, whole, strict=True):
        assert (True, 0) == (run["whole"], run["differs"])
        sound(refold, store, run["run"])
        assert said(other, alone["run"]) == said(store, run["run"])


def _lines(name: str) -> list[bytes]:
    with path_of(name).open("rb") as opened:
        data = Source.opened(name, opened).whole()
    lines = data.splitlines(keepends=True)
    try:
        json.loads(lines[0])
    except ValueError:
        return []
    return lines


@pytest.mark.parametrize(("ours", "theirs"), [(TWO, THREE), (THREE, TWO), (TWO, TWO)])
def test_another_import_in_between_is_seen(
    refold: Refold, store: Path, file: Path, monkeypatch: pytest.MonkeyPatch, ours: str, theirs: str
) -> None:
    """Two imports at once of a file that grows do what they would do one after the other."""
    run, of, first = written(refold, store, file, ONE)["run"], Growth.of, [True]
    other = file.with_name("b.jsonl")
    other.write_text(theirs)

    async def overtaken(growth: Growth, reading: TranscriptRun) -> str:
        found = await of(growth, reading)
        if first:
            first.clear()
            await anyio.to_thread.run_sync(lambda: main(["import", str(other), "--store", str(store)]))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Growth, "of", overtaken)
        file.write_text(ours)
        assert 0 == refold("import", file, "--store", store).code
    # A file that is all in a run already, and ends where no import of it ever did, is another that says so.
    assert (1 if len(theirs) <= len(ours) else 2) == len(listed(refold, store))
    assert 0 == refold("audit", "--all", "--store", store).code
    sound(refold, store, run)
    whole = file.with_name("other.db")
    assert said(whole, written(refold, whole, file, max(ours, theirs, key=len))["run"]) == said(store, run)


def test_a_file_that_is_written_to_while_it_is_imported_goes_on_too(
    refold: Refold, store: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was added since the file was opened is the next import's, and no reason for another run."""
    run, of = written(refold, store, file, ONE)["run"], Growth.of

    async def grows(growth: Growth, reading: TranscriptRun) -> str:
        await anyio.Path(file).write_text(THREE)
        return await of(growth, reading)

    with monkeypatch.context() as patch:
        patch.setattr(Growth, "of", grows)
        assert run == written(refold, store, file, TWO)["run"]
    assert run == imported(refold, store, file)["run"]
    sound(refold, store, run)
