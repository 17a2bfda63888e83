"""Bundles: packed, checked, unpacked; and whatever else somebody may hand over under that name."""
# ruff: noqa: ASYNC240 - the files are small

import errno
import gc
import io
import json
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.reducers.errors import CannotJudge, Damaged, DamagedLog, RefoldError, WorldFailed, WrongUse
from refold.store import MemoryStore, SqliteStore
from refold.store import verify_bundle as reader
from refold.store.bundles import DamagedBundle, NotABundle, UnjudgedBundle, is_bundle, reading, unpack
from refold.store.merkle import Prover
from refold.store.packer import pack
from refold.store.protocol import Record, Seal, SealedHead, Stored, UnknownRun
from refold.store.seals import DamagedSeals, leaf_of, seal
from refold.store.verify_bundle import seal_message, unproved
from support.sealing import append, erase, notice, record, records, sealed, signing_key
from support.strategies import scaled

pytestmark = pytest.mark.anyio

KEY = signing_key().public
Members = dict[str, bytes]


@pytest.fixture
def anyio_backend() -> str:
    """Files and zips know of no event loop; SQLite is tested on both elsewhere."""
    return "asyncio"


async def packed(folder: Path) -> Path:
    """A bundle of two sealed runs, one of which went on after the seal and lost a content."""
    path = folder / "whole.zip"
    async with MemoryStore() as store:
        await sealed(store, "a", "ß/..", "other", count=4)
        await append(store, "a", [record(9, '"\u2028 \\u0000 ü"')])
        await erase(store, "a", 2)
        await pack(store, ["ß/..", "a"], path)
    return path


@pytest.fixture
async def bundle(tmp_path: Path) -> Path:
    return await packed(tmp_path)


def check(path: Path, *keys: bytes) -> reader.Bundle:
    """Everything that there is to check."""
    with reading(path, keys) as opened:
        for run in opened.runs:
            for _ in opened.lines(run):
                pass
        opened.check_rest()
        return opened


def members_of(path: Path) -> Members:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(
    path: Path, members: Members, how: Callable[[zipfile.ZipInfo], object] = lambda info: None
) -> Path:
    """A zip of these members, each header as `how` changes it."""
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            how(info)
            file.writestr(info, data, info.compress_type)
    return path


def listed(members: Members) -> Members:
    """The members under a manifest that has their sizes and digests: by somebody who took trouble."""
    try:
        manifest = json.loads(members["manifest.json"])
    except RecursionError:
        manifest = []
    if not isinstance(manifest, dict):
        return members
    sums = [
        {"name": name, "size": len(data), "sha256": sha256(data).hexdigest()}
        for name, data in members.items()
        if name != "manifest.json"
    ]
    return {**members, "manifest.json": json.dumps({**manifest, "members": sums}).encode()}


# --- what a bundle is


async def test_a_bundle_checks(bundle: Path) -> None:
    """Runs, events, contents, erased ones and what the seal covers are counted, and what cannot be proved is said."""
    found = check(bundle, KEY)
    assert ["a", "ß/.."] == [run.id for run in found.runs]
    assert (10, 4, 1, 8) == (found.events, found.contents, found.erased, found.sealed_events)
    assert {"a": 4, "ß/..": 4} == {run: proof.seq for run, proof in found.proofs.items()}
    assert [
        "that what came after the seal was neither changed nor cut off: 2 events",
        "that contents were erased by whom, and why, the log says: 1, with their notices under no seal",
        "that the store has no later seal, and no other runs",
        "that what was recorded is what happened",
    ] == unproved(found)
    assert "whose key" in unproved(check(bundle))[0]


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
    with reading(bundle) as opened:
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


# --- what is not packed


async def test_what_would_not_verify_is_not_packed(tmp_path: Path) -> None:
    """A run whose log has not what was sealed, or does not chain, gives an error and no file."""

    class Edited(MemoryStore):
        def change(self, run: str, place: int, **fields: Any) -> None:
            import msgspec

            self._logs[run][place] = msgspec.structs.replace(self._logs[run][place], **fields)

        def cut(self, run: str) -> None:
            del self._logs[run][1:]

    async with Edited() as store:
        await sealed(store, "a", "b")
        store.change("a", 1, body=b"{}")
        store.cut("b")
        with pytest.raises(DamagedLog, match="run a event 2: its hash is"):
            await pack(store, ["a"], tmp_path / "b.zip")
        with pytest.raises(DamagedLog, match="run b event 3: it was sealed, and the log ends at event 1"):
            await pack(store, ["b"], tmp_path / "b.zip")
        with pytest.raises(UnknownRun):
            await pack(store, ["c"], tmp_path / "b.zip")
        with pytest.raises(WrongUse, match="0 runs"):
            await pack(store, [], tmp_path / "b.zip")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("named", [1, 4])
async def test_an_erasure_that_no_notice_names(named: int, tmp_path: Path) -> None:
    """A content that is gone without a notice, or with one that stood there before, is damage and is not packed."""
    async with MemoryStore() as store:
        await append(store, "a", [record(0), record(1, '"x"'), notice(4), record(99, '"y"')])
        await erase(store, "a", 2)
        await pack(store, ["a"], tmp_path / "good.zip")
        await erase(store, "a", 4, left=notice(named, 2))
        if named == 4:
            await pack(store, ["a"], tmp_path / "better.zip")
            assert 2 == check(tmp_path / "better.zip").erased
            return
        with pytest.raises(DamagedLog, match="event 4: its content is gone, and no notice"):
            await pack(store, ["a"], tmp_path / "b.zip")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"seqs":2}', b'{"seqs":["2"]}', b"[" * 10**5, b"\xff"])
def test_a_notice_that_cannot_be_read(body: bytes) -> None:
    """It names nothing, whatever is in it."""
    bare = reader.Bare()
    bare.take(2, "k", b"{}", bare=True)
    bare.take(3, "content_erased", body, bare=False)
    assert (2, "k") == bare.first


async def test_nothing_is_written_over(bundle: Path, tmp_path: Path) -> None:
    """A file that is there stays as it is."""
    before = bundle.read_bytes()
    async with MemoryStore() as store:
        await append(store, "a", records(1))
        with pytest.raises(WrongUse, match="is there already"):
            await pack(store, ["a"], bundle)
        with pytest.raises(WorldFailed, match="cannot be written"):
            await pack(store, ["a"], tmp_path / "no such folder" / "b.zip")
    with pytest.raises(WrongUse, match="is there already"):
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


# --- changed bundles

EVIL = {
    "rootkit": "../../evil.py",
    "absolute": "/etc/passwd",
    "windows": "runs\\000001.jsonl",
    "deep": "runs/../x",
}


def changes(members: Members) -> Iterator[tuple[str, Members]]:
    """A bundle's members, changed in each way that a manifest of the old members shows."""
    for name in members:
        yield f"{name} missing", {key: data for key, data in members.items() if key != name}
        yield f"{name} emptied", {**members, name: b""}
        yield f"{name} with a byte more", {**members, name: members[name] + b"\0"}
        yield f"{name} with a byte changed", {**members, name: members[name][:-9] + b"?" + members[name][-8:]}
    yield "swapped", {**members, "runs/000001.jsonl": members["runs/000002.jsonl"]}
    yield "added run", {**members, "runs/000003.jsonl": members["runs/000001.jsonl"]}
    for what, name in EVIL.items():
        yield f"added: {what}", {**members, name: b"x"}


async def test_every_change_of_a_member_is_found(bundle: Path, tmp_path: Path) -> None:
    """A member that is missing, added, emptied, longer, or changed by a byte; and nothing is unpacked."""
    found = dict[str, str]()
    for what, members in changes(members_of(bundle)):
        path = zipped(tmp_path / "changed.zip", members)
        with pytest.raises(Damaged) as caught:
            check(path, KEY)
        found[what] = str(caught.value)
        with pytest.raises(Damaged):
            await unpack(path, tmp_path / "new.db")
    assert ["changed.zip", "whole.zip"] == sorted(each.name for each in tmp_path.iterdir())
    assert "manifest.json is missing" in found["manifest.json missing"]
    assert "does not belong in a bundle" in found["added: rootkit"]
    assert "verify.py" in found["verify.py with a byte changed"]


def edit(name: str, change: Callable[[Any], object]) -> Callable[[Members], Members]:
    """Change the JSON of a member."""

    def edited(members: Members) -> Members:
        value = json.loads(members[name])
        changed = change(value)
        return {**members, name: json.dumps(value if changed is None else changed).encode()}

    return edited


def compact(value: object) -> bytes:
    """A line as it is packed: without spaces."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def line(number: int, change: Callable[[dict[str, Any]], object]) -> Callable[[Members], Members]:
    """Change a line of the first run."""

    def edited(members: Members) -> Members:
        lines = members["runs/000001.jsonl"].splitlines(keepends=True)
        value = json.loads(lines[number - 1])
        change(value)
        lines[number - 1] = compact(value)
        return {**members, "runs/000001.jsonl": b"".join(lines)}

    return edited


def without_line(number: int) -> Callable[[Members], Members]:
    def edited(members: Members) -> Members:
        lines = members["runs/000001.jsonl"].splitlines(keepends=True)
        return {**members, "runs/000001.jsonl": b"".join(lines[: number - 1] + lines[number:])}

    return edited


def raw(name: str, data: bytes) -> Callable[[Members], Members]:
    return lambda members: {**members, name: data}


def recomputed(members: Members) -> Members:
    """The second event of run a has another body, and the whole chain and the manifest follow."""
    lines = [json.loads(each) for each in members["runs/000001.jsonl"].splitlines()]
    lines[1]["body"], previous = '{"n":77}', bytes(32)
    for each in lines:
        made = reader._line(compact(each)[:-1])  # pyright: ignore[reportPrivateUsage]
        previous = reader.chained("a", previous, made)
        each["hash"] = previous.hex()
    manifest = json.loads(members["manifest.json"])
    manifest["runs"][0]["head"] = previous.hex()
    text = b"".join(map(compact, lines))
    return {**members, "runs/000001.jsonl": text, "manifest.json": json.dumps(manifest).encode()}


def resealed(members: Members) -> Members:
    """Somebody else's key signs the same root."""
    document = json.loads(members["seals.json"])
    seal, other = document["seal"], signing_key(2)
    message = reader.seal_message(seal["size"], seal["at"], bytes.fromhex(seal["root"]))
    seal["key"], seal["signature"] = other.public.hex(), other.sign(message).hex()
    return {**members, "seals.json": json.dumps(document).encode()}


def unsealed(members: Members) -> Members:
    return {name: data for name, data in members.items() if name != "seals.json"}


CAREFUL = [
    ("event changed", line(2, lambda e: e.update(body="{}")), "run a event 2: its hash does not follow"),
    ("content changed", line(4, lambda e: e.update(content='"x"')), "its content, salt or digest was changed"),
    ("salt changed", line(4, lambda e: e.update(salt="00")), "its content, salt or digest was changed"),
    ("content taken", line(4, lambda e: e.update(content=None)), "a salt but no content"),
    ("content and salt taken", line(4, lambda e: e.update(content=None, salt="")), "run a event 4: its content is gone"),
    ("digest taken", line(4, lambda e: e.update(content=None, salt="", digest=None)), "its hash does not follow"),
    ("content given back", line(2, lambda e: e.update(content="x", salt="")), "its content, salt or digest"),
    ("time changed", line(1, lambda e: e.update(at=5)), "event 1: its hash does not follow"),
    ("kind changed", line(1, lambda e: e.update(kind="x")), "event 1: its hash does not follow"),
    ("event missing", without_line(2), "event 3: it stands after event 1"),
    ("tail cut off", without_line(6), "ends at event 5"),
    ("all cut off", raw("runs/000001.jsonl", b""), "ends at event 0"),
    ("chain recomputed", recomputed, "run a event 4: its hash is not the one that was sealed"),
    ("number as text", line(1, lambda e: e.update(seq="1")), "line 1 is not what was packed"),
    ("number as truth", line(1, lambda e: e.update(seq=True)), "line 1 is not what was packed"),
    ("number too large", line(1, lambda e: e.update(at=2**63)), "line 1 is not what was packed"),
    ("field missing", line(1, lambda e: e.pop("salt")), "expected an object with seq at kind"),
    ("field added", line(1, lambda e: e.update(x=1)), "something stands after its content"),
    ("fields in another order", line(1, lambda e: e.update(seq=e.pop("seq"))), "in this order"),
    ("a list for a text", line(1, lambda e: e.update(body=[])), "expected an object with seq at kind"),
    ("an object for a number", line(1, lambda e: e.update(at={})), "expected an object with seq at kind"),
    ("half a character", line(1, lambda e: e.update(body="\ud800")), "line 1 is not what was packed"),
    ("NUL", line(1, lambda e: e.update(body="\0")), "line 1 is not what was packed"),
    ("upper-case hash", line(1, lambda e: e.update(hash=e["hash"].upper())), "lower-case"),
    ("a list", raw("runs/000001.jsonl", b"[]\n"), "line 1 is not what was packed"),
    ("no UTF-8", raw("runs/000001.jsonl", b'{"seq":"\xff"}\n'), "line 1 is not what was packed"),
    ("deep JSON", raw("runs/000001.jsonl", b"[" * 100_000 + b"\n"), "line 1 is not what was packed"),
    ("a name twice", raw("runs/000001.jsonl", b'{"seq":1,"seq":1}\n'), "expected an object with seq at kind"),
    ("a name twice in the seals", raw("seals.json", b'{"seal":0,"seal":0}'), "stands twice"),
    ("long number", raw("runs/000001.jsonl", b'{"seq":' + b"1" * 10**6 + b"\n"), "no place for the number"),
    ("fraction", raw("runs/000001.jsonl", b'{"seq":1.0\n'), "no place for the number"),
    ("no number", raw("runs/000001.jsonl", b'{"seq":NaN\n'), "no place for the number"),
    ("no line end", raw("runs/000001.jsonl", b"{}"), "a line without an end"),
    ("two heads", edit("manifest.json", lambda m: m["runs"][0].update(head="00" * 32)), "not as the manifest says"),
    ("one run twice", edit("manifest.json", lambda m: m["runs"].__setitem__(1, m["runs"][0])), "one file each"),
    ("a run of no file", edit("manifest.json", lambda m: m["runs"][0].update(member="verify.py")), "one file each"),
    ("run id of two lines", edit("manifest.json", lambda m: m["runs"][0].update(run="a\nb")), "one line of text"),
    ("manifest is a list", raw("manifest.json", b"[]"), "manifest.json is not what was packed"),
    ("deep manifest", raw("manifest.json", b"[" * 100_000), "manifest.json is not what was packed"),
    ("another root", edit("seals.json", lambda s: s["seal"].update(root="00" * 32)), "signature is not by its key"),
    ("another size", edit("seals.json", lambda s: s["seal"].update(size=9)), "signature is not by its key"),
    ("another time", edit("seals.json", lambda s: s["seal"].update(at=1)), "signature is not by its key"),
    ("another key", edit("seals.json", lambda s: s["seal"].update(key=KEY[::-1].hex())), "signature is not by its key"),
    ("another's seal", resealed, "signed by another key"),
    ("another path", edit("seals.json", lambda s: s["runs"][0].update(path=[])), "does not follow from its proof"),
    ("another place", edit("seals.json", lambda s: s["runs"][0].update(index=1)), "does not follow from its proof"),
    ("a place beyond", edit("seals.json", lambda s: s["runs"][0].update(index=2)), "does not follow from its proof"),
    ("fewer runs", edit("seals.json", lambda s: s["newest"].update(runs=1)), "does not follow from their proof"),
    ("another root of runs", edit("seals.json", lambda s: s["newest"].update(root="00" * 32)), "from their proof"),
    ("another way to the root", edit("seals.json", lambda s: s["newest"].update(path=[])), "from their proof"),
    ("another sealed event", edit("seals.json", lambda s: s["runs"][0].update(seq=5)), "does not follow from its proof"),
    ("a seal beyond the end", edit("seals.json", lambda s: s["runs"][0].update(seq=50)), "sealed at event 50"),
    ("a run not there", edit("seals.json", lambda s: s["runs"][0].update(run="x")), "run x was sealed"),
    ("a proof twice", edit("seals.json", lambda s: s["runs"].append(s["runs"][0])), "stands twice"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "problem"), [pytest.param(*row, id=what) for what, *row in CAREFUL])
async def test_a_change_with_care_is_found(
    change: Callable[[Members], Members], problem: str, bundle: Path, tmp_path: Path
) -> None:
    """The manifest's sizes and digests were made to fit, and it shows all the same; nothing is unpacked."""
    path = zipped(tmp_path / "changed.zip", listed(change(members_of(bundle))))
    with pytest.raises(DamagedBundle) as caught:
        check(path, KEY)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 500


async def test_a_seal_taken_away(bundle: Path, tmp_path: Path) -> None:
    """Without a seal there is nothing to hold against a key; without a key it is said that nothing is sealed."""
    path = zipped(tmp_path / "changed.zip", listed(unsealed(members_of(bundle))))
    with pytest.raises(UnjudgedBundle, match="no seal is in it"):
        check(path, KEY)
    assert "it has no seal" in unproved(check(path))[0]


async def test_a_seal_of_others_only(bundle: Path, tmp_path: Path) -> None:
    """A genuine seal beside runs that it does not cover is nothing that a key could be held against."""
    bare = edit("seals.json", lambda s: s["runs"].clear())
    path = zipped(tmp_path / "changed.zip", listed(bare(recomputed(members_of(bundle)))))
    with pytest.raises(UnjudgedBundle, match="covers none of its runs"):
        check(path, KEY)
    assert "that the runs for which there is no proof of a seal are whole: 2" in unproved(check(path))


async def test_a_tail_cut_to_an_older_seal(tmp_path: Path) -> None:
    """Under the newest seal, no proof makes an event the last one sealed of its run but that of the last."""
    async with MemoryStore() as store:
        await sealed(store, "a", "b")
        await pack(store, ["a"], tmp_path / "old.zip")
        await append(store, "a", records(2, first=10))
        await seal(store, signing_key(), now=2 * 10**18)
        await pack(store, ["a"], tmp_path / "new.zip")
        log = [entry async for chunk in store.sealed_heads() for entry in chunk]
    assert 5 == check(tmp_path / "new.zip", KEY).sealed_events
    prover = Prover(range(len(log)))
    for entry in log:
        prover.add(leaf_of(entry))
    prover.finish()
    paths = {place: [each.hex() for each in path] for place, path in prover.paths.items()}
    old, new = (members_of(tmp_path / name) for name in ("old.zip", "new.zip"))
    then, now = (json.loads(members["seals.json"]) for members in (old, new))
    (place,) = (each.place - 1 for each in log if each.run == "a" and each.seq == 3)
    of_the_log = {**then["runs"][0], "index": place, "path": paths[place]}
    forged = {
        "an older seal's last entry": {**then, "seal": now["seal"], "newest": {**then["newest"], "path": paths[2]}},
        "its entry in the log": {**now, "runs": [of_the_log]},
        "its entry then": {**now, "runs": then["runs"]},
    }  # fmt: skip
    for document in forged.values():
        members = listed({**old, "seals.json": json.dumps(document).encode()})
        with pytest.raises(DamagedBundle, match=r"does not follow from (its|their) proof"):
            check(zipped(tmp_path / "forged.zip", members), KEY)


async def test_a_newer_bundle(bundle: Path, tmp_path: Path) -> None:
    """Another version is no damage: it cannot be judged here."""
    newer = edit("manifest.json", lambda m: m.update(format="refold bundle v3"))
    with pytest.raises(CannotJudge, match="take a newer one"):
        check(zipped(tmp_path / "newer.zip", newer(members_of(bundle))))


# --- zips that play games


def patched(at: Callable[[bytes], int], *new: int) -> Callable[[bytes], bytes]:
    """A zip with other bytes at a place."""
    return lambda data: data[: at(data)] + bytes(new) + data[at(data) + len(new) :]


def central(data: bytes, number: int = 0) -> int:
    """Where the directory's entry of a member begins."""
    place = -1
    for _ in range(number + 1):
        place = data.index(b"PK\1\2", place + 1)
    return place


def two_ends(data: bytes) -> bytes:
    return data + data[-22:]


def other_ratio(data: bytes) -> bytes:
    """The third member says everywhere that it unpacks to one byte more than it does."""
    place = central(data, 2)
    size = struct.unpack("<L", data[place + 24 : place + 28])[0]
    local = struct.unpack("<L", data[place + 42 : place + 46])[0]
    new = struct.pack("<L", size + 1)
    data = data[: place + 24] + new + data[place + 28 :]
    return data[: local + 22] + new + data[local + 26 :]


def something_between(data: bytes) -> bytes:
    """Bytes between the first member and the second, with every offset as it must be then."""
    second = struct.unpack("<L", data[central(data, 1) + 42 : central(data, 1) + 46])[0]
    junk, count = b"something else", data.count(b"PK\1\2")
    for number in range(1, count):
        place = central(data, number) + 42
        offset = struct.unpack("<L", data[place : place + 4])[0]
        data = data[:place] + struct.pack("<L", offset + len(junk)) + data[place + 4 :]
    start = struct.unpack("<L", data[-6:-2])[0]
    data = data[:-6] + struct.pack("<L", start + len(junk)) + data[-2:]
    return data[:second] + junk + data[second:]


GAMES = [
    ("something between members", something_between),
    ("cut off", lambda data: data[:-1]),
    ("cut in half", lambda data: data[: len(data) // 2]),
    ("trailing byte", lambda data: data + b"\0"),
    ("two ends", two_ends),
    ("a comment", patched(lambda data: len(data) - 2, 1, 0)),
    ("zip64 sizes", patched(lambda data: central(data) + 20, *[255] * 8)),
    ("zip64 end", patched(lambda data: len(data) - 14, 255, 255, 255, 255)),
    ("fewer members", patched(lambda data: len(data) - 14, 5, 0, 5, 0)),
    ("more members", patched(lambda data: len(data) - 14, 7, 0, 7, 0)),
    ("encrypted", patched(lambda data: central(data) + 8, 1)),
    ("streamed", patched(lambda data: central(data) + 8, 8)),
    ("another method", patched(lambda data: central(data) + 10, 12)),
    ("a symlink", patched(lambda data: central(data) + 41, 0xA1)),
    ("a device", patched(lambda data: central(data) + 41, 0x61)),
    ("a folder", patched(lambda data: central(data) + 38, 0x10)),
    ("another offset", patched(lambda data: central(data, 1) + 42, 0, 0)),
    ("another name in front", patched(lambda data: 30, 88)),
    ("another CRC", patched(lambda data: central(data, 2) + 16, 0, 0, 0, 0)),
    ("another CRC in front", patched(lambda data: 14, 0, 0, 0, 0)),
    ("declared a byte longer", other_ratio),
]  # fmt: skip


@pytest.mark.parametrize("game", [pytest.param(game, id=what) for what, game in GAMES])
async def test_a_zip_that_plays_games(game: Callable[[bytes], bytes], bundle: Path, tmp_path: Path) -> None:
    """Whatever another program might read otherwise is no bundle of ours."""
    path = tmp_path / "changed.zip"
    path.write_bytes(game(bundle.read_bytes()))
    with pytest.raises(DamagedBundle):
        check(path, KEY)


async def test_a_member_twice(bundle: Path, tmp_path: Path) -> None:
    """A name that is there twice is refused, whatever stands under it."""
    path = zipped(tmp_path / "changed.zip", members_of(bundle))
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as file:
        file.writestr("runs/000001.jsonl", b"x")
    with pytest.raises(DamagedBundle, match="doubled"):
        check(path)


def deflated(size: int) -> tuple[bytes, int]:
    """So many zeros as a deflate stream, and their CRC."""
    compress, zeros, crc, packed = zlib.compressobj(9, zlib.DEFLATED, -15), bytes(2**20), 0, b""
    for start in range(0, size, 2**20):
        piece = zeros[: size - start]
        crc, packed = zlib.crc32(piece, crc), packed + compress.compress(piece)
    return packed + compress.flush(), crc


def handmade(members: Members, name: str, packed: bytes, crc: int, size: int) -> bytes:
    """A bundle in which a member's bytes, as they are packed, and what is said of them are given by hand."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for each, data in members.items():
            file.writestr(zipfile.ZipInfo(each), packed if each == name else data)
    data = buffer.getvalue()
    place = central(data, [*members].index(name))
    local = struct.unpack("<L", data[place + 42 : place + 46])[0]
    fields = struct.pack("<LLL", crc, len(packed), size)
    for method, at in ((place + 10, place + 16), (local + 8, local + 14)):
        data = data[:method] + b"\x08\0" + data[method + 2 : at] + fields + data[at + 12 :]
    return data


def deflate(data: bytes) -> bytes:
    compress = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compress.compress(data) + compress.flush()


@pytest.mark.parametrize(
    ("pack", "problem"),
    [
        pytest.param(deflate, None, id="as it should be"),
        pytest.param(lambda data: deflate(data) + b"hidden", "stands after its end", id="something behind"),
        pytest.param(lambda data: deflate(data)[:-3], "cut off", id="cut off"),
        pytest.param(lambda data: b"\xff" * 30, "cannot be unpacked", id="no deflate stream"),
        pytest.param(lambda data: deflate(data + b"x"), "does not unpack to the", id="more than declared"),
        pytest.param(lambda data: b"", "cut off", id="nothing"),
    ],
)
async def test_a_member_that_unpacks_otherwise(
    pack: Callable[[bytes], bytes], problem: str | None, bundle: Path, tmp_path: Path
) -> None:
    """A deflate stream ends where its member ends, and gives as many bytes as were declared."""
    members, name, path = members_of(bundle), "runs/000002.jsonl", tmp_path / "made.zip"
    data = members[name]
    path.write_bytes(handmade(members, name, pack(data), zlib.crc32(data), len(data)))
    if problem is None:
        check(path)
        return
    with pytest.raises(DamagedBundle, match=problem):
        check(path)


async def test_a_wrong_checksum(bundle: Path, tmp_path: Path) -> None:
    """A member whose CRC is not its own would be refused by other programs; it is refused here, the manifest too."""
    members, path = members_of(bundle), tmp_path / "made.zip"
    for name, data in members.items():
        path.write_bytes(handmade(members, name, deflate(data), zlib.crc32(data) ^ 1, len(data)))
        with pytest.raises(DamagedBundle, match="does not unpack to the"):
            check(path)


def test_nothing_is_unpacked_beyond_what_is_declared() -> None:
    """A member that declares ten bytes and unpacks to 64 MB is left with its first piece."""
    packed, crc = deflated(2**26)
    member = reader.ZipMember("verify.py", 0, len(packed), 10, crc, deflated=True)
    file, read = io.BytesIO(packed), list[int]()
    with pytest.raises(reader.BundleChanged):
        read += [len(piece) for piece in reader.pieces(file, member)]
    assert [] == read
    assert file.tell() == len(packed) < reader.PIECE  # one piece of packed bytes was read, and not unpacked


@pytest.mark.parametrize("declared", ["as it is", "as small"])
async def test_a_bomb(declared: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that unpacks to 64 MB is left at the longest line that there may be, or at the size that it declares."""
    monkeypatch.setattr(reader, "MOST_LINE", 2**22)
    size, members, path = 2**26, members_of(bundle), tmp_path / "bomb.zip"
    packed, crc = deflated(size)
    assert len(packed) < 2**19
    name = "runs/000001.jsonl"
    if declared == "as small":
        data = handmade({**members, name: bytes(2**12)}, name, packed, crc, len(members[name]))
    else:
        manifest = json.loads(members["manifest.json"])
        manifest["members"][2]["size"] = size
        data = handmade({**members, "manifest.json": json.dumps(manifest).encode()}, name, packed, crc, size)
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedBundle):
            check(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * 2**22


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("runs/000001.jsonl", b'{"seq":[' + b"[]," * 2**20 + b"[]]}\n", id="a line of lists"),
        pytest.param(
            "runs/000001.jsonl", b'{"seq":{' + b'"":{},' * 2**19 + b'"":0}}\n', id="a line of names"
        ),
        pytest.param("seals.json", b"[" + b"{}," * 2**20 + b"{}]", id="a seal of objects"),
        pytest.param("seals.json", b"[" + b"[]," * 2**20 + b"[]]", id="a seal of lists"),
        pytest.param("manifest.json", b"[" + b"0," * 2**20 + b"0]", id="a manifest of numbers"),
        pytest.param("notice", b'{"seqs":[' + b"[]," * 2**20 + b"[]]}", id="a notice of lists"),
    ],
)
async def test_what_would_grow(name: str, data: bytes, bundle: Path, tmp_path: Path) -> None:
    """Few bytes of JSON become many in memory where they nest; no member takes more than a few times its own size."""
    path = tmp_path / "grown.zip"
    if name != "notice":
        zipped(path, listed({**members_of(bundle), name: data}) | ({name: data} if name[0] == "m" else {}))
    tracemalloc.start()
    try:
        if name == "notice":
            reader.Bare().take(1, "content_erased", data, bare=False)
        else:
            with pytest.raises(DamagedBundle, match="is not what was packed"):
                check(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(data) + 2**20


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
        with pytest.raises(WorldFailed, match="No space left"):
            anyio.run(packed_into, room)
        gc.collect()
    assert [] == list(tmp_path.iterdir())


async def test_too_much_in_all(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes that a zip declares are added up before anything is unpacked."""
    monkeypatch.setattr(reader, "MOST_IN_ALL", 1000)
    with pytest.raises(DamagedBundle, match="unpacks to more than a bundle may"):
        check(bundle)


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


# --- what is no bundle at all


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
        with pytest.raises(NotABundle, match="no such file"):
            check(path)
        assert not is_bundle(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return anyio.run(packed, tmp_path_factory.mktemp("whole")).read_bytes()


@settings(max_examples=scaled(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_byte_changed(whole: bytes, tmp_path: Path, data: st.DataObject) -> None:
    """Whatever bytes are changed, taken or put in, the answer is that it is whole, or an error of ours."""
    place = data.draw(st.integers(0, len(whole)))
    taken = data.draw(st.integers(0, 4))
    path = tmp_path / "changed.zip"
    path.write_bytes(whole[:place] + data.draw(st.binary(max_size=4)) + whole[place + taken :])
    try:
        check(path, KEY)
    except RefoldError:
        return
    # What may differ unseen: bytes that nobody reads, such as a member's time.
    with zipfile.ZipFile(path) as file, zipfile.ZipFile(io.BytesIO(whole)) as before:
        assert {name: before.read(name) for name in before.namelist()} == {
            n: file.read(n) for n in file.namelist()
        }


def test_a_stored_event_is_whole(whole: bytes, tmp_path: Path) -> None:
    """The chain of a store and that of a bundle are one: an event of the one checks in the other."""
    from refold.store.bundles import stored_of
    from refold.store.chain import GENESIS
    from refold.store.chain import check as check_event
    from refold.store.protocol import Head

    path = tmp_path / "b.zip"
    path.write_bytes(whole)
    with reading(path) as opened:
        for run in opened.runs:
            head = Head(seq=0, hash=GENESIS)
            for each in opened.lines(run):
                stored: Stored = stored_of(run, each)
                assert check_event(stored, head) is None
                head = Head(seq=stored.seq, hash=stored.hash)
