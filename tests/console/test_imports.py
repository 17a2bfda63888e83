"""`refold import`: what it says, what it writes, what it leaves alone."""

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from console.conftest import EVIL, Refold
from support.sessions import documents, session
from support.transcripts import FILES, manifest, path_of

SMALL, CALLS = "claude_code/tiny-1.0.jsonl", "claude_code/small-rejected-write.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two transcripts, and things that are none."""
    folder = tmp_path / "sessions"
    (folder / "more").mkdir(parents=True)
    (folder / "b.jsonl").write_text(session("one"))
    (folder / "more" / "a.jsonl").write_text(session("two", "three"))
    (folder / "notes.md").write_text("# notes\n")
    (folder / ".hidden.jsonl").write_text(session("four"))
    (folder / "link.jsonl").symlink_to(folder / "b.jsonl")
    os.mkfifo(folder / "pipe")
    return folder


def test_an_imported_run_is_a_run(refold: Refold, store: Path) -> None:
    """What was imported is listed, shown, verified and audited as any run."""
    assert 0 == refold("import", path_of(CALLS), "--store", store).code
    assert "claude_code-" in refold("ls", "--store", store).out
    assert "Write" in refold("show", "@last", "--store", store).out
    for verb in ("verify", "audit"):
        assert 0 == refold(verb, "@last", "--store", store).code


def test_it_says_what_it_did(refold: Refold, store: Path) -> None:
    """The report names the file, its format and why, the run and its end, and what to type next."""
    ran = refold("import", path_of(CALLS), "--store", store)
    assert "small-rejected-write.jsonl.zst: claude_code (" in ran.out
    assert "events, " in ran.out
    assert "unknown, derived WAITING_FOR_INPUT" in ran.out
    assert "next    refold show claude_code-" in ran.err


def test_importing_twice_adds_nothing(refold: Refold, store: Path, tmp_path: Path) -> None:
    """The same transcript, packed or not and under another name, is found to be there."""
    file, packed = tmp_path / "a.jsonl", tmp_path / "b.gz"
    file.write_text(session("one", "two"))
    packed.write_bytes(gzip.compress(file.read_bytes()))
    first = documents(refold("import", file, "--store", store, "-o", "json").out)[0]["imported"][0]
    log = refold("show", "@last", "--raw", "--store", store).out
    again = documents(refold("import", file, packed, "--store", store, "-o", "json").out)
    assert first["events"] == first["added"]
    assert [(0, True), (0, True)] == [
        (each["imported"][0]["added"], each["imported"][0]["whole"]) for each in again
    ]
    assert log == refold("show", "@last", "--raw", "--store", store).out
    assert "nothing added" in refold("import", file, "--store", store).out


def test_a_session_that_went_on_is_the_same_run(refold: Refold, store: Path, tmp_path: Path) -> None:
    """A file that has grown since is no second run."""
    file = tmp_path / "a.jsonl"
    for said in (["one"], ["one", "two"]):
        file.write_text(session(*said))
        assert 0 == refold("import", file, "--store", store).code
    assert 1 == len(json.loads(refold("ls", "--store", store, "-o", "json").out))


def test_the_last_run_is_the_session(refold: Refold, store: Path) -> None:
    """What a call of it began was imported behind it, and is not what was meant."""
    refold("import", path_of("claude_code/sidechain-in-file.jsonl"), "--store", store)
    (session_,) = (
        each
        for each in json.loads(refold("ls", "--store", store, "-o", "json").out)
        if not each.get("parent")
    )
    assert ["run", session_["run"]] == refold("show", "@last", "--store", store).out.splitlines()[0].split()


def test_a_dry_run_writes_nothing(refold: Refold, store: Path) -> None:
    """With --dry-run there is no store afterwards, and what would be imported is told."""
    ran = refold("import", path_of(SMALL), "--dry-run", "--store", store)
    assert 0 == ran.code
    assert "not written" in ran.out
    assert not store.exists()


def test_the_counts_stand_under_their_names(refold: Refold) -> None:
    """With -o json each file is a line with the manifest's columns."""
    some = FILES[::9]
    ran = refold("import", *map(path_of, some), "--dry-run", "-o", "json")
    rows = {each["file"]: each for each in manifest()}
    found = dict(zip(some, documents(ran.out), strict=True))
    columns = [
        name for name in rows[some[0]] if name in found[some[0]] and name not in ("file", "end", "end_source")
    ]
    assert 16 <= len(columns)
    assert {file: [rows[file][name] for name in columns] for file in some} == {
        file: [str(each[name]) for name in columns] for file, each in found.items()
    }


def test_a_folder_is_walked(refold: Refold, store: Path, folder: Path) -> None:
    """The files of a folder are read in order, under their names in it; what is none is said, and no
    error.
    """
    ran = refold("import", folder, "--store", store, "-o", "json")
    told = documents(ran.out)
    assert 0 == ran.code
    assert ["b.jsonl", "more/a.jsonl"] == [each["file"] for each in told if "problem" not in each]
    assert {
        ".hidden.jsonl": "hidden",
        "link.jsonl": "a link: name it to follow it",
        "notes.md": "no transcript",
        "pipe": "not a regular file",
    } == {each["file"]: each["problem"] for each in told if each.get("skipped")}


def test_a_broken_session_in_a_folder_is_no_success(refold: Refold, store: Path, folder: Path) -> None:
    """By its name it is a transcript, and nobody has read it: it is told, and the exit code says so.

    An empty one says nothing.
    """
    (folder / "broken.jsonl").write_bytes(bytes(each ^ 0x5A for each in session("x").encode()))
    (folder / "empty.jsonl").write_bytes(b"")
    ran = refold("import", folder, "--store", store)
    assert 2 == ran.code
    assert "broken.jsonl: not imported: not a transcript of a known format" in ran.err
    assert "empty.jsonl: skipped: no transcript" in ran.err


def test_many_files_are_summed_up_at_the_end(refold: Refold, store: Path, folder: Path) -> None:
    """Of several files the last line says how much was imported and which have something unread; one line
    what is next.
    """
    (folder / "b.jsonl").write_text(session("one") + "no json\n")
    ran = refold("import", folder, "--store", store)
    runs = json.loads(refold("ls", "--store", store, "-o", "json").out)
    events = sum(run["events"] for run in runs)
    last = f"2 files, 2 runs, {events} events; 4 skipped; 1 file not fully read: b.jsonl"
    assert (1, last) == (ran.code, ran.out.splitlines()[-1])
    assert [f"next    refold ls --store {store}"] == [
        line for line in ran.err.splitlines() if line.startswith("next")
    ]


def test_what_is_odd_and_not_shown_is_counted(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Of a file with many odd places five are shown, and how many more there are."""
    file = tmp_path / "a.jsonl"
    file.write_text(session("one") + "no\n{}\n" * 7)
    ran = refold("import", file, "--store", store)
    assert "8 places, 7 of them not read" in ran.out
    assert "kept unchanged: 7 (unknown_rows)" in ran.out
    assert "and 3 more" == ran.out.splitlines()[-1].strip()


def test_a_file_that_is_named_must_be_one(refold: Refold, store: Path, folder: Path) -> None:
    """A named file of no format is wrong use; the others are imported all the same."""
    ran = refold("import", folder / "notes.md", folder / "b.jsonl", "--store", store)
    assert 2 == ran.code
    assert "notes.md: not imported: not a transcript of a known format" in ran.err
    assert "claude_code-" in ran.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["nothing-there"], "does not exist", id="no such file"),
        pytest.param(["b.jsonl", "--format", "codx"], "did you mean 'codex'", id="no such format"),
        pytest.param(["pipe"], "is not a file", id="not a regular file"),
    ],
)
def test_wrong_use(refold: Refold, folder: Path, words: list[str], said: str) -> None:
    """What cannot work is refused before anything is written."""
    ran = refold("import", folder / words[0], *words[1:])
    assert 2 == ran.code
    assert said in ran.err


def test_what_cannot_be_read_shows_in_the_exit_code(refold: Refold, store: Path, tmp_path: Path) -> None:
    """A line that is no JSON is told with its place, and makes the exit code 1; the rest is imported."""
    file = tmp_path / "a.jsonl"
    file.write_text(session("one") + "no json\n")
    ran = refold("import", file, "--store", store)
    assert 1 == ran.code
    assert "line 3: " in ran.out
    assert "1 of them not read" in ran.out
    assert 0 == refold("audit", "--all", "--store", store).code


def test_a_file_that_cannot_be_imported(refold: Refold, store: Path, tmp_path: Path) -> None:
    """A file of which nothing can be read as the format that was named is damaged; the others are
    imported.
    """
    bad, good = tmp_path / "a.json", tmp_path / "b.jsonl"
    bad.write_text("{")
    good.write_text(session("one"))
    assert 3 == refold("import", bad, "--format", "tau_bench", "--store", store).code
    assert 0 == refold("import", good, "--store", store).code


def test_hostile_transcripts_are_shown_harmless(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Escapes in names, keys and texts do not reach the terminal, in text or JSON."""
    file = tmp_path / "ev\x1b]0;owned\x07il.jsonl"
    file.write_text(session(EVIL, "<script>alert(1)</script>") + f"{EVIL}\n")
    for words in (
        ["import", file],
        ["import", file, "-o", "json"],
        ["show", "@last"],
        ["show", "@last", "--all"],
    ):
        ran = refold(*words, "--store", store)
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & {*ran.out, *ran.err}


@pytest.mark.parametrize(
    "words",
    [
        ["import", "~nobody-is-called-so/a"],
        ["ls", "--store", "~nobody-is-called-so/a"],
        ["verify", "~nobody-is-called-so/a"],
        ["keygen", "~nobody-is-called-so/a"],
        ["audit", "~nobody-is-called-so/a"],
    ],
    ids=lambda words: words[0],
)
def test_a_home_that_nobody_has(refold: Refold, store: Path, words: list[str]) -> None:
    """A path that begins with `~` and no name of a person is a path like any other: nothing is there, and no
    bug shows.
    """
    ran = refold(
        *words, *([] if "--store" in words or words[0] in ("import", "keygen") else ["--store", store])
    )
    assert ran.code in (2, 4)
    assert "bug" not in ran.err


def test_what_was_not_read_is_told_of_the_run(refold: Refold, store: Path, folder: Path) -> None:
    """Not only as it is imported: months later `ls` and `show` say how much of the source is in no fact, and
    where that is named.
    """
    (folder / "b.jsonl").write_text(session("one") + "no json\n")
    refold("import", folder / "b.jsonl", "--store", store)
    assert "1 place lost" in refold("ls", "--store", store).out
    shown = refold("show", "@last", "--store", store).out
    assert "1 place of the source may be missing in the facts: refold show " in shown
    words = shown.partition("refold show ")[2].splitlines()[0].split()
    assert "not_json" in refold("show", *words, "--store", store).out


@pytest.mark.parametrize(
    ("pack", "name"), [(lzma.compress, "xz"), (bz2.compress, "bzip2")], ids=["xz", "bzip2"]
)
def test_a_packed_file_in_a_folder_is_not_passed_over(
    pack: Callable[[bytes], bytes], name: str, refold: Refold, store: Path, folder: Path
) -> None:
    """A packed file may hold a transcript: it is reported as not imported, with what to do, and the exit code
    is 2.
    """
    (folder / "c.jsonl.packed").write_bytes(pack(session("packed").encode()))
    ran = refold("import", folder, "--store", store)
    assert 2 == ran.code
    assert (
        f"c.jsonl.packed: not imported: compressed with {name}, which is not supported: unpack it first"
        in ran.err
    )
