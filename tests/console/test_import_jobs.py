"""`refold import --jobs`: several processes derive what one would, and one of them may die."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from console import dying
from console.conftest import Ran, Refold
from console.test_child_runs import FIRST, SECOND, SESSION
from refold.console import derived_files, derivers, processes
from refold.console.derived_files import MOST_SENT
from refold.console.imported_logs import unsalted_mark
from refold.console.opened_files import FoundFile
from refold.reducers import codec
from refold.store.sqlite import SqliteStore
from support.sessions import documents, session
from support.transcripts import path_of

SAMPLES = (
    "claude_code/tiny-1.0.jsonl",
    "claude_code/small-rejected-write.jsonl",
    "claude_code/two-objects-on-a-line.jsonl.zst",
    "mini_swe_agent/django__django-11299.traj.json.zst",
    "otel/copilot-chat.db.zst",
    "tau_bench/gpt-4o-airline.runs-28-37.json.zst",
)
REFOLD = [sys.executable, "-m", "refold.console"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Transcripts of several formats, subagents before and after their session, and other files."""
    made = tmp_path / "sessions"
    FIRST.to(made / "a" / "agent-a1.jsonl")
    SESSION.to(made / "b" / "s.jsonl")
    SECOND.to(made / "b" / "s" / "subagents" / "agent-b22.jsonl")
    for name in SAMPLES:
        copy = made / "c" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path_of(name).read_bytes())
    (made / "d.txt").write_text("no transcript")
    (made / "e.jsonl").write_text('{"no": "transcript"}\n')
    (made / "f.jsonl").write_text(session("one") + '{"type": "user", "mess')
    (made / "g.jsonl").write_text(session("one"))
    (made / "h.jsonl").write_text(session("one", "two"))
    (made / "i.eval").write_bytes(b"PK\x03\x04 and no more")
    (made / "j.jsonl").symlink_to(made / "g.jsonl")
    return made


async def _read(store: Path) -> list[tuple[str, list[bytes]]]:
    found: list[tuple[str, list[bytes]]] = []
    async with await SqliteStore.open(store, readonly=True) as opened:
        async for chunk in opened.runs(""):
            for run, _ in chunk:
                marks = [
                    unsalted_mark(each.at, codec.Encoded(each.kind, each.body, each.content), worded=True)
                    async for events in opened.read(run)
                    for each in events
                ]
                found.append((run, marks))
    return found


def logs(store: Path) -> list[tuple[str, list[bytes]]]:
    """The runs of a store in order, each event without what depends on salts."""
    import anyio

    return anyio.run(_read, store)


def printed(ran: Ran, store: Path) -> tuple[int, str, str]:
    return ran.code, ran.out.replace(str(store), "STORE"), ran.err.replace(str(store), "STORE")


@pytest.mark.parametrize("form", ["text", "json"])
def test_two_processes_import_what_one_imports(
    refold: Refold, folder: Path, tmp_path: Path, form: str
) -> None:
    """Same lines in the same order, same exit code, same runs in the same order, same events; twice."""
    told: list[list[tuple[int, str, str]]] = []
    for jobs in ("1", "2"):
        store = tmp_path / f"{jobs}.db"
        words = ("import", folder, "--store", store, "-o", form, "--jobs", jobs)
        told.append([printed(refold(*words), store) for _ in range(2)])
    assert told[0] == told[1]
    assert logs(tmp_path / "1.db") == logs(tmp_path / "2.db")
    assert 0 == refold("verify", "--all", "--store", tmp_path / "2.db").code
    assert 0 == refold("audit", "--all", "--store", tmp_path / "2.db").code


def test_two_processes_count_what_one_counts(refold: Refold, folder: Path) -> None:
    """A dry run prints the same in two processes."""
    one, two = (refold("import", folder, "--dry-run", "--jobs", jobs) for jobs in ("1", "2"))
    assert one == two


def test_sessions_that_grew_are_continued_in_several_processes(refold: Refold, tmp_path: Path) -> None:
    """Sessions that grew since the last import are continued in their runs, whoever derives them."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    told: list[tuple[int, str, str]] = []
    for jobs in ("1", "2"):
        store = tmp_path / f"{jobs}.db"
        for said in (("one",), ("one", "two")):
            for name in "abc":
                (folder / f"{name}.jsonl").write_text(session(*(f"{name} {each}" for each in said)))
            told.append(printed(refold("import", folder, "--store", store, "--jobs", jobs), store))
    assert told[:2] == told[2:]
    assert logs(tmp_path / "1.db") == logs(tmp_path / "2.db")


def test_large_files_are_derived_where_they_are_written(
    refold: Refold, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would take much memory in another process is not sent from it, and is imported all the same."""
    refold("import", folder, "--store", tmp_path / "1.db", "--jobs", "1")
    monkeypatch.setattr(derivers, "MOST_SENT", 2000)
    assert MOST_SENT > 2000
    refold("import", folder, "--store", tmp_path / "2.db", "--jobs", "2")
    assert logs(tmp_path / "1.db") == logs(tmp_path / "2.db")


@pytest.mark.parametrize("crashing", [("c",), ("a", "b"), ("a", "d", "g")], ids="".join)
def test_a_file_that_ends_its_process_stops_no_other(
    refold: Refold, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashing: tuple[str, ...]
) -> None:
    """It is reported with exit code 4, in its place, and every other file is imported."""
    monkeypatch.setattr(derivers, "derive_file", dying.derive_file)
    folder = tmp_path / "sessions"
    folder.mkdir()
    names = [f"{each}-crash" if each in crashing else each for each in "abcdefg"]
    for name in names:
        (folder / f"{name}.jsonl").write_text(session(name))
    ran = refold("import", folder, "--store", store, "--jobs", "2", "-o", "json")
    told = documents(ran.out)
    assert 4 == ran.code
    assert [f"{name}.jsonl" for name in names] == [each["file"] for each in told]
    assert [each for each in told if "problem" in each] == [
        {
            "file": f"{name}-crash.jsonl",
            "problem": "its process ended while reading it: it may need more memory than there is",
            "skipped": False,
        }
        for name in crashing
    ]
    assert len(names) - len(crashing) == len(logs(store))


@pytest.mark.parametrize(
    ("jobs", "cores", "sizes", "expected"),
    [
        pytest.param(None, 8, [1 << 30], 1, id="one file needs one process"),
        pytest.param(None, 8, [100] * 50, 1, id="little data needs one process"),
        pytest.param(None, 8, [1 << 20] * 50, 8, id="one process a core"),
        pytest.param(None, 8, [1 << 20] * 3, 3, id="not more than files"),
        pytest.param(None, 1, [1 << 20] * 50, 1, id="one core, one process"),
        pytest.param(1, 8, [1 << 20] * 50, 1, id="as given"),
        pytest.param(2, 8, [100] * 50, 2, id="as given, however little there is"),
        pytest.param(None, 8, [], 1, id="no file needs one process"),
    ],
)
def test_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, jobs: int | None, cores: int, sizes: list[int], expected: int
) -> None:
    """One row a rule."""
    files = [FoundFile(Path(f"{place}.jsonl"), f"{place}") for place in range(len(sizes))]
    monkeypatch.setattr(derivers, "size_of", lambda file: sizes[int(file.name)])
    monkeypatch.setattr(processes, "count_cores", lambda: cores)
    assert expected == max(1, derivers.choose_jobs(files, jobs))


def test_one_process_starts_no_other(
    refold: Refold, folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--jobs 1`, and for little data, nothing is started."""

    def fail(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(processes, "pool", fail)
    one = refold("import", folder, "--dry-run", "--jobs", "1")
    assert one == refold("import", folder, "--dry-run")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find child processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_an_ended_import_leaves_no_process_and_is_finished_by_the_next(
    refold: Refold, store: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Whatever ends the import: its processes end, each log is whole, and the next import adds the rest."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    for place in range(300):
        (folder / f"{place:03}.jsonl").write_text(session(f"{place}", *["more"] * 50))
    words = ["import", str(folder), "--store", str(store), "--jobs", "2", "-o", "json"]
    with subprocess.Popen([*REFOLD, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        path = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        children = list(map(int, path.read_text().split()))
        assert 2 <= len(children)
        os.kill(running.pid, number)
        _, err = running.communicate()
    assert {signal.SIGINT: 130, signal.SIGKILL: -9}[number] == running.returncode
    assert b"Traceback" not in err
    for child in children:
        for _ in range(1000):
            if not _runs(child):
                break
            time.sleep(0.01)
        else:
            raise AssertionError(f"process {child} still runs")
    done = len(logs(store))
    assert 0 < done < 300
    assert 0 == refold("import", folder, "--store", store, "--jobs", "2").code
    assert 300 == len(logs(store))
    assert 0 == refold("verify", "--all", "--store", store).code


def _runs(process: int) -> bool:
    try:
        return "Z" != Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def test_a_file_that_needs_too_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by the process that reads it: the one that writes does not try it again."""

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(derived_files, "_derive_file", fail)
    found = derived_files.decode_file(
        derived_files.derive_file(FoundFile(tmp_path / "s.jsonl", "s.jsonl"), None, kept=True)
    )
    assert isinstance(found, derived_files.Refusal)
    assert (4, "s.jsonl: reading it needs more memory than there is") == (found.code, found.problem)


def test_progress_on_a_terminal(folder: Path, store: Path) -> None:
    """A bar with the number of files; the lines of the files do not run into it."""
    main, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    words = [*REFOLD, "import", str(folder), "--store", str(store), "--jobs", "2"]
    with subprocess.Popen(words, stdin=side, stdout=side, stderr=side, env=environment) as running:
        os.close(side)
        shown = b""
        while data := _read_some(main):
            shown += data
    os.close(main)
    assert running.returncode == 2  # a file of the folder has an unknown format
    text = shown.decode()
    assert re.search(r"importing .*\d+ of \d+ files", text)
    headings = [match.start() for match in re.finditer(r"g\.jsonl: claude_code", text)]
    assert headings
    for start in headings:
        line = max(text.rfind("\n", 0, start), text.rfind("\x1b[2K", 0, start))
        assert "importing" not in text[line:start]


def _read_some(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side is closed
        return b""
