"""Tasks for the workers of a cluster, some of which kill their worker."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from refold.engine.compatibility import installed_guards
from refold.reducers.guards import Registry
from refold.replay.shards import Shard


def read(shard: Shard) -> Iterator[str]:
    """Yield the runs."""
    yield from shard.runs


def die_once(shard: Shard, run: str, mark: Path) -> Iterator[str]:
    """Kill the first worker that gets the run; a file at `mark` remembers it."""
    if run in shard.runs and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield from shard.runs


def die(shard: Shard, run: str) -> Iterator[str]:
    """Kill each worker that gets the run."""
    if run in shard.runs:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from shard.runs


def import_missing(shard: Shard) -> Iterator[str]:
    """Import a module that no worker has."""
    import missing_on_workers  # type: ignore[import-not-found]

    yield from missing_on_workers.runs(shard)


def note_start(log: Path) -> Registry:
    """Note in a file that this process begins a part, and return the guards."""
    with log.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return installed_guards()


def hang(shard: Shard) -> Iterator[str]:
    """Never end."""
    import threading

    threading.Event().wait()
    yield from shard.runs
