"""Clients that append to runs of their own, and remember all that their store returned."""

import math
import time

import anyio
import msgspec

from refold.store import open_store
from refold.store.base import BaseStore
from refold.store.chain import START, links
from refold.store.postgres.connection import PATIENCE
from refold.store.postgres.store import PostgresStore
from refold.store.protocol import Conflict, Head, Lease, LeaseLost, StoreUnavailable
from refold.store.testing import records

_EVENTS = 3  # of an append
_LEASE = 3600.0
_AGAIN = 0.02  # seconds before what failed is tried again


class Unknown(msgspec.Struct):
    """An append whose outcome the client did not know at first."""

    run: str
    before: Head
    target: Head
    committed: bool | None = None


class Clients:
    """Appends to `runs` runs at once over one store, until told to stop.

    A patient store finds out each outcome itself. With `patience` 0 it raises, and the client reads the head.
    """

    def __init__(self, address: str, name: str, runs: int, patience: float = PATIENCE) -> None:
        self._address, self._patience = address, patience
        self._runs = [f"{name}{number}" for number in range(runs)]
        self.acknowledged: dict[str, list[Head]] = {run: [] for run in self._runs}
        self.times: dict[str, list[float]] = {run: [] for run in self._runs}
        """When the appends of each run returned, by the monotonic clock."""
        self.unknown: list[Unknown] = []
        self.known = 0
        """How many appends failed of which the store knew that they were not written."""
        self.overtaken: list[str] = []
        """Runs of which the log was not what an append had returned."""
        self.stopping = False

    @property
    def events(self) -> int:
        """How many events were acknowledged."""
        return sum(heads[-1].seq for heads in self.acknowledged.values() if heads)

    def first_after(self, moment: float) -> list[float]:
        """Return when each run was written first after a moment; runs that were overtaken are left out."""
        left = [run for run in self._runs if run not in self.overtaken]
        return [min((each for each in self.times[run] if each > moment), default=math.inf) for run in left]

    async def run(self) -> None:
        """Append until `stopping` is set."""
        async with await PostgresStore.open(self._address, patience=self._patience) as store:
            leases = [await store.lease(run, holder="a client", seconds=_LEASE) for run in self._runs]
            async with anyio.create_task_group() as tasks:
                for lease in leases:
                    tasks.start_soon(self._write, store, lease)

    async def _write(self, store: PostgresStore, lease: Lease) -> None:
        run, head, attempt = lease.run, START, 0
        try:
            while not self.stopping:
                attempt += 1
                new = records(_EVENTS, attempt * _EVENTS)
                seq, _, _, hashed, *_ = links(run, head, new)[-1]
                target = Head(seq=seq, hash=hashed)
                try:
                    reached = await store.append(run, head.seq, lease, new)
                    assert target == reached
                except StoreUnavailable as error:
                    if error.outcome_known:
                        self.known += 1
                        await anyio.sleep(_AGAIN)
                        continue
                    reached = await self._find_out(store, Unknown(run, head, target))
                if reached == target:
                    self.acknowledged[run].append(target)
                    self.times[run].append(time.monotonic())
                head = reached
        except (Conflict, LeaseLost):
            self.overtaken.append(run)

    async def _find_out(self, store: PostgresStore, unknown: Unknown) -> Head:
        self.unknown.append(unknown)
        while True:
            try:
                head = await store.head(unknown.run)
            except StoreUnavailable:
                await anyio.sleep(_AGAIN)
                continue
            unknown.committed = head == unknown.target
            if head not in (unknown.before, unknown.target):
                raise Conflict(unknown.run, unknown.before.seq, head.seq)
            return head


async def lost_events(address: str, clients: Clients) -> int:
    """Return how many acknowledged events are not in the logs, where they should be."""
    lost = 0
    async with await open_store(address, readonly=True) as store:
        for run, heads in clients.acknowledged.items():
            stored = await _hashes(store, run)
            kept = [head.seq for head in heads if stored[: head.seq][-1:] == [head.hash]]
            lost += (heads[-1].seq if heads else 0) - max(kept, default=0)
    return lost


async def _hashes(store: BaseStore, run: str) -> list[bytes]:
    """Return the hashes of a run's events; its chain is checked meanwhile."""
    return [event.hash async for chunk in store.read(run) for event in chunk]
