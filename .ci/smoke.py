"""Try an installed refold as a new user would: `smoke.py core`, then `smoke.py cli` with that extra.

Run by `.ci/run` in an environment with only the wheel and its dependencies.
"""

import importlib
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

PACKAGES = ("reducers", "store", "engine", "importers", "replay", "console")
REFOLD = Path(sysconfig.get_path("scripts")) / "refold"


def refold(*words: str, store: Path | None = None, expect: int = 0) -> str:
    """Run the `refold` command; return stdout and stderr. Fails on another exit code."""
    env = os.environ | ({"REFOLD_STORE": str(store)} if store else {})
    done = subprocess.run([REFOLD, *words], capture_output=True, text=True, env=env, check=False, timeout=60)
    print(f"$ refold {' '.join(words)}\n{done.stdout}{done.stderr}", end="")
    assert expect == done.returncode, f"exit code {done.returncode}, not {expect}"
    return done.stdout + done.stderr


def imports_come_from_the_wheel() -> None:
    """Check that all packages come from the wheel, not from a clone."""
    site = Path(sysconfig.get_path("purelib")).resolve()
    for package in PACKAGES:
        module = importlib.import_module(f"refold.{package}")
        assert module.__file__ is not None
        assert Path(module.__file__).resolve().is_relative_to(site), module.__file__


def a_missing_extra_is_named() -> None:
    """Check that the command names the missing extra, without a traceback."""
    said = refold("--version", expect=2)
    assert "refold[cli]" in said, said
    assert "Traceback" not in said, said


def a_run_is_recorded(store: Path) -> None:
    """Record one tool call and one response through the public API in a SQLite file."""
    from refold.engine import Agent, ScriptedModel, call, say, tool

    @tool(replay="read_only")
    def add(left: int, right: int) -> str:
        """Add two numbers."""
        return str(left + right)

    model = ScriptedModel([call("add", left=2, right=3), say("It is 5.")])
    agent = Agent(model=model, tools=[add], store=store)
    result = agent.run_sync("What is 2 + 3?")
    assert result.state == "COMPLETED", result
    assert "5" in str(result.outcome), result


def core() -> None:
    """Check a plain `pip install refold`."""
    imports_come_from_the_wheel()
    a_missing_extra_is_named()
    with tempfile.TemporaryDirectory() as folder:
        a_run_is_recorded(Path(folder) / "runs.db")


def cli() -> None:
    """Check `pip install 'refold[cli]'`: verify, audit and report a recorded run."""
    assert importlib.metadata.version("refold") in refold("--version")
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "runs.db"
        a_run_is_recorded(store)
        refold("verify", "@last", store=store)
        refold("audit", "@last", store=store)
        refold("report", "@last", "--out", str(Path(folder) / "run.html"), store=store)  # with all its assets
        refold("audit", "no-such-run", store=store, expect=2)


STAGES: Mapping[str, Callable[[], None]] = {"core": core, "cli": cli}

if __name__ == "__main__":
    STAGES[sys.argv[1]]()
    print(f"smoke test {sys.argv[1]}: passed")
