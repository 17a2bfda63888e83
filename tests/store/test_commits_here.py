"""What is committed in the event loop's own thread, and what is not: whatever would have to wait."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from refold.store import Head, Lease, Record, SqliteStore, committer, group_commit
from refold.store.access import Durability
from refold.store.connection import CHECKPOINT_PAGES, PagedConnection
from refold.store.testing import events, records

# Trio has no loop here to block: its appends come in by threads.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every transaction of appends, from here on, whether it was the event loop's thread that wrote it."""
    seen, loop, written = list[bool](), threading.get_ident(), group_commit._write_group

    def write(connection: PagedConnection, group: Any, known: group_commit.Known) -> Any:
        seen.append(threading.get_ident() == loop)
        return written(connection, group, known)

    monkeypatch.setattr(group_commit, "_write_group", write)
    return seen


async def leased(store: SqliteStore, count: int = 1) -> list[Lease]:
    """Leases, and the append behind them that the connection's thread makes because it was at work."""
    leases = [await store.lease(f"run-{n}", holder="one") for n in range(count)]
    first = await store.lease("first", holder="one")
    await store.append(first.run, 0, first, records(1))
    return leases


@pytest.mark.parametrize(("durability", "told"), [("process", True), ("fsync", False)])
async def test_an_append_that_is_alone(
    tmp_path: Path, here: list[bool], durability: Durability, told: bool
) -> None:
    """It is written in the loop's thread where it waits for no disk, and there only."""
    async with await SqliteStore.open(tmp_path / "runs.db", durability=durability) as store:
        (lease,) = await leased(store)
        for turn in range(3):
            assert 2 * turn + 2 == (await store.append(lease.run, 2 * turn, lease, records(2))).seq
    assert [False, told, told, told] == here


async def test_an_append_behind_other_work(store: SqliteStore, here: list[bool]) -> None:
    """What the connection's thread did may have ended with a checkpoint: then the next commit flushes, and
    not here.
    """
    (lease,) = await leased(store)
    for seq in range(4):
        if seq == 2:
            await store.renew(lease)
        await store.append(lease.run, seq, lease, records(1))
    assert [False, True, True, False, True] == here


async def test_appends_of_one_moment(store: SqliteStore, here: list[bool]) -> None:
    """Several are one group, which the connection's thread writes; the next that is alone is written here
    again.
    """
    leases = await leased(store, 3)
    await asyncio.gather(*[store.append(lease.run, 0, lease, records(1)) for lease in leases])
    await store.append(leases[0].run, 1, leases[0], records(1))
    assert [False, False, True] == here


async def test_a_long_append(store: SqliteStore, here: list[bool]) -> None:
    """What takes long to write, the loop does not write."""
    (lease,) = await leased(store)
    long = [Record(at=0, kind="k", body=b'"%s"' % (b"x" * committer.HERE_BYTES))]
    await store.append(lease.run, 0, lease, long)
    await store.append(lease.run, 1, lease, records(committer.HERE_ROWS + 1))
    assert [False] * 3 == here


async def test_a_thread_that_is_at_work(store: SqliteStore, here: list[bool]) -> None:
    """While the connection's thread has it, nothing is written beside it."""
    (lease,), gate = await leased(store), threading.Event()
    held = asyncio.create_task(store._writer.database.write(lambda _: gate.wait()))
    await asyncio.sleep(0)
    append = asyncio.create_task(store.append(lease.run, 0, lease, records(1)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert [False] == here
    gate.set()
    await asyncio.gather(held, append)
    assert [False] * 2 == here


async def test_a_lock_of_another_program(store: SqliteStore, here: list[bool], tmp_path: Path) -> None:
    """It stops the append, and not the event loop: that goes on while the connection's thread waits for the
    lock.
    """
    (lease,) = await leased(store)
    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        append = asyncio.create_task(store.append(lease.run, 0, lease, records(1)))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not append.done()
        other.execute("ROLLBACK")
    assert 1 == (await append).seq
    assert [False] * 2 == here


async def test_the_journal_does_not_grow(store: SqliteStore, here: list[bool], tmp_path: Path) -> None:
    """Every so many appends the connection's thread takes two: it brings what was written into the file, and
    begins anew.
    """
    (lease,), head = await leased(store), Head(seq=0, hash=b"")
    for _ in range(5 * committer.HERE_IN_A_ROW):
        head = await store.append(lease.run, head.seq, lease, records(1, head.seq))
    assert 1 + 4 * 2 == here.count(False)
    pages = (tmp_path / "runs.db-wal").stat().st_size / 4096
    assert pages < 2 * CHECKPOINT_PAGES
    assert (tmp_path / "runs.db").stat().st_size > 4096 * 10
    assert head.seq == len(await events(store, lease.run))


async def test_a_cancelled_append(store: SqliteStore, here: list[bool]) -> None:
    """One that is cancelled before its turn is not written, and stops no other."""
    one, other = await leased(store, 2)
    first = asyncio.create_task(store.append(one.run, 0, one, records(1)))
    await asyncio.sleep(0)
    first.cancel()
    assert 1 == (await store.append(other.run, 0, other, records(1))).seq
    await asyncio.wait([first])
    assert (True, 0) == (first.cancelled(), (await store.head(one.run)).seq)
    assert [False, True] == here


async def test_an_error_of_no_database(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else goes wrong here reaches the append, and the next one is written."""
    (lease,) = await leased(store)
    with monkeypatch.context() as patch:
        patch.setattr(group_commit, "insert", _fails)
        with pytest.raises(MemoryError):
            await store.append(lease.run, 0, lease, records(1))
    assert 1 == (await store.append(lease.run, 0, lease, records(1))).seq


def _fails(*_: object) -> None:
    raise MemoryError("no room")
