"""Parts processed by the workers of a Dask cluster."""

import logging
import pickle
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, nullcontext
from typing import Any

from refold.console.cluster_task import ClusterExecutor, Installation, diagnose_call, run_packed
from refold.console.screen import note
from refold.reducers.errors import ExternalFailure, WrongUse
from refold.replay.dispatch import AHEAD, Diagnosis, Workers

_CONNECT = 10  # seconds until a scheduler that does not answer is reported


@contextmanager
def dask_workers(place: str, idle: int) -> Generator[Workers]:
    """Connect to the scheduler at HOST:PORT.

    The scheduler sends the tasks of a lost worker to another one. After some deaths (its setting
    `allowed-failures`) it raises `KilledWorker`, which may hit tasks that only shared their workers with the
    cause: so each of them has one more attempt, alone.
    """
    try:
        from distributed import Client
    except ImportError as error:
        problem = "needs the package distributed, which is not installed: pip install 'refold[dask]'"
        raise WrongUse(f"--executor dask://{place}: {problem}") from error
    # A lost connection is the reason of each part: its traceback would hide them.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        client = Client(f"tcp://{place}", timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ExternalFailure(
            f"--executor dask://{place}: no Dask scheduler answers there: {error}; `dask scheduler` starts one"
        ) from error
    with client:
        threads = sum(client.ncores().values())
        if not threads:
            note(f"dask://{place}: has no workers yet; giving up after {idle} s without one")
        sender = client.get_executor()

        def send(expected: Installation, packed: bytes) -> "Future[Any]":
            # A worker that cannot import the function of a task leaves the cluster, and the task waits for
            # another one. So the function is one of Python's, and ours is imported when the task runs.
            return sender.submit(pickle.loads, pickle.dumps(_Call(run_packed, expected, packed)))

        executor = ClusterExecutor(send)
        yield Workers(
            executor=executor,
            alone=lambda: nullcontext(executor),
            tries=2,
            ahead=max(AHEAD, 2 * threads),
            idle=idle,
            diagnose=_diagnose,
        )


class _Call:
    """A call that is made by unpickling it."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._call = (function, args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


def _diagnose(error: BaseException) -> Diagnosis:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return Diagnosis(f"{error.allowed_failures + 1} workers died while they processed it", lost=True)
    if isinstance(error, CancelledError):
        return Diagnosis("the connection to the scheduler was lost", lost=False)
    return diagnose_call(error)
