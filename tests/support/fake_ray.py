"""As much of Ray as the adapter uses, in this process: Ray itself is too large to be installed for tests."""

import sys
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from refold.reducers.errors import RefoldError


class RayError(Exception):
    """Base of Ray's errors."""


class WorkerCrashedError(RayError):
    """A worker died as often as the task may be tried."""


class RayTaskError(RayError):
    """A task raised `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"Traceback of {cause!r}")
        self.cause = cause


class FakeRay:
    """Runs tasks at once. A task that raises `SystemExit` killed its worker."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def init(self, **settings: Any) -> None:
        """Connect, or fail as Ray does for the address `ray://gone:1`."""
        self.calls.append(settings["address"])
        if settings["address"] == "ray://gone:1":
            raise ConnectionError("ray client connection timeout")

    def remote(self, *, max_retries: int) -> Callable[[Callable[..., Any]], Any]:
        """Make a remote function."""
        self.calls.append(max_retries)
        return lambda function: SimpleNamespace(
            remote=lambda *args: SimpleNamespace(future=lambda: _run(function, *args))
        )

    def cluster_resources(self) -> dict[str, float]:
        """The cluster has two processors."""
        return {"CPU": 2.0}

    def shutdown(self) -> None:
        """Disconnect."""
        self.calls.append("shutdown")


def _run(function: Callable[..., Any], *args: Any) -> "Future[Any]":
    future = _Future()
    try:
        future.outcome = function(*args)
    except SystemExit:
        future.outcome = WorkerCrashedError("The worker died unexpectedly")
    except (RefoldError, ImportError) as error:
        future.outcome = RayTaskError(error)
    return future


class _Future(Future[Any]):
    """Like that of Ray, has its result some time after it was made."""

    outcome: Any = None

    def set_running_or_notify_cancel(self) -> bool:
        """Make the result known, too."""
        running = super().set_running_or_notify_cancel()
        if isinstance(self.outcome, Exception):
            self.set_exception(self.outcome)
        else:
            self.set_result(self.outcome)
        return running


def install(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Put it in the place of Ray."""
    fake = FakeRay()
    exceptions = {each.__name__: each for each in (RayTaskError, WorkerCrashedError)}
    others = dict.fromkeys(("NodeDiedError", "OutOfMemoryError"), WorkerCrashedError)
    parts: dict[str, dict[str, Any]] = {
        "ray": {name: getattr(fake, name) for name in ("init", "remote", "cluster_resources", "shutdown")},
        "ray._private": {"worker": SimpleNamespace()},
        "ray.exceptions": exceptions | others,
    }
    for name, attributes in parts.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    return fake
