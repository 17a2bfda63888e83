"""Auditing a whole store: from the file, on one process and on two, against the bare decode of the same
bytes.
"""

import asyncio
import gc
import multiprocessing
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.appends import batches
from bench.core import bare
from bench.timing import Case
from bench.workload import recorded, stored
from refold.engine.compatibility import installed_guards
from refold.reducers.codec import Encoded
from refold.replay.bulk import Totals, audit_all
from refold.replay.shards import SHARD, shards
from refold.store import SqliteStore

RUNS, STEPS = 60, 300


class Bulk(msgspec.Struct, frozen=True):
    """A store of many like runs, and the bytes of one of them."""

    path: Path
    log: Sequence[Encoded]
    sizes: list[tuple[str, int]]

    @property
    def events(self) -> int:
        """Of all runs together."""
        return sum(size for _, size in self.sizes)


def made(folder: Path, policy: str) -> Bulk:
    """The store, written."""
    _, groups = recorded(policy, STEPS)
    path = folder / f"{policy}.db"
    log = stored(groups)
    asyncio.run(_write(path, policy))
    return Bulk(path, log, [(f"run-{number}", len(log)) for number in range(RUNS)])


async def _write(path: Path, policy: str) -> None:
    _, groups = recorded(policy, STEPS)
    records = [record for batch in batches(groups) for record in batch]
    async with await SqliteStore.open(path, durability="process") as store:
        for number in range(RUNS):
            lease = await store.lease(f"run-{number}", holder="bench")
            await store.append(f"run-{number}", 0, lease, records)
            await store.release(lease)


@contextmanager
def two() -> Generator[Executor]:
    """Two processes that have begun, as they have for most of a long audit."""
    with ProcessPoolExecutor(
        2, mp_context=multiprocessing.get_context("spawn"), initializer=gc.disable
    ) as executor:
        list(executor.map(time.sleep, [0.5] * 4))
        yield executor


def bulk_cases(bulk: Bulk, executor: Executor) -> dict[str, Case]:
    """Each returns its seconds: of a processor `bare`, which is the anchor, and `one`; by the clock the
    others.
    """
    return {
        "bare": lambda: _timed(lambda: [bare(bulk.log) for _ in bulk.sizes], time.process_time),
        "one": lambda: _timed(lambda: _audited(bulk, None), time.process_time),
        "alone": lambda: _timed(lambda: _audited(bulk, None), time.perf_counter),
        "two": lambda: _timed(lambda: _audited(bulk, executor), time.perf_counter),
    }


def _timed(case: Case, clock: Callable[[], float]) -> float:
    gc.collect()
    gc.disable()  # as in the processes of `refold audit --all`
    try:
        begun = clock()
        case()
        return clock() - begun
    finally:
        gc.enable()


def _audited(bulk: Bulk, executor: Executor | None) -> Totals:
    totals = audit_all(shards(bulk.path, bulk.sizes, SHARD), executor, installed_guards)
    assert len(bulk.sizes) == totals.clean, totals
    return totals
