"""`refold report`: a run as one page that opens from disk."""

from pathlib import Path
from typing import Annotated

import msgspec

from refold.console import addresses, places
from refold.console.options import Address, Force, new_file
from refold.console.places import StorePlace
from refold.console.report.builder import build
from refold.console.report.page import page
from refold.console.screen import Screen, note
from refold.engine.guards import installed_guards
from refold.reducers.errors import CannotJudge, Damaged
from refold.replay import figures
from refold.store.atomic_files import check_free, written_beside

_MUCH = 100 * 1024 * 1024  # bytes from which browsers take many seconds to read a page


class WrittenPage(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, as JSON: `size` in bytes; `damaged` says why not all of the log could be followed."""

    run: str
    path: str
    size: int
    events: int
    damaged: str


async def report_command(
    screen: Screen,
    place: StorePlace,
    run: Address,
    *,
    file: Annotated[Path, new_file("The page's file.")],
    force: Force = False,
) -> int:
    """Write a run as one HTML page that opens from disk, without network: what happened, why, and what the model saw.

    Exit code 3 if its log is damaged, 125 if it cannot be judged, as one of a newer refold: the page says where.
    """
    check_free(file, force=force)  # before the log is read: that may take a while
    async with places.reading(place) as store:
        run, upto = await addresses.place_of(store, run)
        report = await build(store, run, upto, installed_guards())
    data = page(report).encode()
    # A reader of the old page sees one of the two while the new one is written.
    with written_beside(file, force=force) as beside:
        beside.write_bytes(data)
    damaged = report.about.damaged or (report.checked.problem.problem if report.checked.problem else "")
    told = WrittenPage(run=run, path=str(file), size=len(data), events=len(report.events), damaged=damaged)
    said = f"{told.path}: {figures.count(told.events)} events of run {run}, {figures.size(told.size)}"
    screen.result(told, lambda: screen.say(said))
    if damaged:
        note(f"the log could not be followed to its end, and the page says where: {damaged}")
    if told.size > _MUCH:
        note(
            f"browsers take long for so large a page; {run}@e{told.events // 4} is a report up to an earlier event"
        )
    if report.checked.unjudged or (report.checked.unweighed and not damaged):
        return CannotJudge.exit_code
    return Damaged.exit_code if damaged else 0
