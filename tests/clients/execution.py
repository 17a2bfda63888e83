"""Run a client once, with a fresh home, a work folder, a server on loopback and a timeout."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from clients.adapters import Client, Commands, Setting
from clients.installation import Installed
from clients.scripts import SCRIPTS, SLEEPING, Edit, Malformed, Script, happened
from clients.server import Recorder, serving
from clients.truth import Outcome

TIMEOUT = 120.0
"""Seconds for a process of a client; after that it is killed, and the outcome is `timed_out`."""
_GRACE = 5.0
_PROMPTS = ("SCRIPT=main. Do what must be done with a.txt.", "SCRIPT=main. Go on, please.")


def play(
    client: Client,
    installed: Installed,
    name: str,
    run: Path,
    *,
    script: Script | None = None,
    rules: bool = False,
) -> Outcome:
    """Run a client on a script, by default the one of this name, in the folder `run`, which is deleted first.
    `rules`: with its own permission rules.

    Writes `truth.jsonl`, `outcome.json`, `transcripts/`, and the output of the processes.
    """
    script = script or SCRIPTS[name]
    shutil.rmtree(run, ignore_errors=True)
    home, folder = run / "home", run / "work"
    (home / "tmp").mkdir(parents=True)
    _fill(folder)
    log = run / "truth.jsonl"
    log.touch()
    with serving(Recorder(script, folder, log)) as url:
        commands = client.prepare(Setting(home, folder, url, Path(installed.programs), script, rules))
        environment = _environment(home, installed, commands)
        again = [commands.again] * (script.prompts - 1) if commands.again else []
        played = [
            _process([*words, prompt], run, environment, script)
            for words, prompt in zip([commands.first, *again], _PROMPTS, strict=False)
        ]
        _copy_transcripts(client, installed, run, environment)
    outcome = Outcome(
        client=client.name,
        script=name,
        version=installed.version,
        format=client.format,
        codes=tuple(code for code, _ in played),
        seconds=tuple(round(seconds, 2) for _, seconds in played),
        timed_out=any(seconds >= TIMEOUT for _, seconds in played),
        interrupted=script.interrupted and (folder / SLEEPING).exists(),
        happened=_happened(script, folder),
    )
    (run / "outcome.json").write_bytes(msgspec.json.encode(outcome))
    return outcome


def _fill(folder: Path) -> None:
    """Two files in a git repository that has a stash."""
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n", encoding="utf-8")
    (folder / "b.txt").write_text("beta\n", encoding="utf-8")
    for words in ("init -q -b main .", "add .", "commit -qm first"):
        _git(folder, words)
    (folder / "b.txt").write_text("stashed\n", encoding="utf-8")
    _git(folder, "stash -q")


def _git(folder: Path, words: str) -> None:
    identity = ["-c", "user.email=a@example.org", "-c", "user.name=A"]
    dates = dict.fromkeys(
        ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-01T00:00:00Z"
    )  # for the same digests
    command = ["git", *identity, *words.split()]
    subprocess.run(command, cwd=folder, env={**os.environ, **dates}, check=True, capture_output=True)


def _environment(home: Path, installed: Installed, commands: Commands) -> dict[str, str]:
    """The environment of a client. Proxies and keys of this machine must not reach it."""
    path = [installed.programs, *installed.path, os.environ.get("PATH", os.defpath)]
    kept = {name: os.environ[name] for name in ("LANG", "TZ") if name in os.environ}
    places = {"DATA": ".local/share", "CONFIG": ".config", "STATE": ".local/state", "CACHE": ".cache"}
    return {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "PATH": os.pathsep.join(path),
        "CI": "1",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "DO_NOT_TRACK": "1",
        **{f"XDG_{name}_HOME": str(home / place) for name, place in places.items()},
        **commands.environment,
    }


def _process(
    words: Sequence[str], run: Path, environment: Mapping[str, str], script: Script
) -> tuple[int, float]:
    """Run a process until it ends or times out, and kill its group. Returns its exit code and seconds."""
    begun = time.monotonic()
    sleeping = run / "work" / SLEEPING
    with (run / "stdout").open("ab") as out, (run / "stderr").open("ab") as err:
        process = subprocess.Popen(
            words,
            cwd=run / "work",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            if script.interrupted and _comes(sleeping, process):
                _signal(process, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TIMEOUT - (time.monotonic() - begun))
        finally:
            seconds = time.monotonic() - begun
            _end(process)
    return process.returncode, seconds


def _comes(file: Path, process: "subprocess.Popen[bytes]") -> bool:
    """Wait until a file exists. False if the process ends first."""
    until = time.monotonic() + TIMEOUT / 2
    while process.poll() is None and time.monotonic() < until:
        if file.exists():
            time.sleep(1)  # the client must have seen that the command runs
            return True
        time.sleep(0.05)
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _happened(script: Script, folder: Path) -> dict[int, bool]:
    """By turn: whether an edit or a malformed call had an effect in the work folder."""
    return {
        number: happened(call, folder)
        for number, turn in enumerate(script.turns, start=1)
        for call in getattr(turn, "calls", ())
        if isinstance(call, Edit | Malformed)
    }


def _copy_transcripts(
    client: Client, installed: Installed, run: Path, environment: Mapping[str, str]
) -> None:
    target = run / "transcripts"
    target.mkdir()
    if client.exports:
        _export_opencode(installed, run, environment)
    for pattern in client.transcripts:
        for found in sorted((run / "home").glob(pattern)):
            shutil.copytree(found, target, dirs_exist_ok=True)


def _export_opencode(installed: Installed, run: Path, environment: Mapping[str, str]) -> None:
    """Export OpenCode's sessions one by one. Its own list lacks those of subagents."""
    for database in (run / "home").glob(".local/share/opencode/*.db"):
        with contextlib.closing(sqlite3.connect(database)) as connection:
            sessions = [id_ for (id_,) in connection.execute("select id from session order by time_created")]
        for session in sessions:
            words = [f"{installed.programs}/opencode", "export", session]
            # Into a file: it exits before it has written a long session into a pipe.
            with (run / "transcripts" / f"{session}.json").open("wb") as file:
                subprocess.run(
                    words,
                    cwd=run / "work",
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.DEVNULL,
                    timeout=TIMEOUT,
                    check=False,
                )
