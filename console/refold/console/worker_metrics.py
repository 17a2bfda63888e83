"""Metrics of a worker for Prometheus, by the library `prometheus-client`.

Labels have few values: states, kinds of errors, methods of the store. Ids of runs are in the worker's output
and in the store.
"""

import time
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, cast

from refold.console.worker_status import Answer
from refold.engine import Worker
from refold.engine.runtime import versions
from refold.engine.worker import Failed, HandedOver, News, PutDown, Skipped, TakenUp
from refold.reducers.errors import RefoldError, WrongUse
from refold.reducers.machine import AgentState
from refold.reducers.rules import RULES
from refold.store.protocol import Store

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


def _registry() -> "CollectorRegistry":
    """Return a registry with the metrics of this process. Raises `WrongUse` if the library is missing."""
    try:
        import prometheus_client
    except ImportError as error:
        raise WrongUse(
            "--listen needs the package prometheus-client, which is not installed: pip install 'refold[metrics]'"
        ) from error
    registry = prometheus_client.CollectorRegistry()
    for collector in (
        prometheus_client.ProcessCollector,
        prometheus_client.PlatformCollector,
        prometheus_client.GCCollector,
    ):
        collector(registry=registry)
    return registry


class WorkerMetrics:
    """Counts what a worker tells. `worker` is set once it is made."""

    def __init__(self) -> None:
        registry = self.registry = _registry()
        from prometheus_client import Counter, Gauge, Histogram, Info

        def counter(name: str, help: str, *labels: str) -> Counter:  # noqa: A002 - as the library calls it
            return Counter(f"refold_{name}", help, labels, registry=registry)

        own = versions()
        Info("refold_build", "Versions: of refold, its decision rules and Python.", registry=registry).info(
            {"version": own["refold"], "rules": str(RULES), "python": own["python"]}
        )
        self._taken = counter("worker_runs_taken", "Runs that the worker took.")
        self._put_down = counter("worker_runs_put_down", "Runs that ended or wait for an operator.", "state")
        for state in AgentState:
            if state.terminal or state.awaits_operator:
                self._put_down.labels(state=state)
        self._handed_over = counter("worker_runs_handed_over", "Runs left to other workers when it stopped.")
        self._interrupted = counter(
            "worker_calls_interrupted", "Calls whose outcome is unknown since it stopped."
        )
        self._failed = counter("worker_runs_failed", "Times that a run could not be driven.")
        self._skipped = counter(
            "worker_runs_skipped", "Runs that only another version or installation can drive."
        )
        self._lost = counter("worker_leases_lost", "Runs that another engine took over.")
        self._events = counter("store_events_appended", "Events that the worker appended.")
        self._errors = counter("store_errors", "Calls of the store that raised an error.", "method", "error")
        self._seconds = Histogram(
            "refold_store_append_duration_seconds",
            "Time until an append was durable.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._runs = Gauge("refold_worker_runs", "Runs that the worker drives now.", registry=registry)
        self._limit = Gauge(
            "refold_worker_concurrency", "Most runs that the worker drives at a time.", registry=registry
        )
        self._draining = Gauge(
            "refold_worker_draining", "1 while the worker takes no more runs.", registry=registry
        )

    def follow(self, worker: Worker) -> None:
        """Read from this worker how many runs it drives."""
        self._limit.set(worker.concurrency)
        self._runs.set_function(lambda: worker.driving)
        self._draining.set_function(lambda: float(worker.draining))

    def take(self, news: News) -> None:
        """Count an event of the worker."""
        match news:
            case TakenUp():
                self._taken.inc()
            case PutDown(result=result):
                self._put_down.labels(state=result.state).inc()
            case HandedOver(calls=calls):
                self._handed_over.inc()
                self._interrupted.inc(len(calls))
            case Failed(run=run, lost=lost):
                (self._lost if lost else self._failed).inc(1 if run else 0)  # without a run, the store failed
            case Skipped():
                self._skipped.inc()

    def page(self, accept: str) -> Answer:
        """Return the metrics, in the format that the client prefers."""
        from prometheus_client.exposition import choose_encoder

        encode, kind = choose_encoder(accept)
        return Answer(HTTPStatus.OK, kind, encode(self.registry))

    def observed(self, store: Store) -> Store:
        """Return the store with its calls counted."""
        return cast("Store", _Observed(store, self._appended, self._raised))

    def _appended(self, events: int, seconds: float) -> None:
        self._events.inc(events)
        self._seconds.observe(seconds)

    def _raised(self, method: str, error: RefoldError) -> None:
        self._errors.labels(method=method, error=type(error).__name__).inc()


class _Observed:
    """Passes everything on to a store, whatever methods it has."""

    def __init__(
        self, store: Store, appended: Callable[[int, float], None], raised: Callable[[str, RefoldError], None]
    ) -> None:
        self._store, self._appended, self._raised = store, appended, raised

    def __getattr__(self, name: str) -> Any:
        """Return the store's attribute; a method that waits is wrapped once."""
        found = getattr(self._store, name)
        if not iscoroutinefunction(found):
            return found

        @wraps(found)
        async def observed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                result = await found(*args, **kwargs)
            except RefoldError as error:
                self._raised(name, error)
                raise
            if name == "append":
                records = kwargs["records"] if "records" in kwargs else args[-1]
                self._appended(len(records), time.perf_counter() - began)
            return result

        setattr(self, name, observed)
        return observed
