"""`refold grep`: the events that a filter means, a line each, as they are found."""

import re
from contextlib import closing
from functools import partial
from typing import Annotated

import msgspec

from refold.console import hostile, places
from refold.console.options import Everything, Runs, argument, option
from refold.console.places import StorePlace, at_once
from refold.console.processes import Jobs, alone, processes
from refold.console.screen import Screen, note
from refold.console.selection import Trouble, chosen, without_grown
from refold.reducers.errors import CannotJudge, RefoldError
from refold.replay import figures
from refold.replay.queries.grep import Erased, Excerpt, Hit, look_through
from refold.replay.queries.rows import event_question
from refold.replay.shards import HELD, Ended, shards, worked

SHARD_OF_A_STORE = 5_000
"""Events of a part that a process does in one piece: of each something may be told, and what is told is held until its turn."""
_BARE = re.compile(r"(?!(and|or|not)$)[\w./][\w./-]*")
"""A word to look for in a query: no field, no sign and no keyword of the language."""


class MatchCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many events of a run were found, as JSON."""

    run: str
    count: int


def grep_command(
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
    jobs: Jobs = None,
) -> int:
    """Find events by a filter, in the runs that are named or in all. Exit code 1 if there is none.

    Of an imported run that goes on in another of the store all is in that one: it is left out, unless it is named.

    3 or 125 if a log could not be read to its end, 4 if some could not be looked at; 125, too, if there is none but among events whose
    words were erased. With -o json: a line an event.
    """
    _hint(filter)
    event_question(filter)  # what cannot be asked is said before any log is read
    trouble, total, erased = Trouble(), 0, 0
    sizes = at_once(_sizes(place, runs, trouble, everything=everything))
    work = shards(place.path, sizes, SHARD_OF_A_STORE)
    task = partial(look_through, typed=filter, most=most, hits=not count)
    with processes(jobs, work) as executor, closing(worked(work, executor, task, alone, held=HELD)) as all_:
        for each in all_:
            if isinstance(each, Ended):
                trouble.end(each)
                continue
            run, found = each
            if isinstance(found, Hit):
                _tell(screen, found, alone=len(runs) == 1)
                total += 1
            elif isinstance(found, RefoldError):
                trouble.add(run, found)
            elif isinstance(found, Erased):
                erased += found.events
            elif count and found:
                found = found if most is None else min(found, most - total)
                _tell_count(screen, run, found)
                total += found
            if total == most:
                break
    if erased:
        note(f"not searched: {figures.counted(erased, 'event')} whose words were erased")
    nothing = CannotJudge.exit_code if erased else 1
    return trouble.code or (0 if total else nothing)


def _hint(typed: str) -> None:
    """Print how to type a phrase if the query is several words: the shell may have removed the quotes around them."""
    words = typed.split()
    if len(words) > 1 and all(_BARE.fullmatch(word) for word in words):
        phrase = '"' + " ".join(words) + '"'
        note(f"{len(words)} words, matched anywhere; for the phrase: '{hostile.line(phrase, 200)}'")


async def _sizes(
    place: StorePlace, runs: list[str], trouble: Trouble, *, everything: bool
) -> list[tuple[str, int]]:
    async with places.reading(place) as store:
        sizes = await chosen(store, runs, trouble, everything=everything)
        return sizes if runs else await without_grown(store, sizes)


def _tell_count(screen: Screen, run: str, count: int) -> None:
    screen.result(MatchCount(run=run, count=count), lambda: screen.say(f"{count:>6}  {run}"))


def _tell(screen: Screen, hit: Hit, *, alone: bool) -> None:
    row, excerpt = hit.row, hit.excerpt
    if screen.json:
        instants = {"at": figures.instant(hit.at), "at_ns": hit.at or None}
        screen.document(
            {**msgspec.to_builtins(row), **instants, **({} if excerpt is None else {"excerpt": excerpt})}
        )
        return
    address = f"e{row.seq}" if alone else f"{row.run}@e{row.seq}"
    said = _said(excerpt) if excerpt is not None and excerpt.end else hit.said
    names = ",".join(row.name)
    head = f"{address:<8} {figures.clock(hit.at):<23}  {f't{row.turn}':<5}{hostile.line(row.kind, 40):<19}{hostile.line(names, 40):<14}"
    screen.say(f"{head} {said}".rstrip())


def _said(excerpt: Excerpt) -> str:
    text = " ".join(excerpt.text.split())
    return f"{'…' if excerpt.before else ''}{text}{'…' if excerpt.after else ''}"
