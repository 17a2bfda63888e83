"""`refold pack` and `refold unpack`: runs in one file that verifies offline."""

from pathlib import Path
from typing import Annotated

from refold.console import addresses, places
from refold.console.options import argument, new_file, option
from refold.console.places import StorePlace, reads
from refold.console.screen import Screen, note
from refold.replay import figures
from refold.replay.family import family_of
from refold.store import bundles, packer


@reads
async def pack_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[list[str], argument("RUN or @last; a prefix of an id will do.")],
    *,
    file: Annotated[Path | None, new_file("The bundle's file; it must not exist.", shows="RUN.zip")] = None,
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
    screen.heading(f"{packed.path}: {figures.counted(packed.size, 'byte')}")
    sealed = (
        f"{packed.sealed} of them under the store's newest seal" if packed.sealed else "none of them sealed"
    )
    runs = f"{packed.runs}, with {figures.counted(packed.events, 'event')}; {sealed}"
    screen.pairs([("  runs", runs), ("  sha256", packed.sha256)])


async def unpack_command(
    screen: Screen,
    bundle: Annotated[Path, argument("A bundle, as `refold pack` writes it.")],
    *,
    file: Annotated[Path, new_file("The new store's file; it must not exist.")],
) -> int:
    """Make a store of a bundle's runs, to show, audit and replay them."""
    unpacked = await bundles.unpack(bundle, file)
    told = f"{figures.counted(unpacked.runs, 'run')} with {figures.counted(unpacked.events, 'event')}, each as it was packed"
    screen.result(unpacked, lambda: screen.say(f"{unpacked.path}: {told}"))
    if not screen.json:
        note("the seal stays in the bundle: refold verify BUNDLE --key FILE.pub")
    return 0
