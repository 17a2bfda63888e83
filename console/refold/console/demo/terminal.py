"""A terminal in which the demo types commands: real processes, of whose output the lines that matter are shown."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_PATIENCE = 300
"""Seconds that one command may take: a model of this size on a slow machine, and some more."""


class NotShown(Exception):
    """A command did not do what the demo says that it does."""


class Terminal:
    """Types commands in `folder`, with the store `runs.db` there, under no setting of the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # What its reader set for runs of their own is not for these. Where the weights are, is.
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == "REFOLD_MODELS" or not name.startswith("REFOLD_")
        }
        self._environment = {**kept, "REFOLD_STORE": "runs.db", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Type a command and do not wait for it."""
        say(f"$ {typed(*words)}")
        return self._process(words)

    def type(self, *words: str, shows: Sequence[str], code: int = 0) -> str:
        """Type a command, and see what it does. See `run`."""
        say(f"$ {typed(*words)}")
        return self.run(*words, shows=shows, code=code)

    def run(self, *words: str, shows: Sequence[str] = (), code: int = 0) -> str:
        """Do a command that was typed, and show the first line that fits each pattern of `shows`. All that it wrote.

        Raises `NotShown` if there is no such line, or if its exit code is not `code`.
        """
        process = self._process(words)
        try:
            out, problems = process.communicate(timeout=_PATIENCE)
        except BaseException:
            process.kill()
            raise
        if process.returncode != code:
            raise NotShown(
                f"{typed(*words)}: exit code {process.returncode}, expected {code}:\n{out}{problems}"
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


def typed(*words: str) -> str:
    """How a command of ours is typed."""
    return f"refold {shlex.join(words)}"


def path_setting(folder: Path) -> str:
    """What to set, for somebody in `folder` to whom `refold` is no command yet. Empty if it is one."""
    if shutil.which("refold"):
        return ""
    scripts = Path(sys.executable).parent
    near = scripts.is_relative_to(Path.cwd())
    return f'PATH="{os.path.relpath(scripts, folder) if near else scripts}:$PATH"'


def show(output: str, pattern: str) -> None:
    """Show the first line of an output that fits a pattern. Raises `NotShown` if there is none."""
    found = next((line for line in output.splitlines() if re.search(pattern, line)), None)
    if found is None:
        raise NotShown(f"no line with {pattern!r} in:\n{output}")
    say(found)


def say(line: str = "") -> None:
    """Print a line, whole: a terminal folds what is wider."""
    print(line, flush=True)
