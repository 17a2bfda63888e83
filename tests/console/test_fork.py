"""`fork`, `shrink` and `testcase`, as they are typed."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from console.conftest import EVIL, Refold, act, look, record
from refold.engine import Agent, ScriptedModel, calls, say
from refold.engine.models.script import Line
from refold.replay import events
from refold.store import SqliteStore

Scripted = Callable[[Sequence[Line]], None]

TOOLS = ["--tools", "conftest_tools:TOOLS"]


@pytest.fixture(autouse=True)
def _tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools of the recorded runs, under a name that a command can be given."""
    module = type(sys)("conftest_tools")
    module.__dict__["TOOLS"] = [look, act]
    monkeypatch.setitem(sys.modules, "conftest_tools", module)


@pytest.fixture
def plain(store: Path) -> str:
    """A run of two turns."""
    model = ScriptedModel([calls(("look", {"path": "a.md"})), say("It is there.")])
    return Agent(model=model, tools=[look, act], store=store).run_sync("Look.", run_id="aa11", seed=7).run


def own_of(store: Path, run: str) -> list[str]:
    """The kinds of a run's own events."""

    async def read() -> list[str]:
        async with await SqliteStore.open(store, readonly=True) as opened:
            return [stored.kind async for stored, _ in events(opened, run) if stored.run == run]

    return anyio.run(read)


def newest(refold: Refold, store: Path) -> str:
    run: str = json.loads(refold("ls", "--store", store, "-o", "json").out)[0]["run"]
    return run


def counted(refold: Refold, store: Path, *words: str) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(refold("stats", *words, "-o", "json", "--store", store).out)["counts"]
    return counts


def test_a_fork_from_a_shell(refold: Refold, scripted: Scripted, store: Path, plain: str) -> None:
    """It goes on from the place to its end, which is its exit code; both runs verify and audit, and show
    whence it came.
    """
    scripted([say("Otherwise.")])
    ran = refold("fork", f"{plain}@t2", *TOOLS, "--store", store)
    assert 0 == ran.code, ran.err
    assert "continues run aa11 from event 8" in ran.err
    fork = newest(refold, store)
    assert ["run_forked", "model_responded", "state_changed"] == own_of(store, fork)
    assert f"forked from {plain}@e8" in refold("ls", "--store", store).out
    assert f"from event 8 of run {plain}" in refold("show", fork, "--store", store).out
    assert f"events up to 8 are shared with run {plain}" in refold("verify", fork, "--store", store).out
    assert 0 == refold("verify", plain, "--store", store).code
    assert 0 == refold("audit", plain, fork, "--store", store).code


def test_a_fork_is_not_counted_twice(refold: Refold, scripted: Scripted, store: Path, plain: str) -> None:
    """Counted together, a run and its fork have each event once; the fork alone has what came before it,
    too.
    """
    counts = partial(counted, refold, store)
    before, answers = counts(), len([kind for kind in own_of(store, plain) if kind == "model_responded"])
    scripted([say("Otherwise.")])
    assert 0 == refold("fork", f"{plain}@t2", *TOOLS, "--store", store).code
    fork = newest(refold, store)
    assert before["events"] + 3 == counts()["events"] == counts("--all")["events"]
    assert counts(plain, fork) == counts(fork, plain)
    assert (2, answers + 1) == (counts(plain, fork)["runs"], counts(plain, fork)["kinds"]["model_responded"])
    assert 8 + 3 == counts(fork)["events"]


@pytest.mark.parametrize(
    ("words", "script", "kinds"),
    [
        pytest.param(["--say", "No!"], [say("Why?")], ["run_forked", "model_requested"], id="say"),
        pytest.param(["--edit", "c1=gone"], [say("Oh.")], ["run_forked", "tool_returned"], id="edit"),
        pytest.param(
            ["--policy", "guardrails"], [say("Oh.")], ["run_forked", "model_requested"], id="policy"
        ),
        pytest.param([], [say("Oh.")], ["run_forked", "model_responded"], id="nothing"),
    ],
)
def test_where_a_fork_begins(
    refold: Refold,
    scripted: Scripted,
    store: Path,
    plain: str,
    words: list[str],
    script: list[Line],
    kinds: list[str],
) -> None:
    """Without a place it is the last one at which what is asked of the fork can be."""
    scripted(script)
    ran = refold("fork", plain, *words, *TOOLS, "--store", store)
    assert 0 == ran.code, ran.err
    assert kinds == own_of(store, newest(refold, store))[:2]


def test_a_fork_that_is_left_to_a_worker(refold: Refold, store: Path, plain: str, scripted: Scripted) -> None:
    """Its beginning is recorded, its id is all that is printed, and it wants an engine."""
    scripted([])
    ran = refold("fork", f"{plain}@e5", "--detach", *TOOLS, "--store", store)
    fork = ran.out.strip()
    assert 0 == ran.code
    assert ["run_forked"] == own_of(store, fork)
    scripted([say("Done.")])
    assert 0 == refold("resume", fork, *TOOLS, "--store", store).code


def test_a_made_up_result_out_of_a_file(
    refold: Refold, scripted: Scripted, store: Path, plain: str, tmp_path: Path
) -> None:
    """`CALL=@FILE` is what the file says."""
    (tmp_path / "said.txt").write_text("many\nlines", encoding="utf-8")
    scripted([say("Oh.")])
    edit = f"c1=@{tmp_path / 'said.txt'}"
    assert 0 == refold("fork", plain, "--edit", edit, *TOOLS, "--store", store).code
    assert "many\n  lines" in refold("view", newest(refold, store), "--store", store).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["aa11@e3"], "the nearest places are event 2 and event 5", id="no place"),
        pytest.param(["aa11@e10"], "it has ended there", id="after the end"),
        pytest.param(["aa11@e99"], "it has events 1 to 10", id="no event"),
        pytest.param(["aa11", "--edit", "c9=x"], "no place in it suits the fork", id="no such call"),
        pytest.param(["aa11@e8", "--edit", "c1=x"], "event 5", id="a call that has its result"),
        pytest.param(["aa11", "--edit", "c1"], "expected CALL=TEXT", id="no edit"),
        pytest.param(["aa11", "--edit", "c1=@/no/such/file"], "cannot be read", id="no file"),
        pytest.param(["zz"], "matches no run", id="no run"),
    ],
)
def test_forks_that_cannot_be(
    refold: Refold, scripted: Scripted, store: Path, plain: str, words: list[str], said: str
) -> None:
    """They are wrong use, the error says what can be, and the store has no run more."""
    scripted([])
    ran = refold("fork", *words, *TOOLS, "--store", store)
    assert (2, plain) == (ran.code, newest(refold, store))
    assert said in ran.err


def test_forking_a_hostile_run(refold: Refold, scripted: Scripted, store: Path, finished: str) -> None:
    """What the parent and the fork say tells the terminal nothing."""
    scripted([say(EVIL)])
    ran = refold("fork", finished, "--say", "Go on", *TOOLS, "--store", store)
    assert 0 == ran.code
    for char in "\x1b\x07\x9b\u202e\u2066\x00":
        assert char not in ran.out + ran.err


def test_the_parent_needs_no_tools_of_its_own(
    refold: Refold, scripted: Scripted, store: Path, plain: str
) -> None:
    """Without --tools the parent's are asked for by name; with them, the fork has those."""
    scripted([say("Oh.")])
    ran = refold("fork", plain, "--store", store)
    assert 2 == ran.code
    assert "--tools module:attribute" in ran.err
    assert 0 == refold("fork", plain, "--tools", "todos", "--store", store).code


def test_erasing_what_forks_have(refold: Refold, scripted: Scripted, store: Path, plain: str) -> None:
    """It is erased in the run and its forks, which still verify; a fork that goes on from it keeps it from
    being erased.
    """
    scripted([say("Oh.")])
    assert 0 == refold("fork", f"{plain}@e8", *TOOLS, "--store", store).code
    fork = newest(refold, store)
    ran = refold("erase", f"{fork}@e6", "--why", "asked", "--yes", "--store", store)
    assert 0 == ran.code, ran.err
    assert "run aa11 event 6" in ran.out
    assert f"also erased in {fork}" in ran.out
    assert 0 == refold("verify", plain, fork, "--store", store).code
    scripted([])
    left = refold("fork", f"{plain}@e5", "--detach", *TOOLS, "--store", store).out.strip()
    ran = refold("erase", f"{plain}@e1", "--why", "asked", "--yes", "--store", store)
    assert 2 == ran.code
    assert f"run {left} has not ended" in ran.err


def test_a_bundle_of_a_fork(
    refold: Refold, scripted: Scripted, store: Path, plain: str, tmp_path: Path
) -> None:
    """It has the parent too, verifies by itself, and one with a changed parent does not."""
    scripted([say("Oh.")])
    refold("fork", f"{plain}@e8", *TOOLS, "--store", store)
    fork, bundle = newest(refold, store), tmp_path / "b.zip"
    assert 0 == refold("pack", fork, "--out", bundle, "--store", store).code
    ran = refold("verify", bundle)
    assert 0 == ran.code
    assert "runs      2, with 13 events" in ran.out
    verifier = tmp_path / "verify.py"
    with zipfile.ZipFile(bundle) as file:
        verifier.write_bytes(file.read("verify.py"))
    words = [sys.executable, "-I", str(verifier), str(bundle)]
    assert 0 == subprocess.run(words, capture_output=True, check=False, timeout=60).returncode
    assert 0 == refold("unpack", bundle, "--out", tmp_path / "new.db").code
    assert 0 == refold("audit", fork, plain, "--store", tmp_path / "new.db").code


def test_shrinking_from_a_shell(refold: Refold, store: Path, finished: str, tmp_path: Path) -> None:
    """The smaller log is in a store of its own, whole and clean; the file is not written over."""
    small = tmp_path / "small.db"
    ran = refold("shrink", finished, "--when", "calls >= 1", "--out", small, "--store", store)
    assert 0 == ran.code, ran.err
    assert "2 of 7 facts" in ran.out
    assert 0 == refold("verify", "--all", "--store", small).code
    assert 0 == refold("audit", finished, "--store", small).code
    again = refold("shrink", finished, "--when", "calls >= 1", "--out", small, "--store", store)
    assert 2 == again.code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param([], "expected one of --when", id="nothing to show"),
        pytest.param(["--when", "steps > 1", "--audit-differs"], "expected one of", id="two things to show"),
        pytest.param(["--when", "steps >"], "expected a value", id="no question"),
        pytest.param(["--when", "steps > 99"], "does not meet the condition", id="what it does not show"),
        pytest.param(["--audit-differs"], "no difference to reproduce", id="no difference"),
        pytest.param(["--check", "no-such-program-at-all"], "cannot be run", id="no program"),
        pytest.param(["--check", ""], "expected a command", id="no command"),
        pytest.param(["--check", "'"], "No closing quotation", id="half a command"),
    ],
)
def test_what_cannot_be_shrunk(
    refold: Refold, store: Path, plain: str, tmp_path: Path, words: list[str], said: str
) -> None:
    """It is wrong use, and nothing is left of it."""
    ran = refold("shrink", plain, *words, "--out", tmp_path / "small.db", "--store", store)
    assert 2 == ran.code, ran.err
    assert said in ran.err
    assert [] == [path for path in tmp_path.iterdir() if path.name.startswith("small")]


def test_shrinking_by_a_command(refold: Refold, store: Path, finished: str, tmp_path: Path) -> None:
    """What a command says of a store with the log alone decides; it is asked of every log that is tried."""
    script = tmp_path / "asks.py"
    script.write_text(
        "import os, sqlite3, sys\n"
        "kinds = [k for k, in sqlite3.connect(os.environ['REFOLD_STORE']).execute('SELECT kind FROM log')]\n"
        "sys.exit(kinds.count('tool_returned') < 2)\n",
        encoding="utf-8",
    )
    small = tmp_path / "small.db"
    ran = refold(
        "shrink", finished, "--check", f"{sys.executable} {script}", "--out", small, "--store", store
    )
    assert 0 == ran.code, ran.err
    assert "4 of 7 facts" in ran.out


@pytest.mark.slow
def test_a_test_of_a_run(refold: Refold, store: Path, plain: str, tmp_path: Path) -> None:
    """It passes where nothing but the two files is, and fails at the first decision that is another one."""
    folder = tmp_path / "tests"
    folder.mkdir()
    ran = refold("testcase", plain, "--out", folder / "test_it.py", "--store", store)
    assert 0 == ran.code, ran.err
    assert {"test_it.py", "recordings"} == {path.name for path in folder.iterdir()}
    assert [f"{plain}.jsonl"] == [path.name for path in (folder / "recordings" / "test_it").iterdir()]
    assert 0 == pytested(folder).returncode
    (folder / "conftest.py").write_text(
        "import refold.reducers.rules.order as order\n"
        "from refold.reducers.rules import requests\n"
        "from msgspec.structs import replace\n"
        "old = requests.ModelRequested\n"
        "requests.ModelRequested = lambda **f: old(**{**f, 'input_tokens': f['input_tokens'] + 1})\n",
        encoding="utf-8",
    )
    done = pytested(folder)
    assert 1 == done.returncode
    assert "event 2: model_requested is changed" in done.stdout


def pytested(folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def test_a_test_of_a_shrunk_run(refold: Refold, store: Path, plain: str, tmp_path: Path) -> None:
    """Of a run that no engine would record so it is said, in words, that its test audits only."""
    small = tmp_path / "small.db"
    assert 0 == refold("shrink", plain, "--when", "calls > 0", "--out", small, "--store", store).code
    ran = refold("testcase", plain, "--out", tmp_path / "test_small.py", "--store", small)
    assert 0 == ran.code
    assert "the test audits the log, but does not play it" in ran.err
    assert "as for runs that were imported or shrunk" in ran.err


def test_a_fork_whose_model_cannot_be_had(refold: Refold, store: Path, plain: str) -> None:
    """The way out is named where the run's own model is none that a command can ask, and only there."""
    ran = refold("fork", plain, *TOOLS, "--store", store)
    assert 2 == ran.code
    assert "the run's own model: name another with --model" in ran.err
    assert "by --model" not in refold("fork", plain, "--model", "x", *TOOLS, "--store", store).err


@pytest.mark.parametrize(
    ("file", "said"),
    [
        pytest.param("it.py", "expected test_NAME.py", id="no test"),
        pytest.param("test_it.txt", "expected test_NAME.py", id="no Python"),
        pytest.param("test_there.py", "exists and is not overwritten", id="there already"),
        pytest.param("no/it.py", "create it first", id="no folder"),
    ],
)
def test_tests_that_cannot_be_written(
    refold: Refold, store: Path, plain: str, tmp_path: Path, file: str, said: str
) -> None:
    """Nothing is left of them."""
    (tmp_path / "test_there.py").write_text("", encoding="utf-8")
    before = {path.name for path in tmp_path.iterdir() if "runs.db" not in path.name}
    ran = refold("testcase", plain, "--out", tmp_path / file, "--store", store)
    assert ran.code in (2, 4)
    assert said in ran.err
    assert before == {path.name for path in tmp_path.iterdir() if "runs.db" not in path.name}


@pytest.mark.parametrize("run", ['a"b', "a'b", "a\\b", 'a"""+exit()+"""', "a;b", "ä"])
def test_no_id_becomes_python(run: str, refold: Refold, store: Path, tmp_path: Path) -> None:
    """A run whose id could be anything but a name in a Python file gets no test, and no file is left
    behind.
    """
    record(store, [say("Done.")], run_id=run)
    ran = refold("testcase", run, "--out", tmp_path / "test_it.py", "--store", store)
    assert (2, "") == (ran.code, ran.out)
    assert "its id cannot be written to a Python file" in ran.err
    assert [] == [*tmp_path.glob("test_it*")]
