"""Sealing: what goes into the log of heads, what is signed, and what is refused."""

import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from refold.reducers.errors import WrongUse
from refold.store import MemoryStore
from refold.store.files import BadKey, make_key, public_path, read_public_key, read_signing_key
from refold.store.protocol import Head, Seal, SealedElsewhere, SealedHead
from refold.store.seals import DamagedSeals, Kept, is_signed, last_seal, leaf_of, parse_kept_line, seal
from refold.store.verify_bundle import node_hash, seal_message
from support.sealing import append, records, sealed, signing_key

pytestmark = pytest.mark.anyio


async def entries(store: MemoryStore) -> list[SealedHead]:
    return [entry async for chunk in store.sealed_heads() for entry in chunk]


async def seals(store: MemoryStore) -> list[Seal]:
    return [each async for chunk in store.seals() for each in chunk]


async def test_the_heads_of_all_runs_are_sealed() -> None:
    """Each run's head becomes an entry, and all of them one more; root and signature are those of the
    documented bytes.
    """
    async with MemoryStore() as store:
        done = await sealed(store, "a", "b")
        heads = {run: head async for chunk in store.runs() for run, head in chunk}
        log = await entries(store)
    assert {(run, head.seq, head.hash) for run, head in heads.items()} == {
        (e.run, e.seq, e.hash) for e in log[:2]
    }
    assert [1, 2, 3] == [entry.place for entry in log]
    leaves = dict(zip([entry.run for entry in log], map(leaf_of, log), strict=True))
    assert ("*", 2, node_hash(leaves["a"], leaves["b"])) == (log[2].run, log[2].seq, log[2].hash)
    first, second, last = leaves.values()
    assert node_hash(node_hash(first, second), last) == done.seal.root
    assert (3, 10**18, signing_key().public) == (done.seal.size, done.seal.at, done.seal.key)
    message = b"14:refold seal v1" + b"1:3" + b"19:1000000000000000000" + b"32:" + done.seal.root
    assert seal_message(3, 10**18, done.seal.root) == message
    assert signing_key().sign(message) == done.seal.signature
    assert (2, 2, ()) == (done.added, done.runs, done.broken)


async def test_only_what_is_new_is_added() -> None:
    """A head that was sealed last is not sealed again, and where nothing is new nothing is signed."""
    async with MemoryStore() as store:
        first = await sealed(store, "a", "b")
        again = await sealed(store)
        await append(store, "b", records(2))
        third = await sealed(store)
        log, signed = await entries(store), await seals(store)
        newest = {entry.run: entry for entry in log}
    assert ["b", "a", "*", "b", "*"] == [entry.run for entry in log]
    assert (2, node_hash(leaf_of(newest["a"]), leaf_of(newest["b"]))) == (log[4].seq, log[4].hash)
    assert [first.seal, third.seal] == signed
    assert (first.seal, 0) == (again.seal, again.added)
    assert (5, 1) == (third.seal.size, third.added)


async def test_another_key_signs_anew() -> None:
    """A new key signs the same entries once, if the one before is named."""
    async with MemoryStore() as store:
        first = await sealed(store, "a")
        with pytest.raises(DamagedSeals, match="signed by another key"):
            await sealed(store, key=signing_key(2))
        second = await seal(store, signing_key(2), 10**18, before=[signing_key().public])
        await sealed(store, key=signing_key(2))
        assert [first.seal, second.seal] == await seals(store)
    assert (2, signing_key(2).public, True) == (second.seal.size, second.seal.key, is_signed(second.seal))


async def test_a_seal_is_never_older_than_the_one_before() -> None:
    """A clock that was set back does not put seals out of order."""
    async with MemoryStore() as store:
        await sealed(store, "a")
        await append(store, "a", records(1))
        assert 10**18 == (await seal(store, signing_key(), now=5)).seal.at


async def test_a_store_without_runs() -> None:
    """There is nothing to seal in it."""
    async with MemoryStore() as store:
        with pytest.raises(WrongUse, match="nothing to seal"):
            await seal(store, signing_key(), now=1)
        assert await last_seal(store) is None


class Rewritten(MemoryStore):
    """A store whose file somebody else can write: `hide` a run, `cut` it, or give it another past."""

    def __init__(self, run: str, edit: str) -> None:
        super().__init__()
        self.run, self.edit = run, edit

    def act(self) -> None:
        log = self._tables.logs[self.run]
        match self.edit:
            case "deleted":
                del self._tables.logs[self.run]
            case "cut":
                del log[1:]
            case _:
                del log[:]


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        pytest.param("deleted", "the store has no such run", id="deleted"),
        pytest.param("cut", "its log ends at event 1", id="cut off"),
        pytest.param("recomputed", "the event has the hash", id="the whole chain recomputed"),
    ],
)
async def test_a_run_that_lost_what_was_sealed_is_left_out(edit: str, problem: str) -> None:
    """No new seal makes an edited run good: it is named, and the others are sealed."""
    async with Rewritten("a", edit) as store:
        await sealed(store, "a", "b")
        store.act()
        if edit == "recomputed":
            await append(store, "a", records(4, first=7))
        await append(store, "b", records(1))
        done = await sealed(store)
        assert ["b", "*"] == [entry.run for entry in (await entries(store))[3:]]
    assert [("a", 3)] == [(each.run, each.seq) for each in done.broken]
    assert problem in done.broken[0].problem


async def test_the_id_of_the_last_entry_is_no_runs() -> None:
    """A run that has it is not sealed, and named: its head would pass for that entry."""
    async with MemoryStore() as store:
        done = await sealed(store, "a", "*")
        assert ["a", "*"] == [entry.run for entry in await entries(store)]
    assert [("*", 3)] == [(each.run, each.seq) for each in done.broken]


async def test_a_changed_log_of_heads_is_not_gone_on_with() -> None:
    """An entry without a seal, or other entries than were signed, stop it."""

    forged = SealedHead(place=1, run="a", seq=3, hash=bytes(32))

    class Edited(MemoryStore):
        def sealed_heads(self, after: int = 0) -> AsyncIterator[Sequence[SealedHead]]:
            return self.replaced()

        async def replaced(self) -> AsyncIterator[Sequence[SealedHead]]:
            yield [forged]

    async with Edited() as store:
        await append(store, "a", records(3))
        with pytest.raises(DamagedSeals, match="1 entries, but the last seal covers 0"):
            await seal(store, signing_key(), now=1)
        await store.add_seal(
            [forged],
            Seal(size=1, at=1, root=bytes(32), key=signing_key().public, signature=bytes(64)),
        )
        with pytest.raises(DamagedSeals, match="the first 1 entries differ from those that were signed"):
            await seal(store, signing_key(), now=1)


async def test_two_who_seal_at_once() -> None:
    """Who comes second is told so, and nothing of theirs is written."""
    async with MemoryStore() as store:
        done = await sealed(store, "a")
        head = Head(seq=9, hash=bytes(32))
        late = SealedHead(place=2, run="b", seq=head.seq, hash=head.hash)
        with pytest.raises(SealedElsewhere):
            await store.add_seal([late], done.seal)
        assert [done.seal] == await seals(store)


@pytest.mark.parametrize("typed", ["seal 42:", "42:", " seal 42:", "seal 42:\n"])
def test_a_kept_line_is_read(typed: str) -> None:
    """With the word before it or without."""
    root = "0f" * 32
    head, _, tail = typed.partition(":")
    assert Kept(42, bytes.fromhex(root)) == parse_kept_line(f"{head}:{root}{tail}")
    assert f"seal 42:{root}" == parse_kept_line(f"42:{root}").line


@pytest.mark.parametrize(
    "typed", ["", "42", "seal 0:" + "00" * 32, "42:" + "0F" * 32, "42:" + "00" * 31, "x" * 10**6]
)
def test_another_line_is_none(typed: str) -> None:
    """Size and root, whole, or an error that is no longer than it needs to be."""
    with pytest.raises(WrongUse, match="expected what") as caught:
        parse_kept_line(typed)
    assert len(str(caught.value)) < 300


# --- keys


def test_a_key_is_made_and_read(tmp_path: Path) -> None:
    """What `make_key` writes is read again, only its owner may read the private one, and nothing is written
    over.
    """
    path = tmp_path / "k"
    public = make_key(path)
    assert 0o600 == path.stat().st_mode & 0o777
    assert public == read_public_key(public_path(path)) == read_signing_key(path).public
    for lost in (path, public_path(path)):
        lost.unlink()
        with pytest.raises(BadKey, match="never overwritten"):
            make_key(path)
        assert not lost.exists()
        lost.write_text("there again")


def openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def test_keys_of_openssl_are_read(tmp_path: Path) -> None:
    """The key files are those of `openssl`, both ways."""
    private, public = tmp_path / "k", tmp_path / "k.pub"
    try:
        openssl("genpkey", "-algorithm", "ed25519", "-out", private)
    except FileNotFoundError:
        pytest.skip("no openssl")
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    assert read_signing_key(private).public == read_public_key(public)
    made = make_key(tmp_path / "ours")
    openssl("pkey", "-in", tmp_path / "ours", "-pubout", "-out", tmp_path / "theirs.pub")
    assert made == read_public_key(tmp_path / "theirs.pub")


def other_private(kind: str) -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    key = ec.generate_private_key(ec.SECP256R1()) if kind == "ec" else ed25519.Ed25519PrivateKey.generate()
    locked = serialization.BestAvailableEncryption(b"x") if kind == "locked" else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(b"", "not a private key in PEM", id="empty"),
        pytest.param(b"\xff\x00PRIVATE KEY", "not a private key in PEM", id="no PEM"),
        pytest.param("locked", "is encrypted", id="encrypted"),
        pytest.param("ec", "not an Ed25519 key", id="another algorithm"),
        pytest.param("public", "is a public key", id="the public one"),
        pytest.param(None, "cannot be read", id="no file"),
    ],
)
def test_what_cannot_sign(text: bytes | str | None, problem: str, tmp_path: Path) -> None:
    """A file that is no plain Ed25519 key is refused, by name and with the way out."""
    path = tmp_path / "k"
    if text == "public":
        make_key(tmp_path / "other")
        text = public_path(tmp_path / "other").read_bytes()
    if text is not None:
        path.write_bytes(other_private(text) if isinstance(text, str) else text)
    with pytest.raises(BadKey, match=problem) as caught:
        read_signing_key(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(b"", "not a public Ed25519 key", id="empty"),
        pytest.param(
            b"-----BEGIN PUBLIC KEY-----\n!!\n-----END PUBLIC KEY-----",
            "not a public Ed25519 key",
            id="no base64",
        ),
        pytest.param(
            b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "not a public", id="another key"
        ),
        pytest.param("locked", "is a private key", id="the private one"),
        pytest.param(None, "cannot be read", id="no file"),
    ],
)
def test_what_cannot_check(text: bytes | str | None, problem: str, tmp_path: Path) -> None:
    """A file that is not a public Ed25519 key is refused, by name."""
    path = tmp_path / "k.pub"
    if text is not None:
        path.write_bytes(other_private(text) if isinstance(text, str) else text)
    with pytest.raises(BadKey, match=problem):
        read_public_key(path)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who has not installed the extra is told which one."""
    monkeypatch.setattr("refold.store.files.find_spec", lambda name: None)
    for use in (make_key, read_signing_key):
        with pytest.raises(WrongUse, match=r"refold\[seal\]"):
            use(tmp_path / "k")
