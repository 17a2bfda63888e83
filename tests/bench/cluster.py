"""Audits a store of 1,000,000 events on two processes and on two Dask workers; one of them is killed halfway.

    python tests/bench/cluster.py [--events N] [--folder FOLDER | --postgres]

Each line is an audit of all runs: seconds by the clock, parts that were begun again, and unchecked parts.
Exit code 1 if anything is unchecked or not clean. With --folder, the store is kept for the next time.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

# A script's own folder is on the path, not the one above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.appends import batches
from bench.workload import recorded
from refold.console.executors import ExecutorOptions, start_workers
from refold.replay.bulk import audit_all
from refold.replay.shards import Shard, shards
from refold.store import open_store
from support import cluster_tasks, dask_cluster
from support.postgres import PostgresServer

STEPS = 300


async def make_store(address: str, events: int) -> None:
    """Write copies of one run until the store has as many events."""
    records = [record for batch in batches(recorded("tail", STEPS)[1]) for record in batch]
    async with await open_store(address, durability="process") as store:
        for number in range(-(-events // len(records))):
            lease = await store.lease(f"run-{number:05}", holder="bench")
            await store.append(f"run-{number:05}", 0, lease, records)
            await store.release(lease)


async def read_sizes(address: str) -> list[tuple[str, int]]:
    """The runs, each with its number of events."""
    async with await open_store(address, readonly=True) as store:
        return [(run, head.seq) async for chunk in store.runs() for run, head in chunk]


def kill_halfway(log: Path, parts: int) -> None:
    """Kill the worker that began the middle part."""
    while len(log.read_text().splitlines()) < parts // 2:
        time.sleep(0.01)
    os.kill(int(log.read_text().splitlines()[-1]), signal.SIGKILL)


@contextmanager
def start_cluster() -> Generator[str]:
    """Start two workers; the address as an option."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, dask_cluster.__file__, "2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip().replace("tcp:", "dask:")
        process.communicate()


def measure(work: list[Shard], options: ExecutorOptions, log: Path, *, kill: bool) -> bool:
    """Audit all parts and print what it took; whether all of them are clean."""
    log.write_text("")
    killer = threading.Thread(target=kill_halfway, args=(log, len(work)), daemon=True)
    if kill:
        killer.start()
    begun = time.perf_counter()
    with start_workers(options, work) as workers:
        totals = audit_all(work, workers, partial(cluster_tasks.note_start, log))
    seconds = time.perf_counter() - begun
    again = len(log.read_text().splitlines()) - len(work)
    name = f"{options.executor.partition(':')[0]}{', one worker killed' if kill else ''}"
    rate = totals.events / seconds
    print(
        f"{name:<30}{totals.events:>12,} events{seconds:>8.1f} s{rate:>10,.0f} events/s"
        f"{again:>4} parts begun again{len(totals.unchecked):>4} unchecked"
    )
    return totals.clean == totals.runs == sum(len(shard.runs) for shard in work) and not totals.unchecked


def main() -> int:
    """Make the store if it is not there, audit it in each way, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--postgres", action="store_true", help="in a server that is started for it")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        path, log = folder / f"cluster-{options.events}.db", folder / "started"
        store = str(path)
        if options.postgres:
            server = PostgresServer()
            stack.callback(server.remove)
            store = server.start().address
        if options.postgres or not path.exists():
            begun = time.perf_counter()
            asyncio.run(make_store(store, options.events))
            print(f"made in {time.perf_counter() - begun:.1f} s")
        work = shards(store, asyncio.run(read_sizes(store)))
        print(f"{len(work)} parts")
        address = stack.enter_context(start_cluster())
        ways = (ExecutorOptions(jobs=2), ExecutorOptions(executor=address))
        done = [measure(work, way, log, kill=kill) for way in ways for kill in (False, True)]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
