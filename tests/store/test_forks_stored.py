"""Forks in a file and in a bundle: what a hostile one may say, and what travels with a fork."""

import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from refold.reducers.errors import DamagedLog, WrongUse
from refold.store import MemoryStore, SqliteStore
from refold.store.bundles import DamagedBundle, open_bundle
from refold.store.chain import extend
from refold.store.packer import pack
from refold.store.protocol import Head, Record, Store
from refold.store.seals import seal
from refold.store.testing import append, events, records, take
from refold.store.testing.forks import fork, forked
from refold.store.unpacking import unpack
from refold.store.verify_bundle import Unjudged
from support.sealing import erase, sealed, signing_key

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """What is tested here knows of no event loop; the store's promises are tested on both."""
    return "asyncio"


async def family(store: Store) -> None:
    """A run of five events, a fork of it, a fork of that."""
    await append(store, "r", records(5))
    await fork(store, "r", 3, "f")
    await fork(store, "f", 5, "a-fork-of-a-fork")


async def file_of(path: Path) -> None:
    async with await SqliteStore.open(path, durability="process") as store:
        await family(store)


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def edited(path: Path, edit: Callable[[dict[str, bytes]], None]) -> None:
    """Change members, and the manifest's list of them: by somebody who took trouble."""
    found = members(path)
    edit(found)
    manifest = json.loads(found.pop("manifest.json"))
    sums = [{"name": n, "size": len(d), "sha256": sha256(d).hexdigest()} for n, d in found.items()]
    found["manifest.json"] = json.dumps({**manifest, "members": sums}).encode()
    with zipfile.ZipFile(path, "w") as file:
        for each, data in found.items():
            file.writestr(zipfile.ZipInfo(each), data, zipfile.ZIP_DEFLATED)


def forge(path: Path, run: str, after: Head, body: dict[str, Any]) -> None:
    """Write a fork past the store, with a chain that holds."""
    (event,) = extend(run, after, [Record(at=1, kind="run_forked", body=json.dumps(body).encode())])
    with closing(sqlite3.connect(path)) as file, file:
        (number,) = file.execute("INSERT INTO run (id) VALUES (?) RETURNING number", (run,)).fetchone()
        file.execute(
            "INSERT INTO event (key, at, kind, hash, body) VALUES (?, ?, ?, ?, ?)",
            ((number << 32) + event.seq, event.at, event.kind, event.hash, event.body.decode()),
        )


@pytest.mark.parametrize(
    ("parent", "seq"),
    [
        pytest.param("x", 3, id="of itself"),
        pytest.param("y", 3, id="of one that is a fork of it"),
        pytest.param("gone", 3, id="of a run that is not there"),
        pytest.param("r", 6, id="of an event that is not there"),
        pytest.param("f", 2, id="of an event that its parent has from another"),
    ],
)
async def test_a_forged_lineage(tmp_path: Path, parent: str, seq: int) -> None:
    """A fork of what is not there, a circle among it, is a damaged log that says so; reading it comes to an
    end.
    """
    path = tmp_path / "runs.db"
    await file_of(path)
    for run, said in (("x", parent), ("y", "x")):
        body = {"parent": said, "parent_seq": seq, "parent_hash": "00" * 32}
        forge(path, run, Head(seq=seq, hash=bytes(32)), body)
    async with await SqliteStore.open(path, readonly=True) as store:
        for run in ("x", "y"):
            for asked in (events(store, run), store.read_some(run, [1]), store.lineage(run)):
                with pytest.raises(DamagedLog, match="not in this store"):
                    await asked
        assert {"x", "y", "r", "f", "a-fork-of-a-fork"} == {run async for c in store.runs() for run, _ in c}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"parent": "r", "parent_seq": 2, "parent_hash": "00" * 32}, id="another number"),
        pytest.param({"parent": "r", "parent_seq": 3, "parent_hash": "x"}, id="no hash"),
        pytest.param({"parent": "\n", "parent_seq": 3, "parent_hash": "00"}, id="no run"),
        pytest.param({"parent": 1}, id="nothing"),
    ],
)
async def test_a_fork_that_says_nothing(tmp_path: Path, body: dict[str, Any]) -> None:
    """It has its own events alone, so whoever checks it misses those before."""
    path = tmp_path / "runs.db"
    await file_of(path)
    forge(path, "x", Head(seq=3, hash=bytes(32)), body)
    async with await SqliteStore.open(path, readonly=True) as store:
        assert [4] == [event.seq for event in await events(store, "x", checked=False)]
        assert [] == list(await store.lineage("x"))
        with pytest.raises(DamagedLog, match="events 1 to 3 are missing"):
            await events(store, "x")


async def test_a_fork_under_a_seal(tmp_path: Path) -> None:
    """A fork is sealed as any run is, and its bundle shows that it was; of its parent's events none is
    counted twice.
    """
    path = tmp_path / "b.zip"
    async with MemoryStore() as store:
        await family(store)
        await seal(store, signing_key(), 1)
        done = await pack(store, ["a-fork-of-a-fork"], path)
    assert (3, 3) == (done.runs, done.sealed)
    assert 5 + 3 + 3 == done.events
    with open_bundle(path, [signing_key().public]) as bundle:
        read = {run.id: [*bundle.lines(run)] for run in bundle.runs}
        bundle.check_rest()
        assert bundle.events == bundle.sealed_events == done.events
    assert ["r", "f", "a-fork-of-a-fork"] == [*read]
    assert [[1, 2, 3, 4, 5], [4, 5, 6], [6, 7, 8]] == [[line.seq for line in each] for each in read.values()]


async def test_unpacking_a_fork(tmp_path: Path) -> None:
    """A bundle of a fork has what it stands on, whole, and unpacks to runs that read as they did."""
    async with MemoryStore() as store:
        await family(store)
        await store.release(await take(store, "r"))
        await erase(store, "r", 2)
        await pack(store, ["a-fork-of-a-fork"], tmp_path / "b.zip")
        wanted = {run: await events(store, run) for run in ("r", "f", "a-fork-of-a-fork")}
    await unpack(tmp_path / "b.zip", tmp_path / "new.db")
    async with await SqliteStore.open(tmp_path / "new.db", readonly=True) as store:
        assert wanted == {run: await events(store, run) for run in wanted}


def _another_hash(found: dict[str, bytes]) -> None:
    """Chained anew to a hash that the parent never had."""
    line, manifest = json.loads(found["runs/000002.jsonl"]), json.loads(found["manifest.json"])
    (event,) = extend("f", Head(seq=3, hash=bytes(32)), [forked("r", 3, bytes(32))])
    line.update(body=event.body.decode(), hash=event.hash.hex(), at=event.at)
    manifest["runs"][1]["head"] = event.hash.hex()
    found["runs/000002.jsonl"] = json.dumps(line, separators=(",", ":")).encode() + b"\n"
    found["manifest.json"] = json.dumps(manifest).encode()


def _before_its_parent(found: dict[str, bytes]) -> None:
    manifest = json.loads(found["manifest.json"])
    manifest["runs"].reverse()
    found["manifest.json"] = json.dumps(manifest).encode()


def checked(path: Path) -> None:
    with open_bundle(path) as bundle:
        for run in bundle.runs:
            for _ in bundle.lines(run):
                pass
        bundle.check_rest()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        pytest.param(_another_hash, "not in that run's log", id="another hash"),
        pytest.param(_before_its_parent, "does not come before it", id="before its parent"),
    ],
)
async def test_a_bundle_that_lies_about_a_fork(
    tmp_path: Path, edit: Callable[[dict[str, bytes]], None], said: str
) -> None:
    """It is changed, and unpacks to nothing."""
    path = tmp_path / "b.zip"
    async with MemoryStore() as store:
        await append(store, "r", records(5))
        await fork(store, "r", 3, "f", more=0)
        await pack(store, ["f"], path)
    edited(path, edit)
    with pytest.raises(DamagedBundle, match=said):
        checked(path)
    with pytest.raises(DamagedBundle):
        await unpack(path, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


async def test_many_forks_of_a_long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at each fork with all that is behind it has an end: beyond that the bundle cannot be judged
    so.
    """
    async with MemoryStore() as store:
        await append(store, "r", records(5))
        for n in range(4):
            await fork(store, "r", 3, f"f{n}")
        await pack(store, [f"f{n}" for n in range(4)], tmp_path / "b.zip")
    with open_bundle(tmp_path / "b.zip") as bundle:
        most = 3 * bundle.members["runs/000001.jsonl"].size
        monkeypatch.setattr("refold.store.verify_bundle.MOST_IN_ALL", most)
        parent, *forks = bundle.runs
        assert [] == [*bundle.behind(parent)]
        assert [5, 5, 5] == [len([*bundle.behind(each)]) for each in forks[:3]]
        with pytest.raises(Unjudged, match="too many bytes"):
            next(bundle.behind(forks[3]))


async def test_what_is_not_forked(tmp_path: Path) -> None:
    """A parent that is damaged where it is cut cannot be forked there, and a run in another store is none
    here.
    """
    async with MemoryStore() as store, MemoryStore() as other:
        await sealed(other, "elsewhere", count=4)
        head = await other.head("elsewhere")
        lease = await store.lease("f", holder="a test")
        with pytest.raises(WrongUse, match="does not have"):
            await store.append("f", head.seq, lease, [forked("elsewhere", head.seq, head.hash)])
        assert [] == await events(store, "f")
