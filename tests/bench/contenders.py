"""The processes that a benchmark asks, each in an environment of its own: ours, and those of others beside
it.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import msgspec

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / ".benchmarks" / "environments"

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "langgraph": ("langgraph>=1.2,<2",),
    "pydantic_ai": ("pydantic-ai-slim>=2.60,<3",),
    "permdiff": ("permdiff==0.5.0",),
}
"""What stands beside us, and what pip is asked for: the versions that the scripts were written for."""
_SECONDS = 600
"""For an environment to be made."""


Answer = TypeVar("Answer")


class Missing(Exception):
    """A contender that cannot be measured here: why, in one line."""


class Contender(AbstractContextManager["Contender"]):
    """A script of this folder in a process of its own, that answers until this is left.

    `versions` are what it measures, by package.
    """

    def __init__(self, script: str, python: Path | str = sys.executable) -> None:
        self._process = subprocess.Popen(
            [str(python), str(HERE / script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            self.versions = self._answer(dict[str, str])
        except Missing:
            self.close()
            raise

    def ask(self, kind: type[Answer], case: str, **words: object) -> Answer:
        """Have a case measured with these words; `kind` is what it answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"case": case, **words}) + "\n")
        self._process.stdin.flush()
        return self._answer(kind)

    def _answer(self, kind: type[Answer]) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Missing(f"it stopped with exit code {self._process.wait()}")
        return msgspec.json.decode(line, type=kind)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Have it end, and wait until it has."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def contender(name: str) -> Contender:
    """One of `REQUIRED`, its environment made by pip if it is not there. Raises `Missing`."""
    return Contender(f"{name}_steps.py", _environment(name))


def _environment(name: str) -> Path:
    folder, required = ENVIRONMENTS / name, " ".join(REQUIRED[name])
    python, stamp = folder / "bin" / "python", folder / "installed"
    if stamp.exists() and stamp.read_text() == required:
        return python
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    # Impatient, for there may be no registry.
    _run([str(python), "-m", "pip", "install", "--quiet", "--retries", "1", *REQUIRED[name]])
    stamp.write_text(required)
    return python


def _run(words: list[str]) -> None:
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        raise Missing(lines[-1] if lines else f"exit code {error.returncode}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(str(error)) from error
