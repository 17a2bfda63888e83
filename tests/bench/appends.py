"""One run's durable appends against the plain sqlite3 module doing the same inserts in-line.

The log arrives as an engine writes it: a fact and its decisions are one append, awaited before the next. The plain
module writes the same columns and bytes to the same table in one transaction a fact, with no thread between; it
computes no hash chain, checks no head and no lease, and has no triggers.
"""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import aiosqlite

from bench.timing import Case
from bench.workload import SALT, START, Group
from refold.reducers import codec
from refold.store import SqliteStore
from refold.store.protocol import Record

Durability = Literal["fsync", "process"]

SYNCHRONOUS: dict[Durability, str] = {"fsync": "FULL", "process": "NORMAL"}
_TABLE = """
CREATE TABLE event (key INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, hash BLOB NOT NULL,
                    content_digest BLOB, salt BLOB, body TEXT NOT NULL, content TEXT) STRICT
"""
_INSERT = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def batches(groups: Sequence[Group]) -> list[list[Record]]:
    """Each group as the records of one append."""
    return [[_record(place, codec.encode(event)) for event in group] for place, group in enumerate(groups)]


def append_cases(folder: Path, log: Sequence[list[Record]], durability: Durability) -> dict[str, Case]:
    """Each writes the whole log to a new file in `folder`, and returns the seconds that the appends took.

    `hop` writes nothing: it is as many round trips to aiosqlite's thread, which no store on aiosqlite can do without.
    """
    return {
        "plain": lambda: _plain(_new(folder), log, durability),
        "hop": lambda: asyncio.run(_hopped(len(log))),
        "store": lambda: asyncio.run(_stored(_new(folder), log, durability)),
    }


def _record(place: int, event: codec.Encoded) -> Record:
    salt = SALT if event.content is not None else b""
    return Record(at=START + place, kind=event.kind, body=event.body, content=event.content, salt=salt)


def _new(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder), "runs.db")


def _plain(path: Path, log: Sequence[list[Record]], durability: Durability) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
    connection.execute(_TABLE)
    key, begun = 1 << 32, time.perf_counter()
    for records in log:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            _INSERT, [_row(key + place, record) for place, record in enumerate(records, 1)]
        )
        connection.execute("COMMIT")
        key += len(records)
    taken = time.perf_counter() - begun
    connection.close()
    return taken


def _row(key: int, record: Record) -> tuple[object, ...]:
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
        lease, seq, begun = await store.lease("bench"), 0, time.perf_counter()
        for records in log:
            seq = (await store.append("bench", seq, lease, records)).seq
        return time.perf_counter() - begun
