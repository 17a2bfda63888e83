"""`refold seal` and `refold keygen`: the heads of all runs, signed."""

import time
from pathlib import Path
from typing import Annotated

import msgspec

from refold.console.options import argument, option
from refold.console.places import StorePlace, changing
from refold.console.screen import Screen, note
from refold.reducers.errors import Damaged
from refold.replay import figures
from refold.store import files, seals
from refold.store.verify_bundle import key_id


class SealReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What `seal` did, as JSON. `line` is to be kept; `at` is nanoseconds since the epoch, `key` the public key's id."""

    line: str
    at: int
    key: str
    added: int
    runs: int
    broken: tuple[seals.BrokenRun, ...]


async def seal_command(
    screen: Screen,
    place: StorePlace,
    *,
    key: Annotated[Path, option("--key", "Private Ed25519 key in PEM.")],
    seal: Annotated[list[str], option("--seal", "A line printed before: sign only what begins with it.")],
    last_key: Annotated[
        list[Path], option("--last-key", "Public key of the last seal, after a change of keys.")
    ],
) -> int:
    """Sign the heads of all runs of the store, and print a line to keep where its writer cannot reach."""
    signing, kept = files.read_signing_key(key), [*map(seals.kept, seal)]
    before = [*map(files.read_public_key, last_key)]
    async with changing(place) as store:
        done = await seals.seal(store, signing, time.time_ns(), kept, before)
    line = seals.Kept(done.seal.size, done.seal.root).line
    id_ = key_id(done.seal.key)
    sealed = SealReceipt(
        line=line, at=done.seal.at, key=id_, added=done.added, runs=done.runs, broken=done.broken
    )
    screen.result(sealed, lambda: _tell_sealed(screen, sealed))
    for each in done.broken:
        note(f"NOT sealed: run {each.run} event {each.seq} was sealed with {each.hash}, and {each.problem}")
    return Damaged.exit_code if done.broken else 0


def _tell_sealed(screen: Screen, sealed: SealReceipt) -> None:
    screen.say(sealed.line)
    named = f"key {sealed.key}, {figures.clock(sealed.at)}"
    note(f"{figures.count(sealed.added)} new heads of {figures.counted(sealed.runs, 'run')}; {named}")


def keygen_command(
    screen: Screen,
    file: Annotated[Path, argument("Where to write the private key; the public one goes to FILE.pub.")],
) -> int:
    """Make an Ed25519 key to sign with. No file is ever written over."""
    key = key_id(files.make_key(file))
    rows = [
        ("private", f"{file}: to seal with; keep it where the agents cannot read it"),
        ("public", f"{files.public_path(file)}: to verify with; give it to your auditors"),
        ("key", key),
    ]
    made = {"private": str(file), "public": str(files.public_path(file)), "key": key}
    screen.result(made, lambda: screen.pairs(rows))
    return 0
