"""`refold ls`: the runs of a store, one per line."""

import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum, unique
from typing import Annotated

import msgspec
from msgspec.structs import asdict

from refold.console import addresses, descriptions, locations
from refold.console.addresses import Problems
from refold.console.descriptions import EngineClaim, find_claim
from refold.console.locations import StorePlace, without_event_loop
from refold.console.options import argument, labels_of, option
from refold.console.screen import Column, Screen, note
from refold.reducers.errors import Damaged, Inconclusive, WrongUse
from refold.reducers.source_marks import BRANCH_LABEL, PARENT_LABEL
from refold.reducers.vocabulary import NANO
from refold.replay import figures, known
from refold.replay.reader import NO_GUARDS
from refold.replay.summary import RunSummary, summary
from refold.store.protocol import Store, UnknownRun

_TEXT = 70
_GONE = 3  # runs without their engine for which the next command is printed
_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_AGO = re.compile(r"([0-9]{1,6})([mhdw])")
_FILE = "source.file"


class RunLine(RunSummary, frozen=True, kw_only=True):
    """A run in `ls` as JSON: its summary, `tokens` (input and output, None if not counted), and its `engine`.

    `engine`: what drives it, or that it waits for a worker. `damaged`: why other fields may be wrong: a
    damaged log, or one of a newer refold.
    """

    tokens: int | None = None
    engine: EngineClaim | None = None


@unique
class Order(StrEnum):
    """Sort key, descending. Runs without a value come last."""

    COST = "cost"
    TOKENS = "tokens"
    STEPS = "steps"
    STARTED = "started"


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list, and their order. All conditions must match; of several states one."""

    state: Annotated[
        list[str],
        option(
            "--state",
            "Only runs in this state, or with this end by their source, as completed, open, driven.",
        ),
    ]
    label: Annotated[list[str], option("--label", "name=value: only runs with this label.")]
    since: Annotated[
        str,
        option(
            "--since",
            "Only runs started since then: 90m, 12h, 2d or 3w ago, or a date in UTC, as 2026-01-31.",
        ),
    ] = ""
    sort: Annotated[
        Order | None,
        option(
            "--sort", "Sort, highest first; by default the most recently recorded or imported run is first."
        ),
    ] = None


@without_event_loop
async def ls_command(
    screen: Screen,
    place: StorePlace,
    asked: RunFilter,
    prefix: Annotated[str, argument("Only runs whose id begins with this.")] = "",
    *,
    most: Annotated[int, option("--most", "List at most this many.", min=1)] = 20,
) -> int:
    """List runs, the most recently recorded or imported first.

    On a terminal, a run is one line, and ids are cut to a unique prefix. Piped, nothing is cut.

    Example: refold ls --state driven --since 2d

    With -o json: one array. Exit code 3 or 125 if a log could not be read to its end.
    """
    sieve = _RunSieve(asked, time.time())
    if place.is_new:
        _list_runs(screen, place, [], {}, others=False)
        return 0
    async with locations.reading(place) as store:
        trouble = Problems()
        found, damage = await _take_lines(
            _lines(store, prefix, sieve, trouble), most if asked.sort is None else None
        )
        if asked.sort is not None:
            found.sort(key=lambda line: _measure(line, asked.sort), reverse=True)
        shown = found[:most]
        short = await addresses.shorten_ids(store, [each.run for each in shown]) if screen.live else {}
    _list_runs(screen, place, shown, short, others=len(found) > most, sieve=sieve, prefix=prefix)
    if damage is not None:
        raise damage
    return trouble.code


async def _take_lines(
    lines: AsyncIterator[RunLine], most: int | None
) -> tuple[list[RunLine], Damaged | None]:
    """Return the first `most` lines and one more (None: all), and the damage that hides others."""
    found = list[RunLine]()
    try:
        async for line in lines:
            found.append(line)
            if most is not None and len(found) > most:
                break
    except Damaged as error:
        return found, error
    return found, None


class _RunSieve:
    """Filters runs, and remembers the states of those that it leaves out."""

    def __init__(self, asked: RunFilter, now: float) -> None:
        self.states = {each.casefold() for each in asked.state}
        self.since = _instant(asked.since, now) if asked.since else 0
        self._labels = labels_of(asked.label)
        self.seen: dict[str, None] = {}

    @property
    def is_active(self) -> bool:
        return bool(self.states or self.since or self._labels)

    def matches(self, line: RunLine) -> bool:
        states = _states(line)
        if self.states and not self.states & {each.casefold() for each in states}:
            self.seen.update(dict.fromkeys(states))
            return False
        labelled = all(line.labels.get(name) == value for name, value in self._labels.items())
        return labelled and line.started >= self.since


def _states(line: RunLine) -> list[str]:
    """Return the words for a run's state: for an imported run the source's, and refold's own if it ended
    here.
    """
    own = (line.agent_state, line.code) if line.code or not line.source_end else ()
    source = (line.source_end, line.source_end.partition(":")[0])
    return [each for each in (*own, *source, line.engine.standing if line.engine else "") if each]


async def _lines(store: Store, prefix: str, sieve: _RunSieve, trouble: Problems) -> AsyncIterator[RunLine]:
    """Yield the runs that match; logs that cannot be read to their end are reported."""
    async for chunk in store.runs(prefix):
        for run, head in chunk:
            line = await _run_line(store, run, sieve.since, trouble) if head.seq else None
            if line is not None and sieve.matches(line):
                yield line


async def _started_before(store: Store, run: str, since: int) -> bool:
    """Return whether the run started before `since`, by its first event alone."""
    return any(0 < each.at < since for each in await store.read_some(run, [1]))


async def _run_line(store: Store, run: str, since: int, trouble: Problems) -> RunLine | None:
    """Return a run's line; None if it started before `since`."""
    try:
        if since and await _started_before(store, run, since):
            return None
        told, state = await summary(store, run, registry=NO_GUARDS)
    except (Inconclusive, Damaged, UnknownRun) as error:
        trouble.add(run, error)
        return RunLine(run=run, damaged=str(error))
    if told.damaged:
        trouble.add(run, Damaged(told.damaged))
    engine = None if told.code else await find_claim(store, run, None if told.damaged else state)
    return RunLine(**asdict(told), tokens=known.tokens(told.usage), engine=engine)


def _instant(text: str, now: float) -> int:
    """Parse `--since` into nanoseconds since the epoch; a date without a time zone is UTC. Raises
    `WrongUse`.
    """
    if (ago := _AGO.fullmatch(text)) is not None:
        return round((now - int(ago[1]) * _UNITS[ago[2]]) * NANO)
    try:
        told = datetime.fromisoformat(text)
        return round((told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp() * NANO)
    except (ValueError, OverflowError, OSError):
        raise WrongUse(
            f"--since {text!r}: expected 90m, 12h, 2d or 3w, or a date: 2026-01-31, 2026-01-31T09:30"
        ) from None


def _measure(line: RunLine, order: Order | None) -> int:
    known_ = {
        Order.COST: line.cost_nanousd,
        Order.TOKENS: line.tokens,
        Order.STEPS: line.steps,
        Order.STARTED: line.started or None,
    }
    found = known_.get(order or Order.STARTED)
    return -1 if found is None else found


def _list_runs(
    screen: Screen,
    place: StorePlace,
    runs: Sequence[RunLine],
    short: Mapping[str, str],
    *,
    others: bool,
    sieve: _RunSieve | None = None,
    prefix: str = "",
) -> None:
    if screen.json:
        screen.document(runs)
        return
    if not runs:
        note(_describe_none(place, sieve, prefix))
    elif screen.live:
        now = time.time_ns()
        screen.table(_ON_TERMINAL, [_brief_cells(run, short, now) for run in runs])
    else:
        screen.table(_WHOLE, list(map(_cells, runs)))
    gone = [run for run in runs if run.engine and run.engine.standing in ("abandoned", "lost")]
    for run in gone[:_GONE]:
        note(f"next    refold resume {short.get(run.run, run.run)}{place.option}   {run.engine}")
    if others:
        note(f"there are {'more' if sieve and sieve.is_active else 'older ones'}: --most N lists more")


def _describe_none(place: StorePlace, sieve: _RunSieve | None, prefix: str) -> str:
    if prefix:
        return f"no run in {place.shown} has an id that begins with {prefix!r}; `refold ls{place.option}` lists all"
    if sieve and sieve.is_active:
        there = f"; this store has: {', '.join(sorted(sieve.seen))}" if sieve.seen else ""
        return f"no run in {place.shown} matches{there}"
    return f"no runs in {place.shown}; `refold run TASK` starts one"


_ON_TERMINAL = (
    Column("run"), Column("age", right=True), Column("state", elastic=True), Column("turns", right=True), Column("cost", right=True),
    Column("from", elastic=True), Column("task", elastic=True, main=50),
)  # fmt: skip
_WHOLE = (
    Column("run"), Column("started (UTC)"), Column("state"), Column("turns", right=True), Column("tokens", right=True),
    Column("cost", right=True), Column("model"), Column("task"),
)  # fmt: skip


def _brief_cells(run: RunLine, short: Mapping[str, str], now: int) -> list[str]:
    """Return a line for a terminal. `from` is the file of an imported run, else the agent, else the model."""
    age = figures.age(now - run.started) if run.started else "-"
    source = run.labels.get(_FILE) or run.agent or run.model
    cost = figures.at_least(figures.dollars(run.cost_nanousd), run.unpriced)
    return [short.get(run.run, run.run), age, _state(run), str(run.steps), cost, source, _task(run)]


def _cells(run: RunLine) -> list[str]:
    tokens = figures.at_least(figures.count(run.tokens), run.uncounted)
    cost = figures.at_least(figures.dollars(run.cost_nanousd), run.unpriced)
    numbers = [str(run.steps), tokens, cost]
    return [
        run.run,
        figures.clock(run.started).removesuffix(" UTC"),
        _state(run),
        *numbers,
        run.model,
        _task(run),
    ]


def _task(run: RunLine) -> str:
    return run.damaged or descriptions.task(run.task, _TEXT)


def _state(run: RunLine) -> str:
    if run.damaged:
        return "not fully readable"
    state = descriptions.end_text(run)
    if run.engine is not None:
        state = f"{state}, {run.engine}"
    if run.forked_from:
        state = f"{state}, forked from {run.forked_from}@e{run.forked_at}"
    if run.parent is not None:
        state = f"{state}, child of {run.parent.run}"
    elif BRANCH_LABEL in run.labels:
        state = f"{state}, a rewound branch"
    elif PARENT_LABEL in run.labels:
        state = f"{state}, a sub-agent's"  # `show` searches for the call that started it
    return state
