"""Addresses of runs and events, and the runs that a command is about."""

import heapq
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from refold.console import descriptions
from refold.console.screen import note, worst
from refold.reducers.errors import Damaged, ExternalFailure, Inconclusive, RefoldError, WrongUse
from refold.reducers.events import RunStarted, StateChanged, kind_of
from refold.reducers.source_marks import PARENT_LABEL
from refold.replay import figures
from refold.replay.cuts import request_of, response_of, span_of
from refold.replay.reader import event_of
from refold.replay.summary import continued_in
from refold.store.protocol import Head, Store, Stored, UnknownRun

if TYPE_CHECKING:
    from refold.replay.shards import ShardEnd


LAST = "@last"
_ADDRESS = re.compile(r"(?P<run>@last|[^@\s]+)(?:@(?P<unit>[etc])(?P<number>[1-9][0-9]{0,11}))?")
_LISTED = 8
_SHORTEST = 4


class Address(msgspec.Struct, frozen=True):
    """A run as typed, and optionally an event, a turn or a call in it, counted from 1."""

    run: str
    event: int | None = None
    turn: int | None = None
    call: int | None = None


class BadAddress(WrongUse):
    """An invalid address; `problem` is the reason."""

    def __init__(self, typed: str, problem: str) -> None:
        super().__init__(typed, problem)
        self.typed, self.problem = typed, problem

    def __str__(self) -> str:
        return f"{self.typed!r}: {self.problem}"


class NoSuchRun(WrongUse):
    """An address that matches no run or several.

    `candidates` are ids to choose from; `more`: there are others.
    """

    def __init__(self, typed: str, problem: str, candidates: Sequence[str], *, more: bool) -> None:
        super().__init__(typed, problem, tuple(candidates), more)
        self.typed, self.problem, self.candidates, self.more = typed, problem, tuple(candidates), more

    @property
    def lines(self) -> list[str]:
        """The lines of the message. Line breaks in its parts are escaped."""
        told = [f"{self.typed!r} {self.problem}", *(f"  {each}" for each in self.candidates)]
        return [*told, "  …"] if self.more else told

    def __str__(self) -> str:
        return "\n".join(map(descriptions.line, self.lines))


def parse(typed: str) -> Address:
    """Parse an address. Raises `BadAddress`."""
    found = _ADDRESS.fullmatch(typed)
    if found is None:
        raise BadAddress(
            typed,
            "expected RUN, RUN@e41 (event 41), RUN@t7 (turn 7), RUN@c3 (call c3) or @last, numbers counted from 1",
        )
    number = int(found["number"]) if found["number"] else None
    units = {"e": "event", "t": "turn", "c": "call"}
    return Address(found["run"], **({units[found["unit"]]: number} if number else {}))


def is_place(typed: str) -> bool:
    """Return whether an address names an event, a turn or a call. Raises `BadAddress`."""
    address = parse(typed)
    return (address.event, address.turn, address.call) != (None, None, None)


async def run_of(store: Store, typed: str) -> str:
    """Return the id of the run that an address without a place names. Raises `BadAddress`, `NoSuchRun`."""
    address = parse(typed)
    if is_place(typed):
        raise BadAddress(typed, f"expected a run without a place: remove what follows {address.run!r}")
    return await resolve_id(store, address.run)


def is_path(typed: str) -> bool:
    """Return whether a RUN argument is a path of transcripts: it has a slash, and run ids have none."""
    return "/" in typed or os.sep in typed


async def runs_of(store: Store, typed: Sequence[str]) -> list[str]:
    """Return the ids of the named runs, without duplicates. Raises as `run_of`."""
    return list(dict.fromkeys([await run_of(store, each) for each in typed]))


async def place_of(store: Store, typed: str) -> tuple[str, int | None]:
    """Return the run and the event number that an address names; for a turn, the event of its request; for a
    call, the response that made it.

    Without a place, the number is None. Raises `BadAddress`, `NoSuchRun`, `NoSuchTurn`, `NoSuchCall`.
    """
    address = parse(typed)
    run = await resolve_id(store, address.run)
    if address.turn is not None:
        return run, await request_of(store, run, address.turn)
    if address.call is not None:
        return run, await response_of(store, run, f"c{address.call}")
    if address.event is not None:
        await _check_event(store, run, typed, address.event)
    return run, address.event


async def events_of(store: Store, typed: str) -> tuple[str, int, int | None]:
    """Return the run, and the first and last event that an address names: one event, those of a turn, the
    response of a call, or 1 and None for all.

    Raises as `place_of`.
    """
    address = parse(typed)
    run = await resolve_id(store, address.run)
    if address.turn is not None:
        return run, *await span_of(store, run, address.turn)
    if address.call is not None:
        made = await response_of(store, run, f"c{address.call}")
        return run, made, made
    if address.event is None:
        return run, 1, None
    await _check_event(store, run, typed, address.event)
    return run, address.event, address.event


async def _check_event(store: Store, run: str, typed: str, event: int) -> None:
    last = (await store.head(run)).seq
    if event > last:
        raise BadAddress(typed, f"run {run} has events 1 to {figures.count(last)}")


async def resolve_id(store: Store, typed: str) -> str:
    """Return the id for `@last`, an id or a unique prefix of one. Raises `NoSuchRun`."""
    if typed == LAST:
        return await _newest(store)
    if (await store.head(typed)).seq:
        return typed
    candidates = await _match_ids(store, typed)
    if len(candidates) == 1:
        return candidates[0]
    more = len(candidates) > _LISTED
    if candidates:
        raise NoSuchRun(typed, "is ambiguous; it matches:", candidates[:_LISTED], more=more)
    newest = await _match_ids(store, "")
    problem = (
        "matches no run in this store; the newest are:" if newest else "matches no run: the store has none"
    )
    raise NoSuchRun(typed, problem, newest[:_LISTED], more=len(newest) > _LISTED)


async def shorten_ids(store: Store, runs: Sequence[str]) -> dict[str, str]:
    """Return the shortest unique prefix of each id, with at least `_SHORTEST` characters after its last
    hyphen.
    """
    short = {run: run for run in runs}
    for run in runs:
        for length in range(run.rfind("-") + 1 + _SHORTEST, len(run)):
            if await _match_ids(store, run[:length]) == [run]:
                short[run] = run[:length]
                break
    return short


async def _newest(store: Store) -> str:
    """Return the newest run that was not started by a call of another run."""
    newest = ""
    async for chunk in store.runs(""):
        for run in [run for run, head in chunk if head.seq]:
            newest = newest or run
            if not await _is_child(store, run):
                return run
    if not newest:
        raise NoSuchRun(LAST, "matches no run: the store has none", (), more=False)
    return newest


async def _is_child(store: Store, run: str) -> bool:
    for stored in await store.read_some(run, [1]):
        with suppress(Inconclusive, Damaged):  # reported when the run is read
            event = event_of(stored, content=False)
            began = isinstance(event, RunStarted) and (
                event.parent is not None or PARENT_LABEL in event.labels
            )
            return began and stored.run == run
    return False


async def _match_ids(store: Store, prefix: str) -> list[str]:
    found: list[str] = []
    async for chunk in store.runs(prefix):
        found += [run for run, head in chunk if head.seq]
        if len(found) > _LISTED:
            break
    return found[: _LISTED + 1]


class Problems:
    """Logs that could not be read to their ends: each is reported on stderr; the worst sets the exit code."""

    def __init__(self) -> None:
        self.code = 0

    def add(self, run: str, error: RefoldError) -> None:
        """Report one log. Results from its readable part stay valid."""
        judged = isinstance(error, Inconclusive)
        note(f"run {run}: {'inconclusive' if judged else 'DAMAGED'}: {error}")
        self.code = worst((self.code, Inconclusive.exit_code if judged else Damaged.exit_code))

    def end(self, ended: "ShardEnd") -> None:
        """End a part of a store, with the problem that kept it from being finished, if any."""
        if ended.problem:
            note(f"{ended.shard.name}: NOT READ: {ended.problem}")
            self.code = worst((self.code, ExternalFailure.exit_code))


def check_choice(typed: Sequence[str], *, everything: bool) -> None:
    """Require either named runs or `--all`. Raises `WrongUse`."""
    if bool(typed) == everything:
        raise WrongUse("expected one RUN or more, or --all; `refold ls` lists the runs")


async def select_runs(store: Store, typed: Sequence[str]) -> tuple[list[str], Damaged | None]:
    """Return the typed runs without duplicates, or else all that can be listed, and the damage that hides
    others.
    """
    if typed:
        return await runs_of(store, typed), None
    sizes, damage = await all_runs(store)
    return [run for run, _ in sizes], damage


async def all_runs(store: Store) -> tuple[list[tuple[str, int]], Damaged | None]:
    """Return all runs that can be listed, each with its number of events, and the damage that hides
    others.
    """
    runs: list[tuple[str, int]] = []
    try:
        async for chunk in store.runs():
            runs += [(run, head.seq) for run, head in chunk if head.seq]
        await store.check()
    except Damaged as error:
        return runs, error
    return runs, None


async def without_grown(store: Store, runs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Leave out imported runs that another of these runs contains and continues, so that each event counts
    once.
    """
    here, left = {run for run, _ in runs}, list[tuple[str, int]]()
    for run, size in runs:
        with suppress(Damaged, Inconclusive, UnknownRun):  # reported when the run is read
            if await continued_in(store, run) in here:
                continue
        left.append((run, size))
    if grown := len(runs) - len(left):
        note(f"{figures.quantity(grown, 'run')} left out: another run has the same events, and later ones")
    return left


async def choose_runs(
    store: Store, typed: Sequence[str], trouble: Problems, *, everything: bool
) -> list[tuple[str, int]]:
    """Return the named runs without duplicates, or all of the store, newest first, with their numbers of
    events.

    Raises `WrongUse`, `NoSuchRun`.
    """
    if typed and everything:
        raise WrongUse("expected RUN or --all, not both; without either, all runs are read")
    if typed:
        return await sizes_of(store, await runs_of(store, typed))
    runs: list[tuple[str, int]] = []
    try:
        async for chunk in store.runs():
            runs += [(run, head.seq) for run, head in chunk if head.seq]
    except Damaged as error:
        trouble.add("?", error)
    return runs


async def sizes_of(store: Store, runs: Sequence[str]) -> list[tuple[str, int]]:
    """Return each run with its number of events."""
    return [(run, (await store.head(run)).seq) for run in runs]


async def families_of(store: Store, runs: Iterable[str]) -> dict[str, str]:
    """Map each fork among the runs to its first ancestor: events that forks share are counted once."""
    families: dict[str, str] = {}
    for run in runs:
        with suppress(Damaged):  # reported when the run is read
            lineage = await store.lineage(run)
            if lineage:
                families[run] = lineage[0].run
    return families


T = TypeVar("T")

Problem = Damaged | Inconclusive


class UnreadRuns(NamedTuple):
    """Runs that a sweep could not read, by id, and the first error, None if all were read."""

    runs: list[str]
    problem: Problem | None


def unread_note(runs: Sequence[str]) -> str:
    """Describe unread runs, to append to a result; "" if all were read."""
    return f"; {figures.quantity(len(runs), 'run')} could not be read" if runs else ""


_MOVED = kind_of(StateChanged)
_LAST = 100  # events: a step of a run changes its state every few


class Oldest(Generic[T]):
    """Keeps the `most` oldest entries; `count` is the number of all that were added."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[int, int, T]] = []
        self.count = 0

    def add(self, since: int, found: T) -> None:
        """Add an entry with its start `since`."""
        self.count += 1
        # The newest entry is dropped first; of simultaneous ones, the last added.
        entry = (-since, -self.count, found)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    @property
    def rows(self) -> list[T]:
        """The kept entries, oldest first."""
        return [found for _, _, found in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


async def sweep(store: Store, look: Callable[[str], Awaitable[None]], *, waiting: bool = False) -> UnreadRuns:
    """Call `look` for each run, or only for those that may be `waiting` for an operator. Return the
    unreadable ones.

    A run that cannot be read does not stop the sweep.
    """
    problem: Problem | None = None
    unread: list[str] = []
    try:
        async for chunk in store.runs():
            for run, head in chunk:
                try:
                    if head.seq and (not waiting or await _may_wait(store, run, head)):
                        await look(run)
                except (Damaged, Inconclusive) as error:
                    problem = problem or error
                    unread.append(run)
    except Damaged as error:
        return UnreadRuns(unread, problem or error)
    return UnreadRuns(unread, problem)


async def _may_wait(store: Store, run: str, head: Head) -> bool:
    """Return whether the last state change allows that the run waits for an operator. Most logs need not be
    read in full.

    True if the last events have no state change, as after many notes.
    """
    moved: Stored | None = None
    async for chunk in store.read(run, after=max(0, head.seq - _LAST), upto=head.seq):
        moved = next((each for each in reversed(chunk) if each.kind == _MOVED), moved)
    event = event_of(moved) if moved is not None else None
    return not isinstance(event, StateChanged) or event.target.awaits_operator
