"""`refold grep`: the events that a filter means, a line each, as they are found."""

from typing import Annotated

import msgspec
from msgspec.structs import replace

from refold.console import hostile, places
from refold.console.options import Everything, Runs, argument, option
from refold.console.places import StorePlace
from refold.console.screen import Screen
from refold.console.selection import Trouble, chosen
from refold.reducers.errors import CannotJudge, Damaged
from refold.replay.kinds.table import sentence
from refold.replay.queries.filters import Filter, parse
from refold.replay.queries.grep import Excerpt, Match, grep, shown
from refold.store.protocol import UnknownRun


class MatchCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many events of a run were found, as JSON."""

    run: str
    count: int


async def grep_command(
    screen: Screen,
    place: StorePlace,
    filter: Annotated[  # noqa: A002 - the name that is typed
        str, argument('As type:tool name:bash error:true tokens>2000 "rm -rf".')
    ],
    runs: Runs,
    *,
    everything: Everything = False,
    most: Annotated[int | None, option("--most", "Stop after so many.", min=1)] = None,
    count: Annotated[bool, option("--count", "Only how many there are in each run.")] = False,
) -> int:
    """Find events by a filter, in the runs that are named or in all. Exit code 1 if there is none.

    3 or 125 if a log could not be read to its end. With -o json: a line an event.
    """
    asked, trouble, total = parse(filter), Trouble(), 0
    async with places.reading(place) as store:
        for run in await chosen(store, runs, trouble, everything=everything):
            left = None if most is None else most - total
            if left == 0:
                break
            found = 0
            try:
                async for each in grep(store, run, asked):
                    found += 1
                    if not count:
                        _tell(screen, asked, each, alone=len(runs) == 1)
                    if found == left:
                        break
            except (Damaged, CannotJudge, UnknownRun) as error:
                trouble.add(run, error)
            if count and found:
                _tell_count(screen, run, found)
            total += found
    return trouble.code or (0 if total else 1)


def _tell_count(screen: Screen, run: str, count: int) -> None:
    screen.result(MatchCount(run=run, count=count), lambda: screen.say(f"{count:>6}  {run}"))


def _tell(screen: Screen, asked: Filter, found: Match, *, alone: bool) -> None:
    row, excerpt = found.row, shown(asked, found)
    if screen.json:
        plain = msgspec.to_builtins(replace(row, text=""))
        screen.document({**plain, **({} if excerpt is None else {"excerpt": excerpt})})
        return
    address = f"e{row.seq}" if alone else f"{row.run}@e{row.seq}"
    said = _said(excerpt) if excerpt is not None and excerpt.end else sentence(found.event)
    names = ",".join(row.name)
    head = f"{address:<8} {f't{row.turn}':<5}{hostile.line(row.kind, 40):<19}{hostile.line(names, 40):<14}"
    screen.say(f"{head} {said}".rstrip())


def _said(excerpt: Excerpt) -> str:
    text = " ".join(excerpt.text.split())
    return f"{'…' if excerpt.before else ''}{text}{'…' if excerpt.after else ''}"
