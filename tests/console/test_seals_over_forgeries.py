"""A seal vouches for what stands before it: `seal` signs nothing on top of what somebody forged or
damaged.
"""

import json
from pathlib import Path

import anyio
import pytest

from console.conftest import Refold, record
from refold.engine import say
from refold.store import SqliteStore
from refold.store.seals import seal
from support.bundles import listed, members_of, zipped
from support.edited import edited
from support.sealing import signing_key


@pytest.fixture
def key(refold: Refold, tmp_path: Path) -> Path:
    assert 0 == refold("keygen", tmp_path / "k").code
    return tmp_path / "k"


@pytest.fixture
def twice(refold: Refold, store: Path, key: Path) -> Path:
    """A store that was sealed twice, and has gone on."""
    for run in ("aa11", "bb22"):
        record(store, [say("Done.")], run_id=run)
        assert 0 == refold("seal", "--key", key, "--store", store).code
    record(store, [say("Done.")], run_id="cc33")
    return store


def by_a_stranger(store: Path) -> None:
    """All that was sealed, sealed anew by somebody with a key of their own."""
    edited(store, "DELETE FROM seal", "DELETE FROM sealed_head")

    async def sign() -> None:
        async with await SqliteStore.open(store) as opened:
            await seal(opened, signing_key(9), now=10**18)

    anyio.run(sign)


EDITS = {
    "the root of the first": ("UPDATE seal SET root = zeroblob(32) WHERE number = 1", "the first 2 entries differ from those"),
    "the size of the first": ("UPDATE seal SET size = 1 WHERE number = 1", "the first 1 entries differ from those"),
    "the first grown": ("UPDATE seal SET size = 99 WHERE number = 1", "does not match the entries"),
    "the root of the last": ("UPDATE seal SET root = zeroblob(32) WHERE number = 2", "the first 4 entries differ from those"),
    "the time of the first": ("UPDATE seal SET at = at - 1 WHERE number = 1", "seal 2 has an invalid signature for its key"),
    "the key of the first": ("UPDATE seal SET key = zeroblob(32) WHERE number = 1", "seal 2 has an invalid signature"),
    "the time of the last": ("UPDATE seal SET at = at + 1 WHERE number = 2", "seal 4 has an invalid signature for its key"),
    "the signature of the last": ("UPDATE seal SET signature = zeroblob(64) WHERE number = 2", "seal 4 has an invalid signature"),
    "the key of the last": ("UPDATE seal SET key = zeroblob(32) WHERE number = 2", "seal 4 has an invalid signature"),
    "the last removed": ("DELETE FROM seal WHERE number = 2", "it has 4 entries, but the last seal covers 2"),
    "an entry of the first": ("UPDATE sealed_head SET seq = 1 WHERE place = 1", "the first 2 entries differ from those"),
    "an entry of the last removed": ("DELETE FROM sealed_head WHERE place = 4", "it has 3 entries, but the last seal covers 4"),
    "an event that belongs to nobody": ("UPDATE event SET key = (99 << 32) + 4 WHERE key >> 32 = 3 AND key & 4294967295 = 4", "belongs to no run"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_what_was_edited_is_not_sealed_on(edit: str, refold: Refold, twice: Path, key: Path) -> None:
    """Whatever somebody changed in the seals, or in what they cover, the next one is refused with exit code
    3.
    """
    statement, problem = EDITS[edit]
    edited(twice, statement)
    ran = refold("seal", "--key", key, "--store", twice)
    assert (3, "") == (ran.code, ran.out)
    assert problem in ran.err


def test_a_strangers_seal_is_not_sealed_on(refold: Refold, twice: Path, key: Path) -> None:
    """A log of heads that somebody wrote anew, and signed with a key of their own, does not get our
    signature.
    """
    by_a_stranger(twice)
    record(twice, [say("Done.")], run_id="dd44")
    ran = refold("seal", "--key", key, "--store", twice)
    assert (3, "") == (ran.code, ran.out)
    assert "signed by another key" in ran.err


def test_keys_may_change(refold: Refold, twice: Path, tmp_path: Path, key: Path) -> None:
    """A new key signs on where the old one's public half is named, and both hold the store together."""
    refold("keygen", tmp_path / "new")
    words = ["seal", "--key", tmp_path / "new", "--store", twice]
    assert 3 == refold(*words).code
    assert 0 == refold(*words, "--last-key", f"{key}.pub").code
    assert 0 == refold(*words).code
    both = ["--key", f"{key}.pub", "--key", tmp_path / "new.pub"]
    assert 0 == refold("verify", "--all", *both, "--store", twice).code


def test_all_sealed(refold: Refold, twice: Path, key: Path, tmp_path: Path) -> None:
    """`--all-sealed` is 125 as long as an event of what was asked about is under no seal: of a store, of a
    bundle.
    """
    public, file = f"{key}.pub", tmp_path / "b.zip"
    words = ["--all-sealed", "--key", public, "--store", twice]
    assert 0 == refold("verify", "aa11", "bb22", *words).code
    ran = refold("verify", "--all", *words)
    assert (125, True) == (ran.code, "uncovered" in ran.out)
    assert 125 == refold("verify", "cc33", *words).code
    said = {
        ("aa11",): "sealed    1 of 1",
        ("aa11", "cc33"): "uncovered  run cc33: events 1",
        ("cc33",): "covers none of its runs",
    }
    for runs, told in said.items():
        assert 0 == refold("pack", *runs, "--out", file, "--store", twice).code
        ran = refold("verify", file, "--all-sealed", "--key", public)
        assert (0 if runs == ("aa11",) else 125, True) == (
            ran.code,
            " ".join(told.split()) in " ".join(ran.out.split()),
        ), ran.out
        file.unlink()
    assert 0 == refold("seal", "--key", key, "--store", twice).code
    assert 0 == refold("verify", "--all", *words).code
    ran = refold("verify", "--all", "-o", "json", *words)
    assert [] == json.loads(ran.out.splitlines()[-1])["not_sealed"]


def test_all_sealed_needs_something_to_hold_it_against(refold: Refold, twice: Path) -> None:
    """Without a key or a line no seal is believed, so there is nothing that `--all-sealed` could ask: exit
    code 2.
    """
    ran = refold("verify", "--all", "--all-sealed", "--store", twice)
    assert (2, "") == (ran.code, ran.out)


def test_a_bare_word_is_a_run(
    refold: Refold, twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a run's name in the folder where somebody stands does not pass for the run: an agent may have
    put it there.
    """
    folder = tmp_path / "here"
    folder.mkdir()
    assert 0 == refold("pack", "aa11", "--out", folder / "b.zip", "--store", twice).code
    (folder / "b.zip").rename(folder / "aa11")
    edited(
        twice, "UPDATE event SET body = replace(body, 'COMPLETED', 'CANCELLED') WHERE kind = 'state_changed'"
    )
    monkeypatch.chdir(folder)
    for command in ("verify", "audit"):
        assert 3 == refold(command, "aa11", "--store", twice).code
        assert 0 == refold(command, "./aa11", "--store", twice).code


def test_a_forged_verifier(refold: Refold, twice: Path, key: Path, tmp_path: Path) -> None:
    """A bundle whose verify.py is none of refold's is not called whole: 125, and a word that nobody should
    run it.
    """
    file, forged = tmp_path / "b.zip", tmp_path / "forged.zip"
    assert 0 == refold("pack", "aa11", "--out", file, "--store", twice).code
    ran = refold("verify", file, "--key", f"{key}.pub")
    assert (0, True) == (ran.code, "identical to this version's" in ran.out)
    edited = {**members_of(file), "verify.py": b"print('whole')\n"}
    zipped(forged, listed(edited))
    ran = refold("verify", forged, "--key", f"{key}.pub")
    assert (125, True) == (ran.code, "do not run it" in ran.out)
    ran = refold("verify", forged, "--key", f"{key}.pub", "-o", "json")
    assert (125, True) == (ran.code, "do not run it" in json.loads(ran.out)["verifier"])


@pytest.mark.parametrize("name", ["verify.py", "README.txt"])
def test_a_bundle_without_its_verifier(name: str, refold: Refold, twice: Path, tmp_path: Path) -> None:
    """A member that every bundle has is missing: exit code 3."""
    file, cut = tmp_path / "b.zip", tmp_path / "cut.zip"
    assert 0 == refold("pack", "aa11", "--out", file, "--store", twice).code
    zipped(cut, listed({member: data for member, data in members_of(file).items() if member != name}))
    ran = refold("verify", cut)
    assert (3, True) == (ran.code, f"{name} is missing" in ran.out), ran.err


def test_one_bit_hides_no_sealed_event(refold: Refold, twice: Path, key: Path) -> None:
    """A row's number out of order hid what came after it: `verify` under key and seal says so, and nobody
    signs on.
    """
    line = refold("seal", "--key", key, "--store", twice).out.strip()
    data = twice.read_bytes()
    number = bytes.fromhex("9080808003")  # event 3 of the first run
    assert 1 == data.count(number)
    twice.write_bytes(data.replace(number, bytes.fromhex("d080808003")))
    for words in (["verify", "aa11"], ["verify", "--all"]):
        ran = refold(*words, "--key", f"{key}.pub", "--seal", line, "--store", twice)
        said = ran.out + ran.err
        assert (3, True) == (ran.code, "cannot be read" in said or "events may be hidden" in said), said
    commands = ("show aa11", "audit aa11", "ls", f"seal --key {key}", "whatif aa11 --policy hermes")
    for command in commands:
        assert 3 == refold(*command.split(), "--store", twice).code, command
