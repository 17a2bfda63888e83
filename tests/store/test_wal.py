"""A write-ahead log that a killed process left, with a bit flipped in it, or cut off: damage is reported, a
torn end is not.
"""

import os
import random
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path, PosixPath
from typing import ClassVar, NamedTuple

import pytest

from refold.store import DamagedStore, SqliteStore, wal
from refold.store.access import look
from refold.store.testing import append, records

pytestmark = pytest.mark.anyio

PAGE = 4096
FRAME = PAGE + wal.FRAME
APPENDS = 12


class Left(NamedTuple):
    """A killed process's files, and how many frames of its log there are."""

    path: Path
    log: bytes

    @property
    def frames(self) -> int:
        return (len(self.log) - wal.HEADER) // FRAME

    def lay(self, log: bytes) -> str:
        """What is said of this log in place of its own."""
        self.path.with_name("runs.db-wal").write_bytes(log)
        return wal.wal_problem(self.path)


def copied(path: Path, folder: Path) -> Left:
    """The files as they are now, without the index: as a killed process or a power cut leaves them."""
    folder.mkdir()
    copy = folder / "runs.db"
    shutil.copy(path, copy)
    log = path.with_name("runs.db-wal").read_bytes()
    copy.with_name("runs.db-wal").write_bytes(log)
    return Left(copy, log)


@pytest.fixture
def anyio_backend() -> str:
    """A file is the same on each event loop."""
    return "asyncio"


@pytest.fixture
async def left(tmp_path: Path) -> Left:
    """Twelve appends of one to three events, all of them in the log, and the tables in the file."""
    path = tmp_path / "runs.db"
    async with await SqliteStore.open(path):
        pass
    async with await SqliteStore.open(path) as store:
        for turn in range(APPENDS):
            seq = (await store.head("r")).seq
            await append(store, "r", records(1 + turn % 3, seq))
        return copied(path, tmp_path / "left")


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


async def seq_of(path: Path) -> int:
    """The run's last event, for a reader."""
    async with await SqliteStore.open(path, readonly=True) as store:
        return (await store.head("r")).seq


def places(frames: int) -> list[int]:
    """Bits of each byte of the header, and of each field of every third frame and the last, with random ones
    of its page.
    """
    chance = random.Random(7)
    header = [8 * at + chance.randrange(8) for at in range(wal.HEADER)]
    fields = [0, 3, 4, 7, 8, 11, 12, 15, 16, 19, 20, 23]
    bits = [
        8 * (wal.HEADER + frame * FRAME + at) + chance.randrange(8)
        for frame in range(frames)
        if frame % 3 == 0 or frame == frames - 1
        for at in [*fields, wal.FRAME, FRAME - 1, *(chance.randrange(wal.FRAME, FRAME) for _ in range(6))]
    ]
    return header + bits


async def test_every_flipped_bit_is_reported(left: Left) -> None:
    """Wherever one bit is flipped, in the header, a frame's header, its page, its checksum, or the last
    commit.
    """
    bits = places(left.frames)
    assert len(bits) > 300
    assert [] == [bit for bit in bits if not left.lay(flip(left.log, bit))]


async def test_no_log_that_was_cut_off_is_reported(left: Left) -> None:
    """At whatever byte a crash cut the log, and whatever part of its last transaction reached the disk, it
    opens.
    """
    chance = random.Random(7)
    cuts = sorted({*range(60), *(chance.randrange(len(left.log)) for _ in range(150)), len(left.log)})
    assert [] == [cut for cut in cuts if left.lay(left.log[:cut])]


@pytest.mark.parametrize("hole", [bytes(512), bytes(PAGE), b"\xa5" * 512], ids=["sector", "page", "rubbish"])
async def test_a_last_transaction_that_was_torn(left: Left, hole: bytes) -> None:
    """A sector or a page of the last transaction that never reached the disk is the end of the log, not
    damage.
    """
    last = await frames_of_last(left)
    for frame in range(left.frames - last, left.frames):
        at = wal.HEADER + frame * FRAME + wal.FRAME + 8
        torn = left.log[:at] + hole[: PAGE - 8] + left.log[at + len(hole[: PAGE - 8]) :]
        assert "" == left.lay(torn)


async def frames_of_last(left: Left) -> int:
    """How many frames the last transaction has."""
    commits = [
        frame
        for frame in range(left.frames)
        if struct.unpack_from(">I", left.log, wal.HEADER + frame * FRAME + 4)[0]
    ]
    return left.frames - 1 - commits[-2]


@pytest.mark.parametrize("size", [1, 16, 512, PAGE, FRAME])
@pytest.mark.parametrize("frame", [0, 1, 5])
async def test_more_than_a_bit(left: Left, size: int, frame: int) -> None:
    """Bytes of an earlier transaction that are overwritten are reported: a later transaction shows that it
    was on disk.
    """
    at = wal.HEADER + frame * FRAME
    assert "begins a later transaction" in left.lay(left.log[:at] + b"\xa5" * size + left.log[at + size :])


async def test_frames_of_an_older_generation(tmp_path: Path) -> None:
    """What an earlier round of the log left behind its end, with other salts, is not damage, and hides
    none.
    """
    path = tmp_path / "runs.db"
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(60))
        with closing(sqlite3.connect(path)) as other:
            assert 0 == other.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0]
        for turn in range(3):
            await append(store, "r", records(1, 60 + turn))
        left = copied(path, tmp_path / "left")
    salts = [left.log[wal.HEADER + frame * FRAME + 8 :][:8] for frame in range(left.frames)]
    live = salts.count(left.log[16:24])
    assert 3 < live < left.frames
    assert "" == left.lay(left.log)
    bits = [bit for bit in places(live) if bit < 8 * (wal.HEADER + live * FRAME)]
    assert [] == [bit for bit in bits if not left.lay(flip(left.log, bit))]
    stale = [bit for bit in places(left.frames) if bit >= 8 * (wal.HEADER + live * FRAME)]
    assert [] == [bit for bit in stale if left.lay(flip(left.log, bit))]


async def test_a_large_transaction_that_was_rolled_back(tmp_path: Path) -> None:
    """Frames that a transaction wrote before it was rolled back are not damage, also where a later one covers
    some.
    """
    path = tmp_path / "runs.db"
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(3))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA cache_size = 5")
            other.execute("BEGIN")
            other.execute("CREATE TABLE more (x)")
            for _ in range(100):
                other.execute("INSERT INTO more VALUES (randomblob(3000))")
            other.execute("ROLLBACK")
        assert "" == wal.wal_problem(path)
        await append(store, "r", records(1, 3))
        left = copied(path, tmp_path / "left")
    assert left.frames > 50
    assert "" == left.lay(left.log)
    assert 4 == await seq_of(left.path)


async def test_a_log_that_another_machine_wrote(left: Left) -> None:
    """A log whose checksums add up words in the other order is checked as well: none is reported, and each
    flipped bit is.
    """
    other = big_endian(left.log)
    assert "" == left.lay(other)
    assert APPENDS * 2 == await seq_of(left.path)  # SQLite takes it
    assert [] == [bit for bit in places(left.frames)[::5] if not left.lay(flip(other, bit))]


def big_endian(log: bytes) -> bytes:
    """The log as a big-endian machine writes it."""
    header = struct.pack(">I", 0x377F0683) + log[4:24]
    sums = added((0, 0), header)
    made = header + struct.pack(">2I", *sums)
    for at in range(wal.HEADER, len(log), FRAME):
        sums = added(sums, log[at : at + 8] + log[at + wal.FRAME : at + FRAME])
        made += log[at : at + 16] + struct.pack(">2I", *sums) + log[at + wal.FRAME : at + FRAME]
    return made


def added(sums: tuple[int, int], data: bytes) -> tuple[int, int]:
    """The checksum of SQLite's documentation, word by word."""
    first, second = sums
    for one, two in struct.iter_unpack(">2I", data):
        first = (first + one + second) % 2**32
        second = (second + two + first) % 2**32
    return first, second


@pytest.mark.parametrize("bit", [5 * 8, 8 * (wal.HEADER + 3 * FRAME + 100)], ids=["header", "page"])
async def test_a_damaged_log_is_opened_by_readers_alone(left: Left, bit: int) -> None:
    """Opening it to write raises and leaves every byte; a reader is given what is left, and `check`
    raises.
    """
    damaged = flip(left.log, bit)
    left.lay(damaged)
    before = left.path.read_bytes()
    with pytest.raises(DamagedStore, match=r"-wal is damaged.*Copy the file and its -wal"):
        await SqliteStore.open(left.path)
    async with await SqliteStore.open(left.path, readonly=True) as store:
        assert (await store.head("r")).seq < APPENDS * 2
        with pytest.raises(DamagedStore, match="recorded events are missing"):
            await store.check()
    assert (before, damaged) == (left.path.read_bytes(), left.path.with_name("runs.db-wal").read_bytes())


async def test_a_damaged_log_that_has_the_tables_too(tmp_path: Path) -> None:
    """A store that was never checkpointed and whose log is damaged at its beginning is damaged, not an empty
    file.
    """
    path = tmp_path / "runs.db"
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(3))
        left = copied(path, tmp_path / "left")
    left.lay(flip(left.log, 8 * (wal.HEADER + 100)))
    for readonly in (True, False):
        with pytest.raises(DamagedStore, match="-wal is damaged: one flipped bit"):
            await SqliteStore.open(left.path, readonly=readonly)


async def test_the_way_out_that_the_error_names(left: Left) -> None:
    """After a checkpoint by hand what was before the damage is there, and the run goes on from it."""
    left.lay(flip(left.log, 8 * (wal.HEADER + 9 * FRAME + 100)))
    with closing(sqlite3.connect(left.path)) as shell:
        shell.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    async with await SqliteStore.open(left.path) as store:
        seq = (await store.head("r")).seq
        assert 0 < seq < APPENDS * 2
        assert seq + 1 == (await append(store, "r", records(1, seq))).seq


async def test_a_log_that_is_written_meanwhile(tmp_path: Path) -> None:
    """While appends, checkpoints and new rounds of the log go on, no look at it reports anything."""
    path = tmp_path / "runs.db"
    async with await SqliteStore.open(path, durability="process") as store:
        for turn in range(40):
            await append(store, "r", records(40, 40 * turn))
            assert "" == wal.wal_problem(path)


async def test_a_log_that_was_removed(tmp_path: Path) -> None:
    """Where a killed process left an index and somebody removed the log, its index shows that events are
    missing.
    """
    path = tmp_path / "runs.db"
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(3))
        left = copied(path, tmp_path / "left")
        shutil.copy(f"{path}-shm", f"{left.path}-shm")
    os.unlink(f"{left.path}-wal")
    with pytest.raises(
        DamagedStore, match=r"its -wal was removed: .* \d+ of \d+ frames were not in the file"
    ):
        await SqliteStore.open(left.path)
    with closing(sqlite3.connect(left.path)) as shell:  # the way out that the error names
        shell.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    async with await SqliteStore.open(left.path) as store:
        assert 0 == (await store.head("r")).seq


async def test_a_log_that_was_removed_when_all_of_it_was_in_the_file(tmp_path: Path) -> None:
    """An index that shows that all of the log was in the file is no sign of a loss."""
    path = tmp_path / "runs.db"
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(3))
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        left = copied(path, tmp_path / "left")
        shutil.copy(f"{path}-shm", f"{left.path}-shm")
    os.unlink(f"{left.path}-wal")
    assert 3 == await seq_of(left.path)
    assert "" == wal.wal_problem(left.path)


class Crowded(PosixPath):
    """A path at which another process acts right before a file is read, and right after one was found."""

    before_read: ClassVar[dict[str, Callable[[], None]]] = {}
    after_stat: ClassVar[dict[str, Callable[[], None]]] = {}

    def read_bytes(self) -> bytes:
        self.before_read.pop(self.name, _nothing)()
        return super().read_bytes()

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        found = super().stat(follow_symlinks=follow_symlinks)
        self.after_stat.pop(self.name, _nothing)()
        return found


def _nothing() -> None:
    """No other process acts."""


def writing(path: Path) -> sqlite3.Connection:
    """A connection of another program that has committed, and has not closed."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE more (x)")
    other.execute("DROP TABLE more")
    return other


@pytest.mark.parametrize("closes", [False, True])
async def test_a_log_that_is_made_meanwhile(tmp_path: Path, closes: bool) -> None:
    """A process that opens the store and commits after its -wal was found missing, before its -shm is read,
    lost nothing.
    """
    path = Crowded(tmp_path / "runs.db")
    async with await SqliteStore.open(path):
        pass
    others: list[sqlite3.Connection] = []

    def write() -> None:
        others.append(writing(path))
        if closes:
            Crowded.after_stat["runs.db-wal"] = others[0].close

    Crowded.before_read["runs.db-shm"] = write
    assert "" == wal.wal_problem(path)
    assert {} == Crowded.before_read | Crowded.after_stat
    others[0].close()


@pytest.mark.parametrize("readonly", [True, False])
async def test_a_log_that_is_removed_meanwhile(tmp_path: Path, readonly: bool) -> None:
    """A process that closes the store right after its -wal was found does not make the store unavailable."""
    path = Crowded(tmp_path / "runs.db")
    async with await SqliteStore.open(path):
        pass
    other = writing(path)
    Crowded.after_stat["runs.db-wal"] = other.close
    look(path, readonly=readonly)
    assert {} == Crowded.after_stat
