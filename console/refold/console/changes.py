"""`refold touched`: what a run changed."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from refold.console import addresses, locations
from refold.console.locations import StorePlace
from refold.console.options import argument, option
from refold.console.screen import Column, Screen
from refold.reducers.errors import Inconclusive
from refold.replay import figures
from refold.replay.changes import Change, ChangeLog, Outcome, summarize_changes
from refold.replay.reader import run_follower


class TouchedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run changed, as JSON."""

    run: str
    changes: list[Change]


async def touched_command(
    screen: Screen,
    place: StorePlace,
    run: Annotated[str, argument("RUN or @last.")],
    *,
    every: Annotated[bool, option("--every", "Also list what refused calls would have changed.")] = False,
) -> int:
    """List files written and deleted, hosts reached, packages installed and branches pushed by a run.

    Taken from the arguments of its calls, and from the commands in their shell scripts. Commands that cannot
    be read, and tools and programs whose changes are not known, are listed as `unread`; a `gap` is where data
    of a transcript may be missing. RESULT is the call's: a script may have run only some of its commands.
    MAYBE UNDONE is the event of a later call that deletes what was written, or discards changes with git.

    Exit code 1 if something was changed, 125 if nothing was but something is unread or missing, else 0.
    """
    async with locations.reading(place) as store:
        name, upto = await addresses.place_of(store, run)
        changes = await run_follower(ChangeLog(), store, name, upto)
    shown = [each for each in changes if every or each.outcome is not Outcome.REFUSED]
    screen.result(TouchedReport(run=name, changes=shown), lambda: _tell(screen, name, shown))
    known = any(each.kind.is_known for each in shown)
    return 1 if known else Inconclusive.exit_code if shown else 0


_COLUMNS = (
    Column("WHAT"),
    Column("TARGET", elastic=True),
    Column("BY", elastic=True),
    Column("RESULT"),
    Column("EVENT", right=True),
    Column("MAYBE UNDONE", right=True),
)


def _tell(screen: Screen, run: str, changes: Sequence[Change]) -> None:
    found = summarize_changes(changes)
    screen.heading(f"run {run}: {str(found) or 'no changes found'}")
    first = found.first
    if first is not None:
        screen.pairs(
            [
                (
                    "  first destructive call",
                    f"e{first.seq}, {figures.clock(first.at)}: {first.command or first.tool}",
                )
            ]
        )
    if changes:
        screen.table(_COLUMNS, [_row(each) for each in changes])


def _row(each: Change) -> tuple[str, ...]:
    target = each.target or each.why
    undone = "" if each.undone_by is None else f"by e{each.undone_by}"
    by = figures.shorten(each.command or each.tool, 80)
    return each.kind, figures.shorten(target, 120), by, each.outcome, f"e{each.seq}", undone
