"""A store in a file: what a shell may do with it, disks that fail, and programs that share it."""
# ruff: noqa: ASYNC240 - a test may look at a file while nothing else goes on

import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest

from refold.reducers.errors import RefoldError, WrongUse
from refold.store import Conflict, Head, Record, SqliteStore, Store, StoreUnavailable, connection
from refold.store.access import Durability
from refold.store.committer import Committer, Database
from refold.store.testing import append, events, records, take
from refold.store.testing.evidence import heads, seal
from refold.store.thread import bridge
from support.files import by_hand, problems

pytestmark = pytest.mark.anyio

PROCESS = Path(__file__).with_name("processes.py")


@asynccontextmanager
async def tampered(path: Path, *pragmas: str, durability: Durability = "process") -> AsyncGenerator[Store]:
    """A store whose writing connection was told these pragmas, to fail as a real disk would."""
    way = await bridge()
    database = await way.call(lambda: Database.open(path, durability, readonly=False))
    async with SqliteStore(way, database, Committer(database)) as store:
        for pragma in pragmas:
            await way.call(run, database, pragma)
        yield store


async def run(database: Database, statement: str) -> None:
    await database.writer.run(lambda connection: connection.execute(statement).close())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET body = '{}'",
        "UPDATE event SET content = NULL, salt = NULL WHERE key & 1 = 1",
        "UPDATE event SET content = NULL WHERE key & 1 = 0",
        "UPDATE event SET content = NULL, salt = NULL, content_digest = NULL WHERE key & 1 = 0",
        "UPDATE event SET content = NULL, salt = NULL, body = '{}' WHERE key & 1 = 0",
        "UPDATE event SET key = key + 100",
        "DELETE FROM event",
        "INSERT OR REPLACE INTO event SELECT * FROM event LIMIT 1",
        "REPLACE INTO event SELECT key, at, 'other', hash, content_digest, salt, body, content FROM event",
        "INSERT OR IGNORE INTO event SELECT * FROM event",
        "INSERT INTO event SELECT * FROM event ON CONFLICT DO UPDATE SET body = '{}'",
        "UPDATE run SET id = 'other'",
        "UPDATE run SET number = 7",
        "DELETE FROM run",
        "INSERT OR REPLACE INTO run SELECT * FROM run",
        "INSERT OR REPLACE INTO run (number, id) VALUES (99, 'r')",
        "UPDATE sealed_head SET seq = 2",
        "DELETE FROM sealed_head",
        "REPLACE INTO sealed_head SELECT * FROM sealed_head",
        "UPDATE seal SET at = 2",
        "DELETE FROM seal",
        "REPLACE INTO seal SELECT * FROM seal",
        "UPDATE log SET body = ''",
        "DELETE FROM log",
    ],
)
async def test_a_shell_cannot_edit_a_log(filled: Path, statement: str) -> None:
    """Plain SQL that would change, delete or replace an event or a run is refused, and changes nothing."""
    async with await SqliteStore.open(filled) as store:
        await store.add_seal(heads(1, 1), seal(1))
    everything = "SELECT * FROM event JOIN run JOIN sealed_head JOIN seal"
    before = by_hand(filled, everything)
    with pytest.raises(sqlite3.DatabaseError):
        by_hand(filled, statement)
    assert before == by_hand(filled, everything)


async def test_a_shell_can_read_a_log(path: Path) -> None:
    """The view `log` shows run, number, time, kind, and body and content as JSON text, in order."""
    async with await SqliteStore.open(path) as store:
        for run in ("a", "b"):
            new = [Record(at=n, kind="k", body=b'{"n":%d}' % n, content='"ß"'.encode()) for n in (1, 2)]
            await append(store, run, new)
        await append(store, "a", [Record(at=3, kind="end", body=b'{"n":3}')])
    got = by_hand(
        path, "SELECT run, seq, at, kind, json_extract(body, '$.n'), content, typeof(body) FROM log"
    )
    assert [
        ("a", 1, 1, "k", 1, '"ß"', "text"),
        ("a", 2, 2, "k", 2, '"ß"', "text"),
        ("a", 3, 3, "end", 3, None, "text"),
        ("b", 1, 1, "k", 1, '"ß"', "text"),
        ("b", 2, 2, "k", 2, '"ß"', "text"),
    ] == got
    plan = by_hand(path, "EXPLAIN QUERY PLAN SELECT * FROM log WHERE run = 'b'")
    assert not [row for row in plan if "SCAN" in str(row[-1])]


async def test_readonly(filled: Path) -> None:
    """A store opened to be read reads, beside a writer too, refuses to append, and changes no byte."""
    before = filled.read_bytes()
    async with await SqliteStore.open(filled, readonly=True) as store:
        assert 6 == len(await events(store, "r"))
        with pytest.raises(WrongUse, match="open read-only"):
            await append(store, "r", records(1))
        with pytest.raises(WrongUse, match="open read-only"):
            await append(store, "new", records(1))
        assert before == filled.read_bytes()
        async with await SqliteStore.open(filled) as writer:
            await append(writer, "r", records(1))
            assert 7 == len(await events(store, "r"))


@pytest.mark.parametrize("size", [2, 200])
async def test_a_full_disk(filled: Path, size: int) -> None:
    """On a full disk the append raises `StoreUnavailable`, nothing of it is there, and with room it goes
    on.
    """
    long = Record(at=0, kind="k", body=b'"' + b"x" * 50_000 + b'"')
    async with tampered(filled, "PRAGMA max_page_count = 20") as store:
        head = await store.head("r")
        with pytest.raises(StoreUnavailable, match="the disk is full") as caught:
            await append(store, "r", [long] * size)
        assert caught.value.outcome_known
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert head == await store.head("r")
        assert 7 == (await append(store, "r", records(1))).seq
    async with await SqliteStore.open(filled) as store:
        await append(store, "r", [long] * size)
        assert [] == await problems(store, "r")


async def test_a_file_that_cannot_be_written(filled: Path) -> None:
    """When writing is forbidden in mid-run, the append raises `StoreUnavailable`, and reading goes on."""
    async with tampered(filled, "PRAGMA query_only = ON") as store:
        with pytest.raises(StoreUnavailable, match="read-only"):
            await append(store, "r", records(1))
        assert 6 == len(await events(store, "r"))


@pytest.fixture
def locked_away(filled: Path) -> Iterator[Path]:
    """The file and its folder without the permission to write."""
    filled.chmod(0o444)
    filled.parent.chmod(0o555)
    yield filled
    filled.parent.chmod(0o755)
    filled.chmod(0o644)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="to root, everything is writable")
async def test_a_read_only_place(locked_away: Path) -> None:
    """Where nothing may be written, opening to write fails at once, and opening to read reads."""
    with pytest.raises(StoreUnavailable, match="read-only"):
        await SqliteStore.open(locked_away)
    with pytest.raises(StoreUnavailable, match="cannot be opened or created"):
        await SqliteStore.open(locked_away.with_name("new.db"))
    async with await SqliteStore.open(locked_away, readonly=True) as store:
        assert 6 == len(await events(store, "r"))
    assert [locked_away] == list(locked_away.parent.iterdir())


async def test_a_locked_file(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another program holds the lock, appends raise `StoreUnavailable` and reads work; then it goes
    on.
    """
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.01)
    async with await SqliteStore.open(filled) as store:
        with closing(sqlite3.connect(filled, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="another program holds its lock"):
                await append(store, "r", records(1))
            with pytest.raises(StoreUnavailable, match="another program holds its lock"):
                await SqliteStore.open(filled)
            assert 6 == len(await events(store, "r"))
        assert 7 == (await append(store, "r", records(1))).seq


async def test_two_stores_on_one_file(path: Path) -> None:
    """What one wrote the other sees; what one believed and the other changed is a conflict, not a fork."""
    async with await SqliteStore.open(path) as one, await SqliteStore.open(path) as other:
        await append(one, "r", records(2))
        await append(other, "r", records(2))
        with pytest.raises(Conflict):
            await one.append("r", 2, await take(one, "r"), records(1))
        await append(one, "r", records(2))
        assert await one.head("r") == await other.head("r")
        assert [] == await problems(other, "r")


def start(path: Path, run: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, PROCESS, path, run, str(count)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_processes_share_a_file(path: Path) -> None:
    """Three processes that make one file and append to one run at once lose nothing and break no chain."""
    processes = [start(path, "r", 10) for _ in range(3)]
    seqs = [int(line) for process in processes for line in process.communicate()[0].split()]
    assert [0] * 3 == [process.returncode for process in processes]
    assert list(range(2, 62, 2)) == sorted(seqs)

    async def look() -> list[str]:
        async with await SqliteStore.open(path, readonly=True) as store:
            assert 60 == (await store.head("r")).seq
            return await problems(store, "r")

    assert [] == anyio.run(look)


@pytest.mark.parametrize("acknowledged", [1, 7, 40])
def test_a_killed_process_loses_nothing(path: Path, acknowledged: int) -> None:
    """After SIGKILL every append that had returned is there, whole, and the store goes on."""
    process = start(path, "r", 1_000_000)
    assert process.stdout is not None
    with process:
        lines = [process.stdout.readline() for _ in range(acknowledged)]
        process.kill()
        lines += process.stdout.readlines()
    seen = [int(line) for line in lines if line.endswith("\n")]

    async def look() -> list[str]:
        async with await SqliteStore.open(path) as store:
            head = await store.head("r")
            assert head.seq >= seen[-1]
            assert 0 == head.seq % 2
            await append(store, "r", records(1))
            return await problems(store, "r")

    assert acknowledged <= len(seen)
    assert [] == anyio.run(look)


async def test_closing_under_way(path: Path) -> None:
    """Closing while appends are under way lets each end whole or be refused, and nothing is left open."""
    ended = list[object]()

    async def write(store: Store, run: str) -> None:
        try:
            ended.append(await append(store, run, records(3)))
        except RefoldError as error:
            ended.append(error)

    store = await SqliteStore.open(path)
    async with anyio.create_task_group() as tasks:
        for n in range(10):
            tasks.start_soon(write, store, f"run-{n}")
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(store.aclose)
        await store.aclose()
    assert 10 == len(ended)
    async with await SqliteStore.open(path, readonly=True) as store:
        sizes = [head.seq async for chunk in store.runs() for _, head in chunk]
    assert [3] * len([end for end in ended if isinstance(end, Head)]) == sizes
