"""What a person types to mean a run, or a place in one: `RUN`, `RUN@e41`, `RUN@t7`, `@last`, or a prefix of an id."""

import re
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from refold.console import descriptions
from refold.reducers.errors import CannotJudge, Damaged, WrongUse
from refold.reducers.events import RunStarted
from refold.reducers.source_marks import PARENT_LABEL
from refold.replay import figures
from refold.replay.cuts import request_of, span_of
from refold.replay.reader import event_of
from refold.store.protocol import Store

LAST = "@last"
_ADDRESS = re.compile(r"(?P<run>@last|[^@\s]+)(?:@(?P<unit>[et])(?P<number>[1-9][0-9]{0,11}))?")
_LISTED = 8
_SHORTEST = 4


class Address(msgspec.Struct, frozen=True):
    """A run as it was typed, and perhaps an event or a turn in it, counted from 1."""

    run: str
    event: int | None = None
    turn: int | None = None


class BadAddress(WrongUse):
    """An address that means nothing here; `problem` says why."""

    def __init__(self, typed: str, problem: str) -> None:
        super().__init__(typed, problem)
        self.typed, self.problem = typed, problem

    def __str__(self) -> str:
        return f"{self.typed!r}: {self.problem}"


class NoSuchRun(WrongUse):
    """An address that matches no run or several; `candidates` are ids to choose from, `more` says there are others."""

    def __init__(self, typed: str, problem: str, candidates: Sequence[str], *, more: bool) -> None:
        super().__init__(typed, problem, tuple(candidates), more)
        self.typed, self.problem, self.candidates, self.more = typed, problem, tuple(candidates), more

    @property
    def lines(self) -> list[str]:
        """The message's lines: what the parts say is no end of one."""
        told = [f"{self.typed!r} {self.problem}", *(f"  {each}" for each in self.candidates)]
        return [*told, "  …"] if self.more else told

    def __str__(self) -> str:
        return "\n".join(map(descriptions.line, self.lines))


def parse(typed: str) -> Address:
    """The address that was typed. Raises `BadAddress`."""
    found = _ADDRESS.fullmatch(typed)
    if found is None:
        raise BadAddress(
            typed, "expected RUN, RUN@e41 (event 41), RUN@t7 (turn 7) or @last, numbers counted from 1"
        )
    number = int(found["number"]) if found["number"] else None
    event, turn = (number, None) if found["unit"] == "e" else (None, number)
    return Address(found["run"], event, turn)


def is_place(typed: str) -> bool:
    """Whether an address means a place in a run. Raises `BadAddress`."""
    address = parse(typed)
    return address.event is not None or address.turn is not None


async def run_of(store: Store, typed: str) -> str:
    """The id of the run that an address without a place means. Raises `BadAddress`, `NoSuchRun`."""
    address = parse(typed)
    if is_place(typed):
        raise BadAddress(typed, f"expected a whole run here: leave out what follows {address.run!r}")
    return await resolved(store, address.run)


async def runs_of(store: Store, typed: Sequence[str]) -> list[str]:
    """The ids of the runs that were named, each once. Raises as `run_of`."""
    return list(dict.fromkeys([await run_of(store, each) for each in typed]))


async def place_of(store: Store, typed: str) -> tuple[str, int | None]:
    """The run and the number of the event that an address means; a turn is where its request was made.

    None where no place was typed. Raises `BadAddress`, `NoSuchRun`, `NoSuchTurn`.
    """
    address = parse(typed)
    run = await resolved(store, address.run)
    if address.turn is not None:
        return run, await request_of(store, run, address.turn)
    if address.event is not None:
        await _check_event(store, run, typed, address.event)
    return run, address.event


async def events_of(store: Store, typed: str) -> tuple[str, int, int | None]:
    """The run, and the first and the last of the events that an address means: one, those of a turn, or 1 and None for all.

    Raises as `place_of`.
    """
    address = parse(typed)
    run = await resolved(store, address.run)
    if address.turn is not None:
        return run, *await span_of(store, run, address.turn)
    if address.event is None:
        return run, 1, None
    await _check_event(store, run, typed, address.event)
    return run, address.event, address.event


async def _check_event(store: Store, run: str, typed: str, event: int) -> None:
    last = (await store.head(run)).seq
    if event > last:
        raise BadAddress(typed, f"run {run} has events 1 to {figures.count(last)}")


async def resolved(store: Store, typed: str) -> str:
    """The id that `@last`, an id or a unique prefix of one means. Raises `NoSuchRun`."""
    if typed == LAST:
        return await _newest(store)
    if (await store.head(typed)).seq:
        return typed
    candidates = await _some(store, typed)
    if len(candidates) == 1:
        return candidates[0]
    more = len(candidates) > _LISTED
    if candidates:
        raise NoSuchRun(typed, "is how several runs begin; type more of it:", candidates[:_LISTED], more=more)
    newest = await _some(store, "")
    problem = "is no run in this store; its newest are:" if newest else "is no run: this store has none"
    raise NoSuchRun(typed, problem, newest[:_LISTED], more=len(newest) > _LISTED)


async def shortened(store: Store, runs: Sequence[str]) -> dict[str, str]:
    """Of each id so much of its beginning as no other run of the store has: behind its last hyphen at least `_SHORTEST`."""
    short = {run: run for run in runs}
    for run in runs:
        for length in range(run.rfind("-") + 1 + _SHORTEST, len(run)):
            if await _some(store, run[:length]) == [run]:
                short[run] = run[:length]
                break
    return short


async def _newest(store: Store) -> str:
    """The newest run that no call of another began."""
    newest = ""
    async for chunk in store.runs(""):
        for run in [run for run, head in chunk if head.seq]:
            newest = newest or run
            if not await _is_child(store, run):
                return run
    if not newest:
        raise NoSuchRun(LAST, "is no run: this store has none", (), more=False)
    return newest


async def _is_child(store: Store, run: str) -> bool:
    for stored in await store.read_some(run, [1]):
        with suppress(CannotJudge, Damaged):  # whoever reads on says what is wrong
            event = event_of(stored, content=False)
            began = isinstance(event, RunStarted) and (
                event.parent is not None or PARENT_LABEL in event.labels
            )
            return began and stored.run == run
    return False


async def _some(store: Store, prefix: str) -> list[str]:
    found: list[str] = []
    async for chunk in store.runs(prefix):
        found += [run for run, head in chunk if head.seq]
        if len(found) > _LISTED:
            break
    return found[: _LISTED + 1]
