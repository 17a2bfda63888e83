"""Runs under a guard in a process of its own, to compare processes with other hash seeds.

    python -m refold.testing.conformance.hash_seeds < TASK

The task is JSON: see `Task`. The digests of the runs are written to standard output, as JSON.
"""

import importlib
import importlib.util
import os
import subprocess
import sys
from operator import attrgetter
from typing import Any

import msgspec

from refold.reducers.events import Manifest
from refold.reducers.guards import BUILTIN
from refold.testing.conformance.traces import digest, fixed_runs

RUNS = 24
"""Runs for each entry."""
_STEPS = 40


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What the other process needs: where the guard's class is, its policy entries, and the tools."""

    module: str
    file: str
    name: str
    entries: list[dict[str, Any]]
    tools: list[Manifest]
    path: list[str]


def task_of(guard: type[Any], entries: list[dict[str, Any]], tools: list[Manifest]) -> Task:
    """Return the task for a guard. Raises `AssertionError` if another process could not import the class."""
    if "<locals>" in guard.__qualname__:
        raise AssertionError(
            f"{guard.__qualname__} is defined in a function, so another process cannot import it: move it to "
            "the top of its module"
        )
    file = getattr(sys.modules[guard.__module__], "__file__", None) or ""
    return Task(
        module=guard.__module__,
        file=file,
        name=guard.__qualname__,
        entries=entries,
        tools=tools,
        path=[os.path.abspath(each) for each in sys.path],
    )


def digests(task: Task, guard: type[Any]) -> list[str]:
    """Return the digests of runs under each entry, made in this process."""
    guards = {**BUILTIN, guard.kind: guard}
    return [
        digest(run) for entry in task.entries for run in fixed_runs([entry], task.tools, guards, RUNS, _STEPS)
    ]


def digests_elsewhere(task: Task) -> list[str]:
    """Return the same digests, made in a new process with another hash seed."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-m", __name__],
        input=msgspec.json.encode(task),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    if done.returncode:
        raise AssertionError(f"another process could not use {task.name}: {done.stderr.decode()[-2000:]}")
    return msgspec.json.decode(done.stdout, type=list[str])


def main() -> None:
    """Read a task, and write the digests of its runs."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    sys.path[:] = task.path
    sys.stdout.buffer.write(msgspec.json.encode(digests(task, _loaded(task))))


def _loaded(task: Task) -> Any:
    try:
        module = importlib.import_module(task.module)
    except ImportError:  # a test module that is in no folder of the path
        spec = importlib.util.spec_from_file_location(task.module, task.file)
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        sys.modules[task.module] = module
        spec.loader.exec_module(module)
    return attrgetter(task.name)(module)


if __name__ == "__main__":
    main()
