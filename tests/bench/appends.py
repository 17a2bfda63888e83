"""Durable appends against the plain sqlite3 module doing the same inserts in-line.

One run: the log arrives as an engine writes it, a fact and its decisions are one append, awaited before the
next. Many runs at once: each append is a whole step, and the appends of all runs that wait at one moment
share a commit.

The plain module writes the same columns and bytes to the same table in the same transactions, with no thread
between; it computes no hash chain, checks no head and no lease, and has no triggers. Of the many runs it has
the rows ready.
"""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

import aiosqlite

from bench.timing import Case
from bench.workload import SALT, Group
from refold.reducers import codec
from refold.reducers.events import Fact, ModelResponded
from refold.store import SqliteStore
from refold.store.protocol import Lease, Record, Store

Durability = Literal["fsync", "process"]
Row = tuple[object, ...]

RUNS = 64

SYNCHRONOUS: dict[Durability, str] = {"fsync": "FULL", "process": "NORMAL"}
_TABLE = """
CREATE TABLE event (key INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, hash BLOB NOT NULL,
                    content_digest BLOB, salt BLOB, body TEXT NOT NULL, content TEXT) STRICT
"""
_INSERT = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def batches(groups: Sequence[Group]) -> list[list[Record]]:
    """Each group as the records of one append."""
    made = list[list[Record]]()
    for group in groups:
        fact = group[0]
        assert isinstance(fact, Fact)
        made.append([_record(fact.at, codec.encode(event)) for event in group])
    return made


def append_cases(folder: Path, log: Sequence[list[Record]], durability: Durability) -> dict[str, Case]:
    """Each writes the whole log to a new file in `folder`, and returns the seconds that the appends took.

    `hop` writes nothing: it is as many round trips to aiosqlite's thread, which no store on aiosqlite can do
    without.
    """
    return {
        "plain": lambda: _plain(_new(folder), log, durability),
        "hop": lambda: asyncio.run(_hopped(len(log))),
        "store": lambda: asyncio.run(_stored(_new(folder), log, durability)),
    }


def steps(groups: Sequence[Group]) -> list[list[Record]]:
    """Each step as the records of one append: an answer, its results, and the decisions between."""
    log = list[list[Record]]()
    for group, records in zip(groups, batches(groups), strict=True):
        if not log or isinstance(group[0], ModelResponded):
            log.append([])
        log[-1] += records
    return log


def shared_cases(
    folder: Path, log: Sequence[list[Record]], durability: Durability, waited: list[float]
) -> dict[str, Case]:
    """So many runs write the log at once, each awaits its own appends: wall seconds.

    Latencies go into `waited`.
    """
    return {
        "plain": lambda: _plain_groups(_new(folder), log, durability),
        "store": lambda: asyncio.run(_stored_at_once(_new(folder), log, durability, waited)),
    }


def _record(at: int, event: codec.Encoded) -> Record:
    salt = SALT if event.content is not None else b""
    return Record(at=at, kind=event.kind, body=event.body, content=event.content, salt=salt)


def _new(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder), "runs.db")


def _plain(path: Path, log: Sequence[list[Record]], durability: Durability) -> float:
    with closing(_opened(path, durability)) as connection:
        key, begun = 1 << 32, time.perf_counter()
        for records in log:
            rows = [_row(key + place, record) for place, record in enumerate(records, 1)]
            _commit(connection, rows)
            key += len(records)
        return time.perf_counter() - begun


def _plain_groups(path: Path, log: Sequence[list[Record]], durability: Durability) -> float:
    groups, seq = list[list[Row]](), 0
    for records in log:
        groups.append(
            [
                _row((run << 32) + seq + n, each)
                for run in range(1, RUNS + 1)
                for n, each in enumerate(records, 1)
            ]
        )
        seq += len(records)
    with closing(_opened(path, durability)) as connection:
        begun = time.perf_counter()
        for rows in groups:
            _commit(connection, rows)
        return time.perf_counter() - begun


def _opened(path: Path, durability: Durability) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
    connection.execute(_TABLE)
    return connection


def _commit(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_INSERT, rows)
    connection.execute("COMMIT")


def _row(key: int, record: Record) -> Row:
    said = record.content is not None
    hash_ = bytes(32)
    content = record.content.decode() if record.content is not None else None
    return (
        key,
        record.at,
        record.kind,
        hash_,
        hash_ if said else None,
        record.salt or None,
        record.body.decode(),
        content,
    )


async def _hopped(times: int) -> float:
    async with aiosqlite.connect(":memory:") as connection:
        begun = time.perf_counter()
        for _ in range(times):
            await connection.execute_fetchall("SELECT 1")
        return time.perf_counter() - begun


async def _stored(path: Path, log: Sequence[list[Record]], durability: Durability) -> float:
    async with await SqliteStore.open(path, durability=durability) as store:
        lease, seq, begun = await store.lease("bench", holder="bench"), 0, time.perf_counter()
        for records in log:
            seq = (await store.append("bench", seq, lease, records)).seq
        return time.perf_counter() - begun


async def _stored_at_once(
    path: Path, log: Sequence[list[Record]], durability: Durability, waited: list[float]
) -> float:
    async with await SqliteStore.open(path, durability=durability) as store:
        leases = [await store.lease(f"run-{number}", holder="bench") for number in range(RUNS)]
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for lease in leases:
                tasks.create_task(_live(store, lease, log, waited))
        return time.perf_counter() - begun


async def _live(store: Store, lease: Lease, log: Sequence[list[Record]], waited: list[float]) -> None:
    seq = 0
    for records in log:
        begun = time.perf_counter()
        seq = (await store.append(lease.run, seq, lease, records)).seq
        waited.append(time.perf_counter() - begun)
