"""`refold grep` and `refold stats`: queries over logs."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Annotated

import msgspec

from refold.console import descriptions, locations
from refold.console.addresses import Problems, choose_runs, families_of, without_grown
from refold.console.executors import ExecutorOptions, start_workers
from refold.console.locations import StorePlace
from refold.console.options import Everything, Runs, argument, option
from refold.console.processes import progress
from refold.console.screen import Column, Screen, note
from refold.reducers.errors import Inconclusive, RefoldError
from refold.replay import figures
from refold.replay.dispatch import run_task
from refold.replay.queries.grep import ErasedCount, Excerpt, Hit, look_through
from refold.replay.queries.rows import event_question
from refold.replay.queries.stats import Latency, Stats, ToolStats, count_all, merge
from refold.replay.shards import HELD, SHARD, Shard, ShardEnd, shards
from refold.store.sequential import at_once

GREP_SHARD = 5_000
"""Events that a process searches in one piece. Its hits wait in memory until they can be printed in order."""
_BARE = re.compile(r"(?!(and|or|not)$)[\w./][\w./-]*")
"""A plain word of a query: no field, sign or keyword."""


class MatchCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of matching events in a run, as JSON."""

    run: str
    count: int


def grep_command(
    screen: Screen,
    place: StorePlace,
    filter: Annotated[  # noqa: A002 - the name that is typed
        str, argument('The filter, as type:tool name:bash error:true tokens>2000 "rm -rf".')
    ],
    runs: Runs,
    *,
    everything: Everything = False,
    most: Annotated[int | None, option("--most", "Stop after this many events.", min=1)] = None,
    count: Annotated[bool, option("--count", "Print only the number of events per run.")] = False,
    executor: ExecutorOptions,
) -> int:
    """Find events that match a filter, in the given runs or in all.

    Example: refold grep 'type:tool error:true "rm -rf"'

    An imported run that another run of the store continues is left out, unless it is named: the other run has
    all its events.

    Exit code 1 if nothing matches; 125 if the payloads of some events were erased and nothing else matches; 3
    or 125 if a log could not be read to its end; 4 if part of the store could not be searched. With -o json:
    one line per event.
    """
    _hint(filter)
    event_question(filter)  # report an invalid filter before any log is read
    trouble, total, erased = Problems(), 0, 0
    sizes = at_once(_sizes(place, runs, trouble, everything=everything))
    work = shards(place.address, sizes, GREP_SHARD)
    task = partial(look_through, typed=filter, most=most, hits=not count)
    with (
        start_workers(executor, work) as workers,
        closing(run_task(work, workers, task, held=HELD)) as all_,
    ):
        for each in all_:
            if isinstance(each, ShardEnd):
                trouble.end(each)
                continue
            run, found = each
            if isinstance(found, Hit):
                _tell_events(screen, found, alone=len(runs) == 1)
                total += 1
            elif isinstance(found, RefoldError):
                trouble.add(run, found)
            elif isinstance(found, ErasedCount):
                erased += found.events
            elif count and found:
                found = found if most is None else min(found, most - total)
                _tell_count(screen, run, found)
                total += found
            if total == most:
                break
    if erased:
        note(f"not searched: {figures.quantity(erased, 'event')} whose payload was erased")
    nothing = Inconclusive.exit_code if erased else 1
    return trouble.code or (0 if total else nothing)


def _hint(typed: str) -> None:
    """Print how to search for a phrase if the query is several words: the shell may have removed the
    quotes.
    """
    words = typed.split()
    if len(words) > 1 and all(_BARE.fullmatch(word) for word in words):
        phrase = '"' + " ".join(words) + '"'
        note(f"{len(words)} words, matched anywhere; for the phrase: '{descriptions.line(phrase, 200)}'")


async def _sizes(
    place: StorePlace, runs: list[str], trouble: Problems, *, everything: bool
) -> list[tuple[str, int]]:
    async with locations.reading(place) as store:
        sizes = await choose_runs(store, runs, trouble, everything=everything)
        return sizes if runs else await without_grown(store, sizes)


def _tell_count(screen: Screen, run: str, count: int) -> None:
    screen.result(MatchCount(run=run, count=count), lambda: screen.say(f"{count:>6}  {run}"))


def _tell_events(screen: Screen, hit: Hit, *, alone: bool) -> None:
    row, excerpt = hit.row, hit.excerpt
    if screen.json:
        instants = {"at": figures.instant(hit.at), "at_ns": hit.at or None}
        screen.document(
            {**msgspec.to_builtins(row), **instants, **({} if excerpt is None else {"excerpt": excerpt})}
        )
        return
    address = f"e{row.seq}" if alone else f"{row.run}@e{row.seq}"
    said = _render_excerpt(excerpt) if excerpt is not None and excerpt.end else hit.said
    names = ",".join(row.name)
    head = f"{address:<8} {figures.clock(hit.at):<23}  {f't{row.turn}':<5}{descriptions.line(row.kind, 40):<19}{descriptions.line(names, 40):<14}"
    screen.say(f"{head} {said}".rstrip())


def _render_excerpt(excerpt: Excerpt) -> str:
    text = " ".join(excerpt.text.split())
    return f"{'…' if excerpt.before else ''}{text}{'…' if excerpt.after else ''}"


STATS_SHARD = SHARD
"""Events that a process counts in one piece."""

_LISTED = 30  # rows of a table: a log may name any number of tools
_NAME = 60  # characters of a name that a log chose
_QUANTILES = (50, 90, 99)


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in nanoseconds, None without any. Quantiles are at most 3 % too long; `longest` is exact."""

    count: int
    p50: int | None
    p90: int | None
    p99: int | None
    longest: int | None


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """`stats` as JSON: mergeable counts, and quantiles of their latencies.

    `unread`: parts that could not be counted.
    """

    counts: Stats
    unread: dict[str, str] = {}
    answers: Quantiles
    runs: Quantiles
    tools: dict[str, Quantiles]
    models: dict[str, Quantiles]


def stats_command(
    screen: Screen,
    place: StorePlace,
    runs: Runs,
    *,
    everything: Everything = False,
    where: Annotated[str, option("--where", "Count only events that match, as turn:..3.")] = "",
    executor: ExecutorOptions,
) -> int:
    """Count outcomes, tool calls, errors, latencies, tokens and cost, in the given runs or in all.

    Example: refold stats --where turn:..3

    Exit code 3 or 125 if a log could not be read to its end (the part that was read counts); 4 if part of the
    store could not be counted. With -o json: one document.
    """
    event_question(where)  # report an invalid filter before any log is read
    trouble, total, unread = Problems(), Stats(), dict[str, str]()
    work = at_once(_work(place, runs, trouble, everything=everything))
    with (
        start_workers(executor, work) as workers,
        progress("counting", sum(shard.events for shard in work)) as step,
    ):
        for each in run_task(work, workers, partial(count_all, typed=where)):
            if isinstance(each, ShardEnd):
                trouble.end(each)
                unread |= {each.shard.name: each.problem} if each.problem else {}
                step(each.shard.events)
            elif isinstance(each, Stats):
                total = merge((total, each))
            else:
                trouble.add(*each)
    screen.result(_statistics(total, unread), lambda: _tell_stats(screen, place, total))
    return trouble.code


async def _work(
    place: StorePlace, runs: Sequence[str], trouble: Problems, *, everything: bool
) -> list[Shard]:
    async with locations.reading(place) as store:
        sizes = await choose_runs(store, runs, trouble, everything=everything)
        sizes = sizes if runs else await without_grown(store, sizes)
        families = await families_of(store, (run for run, _ in sizes))
    return shards(place.address, sizes, STATS_SHARD, families=families)


def _statistics(total: Stats, unread: dict[str, str]) -> Statistics:
    return Statistics(
        counts=total,
        unread=unread,
        answers=_quantiles(total.latency),
        runs=_quantiles(total.elapsed),
        tools={name: _quantiles(tool.latency) for name, tool in total.tools.items()},
        models={name: _quantiles(model.latency) for name, model in total.models.items()},
    )


def _quantiles(latency: Latency) -> Quantiles:
    p50, p90, p99 = map(latency.quantile, _QUANTILES)
    return Quantiles(
        count=latency.count, p50=p50, p90=p90, p99=p99, longest=latency.longest if latency.count else None
    )


def _tell_stats(screen: Screen, place: StorePlace, total: Stats) -> None:
    if not total.runs:
        note(f"no runs in {place.shown}")
        return
    cache = f", {figures.count(total.cache_read)} from a cache" if total.cache_read else ""
    tokens = f"{figures.count(total.input)} in{cache}, {figures.count(total.output)} out"
    uncounted = _unknown_note(total.uncounted, "without a full count of tokens")
    unpriced = _unknown_note(total.unpriced, "without a known price")
    events = f"{figures.quantity(total.events, 'event')}, {figures.size(total.bytes)}"
    cost = "unknown" if total.cost_nanousd is None else figures.dollars(total.cost_nanousd)
    screen.facts(
        {
            "runs": f"{figures.count(total.runs)}, with {events}",
            "tokens": f"{tokens if total.input or total.output else 'unknown'}{uncounted}",
            "cost": f"{cost}{unpriced}",
            "requests": f"{figures.count(total.requests)}, with {figures.count(total.retries)} retries",
            "approvals": f"requested {figures.quantity(total.asked, 'time')}",
            "a run took": _spread(total.elapsed),
            "a response": _spread(total.latency) + _timing_note(total),
        },
        indent="",
    )
    _tools(screen, total)
    _models(screen, total)
    groups = {
        "how runs ended": total.ends,
        "ended by source": total.source_ends,
        "started with": total.started_with,
        "failed requests": total.failures,
        "limits and guards": total.trips,
        "refused calls, by": total.refusals,
        "compactions, by": total.prunes,
        "events": total.kinds,
    }
    for title, counts in groups.items():
        _counts(screen, title, counts)


def _unknown_note(answers: int, which: str) -> str:
    return f", and {figures.quantity(answers, 'response')} {which}" if answers else ""


def _tools(screen: Screen, total: Stats) -> None:
    if not total.tools:
        return
    titles = ("tool", "returned", "errors", "refused", "median", "90 %", "longest", "size")
    rows = [
        [
            descriptions.line(name, _NAME) or "(unknown)",
            figures.count(tool.returned)
            + (f", {figures.count(tool.not_recorded)} not recorded" if tool.not_recorded else ""),
            _errors(tool),
            figures.count(tool.refused),
            *_latency(tool.latency),
            figures.size(tool.bytes),
        ]
        for name, tool in sorted(total.tools.items(), key=lambda each: (-each[1].returned, each[0]))
    ]
    _table(screen, titles, rows)


def _errors(tool: ToolStats) -> str:
    """Render error counts:

    `2 raised`; `unknown` if no result has a status, `2 raised+?` if some have none.
    """
    told = _by_number(tool.errors) or ("unknown" if tool.unmarked and tool.unmarked == tool.returned else "0")
    return told if told == "unknown" else figures.at_least(told, tool.unmarked)


def _models(screen: Screen, total: Stats) -> None:
    if not total.models:
        return
    titles = ("model", "responses", "median", "90 %", "longest", "stopped by")
    rows = [
        [
            descriptions.line(name, _NAME) or "(unknown)",
            figures.count(model.answers),
            *_latency(model.latency),
            _by_number(model.stops),
        ]
        for name, model in sorted(total.models.items(), key=lambda each: (-each[1].answers, each[0]))
    ]
    _table(screen, titles, rows)


def _counts(screen: Screen, title: str, counts: Mapping[str, int]) -> None:
    if counts:
        rows = [
            [descriptions.line(name, _NAME), figures.count(number)] for name, number in _sort_by_count(counts)
        ]
        _table(screen, (title, "count"), rows)


def _table(screen: Screen, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    screen.say()
    first, *others = titles
    columns = [Column(first, elastic=True), *(Column(title, right=True) for title in others)]
    screen.table(columns, rows[:_LISTED])
    if len(rows) > _LISTED:
        screen.say(f"and {figures.count(len(rows) - _LISTED)} more")


def _by_number(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{figures.count(number)} {descriptions.line(name, _NAME)}" for name, number in _sort_by_count(counts)
    )


def _sort_by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))


def _timing_note(total: Stats) -> str:
    """Return how many responses have a duration, if some do not."""
    answers, timed = sum(model.answers for model in total.models.values()), total.latency.count
    return f", of {figures.quantity(timed, 'response')} with a duration" if 0 < timed < answers else ""


def _latency(latency: Latency) -> list[str]:
    """Return the median, the 90th percentile and the longest; `-` if no time is known."""
    if not latency.count:
        return ["-", "-", "-"]
    return [figures.seconds(each) for each in (latency.quantile(50), latency.quantile(90), latency.longest)]


def _spread(latency: Latency) -> str:
    if not latency.count:
        return "time unknown"
    half, most = figures.seconds(latency.quantile(50)), figures.seconds(latency.quantile(90))
    return f"median {half}, 90 % within {most}, longest {figures.seconds(latency.longest)}"
