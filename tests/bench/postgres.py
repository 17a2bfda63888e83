"""The store in PostgreSQL beside the one in SQLite, and beside bare INSERTs on the same server.

Appends of three events (1.6 KB) by so many runs at once, each awaiting its own; every commit waits for the
disk. The bare statement inserts the same rows of the same groups into a table with the same columns and key,
prepared, in one transaction a group; it has the rows ready, computes no hash, checks no head and no lease.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median

import psycopg

from bench.timing import Case, interleaved, told_seconds
from refold.store import SqliteStore, Store, open_here
from refold.store.chain import START, links
from refold.store.postgres.store import PostgresStore
from refold.store.protocol import Lease, Record
from refold.store.sequential import read_log
from support.postgres import PostgresServer, execute, new_schema

AT_ONCE = {1: 200, 64: 60, 1_000: 8}
"""Appends of each run, by the number of runs at once."""
CLAIMED = 2_000
READ = 100_000
WAKES = 200

RECORDS: Sequence[Record] = [
    Record(
        at=1_790_000_000_000_000_000 + number,
        kind="model_responded",
        body=b'{"step":1,"note":"' + b"x" * 120 + b'"}',
        content=b'{"text":"' + b"y" * 380 + b'"}',
        salt=bytes(range(16)),
    )
    for number in range(3)
]


def print_postgres(rounds: int) -> None:
    """Measure and print. The server writes to the same disk as SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        server = PostgresServer()
        try:
            server.start()
            version = str(server.execute("SHOW server_version")[0][0])
            print(
                f"\nPostgreSQL {version} on this machine, fsync on. Appends of 3 events, 1.6 KB, as appends/s."
            )
            _print_appends(server.address, Path(folder), rounds)
            asyncio.run(_print_rest(server.address))
        finally:
            server.remove()


def _print_appends(address: str, folder: Path, rounds: int) -> None:
    print(f"{'runs':>5} | {'postgres':>8} {'sqlite':>8} {'bare':>8} | postgres over bare, over sqlite (time)")
    for runs, each in AT_ONCE.items():
        times = interleaved(_append_cases(address, folder, runs, each), rounds=rounds, timer=told_seconds)
        rates = [f"{runs * each / times.median(name):>8,.0f}" for name in ("postgres", "sqlite", "bare")]
        print(
            f"{runs:>5,} | {' '.join(rates)} | {times.ratio('bare', 'postgres'):.2f}x "
            f"{times.ratio('sqlite', 'postgres'):.2f}x"
        )


def _append_cases(address: str, folder: Path, runs: int, each: int) -> dict[str, Case]:
    def in_sqlite() -> Awaitable[Store]:
        return SqliteStore.open(Path(tempfile.mkdtemp(dir=folder), "runs.db"))

    return {
        "postgres": lambda: asyncio.run(
            _appended(lambda: PostgresStore.open(new_schema(address)), runs, each)
        ),
        "sqlite": lambda: asyncio.run(_appended(in_sqlite, runs, each)),
        "bare": lambda: _bare(address, runs, each),
    }


async def _appended(opened: Callable[[], Awaitable[Store]], runs: int, each: int) -> float:
    """Seconds of the appends, all runs at once."""
    store = await opened()
    leases = [await store.lease(f"r{number}", holder="bench") for number in range(runs)]

    async def one(lease: Lease) -> None:
        seq = 0
        for _ in range(each):
            seq = (await store.append(lease.run, seq, lease, RECORDS)).seq

    begun = time.perf_counter()
    await asyncio.gather(*map(one, leases))
    taken = time.perf_counter() - begun
    await store.aclose()
    return taken


def _bare(address: str, runs: int, each: int) -> float:
    target = new_schema(address)
    execute(
        target,
        "CREATE SCHEMA {s}",
        "CREATE TABLE {s}.event (run bigint, seq bigint, at bigint, kind text, hash bytea, digest bytea, salt bytea, "
        "body text, content text, PRIMARY KEY (run, seq))",
    )
    rows = [row[1:] for row in links("r", START, RECORDS)]
    ready = [
        tuple(
            each.decode() if isinstance(each, bytes) and place > 4 else each for place, each in enumerate(row)
        )
        for row in rows
    ]
    name = target.rpartition("=")[2]
    insert = f"INSERT INTO {name}.event VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)".encode()
    with psycopg.connect(address, autocommit=True, prepare_threshold=0) as connection:
        groups = [
            [(run, 3 * step + place, *row) for run in range(runs) for place, row in enumerate(ready, 1)]
            for step in range(each)
        ]
        begun = time.perf_counter()
        for group in groups:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(insert, group)
        return time.perf_counter() - begun


async def _print_rest(address: str) -> None:
    target = new_schema(address)
    async with await PostgresStore.open(target) as store, await PostgresStore.open(target) as other:
        await _print_claims(store)
        await _print_wakes(store, other)
    await _print_reads(new_schema(address))


async def _print_claims(store: PostgresStore) -> None:
    """Runs that are claimed and given back, 16 at a time, as a worker does."""
    names = [f"c{number}" for number in range(CLAIMED)]

    async def begin(run: str) -> None:
        lease = await store.lease(run, holder="bench")
        await store.append(run, 0, lease, RECORDS[:1])
        await store.release(lease, 0.0)

    await asyncio.gather(*map(begin, names))
    begun, claimed = time.perf_counter(), 0
    while leases := await store.take_due(16, holder="worker"):
        claimed += len(leases)
    alone = claimed / (time.perf_counter() - begun)
    print(f"claims: {alone:,.0f}/s of one worker that takes 16 at a time ({claimed:,} runs)")


async def _print_wakes(store: PostgresStore, other: PostgresStore) -> None:
    lease = await store.lease("w", holder="bench")
    await store.append("w", 0, lease, RECORDS[:1])
    await store.release(lease)
    waited = list[float]()
    for _ in range(WAKES):
        waiting = asyncio.ensure_future(other.wait_due(5.0))
        await asyncio.sleep(0.005)
        begun = time.perf_counter()
        await store.wake("w")
        await waiting
        waited.append(time.perf_counter() - begun)
        for taken in await store.take_due(1, holder="bench"):
            await store.release(taken)
    print(
        f"wake-up: another process is woken {1e3 * median(waited):.2f} ms after the call, commit included (median)"
    )


async def _print_reads(target: str) -> None:
    async with await PostgresStore.open(target, durability="process") as store:
        lease, seq = await store.lease("r", holder="bench"), 0
        while seq < READ:
            seq = (await store.append("r", seq, lease, [*RECORDS] * 100)).seq
    begun = time.perf_counter()
    here = open_here(target)
    count = sum(1 for _ in read_log(here, "r"))
    await here.aclose()
    rate = count / (time.perf_counter() - begun)
    execute(target, "VACUUM ANALYZE {s}.event")
    ((size,),) = execute(target, "SELECT pg_total_relation_size('{s}.event')")
    payload = sum(len(each.body) + len(each.content or b"") for each in RECORDS) / len(RECORDS)
    assert isinstance(size, int)
    print(f"reads: {rate:,.0f} events/s, each checked against the chain ({count:,} events of one run)")
    print(f"disk: {size / count:,.0f} bytes an event, of which {payload:,.0f} are body and payload")
