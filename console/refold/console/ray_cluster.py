"""Parts processed by the workers of a Ray cluster."""

# Ray is too large to be installed for a check of types, which knows it from a stub.
# pyright: reportMissingModuleSource=false

import logging
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from refold.console.cluster_task import ClusterExecutor, Installation, diagnose_call, run_packed
from refold.reducers.errors import ExternalFailure, WrongUse
from refold.replay.dispatch import AHEAD, Diagnosis, Workers

_RETRIES = 2  # so that a part is given up after it killed three workers


@contextmanager
def ray_workers(address: str | None, idle: int) -> Generator[Workers]:
    """Connect to the cluster at `ray://HOST:PORT`; without an address to that of RAY_ADDRESS, else start one.

    A worker of Ray is a process that runs one task at a time, so a task that killed its workers is the cause.
    """
    name = address or "ray"
    try:
        import ray
        from ray._private import worker
    except ImportError as error:
        problem = "needs the package ray, which is not installed: pip install 'refold[ray]'"
        raise WrongUse(f"--executor {name}: {problem}") from error
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:  # ConnectionError is an OSError
        raise ExternalFailure(
            f"--executor {name}: no Ray cluster answers there: {error}; `ray start --head` starts one"
        ) from error
    try:
        # Ray prints messages about killed workers to stdout, where our results go. It has no option for that.
        worker._worker_logs_enabled = False  # pyright: ignore[reportPrivateUsage]
        run = ray.remote(max_retries=_RETRIES)(run_packed)

        def send(expected: Installation, packed: bytes) -> "Future[Any]":
            future = run.remote(expected, packed).future()
            future.set_running_or_notify_cancel()  # a part that is given up may still end: that is no error
            return future

        executor = ClusterExecutor(send)
        ahead = max(AHEAD, 2 * int(ray.cluster_resources().get("CPU", 0)))
        yield Workers(executor=executor, ahead=ahead, idle=idle, diagnose=_diagnose)
    finally:
        ray.shutdown()


def _diagnose(error: BaseException) -> Diagnosis:
    from ray.exceptions import NodeDiedError, OutOfMemoryError, RayTaskError, WorkerCrashedError

    if isinstance(error, (WorkerCrashedError, OutOfMemoryError, NodeDiedError)):
        return Diagnosis(f"{_RETRIES + 1} workers died while they processed it", lost=True)
    if isinstance(error, RayTaskError):  # its own text is a traceback
        return diagnose_call(error.cause)
    return diagnose_call(error)
