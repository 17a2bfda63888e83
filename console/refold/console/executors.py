"""Options for commands over many runs: where their parts are processed."""

import gc
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from refold.console.options import option
from refold.console.processes import Jobs, processes
from refold.reducers.errors import WrongUse
from refold.replay.dispatch import Workers
from refold.replay.shards import Shard

_PROCESS = "process"
_IDLE = 600  # seconds: some hundred times as long as a part takes


class ExecutorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where parts of a store are processed. Raises `WrongUse` for options that do not go together."""

    jobs: Jobs = None
    executor: Annotated[
        str,
        option("--executor", "Where parts are processed: process, dask://HOST:PORT, ray or ray://HOST:PORT."),
    ] = _PROCESS
    idle_timeout: Annotated[
        int | None,
        option(
            "--idle-timeout",
            "Seconds without any finished part until a cluster's unfinished parts are given up.",
            min=1,
            shows=str(_IDLE),
        ),
    ] = None

    def __post_init__(self) -> None:
        if not _is_valid(self.executor):
            expected = "process, dask://HOST:PORT, ray or ray://HOST:PORT"
            raise WrongUse(f"--executor {self.executor!r}: expected {expected}")
        if self.on_cluster and self.jobs is not None:
            raise WrongUse(
                f"--jobs {self.jobs}: is for processes of this machine, not for {self.executor}: leave out --jobs"
            )
        if not self.on_cluster and self.idle_timeout is not None:
            raise WrongUse(f"--idle-timeout {self.idle_timeout}: is for clusters: name one with --executor")

    @property
    def on_cluster(self) -> bool:
        """Whether parts are sent to a cluster."""
        return self.executor != _PROCESS


def _is_valid(executor: str) -> bool:
    if executor in {_PROCESS, "ray"}:
        return True
    try:
        parts = urlsplit(executor)
        named = parts.hostname is not None and parts.port is not None
    except ValueError:  # a port that is no number
        return False
    return parts.scheme in {"dask", "ray"} and named and executor == f"{parts.scheme}://{parts.netloc}"


@contextmanager
def start_workers(
    options: ExecutorOptions, work: Sequence[Shard], begin: Callable[[], object] = gc.freeze
) -> Generator[Workers]:
    """Start processes, which call `begin` first, or connect to a cluster.

    A cluster's workers may have another current directory, so paths are sent to them in full.
    """
    idle = options.idle_timeout or _IDLE
    if not options.on_cluster:
        with processes(options.jobs, work, begin) as workers:
            yield workers
    elif options.executor.startswith("dask:"):
        from refold.console.dask_cluster import dask_workers

        with dask_workers(options.executor.removeprefix("dask://"), idle) as workers:
            yield workers
    else:
        from refold.console.ray_cluster import ray_workers

        with ray_workers(None if options.executor == "ray" else options.executor, idle) as workers:
            yield workers
