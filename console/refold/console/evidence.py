"""`refold seal`, `keygen`, `pack` and `unpack`."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from refold.console import addresses, figures, places
from refold.console.places import Place
from refold.console.screen import Screen, note
from refold.reducers.errors import Damaged
from refold.replay.family import family_of
from refold.store import bundles, keys, packer, seals
from refold.store.protocol import Store
from refold.store.verify_bundle import key_id


class PackRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed after `refold pack`."""

    typed: Sequence[str]
    tree: bool
    file: Path


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """What `seal` did, as JSON. `line` is to be kept; `at` is nanoseconds since the epoch, `key` the public key's id."""

    line: str
    at: int
    key: str
    added: int
    runs: int
    parted: tuple[seals.Parted, ...]


@asynccontextmanager
async def changing(place: Place) -> AsyncGenerator[Store]:
    """A store that is there already, to change."""
    if not place.path.exists():
        async with places.reading(place):  # says so, in the words of the other commands
            pass
    async with places.writing(place) as store:
        yield store


async def seal_command(
    screen: Screen, place: Place, file: Path, lines: Sequence[str], last: Sequence[Path]
) -> int:
    """Seal all runs of the store. Exit code 3 where a run no longer has what was sealed of it.

    `lines` are what was printed before, `last` the files of public keys that sealed before. Raises as `seals.seal`.
    """
    key, kept = keys.read_signing_key(file), [*map(seals.kept, lines)]
    before = [*map(keys.read_public_key, last)]
    async with changing(place) as store:
        done = await seals.seal(store, key, time.time_ns(), kept, before)
    line = seals.Kept(done.seal.size, done.seal.root).line
    if screen.json:
        screen.document(
            Sealed(
                line=line,
                at=done.seal.at,
                key=key_id(done.seal.key),
                added=done.added,
                runs=done.runs,
                parted=done.parted,
            )
        )
    else:
        screen.say(line)
        named = f"key {key_id(done.seal.key)}, {figures.clock(done.seal.at)}"
        note(f"{figures.count(done.added)} new heads of {figures.count(done.runs)} runs; {named}")
    for each in done.parted:
        note(f"NOT sealed: run {each.run} event {each.seq} was sealed with {each.hash}, and {each.problem}")
    return Damaged.exit_code if done.parted else 0


def keygen_command(screen: Screen, file: Path) -> int:
    """Make a key. Exit code 0."""
    public = keys.make_key(file)
    if screen.json:
        screen.document({"private": str(file), "public": str(keys.public_path(file)), "key": key_id(public)})
        return 0
    screen.pairs(
        [
            ("private", f"{file}: to seal with; keep it where the agents cannot read it"),
            ("public", f"{keys.public_path(file)}: to verify with; give it to whoever checks"),
            ("key", key_id(public)),
        ]
    )
    return 0


async def pack_command(screen: Screen, place: Place, request: PackRequest) -> int:
    """Put runs into a bundle. Exit code 0."""
    async with places.reading(place) as store:
        runs = [await addresses.run_of(store, each) for each in request.typed]
        if request.tree:
            runs = [each for run in dict.fromkeys(runs) for each in await family_of(store, run)]
        packed = await packer.pack(store, runs, request.file)
    if screen.json:
        screen.document(packed)
        return 0
    screen.heading(f"{packed.path}: {figures.count(packed.size)} bytes")
    sealed = (
        f"{packed.sealed} of them under the store's newest seal" if packed.sealed else "none of them sealed"
    )
    screen.pairs(
        [
            ("  runs", f"{packed.runs}, with {figures.count(packed.events)} events; {sealed}"),
            ("  sha256", packed.sha256),
        ]
    )
    return 0


async def unpack_command(screen: Screen, bundle: Path, file: Path) -> int:
    """Make a store of a bundle. Exit code 0."""
    unpacked = await bundles.unpack(bundle, file)
    if screen.json:
        screen.document(unpacked)
    else:
        told = f"{unpacked.runs} runs with {figures.count(unpacked.events)} events, each as it was packed"
        screen.say(f"{unpacked.path}: {told}")
        note("the seal stays in the bundle: refold verify BUNDLE --key FILE.pub")
    return 0
