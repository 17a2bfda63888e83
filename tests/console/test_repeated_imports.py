"""Importing what was imported before: it is compared, and what differs, went on or was erased is said."""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from console.conftest import Refold
from refold.engine.fork import annotate
from refold.importers.source import Source
from refold.reducers.events import CancelRequested, NoteAdded, Remark
from refold.reducers.state import RunState
from refold.store import SqliteStore
from refold.store.protocol import Record
from support.forging import Forgery, changed, recorded, records_of, write
from support.sessions import documents, row, session
from support.transcripts import path_of

CALL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a"}}
STOPPED = [{"type": "text", "text": "[Request interrupted by user]"}]
ONE = session("one")
CALLED = ONE + row("assistant", 2, role="assistant", id="m9", model="x", content=[CALL])
RETURNED = CALLED + row(
    "user", 3, role="user", content=[{"type": "tool_result", "tool_use_id": "t1", "content": "A"}]
)
ASKED = ONE + row("user", 2, role="user", content="and two?")
STOP = ASKED + row("user", 3, role="user", content=STOPPED)
ANSWER = {"role": "assistant", "id": "m8", "model": "x", "content": [{"type": "text", "text": "Well."}]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A transcript that was not imported yet."""
    file = tmp_path / "a.jsonl"
    file.write_text(STOP)
    return file


def imported(refold: Refold, store: Path, file: Path) -> dict[str, Any]:
    """The only run of a file, as an import tells it."""
    found: dict[str, Any] = documents(refold("import", file, "--store", store, "-o", "json").out)[0][
        "imported"
    ][0]
    return found


def listed(refold: Refold, store: Path) -> dict[str, dict[str, Any]]:
    """The runs by their ids."""
    return {each["run"]: each for each in json.loads(refold("ls", "--store", store, "-o", "json").out)}


def rewritten(store: Path, run: str, forge: Forgery) -> None:
    """Write a store anew in which a run's log is another, with a chain that holds."""

    async def work() -> None:
        async with await SqliteStore.open(store) as opened:
            records: Sequence[Record] = forge(await records_of(opened, run))
        for each in store.parent.glob(f"{store.name}*"):
            each.unlink()
        async with await SqliteStore.open(store) as opened:
            await write(opened, run, records)

    anyio.run(work)


def noted(log: list[Record]) -> list[Record]:
    """With one annotation more."""
    return [*log, log[-1]]


def by_hand(store: Path, statement: str) -> None:
    """Change the event of a store behind its back, and leave no trace but that."""
    with sqlite3.connect(store) as raw:
        triggers = raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            raw.execute(f'DROP TRIGGER "{name}"')
        raw.execute(statement)
        for _, made in triggers:
            raw.execute(made)
    raw.close()


def note(store: Path, run: str) -> None:
    """Add a person's note to a run, as of now."""

    def made(_: RunState, at: int, __: bytes) -> NoteAdded:
        return NoteAdded(at=at, by="ann", content=Remark(text="looked at"))

    async def work() -> None:
        async with await SqliteStore.open(store) as opened:
            await annotate(opened, run, made)

    anyio.run(work)


def test_what_is_equal_is_said_to_be(refold: Refold, store: Path, file: Path) -> None:
    """An import of what is there, with nothing changed since, says so."""
    run = imported(refold, store, file)["run"]
    note(store, run)
    again = refold("import", file, "--store", store)
    assert 0 == again.code
    assert "already imported, equal: nothing added" in again.out


def test_of_several_runs_a_sum_says_how_many_are_what(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Among many lines the damaged run is easily passed by: the last line counts it; and an import says what
    was new.
    """
    for name, text in (("a", ONE), ("b", CALLED), ("c", ASKED)):
        (tmp_path / f"{name}.jsonl").write_text(text.replace('"sessionId": "s"', f'"sessionId": "{name}"'))
    assert "new" not in refold("import", tmp_path, "--store", store).out.splitlines()[-1]
    assert "0 of them new" in refold("import", tmp_path, "--store", store).out.splitlines()[-1]
    assert "3 runs: 3 intact" == refold("verify", "--all", "--store", store).out.splitlines()[-1]
    by_hand(store, "UPDATE event SET body = replace(body, 'x', 'y') WHERE key = (SELECT min(key) FROM event)")
    verified = refold("verify", "--all", "--store", store)
    assert (3, "3 runs: 2 intact, 1 DAMAGED") == (verified.code, verified.out.splitlines()[-1])


def test_what_was_erased_is_said(refold: Refold, store: Path, file: Path) -> None:
    """Of a run whose content was erased in part an import says at which events, and that the rest is
    equal.
    """
    run = imported(refold, store, file)["run"]
    assert "CANCELLED" == listed(refold, store)[run]["agent_state"]
    for seq in (1, 5):
        ran = refold("erase", f"{run}@e{seq}", "--why", "a name", "--yes", "--store", store)
        assert 0 == ran.code, ran.err
    again = refold("import", file, "--store", store)
    assert 0 == again.code
    assert "equal except erased payloads at e1, e5: nothing added" in again.out
    found = imported(refold, store, file)
    assert ([1, 5], 0, 0) == (found["erased"], found["differs"], found["added"])


def test_what_was_edited_is_no_import_of_the_file(refold: Refold, store: Path, file: Path) -> None:
    """A run of which an event was changed in the store is said to be edited: exit code 3, and never that it
    is equal.
    """
    run = imported(refold, store, file)["run"]
    by_hand(
        store, "UPDATE event SET content = replace(content, 're: one', 're: two') WHERE key & 4294967295 = 5"
    )
    again = refold("import", file, "--store", store)
    assert 3 == again.code
    assert "DIFFERS from the file from e5" in again.out
    assert "the log was edited: event 5 (model_responded)" in again.out
    assert "equal" not in again.out
    assert 5 == imported(refold, store, file)["differs"]
    assert run in again.out


@pytest.mark.parametrize(
    ("forge", "seq"),
    [
        pytest.param(changed(5, model="y"), 5, id="a fact"),
        pytest.param(changed(6, reason="because"), 6, id="a decision"),
        pytest.param(noted, 0, id="one more annotation"),
    ],
)
def test_what_was_written_anew_differs(
    refold: Refold, store: Path, file: Path, forge: Forgery, seq: int
) -> None:
    """A log that somebody wrote anew, chain and all, is not what the file gives: exit code 1, and from where
    on.
    """
    run = imported(refold, store, file)["run"]
    rewritten(store, run, forge)
    again = refold("import", file, "--store", store)
    assert (1 if seq else 0) == again.code
    assert seq == imported(refold, store, file)["differs"]
    assert ("its chain is intact" in again.out) == bool(seq)


def test_what_somebody_added_differs(refold: Refold, store: Path, file: Path) -> None:
    """A run that went on here, whatever became of it, is not what the file gives any more."""
    file.write_text(ASKED)
    found = imported(refold, store, file)
    cancelled = recorded(CancelRequested(at=2 * 10**18), 2 * 10**18)
    rewritten(store, found["run"], lambda log: [*log, cancelled])
    assert 1 == refold("import", file, "--store", store).code
    assert found["events"] + 1 == imported(refold, store, file)["differs"]


def test_content_that_is_gone_without_a_notice_differs(refold: Refold, store: Path, file: Path) -> None:
    """What was taken out of the store by hand was not erased."""
    imported(refold, store, file)
    by_hand(store, "UPDATE event SET content = NULL, salt = x'' WHERE key & 4294967295 = 5")
    assert 3 == refold("import", file, "--store", store).code
    found = imported(refold, store, file)
    assert ([], 5) == (found["erased"], found["differs"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(ASKED, ASKED + row("assistant", 3, **ANSWER), id="a question"),
        pytest.param(RETURNED, RETURNED + row("assistant", 4, **ANSWER), id="a result"),
        pytest.param(
            STOP,
            STOP + row("user", 4, role="user", content="go on") + row("assistant", 5, **ANSWER),
            id="an interruption",
        ),
        pytest.param(row("user", 0, role="user", content="one"), ONE, id="a prompt"),
    ],
)
def test_a_session_that_went_on(refold: Refold, store: Path, file: Path, before: str, after: str) -> None:
    """Where the older end was told otherwise, the file is a run of its own: it says after which event of the
    older it goes on.

    That one says where it does.
    """
    file.write_text(before)
    old = imported(refold, store, file)
    assert [] == old["related"]
    file.write_text(after)
    again = refold("import", file, "--store", store)
    assert 0 == again.code
    runs = listed(refold, store)
    (new,) = set(runs) - {old["run"]}
    (related,) = imported(refold, store, file)["related"]
    assert (old["run"], "continues") == (related["run"], related["how"])
    assert f"continues {old['run']} after its e{related['upto']}" in again.out
    assert ("continues", new) == (runs[old["run"]]["source_end"], runs[old["run"]]["continued_in"])
    assert f"continued in {new}" in refold("ls", "--store", store).out
    assert "continued in run " in refold("show", old["run"], "--store", store).out
    assert runs[old["run"]]["events"] == old["events"] + 1
    for verb in ("verify", "audit"):
        assert 0 == refold(verb, old["run"], new, "--store", store).code
    file.write_text(before)
    back = imported(refold, store, file)
    assert (0, 0, True) == (back["added"], back["differs"], back["whole"])
    assert ["ends_before"] == [each["how"] for each in back["related"]]


def test_a_session_that_went_on_counts_once(refold: Refold, store: Path, file: Path) -> None:
    """Of a session that was imported twice the run with the rest is counted and asked about, and the other is
    named.
    """
    file.write_text(ASKED)
    imported(refold, store, file)
    file.write_text(ASKED + row("assistant", 4, **ANSWER))
    new = imported(refold, store, file)["run"]
    alone = refold("stats", new, "-o", "json", "--store", store)
    every = refold("stats", "-o", "json", "--store", store)
    assert json.loads(alone.out) == json.loads(every.out)
    assert "1 run left out" in every.err
    found = refold("grep", "kind:run_started", "--count", "--store", store)
    assert [["1", new]] == [line.split() for line in found.out.splitlines()]
    assert "1 run left out" in found.err
    both = refold("grep", "kind:run_started", *listed(refold, store), "--store", store)
    assert 2 == len(both.out.splitlines())
    asked = ["whatif", "--set", "limits.step=9", "-o", "json", "--store", store]
    assert json.loads(refold(*asked, "--all").out.splitlines()[-1])["totals"]["runs"] == 1
    assert 2 == json.loads(refold(*asked, *listed(refold, store)).out.splitlines()[-1])["totals"]["runs"]


def test_a_session_that_was_edited_differs(refold: Refold, store: Path, file: Path) -> None:
    """A file of the same session with another word in it is said to differ, and the older run is left as it
    is.
    """
    file.write_text(RETURNED)
    old = imported(refold, store, file)
    file.write_text(RETURNED.replace('"A"', '"B"') + row("assistant", 4, **ANSWER))
    (related,) = imported(refold, store, file)["related"]
    assert (old["run"], "differs") == (related["run"], related["how"])
    assert "open" == listed(refold, store)[old["run"]]["source_end"]


def test_a_key_alone_relates_nothing(refold: Refold, store: Path, file: Path) -> None:
    """Two transcripts that have a key in common, and not one answer, have nothing to do with each other."""
    for said in ("one", "another"):
        file.write_text(session(said))
        assert [] == imported(refold, store, file)["related"]


def test_runs_of_one_task_supersede_nothing(refold: Refold, store: Path) -> None:
    """Of runs with one key that only say the same things no one is taken for the other's end."""
    for name in ("compaction-trim", "compaction-edit", "message-limit", "token-limit"):
        refold("import", path_of(f"inspect/generated-{name}.eval"), "--store", store)
    found = listed(refold, store).values()
    assert ["finished", "finished", "limit:message", "limit:token"] == sorted(
        each["source_end"] for each in found
    )


def test_of_several_imports_the_last_is_named(refold: Refold, store: Path, file: Path) -> None:
    """Each older import of a session names the newest as the one that goes on, whatever is imported again."""
    runs: list[str] = []
    parts = [unanswered("a", "b"), unanswered("a", "b", "c"), session("a", "b", "c")]
    for text in parts:
        file.write_text(text)
        runs.append(imported(refold, store, file)["run"])
    file.write_text(parts[1])
    imported(refold, store, file)
    found = listed(refold, store)
    assert [runs[2], runs[2], ""] == [found[run]["continued_in"] for run in runs]


def unanswered(*said: str) -> str:
    """A session that breaks off before its last answer."""
    return "".join(session(*said).splitlines(keepends=True)[:-1])


LINES = [
    "claude_code/compaction-stop-hook.jsonl",
    "claude_code/subagent-tasks.jsonl",
    "claude_code/small-rejected-write.jsonl",
    "codex/finished-0.114.jsonl",
    "pi/large-session-v1.jsonl",
]


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("share", [3, 5, 8])
def test_a_real_session_cut_anywhere_goes_on(
    refold: Refold, store: Path, tmp_path: Path, name: str, share: int
) -> None:
    """The first so many tenths of a real session are the beginning of it: in the same run, or the other says
    so.
    """
    with path_of(name).open("rb") as opened:
        lines = Source.opened(name, opened).whole().splitlines(keepends=True)
    file = tmp_path / "s.jsonl"
    file.write_bytes(b"".join(lines[: len(lines) * share // 10]))
    old = imported(refold, store, file)
    file.write_bytes(b"".join(lines))
    new = imported(refold, store, file)
    related = [(each["run"], each["how"]) for each in new["related"]]
    assert ([] if new["run"] == old["run"] else [(old["run"], "continues")]) == related
