"""Bundles whose members somebody changed, with care or without: each change is found."""
# ruff: noqa: ASYNC240 - the files are small

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.reducers.errors import Damaged, Inconclusive, RefoldError
from refold.store import MemoryStore
from refold.store import verify_bundle as reader
from refold.store.bundles import DamagedBundle, UnjudgedBundle
from refold.store.packer import pack
from refold.store.seals import Prover, leaf_of, seal
from refold.store.unpacking import unpack
from refold.store.verify_bundle import unproved
from support.bundles import KEY, Members, check, listed, members_of, zipped
from support.sealing import append, records, sealed, signing_key
from support.strategies import scaled

pytestmark = pytest.mark.anyio


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
    assert "not part of a bundle" in found["added: rootkit"]
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
        made = reader._parse_line(compact(each)[:-1])  # pyright: ignore[reportPrivateUsage]
        previous = reader.hash_event("a", previous, made)
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
    ("event changed", line(2, lambda e: e.update(body="{}")), "run a event 2: its hash does not match"),
    ("content changed", line(4, lambda e: e.update(content='"x"')), "its payload, salt or digest was changed"),
    ("salt changed", line(4, lambda e: e.update(salt="00")), "its payload, salt or digest was changed"),
    ("content taken", line(4, lambda e: e.update(content=None)), "a salt but no payload"),
    ("content and salt taken", line(4, lambda e: e.update(content=None, salt="")), "run a event 4: its payload is missing"),
    ("digest taken", line(4, lambda e: e.update(content=None, salt="", digest=None)), "its hash does not match"),
    ("content given back", line(2, lambda e: e.update(content="x", salt="")), "its payload, salt or digest"),
    ("time changed", line(1, lambda e: e.update(at=5)), "event 1: its hash does not match"),
    ("kind changed", line(1, lambda e: e.update(kind="x")), "event 1: its hash does not match"),
    ("event missing", without_line(2), "event 3: expected event 2 here"),
    ("tail cut off", without_line(6), "its end at event 5"),
    ("all cut off", raw("runs/000001.jsonl", b""), "its end at event 0"),
    ("chain recomputed", recomputed, "run a event 4: its hash differs from the sealed one"),
    ("number as text", line(1, lambda e: e.update(seq="1")), "line 1 is invalid"),
    ("number as truth", line(1, lambda e: e.update(seq=True)), "line 1 is invalid"),
    ("number too large", line(1, lambda e: e.update(at=2**63)), "line 1 is invalid"),
    ("field missing", line(1, lambda e: e.pop("salt")), "expected an object with seq at kind"),
    ("field added", line(1, lambda e: e.update(x=1)), "unexpected text after"),
    ("fields in another order", line(1, lambda e: e.update(seq=e.pop("seq"))), "in this order"),
    ("a list for a text", line(1, lambda e: e.update(body=[])), "expected an object with seq at kind"),
    ("an object for a number", line(1, lambda e: e.update(at={})), "expected an object with seq at kind"),
    ("half a character", line(1, lambda e: e.update(body="\ud800")), "line 1 is invalid"),
    ("NUL", line(1, lambda e: e.update(body="\0")), "line 1 is invalid"),
    ("upper-case hash", line(1, lambda e: e.update(hash=e["hash"].upper())), "lower-case"),
    ("a list", raw("runs/000001.jsonl", b"[]\n"), "line 1 is invalid"),
    ("no UTF-8", raw("runs/000001.jsonl", b'{"seq":"\xff"}\n'), "line 1 is invalid"),
    ("deep JSON", raw("runs/000001.jsonl", b"[" * 100_000 + b"\n"), "line 1 is invalid"),
    ("a name twice", raw("runs/000001.jsonl", b'{"seq":1,"seq":1}\n'), "expected an object with seq at kind"),
    ("a name twice in the seals", raw("seals.json", b'{"seal":0,"seal":0}'), "duplicate name"),
    ("long number", raw("runs/000001.jsonl", b'{"seq":' + b"1" * 10**6 + b"\n"), "is not an integer"),
    ("fraction", raw("runs/000001.jsonl", b'{"seq":1.0\n'), "is not an integer"),
    ("no number", raw("runs/000001.jsonl", b'{"seq":NaN\n'), "is not an integer"),
    ("no line end", raw("runs/000001.jsonl", b"{}"), "an unterminated line"),
    ("two heads", edit("manifest.json", lambda m: m["runs"][0].update(head="00" * 32)), "differs from the manifest"),
    ("one run twice", edit("manifest.json", lambda m: m["runs"].__setitem__(1, m["runs"][0])), "one file each"),
    ("a run of no file", edit("manifest.json", lambda m: m["runs"][0].update(member="verify.py")), "one file each"),
    ("run id of two lines", edit("manifest.json", lambda m: m["runs"][0].update(run="a\nb")), "one non-empty line of text"),
    ("manifest is a list", raw("manifest.json", b"[]"), "manifest.json is invalid"),
    ("deep manifest", raw("manifest.json", b"[" * 100_000), "manifest.json is invalid"),
    ("another root", edit("seals.json", lambda s: s["seal"].update(root="00" * 32)), "has an invalid signature"),
    ("another size", edit("seals.json", lambda s: s["seal"].update(size=9)), "has an invalid signature"),
    ("another time", edit("seals.json", lambda s: s["seal"].update(at=1)), "has an invalid signature"),
    ("another key", edit("seals.json", lambda s: s["seal"].update(key=KEY[::-1].hex())), "has an invalid signature"),
    ("another's seal", resealed, "signed checkpoint is by key"),
    ("another path", edit("seals.json", lambda s: s["runs"][0].update(path=[])), "is the last sealed one is invalid"),
    ("another place", edit("seals.json", lambda s: s["runs"][0].update(index=1)), "is the last sealed one is invalid"),
    ("a place beyond", edit("seals.json", lambda s: s["runs"][0].update(index=2)), "is the last sealed one is invalid"),
    ("fewer runs", edit("seals.json", lambda s: s["newest"].update(runs=1)), "covers the newest entries is invalid"),
    ("another root of runs", edit("seals.json", lambda s: s["newest"].update(root="00" * 32)), "covers the newest entries is invalid"),
    ("another way to the root", edit("seals.json", lambda s: s["newest"].update(path=[])), "covers the newest entries is invalid"),
    ("another sealed event", edit("seals.json", lambda s: s["runs"][0].update(seq=5)), "is the last sealed one is invalid"),
    ("a seal beyond the end", edit("seals.json", lambda s: s["runs"][0].update(seq=50)), "event 50 was sealed"),
    ("a run not there", edit("seals.json", lambda s: s["runs"][0].update(run="x")), "run x: event 4 was sealed"),
    ("a proof twice", edit("seals.json", lambda s: s["runs"].append(s["runs"][0])), "duplicate name"),
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
    """Without a seal there is nothing to hold against a key; without a key it is said that nothing is
    sealed.
    """
    path = zipped(tmp_path / "changed.zip", listed(unsealed(members_of(bundle))))
    with pytest.raises(UnjudgedBundle, match="has no signed checkpoint"):
        check(path, KEY)
    assert "the bundle has no signed checkpoint" in unproved(check(path))[0]


async def test_a_seal_of_others_only(bundle: Path, tmp_path: Path) -> None:
    """A genuine seal beside runs that it does not cover is nothing that a key could be held against."""
    bare = edit("seals.json", lambda s: s["runs"].clear())
    path = zipped(tmp_path / "changed.zip", listed(bare(recomputed(members_of(bundle)))))
    with pytest.raises(UnjudgedBundle, match="covers none of its runs"):
        check(path, KEY)
    assert "that runs without a signed checkpoint are intact (2)" in unproved(check(path))


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
        with pytest.raises(DamagedBundle, match=r"the proof that"):
            check(zipped(tmp_path / "forged.zip", members), KEY)


async def test_a_newer_bundle(bundle: Path, tmp_path: Path) -> None:
    """Another version is no damage: it cannot be judged here."""
    newer = edit("manifest.json", lambda m: m.update(format="refold bundle v3"))
    with pytest.raises(Inconclusive, match="use a newer verifier"):
        check(zipped(tmp_path / "newer.zip", newer(members_of(bundle))))


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
