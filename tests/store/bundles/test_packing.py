"""Bundles: packed, checked and unpacked; what is not packed; and what is no bundle."""
# ruff: noqa: ASYNC240 - the files are small

import errno
import gc
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.reducers.errors import DamagedLog, ExternalFailure, WrongUse
from refold.store import MemoryStore, SqliteStore
from refold.store import verify_bundle as reader
from refold.store.bundles import NotABundle, is_bundle, open_bundle
from refold.store.packer import pack
from refold.store.protocol import Record, Seal, SealedHead, Stored, UnknownRun
from refold.store.seals import DamagedSeals, leaf_of
from refold.store.unpacking import unpack
from refold.store.verify_bundle import seal_message, unproved
from support.bundles import KEY, check, members_of, packed, zipped
from support.sealing import append, erase, notice, record, records, sealed, signing_key

pytestmark = pytest.mark.anyio


async def test_a_bundle_checks(bundle: Path) -> None:
    """Runs, events, contents, erased ones and what the seal covers are counted, and what cannot be proved is
    said.
    """
    found = check(bundle, KEY)
    assert ["a", "ß/.."] == [run.id for run in found.runs]
    assert (10, 4, 1, 8) == (found.events, found.contents, found.erased, found.sealed_events)
    assert {"a": 4, "ß/..": 4} == {run: proof.seq for run, proof in found.proofs.items()}
    assert [
        "that events after the signed checkpoint were not changed or removed: 2 events",
        "who erased payloads and why: no signed checkpoint covers the erasure records (1)",
        "that the store has no later signed checkpoint and no other runs",
        "that what was recorded is what happened",
    ] == unproved(found)
    assert "who owns key" in unproved(check(bundle))[0]


async def test_the_same_runs_give_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    """Nothing of the time, the machine or the order of the words is in a bundle."""
    folder = tmp_path / "again"
    folder.mkdir()
    assert bundle.read_bytes() == (await packed(folder)).read_bytes()


async def test_a_person_can_read_it(bundle: Path) -> None:
    """After unzipping, a line has the texts of an event as they are."""
    members = members_of(bundle)
    assert [
        "verify.py",
        "README.txt",
        "runs/000001.jsonl",
        "runs/000002.jsonl",
        "seals.json",
        "manifest.json",
    ] == [*members]
    line = json.loads(members["runs/000001.jsonl"].split(b"\n")[4])
    assert (5, 9, "note_added", '{"n":9}', '"\u2028 \\u0000 ü"') == tuple(
        line[name] for name in ("seq", "at", "kind", "body", "content")
    )
    assert Path(reader.__file__).read_bytes() == members["verify.py"]


async def test_unpacked_is_what_was_packed(bundle: Path, tmp_path: Path) -> None:
    """Every event comes back into a store with its bytes, its digest and its hash, the erased one too."""
    target = tmp_path / "new.db"
    done = await unpack(bundle, target)
    assert ["new.db", "whole.zip"] == sorted(each.name for each in tmp_path.iterdir())
    async with await SqliteStore.open(target, readonly=True) as store:
        got = [event async for chunk in store.read("a") for event in chunk]
        runs = [run async for chunk in store.runs() for run, _ in chunk]
        due = await store.due(9)
    with open_bundle(bundle) as opened:
        want = list(opened.lines(opened.runs[0]))
    assert [(e.at, e.kind, e.body, e.content, e.salt, e.content_digest, e.hash) for e in got] == [
        (e.at, e.kind, e.body, e.content, e.salt, e.content_digest, e.hash) for e in want
    ]
    assert (2, 10, ["ß/..", "a"], []) == (done.runs, done.events, runs, [*due])


async def test_many_events_go_there_and_back(tmp_path: Path) -> None:
    """Runs of more events than a chunk has, and events larger than a piece."""
    large = Record(at=5000, kind="k", body=b"{}", content=b'"' + b"x" * 3 * 2**20 + b'"', salt=b"s")
    async with MemoryStore() as store:
        await append(store, "r", [*records(1500), large, large, record(5001)])
        done = await pack(store, ["r"], tmp_path / "b.zip")
        head = await store.head("r")
    assert (1503, 0) == (done.events, done.sealed)
    await unpack(tmp_path / "b.zip", tmp_path / "new.db")
    async with await SqliteStore.open(tmp_path / "new.db", readonly=True) as store:
        assert head == await store.head("r")


async def test_what_would_not_verify_is_not_packed(tmp_path: Path) -> None:
    """A run whose log has not what was sealed, or does not chain, gives an error and no file."""

    class Edited(MemoryStore):
        def change(self, run: str, place: int, **fields: Any) -> None:
            import msgspec

            self._tables.logs[run][place] = msgspec.structs.replace(self._tables.logs[run][place], **fields)

        def cut(self, run: str) -> None:
            del self._tables.logs[run][1:]

    async with Edited() as store:
        await sealed(store, "a", "b")
        store.change("a", 1, body=b"{}")
        store.cut("b")
        with pytest.raises(DamagedLog, match="run a event 2: its hash is"):
            await pack(store, ["a"], tmp_path / "b.zip")
        with pytest.raises(DamagedLog, match="run b event 3: it was sealed, but the log ends at event 1"):
            await pack(store, ["b"], tmp_path / "b.zip")
        with pytest.raises(UnknownRun):
            await pack(store, ["c"], tmp_path / "b.zip")
        with pytest.raises(WrongUse, match="0 runs"):
            await pack(store, [], tmp_path / "b.zip")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("named", [1, 4])
async def test_an_erasure_that_no_notice_names(named: int, tmp_path: Path) -> None:
    """A content that is gone without a notice, or with one that stood there before, is damage and is not
    packed.
    """
    async with MemoryStore() as store:
        await append(store, "a", [record(0), record(1, '"x"'), notice(4), record(99, '"y"')])
        await erase(store, "a", 2)
        await pack(store, ["a"], tmp_path / "good.zip")
        await erase(store, "a", 4, left=notice(named, 2))
        if named == 4:
            await pack(store, ["a"], tmp_path / "better.zip")
            assert 2 == check(tmp_path / "better.zip").erased
            return
        with pytest.raises(DamagedLog, match="event 4: its payload is missing, and no erasure record"):
            await pack(store, ["a"], tmp_path / "b.zip")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"seqs":2}', b'{"seqs":["2"]}', b"[" * 10**5, b"\xff"])
def test_a_notice_that_cannot_be_read(body: bytes) -> None:
    """It names nothing, whatever is in it."""
    bare = reader.UnexplainedErasures()
    bare.take(2, "k", b"{}", bare=True)
    bare.take(3, "content_erased", body, bare=False)
    assert (2, "k") == bare.first


async def test_nothing_is_written_over(bundle: Path, tmp_path: Path) -> None:
    """A file that is there stays as it is."""
    before = bundle.read_bytes()
    async with MemoryStore() as store:
        await append(store, "a", records(1))
        with pytest.raises(WrongUse, match="exists and is not overwritten"):
            await pack(store, ["a"], bundle)
        with pytest.raises(ExternalFailure, match="cannot be written"):
            await pack(store, ["a"], tmp_path / "no such folder" / "b.zip")
    with pytest.raises(WrongUse, match="exists and is not overwritten"):
        await unpack(bundle, bundle)
    assert before == bundle.read_bytes()


async def test_a_seal_that_does_not_end_as_one(tmp_path: Path) -> None:
    """A log of heads whose last entry is not over the newest of each run proves nothing of a bundle."""
    async with MemoryStore() as store:
        head = await append(store, "a", records(3))
        entry = SealedHead(place=1, run="a", seq=head.seq, hash=head.hash)
        signature = signing_key().sign(seal_message(1, 1, leaf_of(entry)))
        await store.add_seal([entry], Seal(size=1, at=1, root=leaf_of(entry), key=KEY, signature=signature))
        with pytest.raises(DamagedSeals, match="its last entry"):
            await pack(store, ["a"], tmp_path / "b.zip")


async def test_too_long_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the reader would refuse is not written."""
    monkeypatch.setattr("refold.store.packer.MOST_LINE", 500)
    async with MemoryStore() as store:
        await append(store, "a", [record(1, "x" * 500)])
        with pytest.raises(WrongUse, match="run a event 1: has"):
            await pack(store, ["a"], tmp_path / "b.zip")


@pytest.mark.slow
def test_a_disk_that_is_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Wherever it fills up, that is the error, and nothing is tried again once the file is closed."""

    class Full(io.FileIO):
        left = 0

        def write(self, data: Any, /) -> int:
            Full.left -= len(data)
            if Full.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    async def packed_into(room: int) -> None:
        Full.left = room
        async with MemoryStore() as store:
            await append(store, "a", records(3))
            await pack(store, ["a"], tmp_path / "b.zip")

    def opened(path: Path, mode: str) -> Full:
        return Full(path, mode)

    monkeypatch.setattr(Path, "open", opened)
    for room in (0, 1000, 9000, 10_000):
        with pytest.raises(ExternalFailure, match="No space left"):
            anyio.run(packed_into, room)
        gc.collect()
    assert [] == list(tmp_path.iterdir())


@pytest.mark.slow
async def test_memory_is_bounded(tmp_path: Path) -> None:
    """Packing, checking and unpacking 30 MB takes memory for a few chunks, not for the bundle."""
    content = b'"' + b"x" * 2**20 + b'"'
    async with await SqliteStore.open(tmp_path / "runs.db", durability="process") as store:
        for n in range(30):
            await append(store, "r", [Record(at=n, kind="k", body=b"{}", content=content, salt=b"s")])
        tracemalloc.start()
        try:
            await pack(store, ["r"], tmp_path / "b.zip")
            check(tmp_path / "b.zip")
            await unpack(tmp_path / "b.zip", tmp_path / "new.db")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 12 * 2**20


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PK", id="two letters"),
        pytest.param(b"PK\5\6" + bytes(18), id="an empty zip"),
        pytest.param(b"SQLite format 3\0" + bytes(100), id="a database"),
        pytest.param(b"PK\3\4" + bytes(100), id="the beginning of a zip"),
    ],
)
def test_another_file(data: bytes, tmp_path: Path) -> None:
    """A file that never was a bundle is wrong use, not damage."""
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(NotABundle):
        check(path)
    assert data.startswith(b"PK") == is_bundle(path)


@pytest.mark.parametrize("name", ["word/document.xml", "README.txt", "a"])
def test_another_zip(name: str, tmp_path: Path) -> None:
    """Neither is a zip of something else."""
    with pytest.raises(NotABundle):
        check(zipped(tmp_path / "other.zip", {name: b"x", "another": b"y"}))


def test_no_file(tmp_path: Path) -> None:
    """What is not there, or a folder, is wrong use too."""
    for path in (tmp_path / "none.zip", tmp_path):
        with pytest.raises(NotABundle, match="does not exist"):
            check(path)
        assert not is_bundle(path)


def test_a_stored_event_is_whole(whole: bytes, tmp_path: Path) -> None:
    """The chain of a store and that of a bundle are one: an event of the one checks in the other."""
    from refold.store.bundles import stored_of
    from refold.store.chain import GENESIS
    from refold.store.chain import check as check_event
    from refold.store.protocol import Head

    path = tmp_path / "b.zip"
    path.write_bytes(whole)
    with open_bundle(path) as opened:
        for run in opened.runs:
            head = Head(seq=0, hash=GENESIS)
            for each in opened.lines(run):
                stored: Stored = stored_of(run, each)
                assert check_event(stored, head) is None
                head = Head(seq=stored.seq, hash=stored.hash)
