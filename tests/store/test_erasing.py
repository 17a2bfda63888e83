"""What is erased is in no byte of the file any more."""
# ruff: noqa: ASYNC240 - a test may look at a file while nothing else goes on

import random
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from refold.store import Record, Snapshot, SqliteStore, StoreUnavailable, connection, readable
from refold.store.testing import append, events, record, records, take
from refold.store.testing.evidence import NOTICE

pytestmark = pytest.mark.anyio

SECRET = b'"the password is swordfish"'


def beside(path: Path) -> bytes:
    """Every byte of the store, its -wal and -shm included."""
    return b"".join(each.read_bytes() for each in path.parent.iterdir())


@pytest.mark.parametrize("size", [1, 10_000])
async def test_nothing_is_left(path: Path, size: int) -> None:
    """Text and salt stand neither in the file nor beside it, long ones that fill pages of their own
    neither.
    """
    secret = SECRET * size
    async with await SqliteStore.open(path) as store:
        await append(store, "r", [record(0), record(1, secret), record(2, b'"other"')])
        assert SECRET in beside(path)
        await store.erase("r", 3, await take(store, "r"), [2], NOTICE)
        left = beside(path)
    assert SECRET not in left
    assert SECRET not in beside(path)
    assert b'"other"' in left


def said(chance: random.Random) -> bytes:
    """A text unlike any other."""
    return b'"%s%s"' % (chance.randbytes(16).hex().encode(), b"x" * chance.randrange(900))


async def test_nothing_is_left_in_gaps(path: Path) -> None:
    """Copies that SQLite left behind when it moved rows to other pages go too."""
    chance, runs = random.Random(1), [f"run-{n}" for n in range(20)]
    secrets = {run: list[bytes]() for run in runs}
    async with await SqliteStore.open(path, durability="process") as store:
        leases, seqs = {run: await store.lease(run, holder="one") for run in runs}, dict.fromkeys(runs, 0)
        for run in chance.choices(runs, k=60):
            new = [Record(at=0, kind="k", body=b"{}", content=said(chance)) for _ in range(16)]
            secrets[run] += [each.content or b"" for each in new]
            seqs[run] = (await store.append(run, seqs[run], leases[run], new)).seq
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        copies = Counter(re.findall(rb'"[0-9a-f]{32}', path.read_bytes()))
        doubled = [
            (run, n) for run in runs for n, text in enumerate(secrets[run], 1) if copies[text[:33]] > 1
        ]
        assert doubled  # else this shows nothing
        for run, seq in doubled[:3]:
            seqs[run] = (await store.erase(run, seqs[run], leases[run], [seq], NOTICE)).seq
        assert [] == [seq for run, seq in doubled[:3] if secrets[run][seq - 1] in beside(path)]
        assert sum(seqs.values()) == sum([len(await events(store, run)) for run in runs])


async def test_the_file_is_written_anew_only_if_need_be(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that stands in one place is erased without touching the rest of the file."""
    looked = list[bool]()

    def look(*args: object) -> bool:
        looked.append(stands(*args))  # type: ignore[arg-type]
        return looked[-1]

    stands = readable.residue_stands
    monkeypatch.setattr(readable, "residue_stands", look)
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(6))
        await store.erase("r", 6, await take(store, "r"), [2, 4], NOTICE)
    assert [False] == looked


async def test_marks_at_the_edge_of_a_piece(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the pieces end in which the file is read, a mark is found once."""
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(6))
        every = [each.hash + each.content_digest for each in await events(store, "r") if each.content_digest]
    for size in (64, 65, 100, 127, 128, 129, 1000):
        monkeypatch.setattr(readable, "CHUNK", size)
        assert not readable.residue_stands(str(path), every)
    with path.open("ab") as file:
        file.write(bytes(100) + every[0])
    for size in (64, 65, 100, 127, 128, 129, 1000):
        monkeypatch.setattr(readable, "CHUNK", size)
        assert readable.residue_stands(str(path), every)


async def test_a_reader_in_the_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a reader keeps the journal, the erasure is done and says that the bytes may still be there;
    again, it is whole.
    """
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.01)
    async with await SqliteStore.open(path) as store:
        await append(store, "r", [record(1, SECRET)])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT * FROM event").fetchone()
            with pytest.raises(
                StoreUnavailable, match="-wal beside the file, which another program is reading"
            ) as caught:
                await store.erase("r", 1, await take(store, "r"), [1], NOTICE)
            assert not caught.value.outcome_known
            assert [None, None] == [event.content for event in await events(store, "r")]
            assert SECRET in beside(path)
        await store.erase("r", 2, await take(store, "r"), [1], NOTICE)
        assert SECRET not in beside(path)


async def test_a_snapshot_leaves_nothing(path: Path) -> None:
    """What a snapshot said is overwritten too."""
    async with await SqliteStore.open(path) as store:
        await append(store, "r", [record(1, b'"x"')])
        await store.save_snapshot("r", Snapshot(seq=1, version="1", data=SECRET * 1000))
        await store.erase("r", 1, await take(store, "r"), [1], NOTICE)
        assert SECRET not in beside(path)


async def test_a_shell_can_only_erase(path: Path) -> None:
    """Plain SQL may take content and salt away together, as the store does: the digest stays, and the chain
    holds.
    """
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(2))
        before = await events(store, "r")
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("UPDATE event SET content = NULL, salt = NULL WHERE key & 1 = 0")
        after = await events(store, "r")
    assert [each.hash for each in before] == [each.hash for each in after]
    assert [None, None] == [each.content for each in after]
