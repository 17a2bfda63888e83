"""What `refold worker --listen` serves: health checks and metrics of one worker."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from refold.console.worker_metrics import WorkerMetrics
from refold.console.worker_status import Pulse, StatusServer, check, listen_address, serving
from refold.engine import Worker
from refold.store.protocol import Store


class WorkerService:
    """A server that is bound to the typed address, and serves while `running`.

    Raises `WrongUse` for another address than `[HOST:]PORT` or without the library for metrics, and
    `CannotListen`.
    """

    def __init__(self, typed: str) -> None:
        self.metrics, self._pulse = WorkerMetrics(), Pulse()
        self._worker: Worker | None = None
        self._server = StatusServer(
            *listen_address(typed),
            {
                "/healthz": check(self._pulse.death),
                "/readyz": check(self._trouble),
                "/metrics": self.metrics.page,
            },
        )
        self.url = self._server.url

    @asynccontextmanager
    async def running(self, worker: Worker, store: Store) -> AsyncGenerator[None]:
        """Serve the status of `worker` while the block runs."""
        self._worker = worker
        self.metrics.follow(worker)
        async with serving(self._server, self._pulse, store):
            yield

    def _trouble(self) -> str:
        draining = self._worker is not None and self._worker.draining
        return "draining: the worker takes no more runs" if draining else self._pulse.trouble()
