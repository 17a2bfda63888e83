"""`refold seal`, `keygen`, `pack` and `unpack`."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from refold.console import addresses, places
from refold.console.options import (
    argument,
    new_file,
    option,
    path_argument,
    path_option,
    paths_option,
    repeated,
)
from refold.console.places import StorePlace
from refold.console.screen import Screen, note
from refold.reducers.errors import Damaged
from refold.replay import figures
from refold.replay.family import family_of
from refold.store import bundles, keys, packer, seals
from refold.store.protocol import Store
from refold.store.verify_bundle import key_id


class SealReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What `seal` did, as JSON. `line` is to be kept; `at` is nanoseconds since the epoch, `key` the public key's id."""

    line: str
    at: int
    key: str
    added: int
    runs: int
    broken: tuple[seals.BrokenRun, ...]


@asynccontextmanager
async def changing(place: StorePlace) -> AsyncGenerator[Store]:
    """A store that is there already, to change."""
    if not place.path.exists():
        async with places.reading(place):  # says so, in the words of the other commands
            pass
    async with places.writing(place) as store:
        yield store


async def seal_command(
    screen: Screen,
    place: StorePlace,
    *,
    key: Annotated[Path, path_option("--key", "Private Ed25519 key in PEM.")],
    seal: Annotated[list[str], repeated("--seal", "A line printed before: sign only what begins with it.")],
    last_key: Annotated[
        list[Path], paths_option("--last-key", "Public key of the last seal, after a change of keys.")
    ],
) -> int:
    """Sign the heads of all runs of the store, and print a line to keep where its writer cannot reach."""
    signing, kept = keys.read_signing_key(key), [*map(seals.kept, seal)]
    before = [*map(keys.read_public_key, last_key)]
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
    note(f"{figures.count(sealed.added)} new heads of {figures.count(sealed.runs)} runs; {named}")


def keygen_command(
    screen: Screen,
    file: Annotated[Path, path_argument("Where to write the private key; the public one goes to FILE.pub.")],
) -> int:
    """Make an Ed25519 key to sign with. No file is ever written over."""
    key = key_id(keys.make_key(file))
    rows = [
        ("private", f"{file}: to seal with; keep it where the agents cannot read it"),
        ("public", f"{keys.public_path(file)}: to verify with; give it to your auditors"),
        ("key", key),
    ]
    made = {"private": str(file), "public": str(keys.public_path(file)), "key": key}
    screen.result(made, lambda: screen.pairs(rows))
    return 0


async def pack_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[list[str], argument("RUN or @last; a prefix of an id will do.")],
    *,
    file: Annotated[
        Path | None, new_file("The bundle's file; it must not exist.", show_default="RUN.zip")
    ] = None,
    tree: Annotated[bool, option("--tree", "With the runs that their calls started.")] = False,
) -> int:
    """Put runs into one file that verifies offline, with the seal that covers them."""
    async with places.reading(place) as store:
        named = await addresses.runs_of(store, runs)
        others = f"-and-{len(named) - 1}" if len(named) > 1 else ""
        file = file or places.beside(f"{named[0]}{others}", ".zip")
        if tree:
            named = [each for run in named for each in await family_of(store, run)]
        packed = await packer.pack(store, named, file)
    screen.result(packed, lambda: _tell_packed(screen, packed))
    return 0


def _tell_packed(screen: Screen, packed: packer.Packed) -> None:
    screen.heading(f"{packed.path}: {figures.count(packed.size)} bytes")
    sealed = (
        f"{packed.sealed} of them under the store's newest seal" if packed.sealed else "none of them sealed"
    )
    runs = f"{packed.runs}, with {figures.count(packed.events)} events; {sealed}"
    screen.pairs([("  runs", runs), ("  sha256", packed.sha256)])


async def unpack_command(
    screen: Screen,
    bundle: Annotated[Path, path_argument("A bundle, as `refold pack` writes it.")],
    *,
    file: Annotated[Path, new_file("The new store's file; it must not exist.")],
) -> int:
    """Make a store of a bundle's runs, to show, audit and replay them."""
    unpacked = await bundles.unpack(bundle, file)
    told = f"{unpacked.runs} runs with {figures.count(unpacked.events)} events, each as it was packed"
    screen.result(unpacked, lambda: screen.say(f"{unpacked.path}: {told}"))
    if not screen.json:
        note("the seal stays in the bundle: refold verify BUNDLE --key FILE.pub")
    return 0
