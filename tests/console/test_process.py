"""The command as a process: its exit codes, its pipes, its signals."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from console.test_hostile import dangerous
from support.wire import COUNTS, Server, chat, piece

STUBBORN = str(Path(__file__).with_name("stubborn.py"))
REFOLD = [sys.executable, "-m", "refold.console"]


def command(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **options)


def refold(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return command([*REFOLD, *map(str, words)], **options)


def stubborn(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return command([sys.executable, STUBBORN, *map(str, words)])


def until(seen: Path, text: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a process has written a text to a file."""
    for _ in range(3000):
        if text in seen.read_text():
            return
        assert process.poll() is None, seen.read_text()
        time.sleep(0.01)
    raise AssertionError(seen.read_text())


def recorded(store: Path, kind: str) -> None:
    """Wait until an event of this kind is on disk."""
    for _ in range(3000):
        with closing(sqlite3.connect(store)) as connection:
            if connection.execute("SELECT 1 FROM event WHERE kind = ?", (kind,)).fetchone():
                return
        time.sleep(0.01)
    raise AssertionError(kind)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts `stubborn.py` in the background, its output in a file."""
    running: list[subprocess.Popen[bytes]] = []

    def start(mode: str, *words: str | Path) -> tuple["subprocess.Popen[bytes]", Path]:
        out = tmp_path / "out"
        with out.open("wb") as file:
            argv = [sys.executable, STUBBORN, mode, *map(str, words)]
            running.append(
                subprocess.Popen(argv, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            )
        return running[-1], out

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_ctrl_c_once(started: Any, store: Path) -> None:
    """Once cancels cleanly: CANCELLED is on disk, the exit code is 130, and the log is whole."""
    process, out = started("model", "run", "Go", "--store", store)
    until(out, "asked", process)
    process.send_signal(signal.SIGINT)
    assert 130 == process.wait(10)
    assert "CANCELLED" in out.read_text()
    assert "Traceback" not in out.read_text()
    assert (
        "CANCELLED"
        == json.loads(refold("show", "@last", "-o", "json", "--store", store).stdout)["agent_state"]
    )
    assert 0 == refold("audit", "@last", "--store", store).returncode


@pytest.mark.slow
def test_ctrl_c_twice(started: Any, store: Path) -> None:
    """Twice ends the process at once, whatever a tool does; the log is whole and the call is in doubt on
    resume.
    """
    process, out = started("tool", "run", "Go", "--tools", "stubborn:hold", "--store", store)
    until(out, "call", process)
    process.send_signal(signal.SIGINT)
    until(out, "Ctrl-C again", process)
    recorded(store, "cancel_requested")
    process.send_signal(signal.SIGINT)
    assert 130 == process.wait(10)
    assert "Traceback" not in out.read_text()
    assert 0 == refold("verify", "@last", "--store", store).returncode
    resumed = stubborn("tool", "resume", "@last", "--tools", "stubborn:hold", "--store", store)
    assert "CANCELLED" in resumed.stdout, resumed
    assert 1 == resumed.returncode
    assert 0 == refold("audit", "@last", "--store", store).returncode


@pytest.mark.slow
def test_a_full_disk(store: Path) -> None:
    """A disk that is full in mid-run: exit code 4, the last good event is named, and `resume` goes on from
    there.
    """
    words = f"{sys.executable} {STUBBORN} flood run Go --tools stubborn:flood --store {store}"
    ran = command(["/bin/sh", "-c", f"ulimit -f 400; exec {words}"])  # as many blocks as a file may have
    assert 4 == ran.returncode, ran
    assert "its log is intact up to event" in ran.stderr
    assert "refold resume " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert 0 == refold("verify", "@last", "--store", store).returncode
    resumed = stubborn("flood", "resume", "@last", "--tools", "stubborn:flood", "--store", store)
    assert "Traceback" not in resumed.stderr
    assert 0 == refold("audit", "@last", "--store", store).returncode


@pytest.mark.slow
def test_a_vendor(store: Path) -> None:
    """The whole way to an OpenAI-compatible server and back, over real HTTP."""
    server = Server()
    server.script = chat(
        piece({"content": "Hi "}), piece({"content": "there\x1b[2J."}), piece({}, "stop"), COUNTS
    )
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        words = ["--model", "openai:x", "--base-url", f"{server.address}/v1", "--system", "Be brief."]
        words += ["--price", "1/10", "--timeout", "60"]
        ran = refold("run", "Hello", *words, "--store", store)
    finally:
        server.shutdown()
        server.server_close()
    assert 0 == ran.returncode, ran.stderr
    assert "said    Hi there\\x1b[2J." in ran.stdout
    assert "1,000 in (600 cached), 100 out" in ran.stdout
    assert "$0.002" in ran.stdout
    assert '"price":"1/10"' in refold("show", "@last", "--raw", "--store", store).stdout
    assert ["system", "user"] == [message["role"] for message in server.requests[0]["messages"]]


def test_plain_when_piped(store: Path, finished: str) -> None:
    """What goes into a pipe has no colour and no escape sequence, whatever TERM says."""
    ran = refold("show", finished, "--store", store)
    assert set() == dangerous(ran.stdout)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal of its own")
@pytest.mark.parametrize("no_color", [False, True], ids=["colour", "NO_COLOR"])
def test_on_a_terminal(store: Path, finished: str, no_color: bool) -> None:
    """A terminal gets bold, but never a colour where NO_COLOR is set, and nothing of what the log says acts
    on it.
    """
    main, other = os.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "60", **({"NO_COLOR": "1"} if no_color else {})}
    subprocess.run(
        [*REFOLD, "show", finished, "--store", str(store)], stdout=other, env=env, check=True, timeout=60
    )
    os.close(other)
    shown = b""
    try:
        while piece_ := os.read(main, 65536):
            shown += piece_
    except OSError:
        pass
    os.close(main)
    text = shown.decode()
    assert "\x1b[3" not in text
    assert "\x1b[2J" not in text
    assert "\x1b]" not in text
    assert "\u202e" not in text
    assert all(
        len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= 90 for line in text.splitlines()[5:12]
    )


def test_a_closed_pipe(store: Path, finished: str) -> None:
    """`refold show | head` says nothing of a broken pipe: nothing failed, and not all was said."""
    shown = f"{' '.join(REFOLD)} show {finished} --raw --store {store}"
    done = command(["/bin/bash", "-c", f"{shown} | true; echo ${{PIPESTATUS[0]}}"])
    assert ("141\n", "") == (done.stdout, done.stderr)


def test_no_extra_is_loaded_unasked() -> None:
    """`import refold.console` and its `main` load no click, rich or yaml."""
    code = "import refold.console.main, sys; print(sorted({'click', 'rich', 'yaml'} & set(sys.modules)))"
    assert "[]\n" == command([sys.executable, "-c", code]).stdout


def test_a_missing_extra() -> None:
    """Without click, one line says which extra to install, and the exit code is 2."""
    hide = "import sys; sys.modules['click'] = None; sys.path_importer_cache.clear()"
    code = f"{hide}; from refold.console.main import main; sys.exit(main(['ls']))"
    done = command([sys.executable, "-c", code])
    assert (2, "") == (done.returncode, done.stdout)
    assert "pip install 'refold[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [[], ["policy"], ["model"]], ids=["refold", "policy", "model"])
def test_nothing_typed(words: list[str]) -> None:
    """Without a command, its help is said on stderr as with -h, line for line, and the exit code is 2."""
    done = refold(*words)
    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr == refold(*words, "-h").stdout


def test_version() -> None:
    """The version is a result."""
    done = refold("--version")
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("refold 0.")
