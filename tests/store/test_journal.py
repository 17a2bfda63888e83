"""A file or its write-ahead log that lost its end, or is somebody else's."""

import shutil
from pathlib import Path

import pytest

from refold.store import GENESIS, DamagedStore, Head, SqliteStore, check
from refold.store.testing import append, events, records

pytestmark = pytest.mark.anyio

FRAME = 4096 + 24
"""Bytes of a page in the write-ahead log, with its header; before the first one stand 32."""


@pytest.fixture
async def left(tmp_path: Path) -> Path:
    """What a process left that was killed after six appends of two events: most of it is in the write-ahead
    log.
    """
    path, copy = tmp_path / "runs.db", tmp_path / "left" / "runs.db"
    copy.parent.mkdir()
    async with await SqliteStore.open(path) as store:
        for turn in range(6):
            await append(store, "r", records(2, 2 * turn))
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    return copy


async def whole(path: Path, *, readonly: bool = False) -> int:
    """The number of the last event, of a chain that holds."""
    async with await SqliteStore.open(path, readonly=readonly) as store:
        previous = Head(seq=0, hash=GENESIS)
        for event in await events(store, "r"):
            assert check(event, previous) is None
            previous = Head(seq=event.seq, hash=event.hash)
        assert previous == await store.head("r")
        return previous.seq


@pytest.mark.parametrize("readonly", [False, True], ids=["to write", "to read"])
async def test_what_a_killed_process_left(left: Path, readonly: bool) -> None:
    """A reader finds all of it too, though it cannot bring it into the file."""
    assert 12 == await whole(left, readonly=readonly)


@pytest.mark.parametrize("kept", [0, 1, 10, 30])
async def test_a_journal_that_lost_its_end(left: Path, kept: int) -> None:
    """What was committed in the part that is left is there, whole appends only, and the log goes on from
    there.
    """
    journal = left.with_name("runs.db-wal")
    data = journal.read_bytes()
    frames = (len(data) - 32) // FRAME
    journal.write_bytes(data[: 32 + FRAME * (frames - kept) - min(kept, 1) * 100])
    seq = await whole(left)
    assert seq == 12 if kept == 0 else seq < 12
    assert 0 == seq % 2
    async with await SqliteStore.open(left) as store:
        assert seq + 1 == (await append(store, "r", records(1))).seq


@pytest.mark.parametrize("journal", [b"7\x7f\x06\x82", bytes(9000)], ids=["a few bytes", "zeros"])
async def test_a_journal_that_was_never_written(left: Path, journal: bytes) -> None:
    """What a crash leaves of a journal that had only begun counts for nothing: the file is all there is, and
    appends go on.
    """
    left.with_name("runs.db-wal").write_bytes(journal)
    seq = await whole(left)
    async with await SqliteStore.open(left) as store:
        assert seq + 1 == (await append(store, "r", records(1))).seq


async def test_a_journal_of_rubbish(left: Path) -> None:
    """No crash leaves a journal whose header SQLite did not write: it is damage, and no append overwrites
    it.
    """
    left.with_name("runs.db-wal").write_bytes(b"\xff" * 9000)
    with pytest.raises(DamagedStore, match="the header of its -wal is damaged"):
        await whole(left)


@pytest.mark.parametrize("readonly", [False, True], ids=["to write", "to read"])
async def test_a_file_that_lost_its_end(tmp_path: Path, readonly: bool) -> None:
    """A file shorter than it says is `DamagedStore`, which names it and says what to do."""
    path = tmp_path / "runs.db"
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(500))
    path.write_bytes(path.read_bytes()[: -3 * 4096])
    with pytest.raises(DamagedStore, match=r"runs.db: the database is corrupt: copy .* \.recover"):
        await whole(path, readonly=readonly)
