"""Calls that are sent to the workers of a cluster, and what a worker checks before it makes them.

A worker is another machine, with its own packages and files. With another refold, other guards or an older
copy of the store, its results would be wrong. So it raises instead, and the part is named with the reason.
"""

import pickle
import platform
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from msgspec.structs import replace

from refold.engine.compatibility import installed_guards
from refold.reducers.errors import ExternalFailure
from refold.reducers.rules import RULES
from refold.replay import figures
from refold.replay.dispatch import Diagnosis, diagnose
from refold.replay.shards import Shard
from refold.store.opening import BUNDLE, open_here, store_address
from refold.store.sequential import at_once

T = TypeVar("T")

Installation = Mapping[str, str]
"""Versions by name, in built-in types: a worker with another refold must be able to read them."""


class OtherWorker(ExternalFailure):
    """A worker whose results could differ from those of this process. `worker` is the name of its machine."""

    def __init__(self, worker: str, problem: str) -> None:
        super().__init__(worker, problem)
        self.worker, self.problem = worker, problem

    def __str__(self) -> str:
        return f"worker {self.worker}: {self.problem}"


def installation() -> Installation:
    """Return the versions that results depend on: of refold, its decision rules, and the installed guards."""
    from importlib.metadata import version

    guards = {f"guard {kind}": str(guard.version) for kind, guard in installed_guards().items()}
    return {"refold": version("refold"), "decision rules": str(RULES), **guards}


def check_installation(expected: Installation) -> None:
    """Raise `OtherWorker` if this process has other versions."""
    found = installation()
    for name in [*expected, *sorted(found.keys() - expected.keys())]:
        here, wanted = found.get(name, "not installed"), expected.get(name, "not installed")
        if here != wanted:
            problem = f"{name}: {here}, expected {wanted}: install the same versions on all workers"
            raise OtherWorker(platform.node(), problem)


def check_events(shard: Shard) -> None:
    """Raise `OtherWorker` if the store has fewer events here than where the shard was made."""
    if shard.runs:
        events = at_once(_count_events(shard))
        if events < shard.events:
            found = f"{figures.count(events)} of {figures.quantity(shard.events, 'event')}"
            shown = store_address(shard.address).shown
            raise OtherWorker(platform.node(), f"{shown}: has {found}: it is another store, or an old copy")


async def _count_events(shard: Shard) -> int:
    async with open_here(shard.address) as store:
        return sum([(await store.head(run)).seq for run in shard.runs])


def run_packed(expected: Installation, packed: bytes) -> Any:
    """Check this worker, then unpack a call, check its shard, and return its result."""
    check_installation(expected)
    function, shard, args = pickle.loads(packed)  # noqa: S301 - from a user who may run code on the cluster
    check_events(shard)
    return function(shard, *args)


def diagnose_call(error: BaseException) -> Diagnosis:
    """Return what an exception from a worker means, if it is none of the cluster's own."""
    if isinstance(error, ImportError):
        return Diagnosis(
            f"a worker cannot import what it needs: {error}; install it on all workers", lost=False
        )
    return diagnose(error)


class ClusterExecutor(Executor):
    """Sends calls about shards to a cluster, each with the versions that the worker must have."""

    def __init__(self, send: Callable[[Installation, bytes], "Future[Any]"]) -> None:
        self._send, self._expected = send, installation()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Submit a call of a module function, whose first argument is a shard. Paths are sent in full."""
        shard, *others = args
        assert isinstance(shard, Shard)
        assert not kwargs
        sent = replace(shard, address=_full_address(shard.address))
        return self._send(self._expected, pickle.dumps((fn, sent, others)))


def _full_address(address: str) -> str:
    """Make paths absolute: a worker may have another current directory."""
    place = store_address(address)
    if place.file is None:
        return address
    return f"{BUNDLE}:{place.file.absolute()}" if place.scheme == BUNDLE else str(place.file.absolute())
