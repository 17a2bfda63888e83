"""Which runs a question is about, and looking through all runs of a store."""

import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from refold.console import addresses
from refold.console.screen import note, worst
from refold.reducers.errors import CannotJudge, Damaged, RefoldError, WorldFailed, WrongUse
from refold.reducers.events import StateChanged, kind_of
from refold.replay import figures
from refold.replay.reader import event_of
from refold.replay.summary import goes_on_in
from refold.store.protocol import Head, Store, Stored, UnknownRun

if TYPE_CHECKING:
    from refold.replay.bulk import Ended


class Trouble:
    """Logs that could not be read to their ends: each is told on stderr, and the worst decides the exit code."""

    def __init__(self) -> None:
        self.code = 0

    def add(self, run: str, error: RefoldError) -> None:
        """One log more; what was found in it before stays found."""
        judged = isinstance(error, CannotJudge)
        note(f"run {run}: {'cannot be judged' if judged else 'DAMAGED'}: {error}")
        self.code = worst((self.code, CannotJudge.exit_code if judged else Damaged.exit_code))

    def end(self, ended: "Ended") -> None:
        """There is no more from a part of a store, which nobody may have finished."""
        if ended.problem:
            note(f"{ended.shard.name}: NOT LOOKED AT: {ended.problem}")
            self.code = worst((self.code, WorldFailed.exit_code))


def check_choice(typed: Sequence[str], *, everything: bool) -> None:
    """Runs are named, or all are meant, and not both. Raises `WrongUse`."""
    if bool(typed) == everything:
        raise WrongUse("expected one RUN or more, or --all; `refold ls` lists the runs")


async def meant(store: Store, typed: Sequence[str]) -> tuple[list[str], Damaged | None]:
    """The runs that were named, each once; where none was, all that can be listed, and what is wrong with others."""
    if typed:
        return await addresses.runs_of(store, typed), None
    sizes, damage = await all_runs(store)
    return [run for run, _ in sizes], damage


async def all_runs(store: Store) -> tuple[list[tuple[str, int]], Damaged | None]:
    """All runs that can be listed, each with its number of events; and what is wrong with others, or hides some."""
    runs: list[tuple[str, int]] = []
    try:
        async for chunk in store.runs():
            runs += [(run, head.seq) for run, head in chunk if head.seq]
        await store.check()
    except Damaged as error:
        return runs, error
    return runs, None


async def without_grown(store: Store, runs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """These runs but for imported ones that another of them has whole, with what came later: each event counts once."""
    here, left = {run for run, _ in runs}, list[tuple[str, int]]()
    for run, size in runs:
        with suppress(Damaged, CannotJudge, UnknownRun):  # it is told of where it is read
            if await goes_on_in(store, run) in here:
                continue
        left.append((run, size))
    if grown := len(runs) - len(left):
        some = "1 run goes" if grown == 1 else f"{grown} runs go"
        note(f"{some} on in another, which has all of it: looked at there")
    return left


async def chosen(
    store: Store, typed: Sequence[str], trouble: Trouble, *, everything: bool
) -> list[tuple[str, int]]:
    """The runs that were named, each once, or all of the store, the newest first; with their numbers of events.

    Raises `WrongUse`, `NoSuchRun`.
    """
    if typed and everything:
        raise WrongUse("expected RUN or --all, not both; without either, all runs are meant")
    if typed:
        return await sizes_of(store, await addresses.runs_of(store, typed))
    runs: list[tuple[str, int]] = []
    try:
        async for chunk in store.runs():
            runs += [(run, head.seq) for run, head in chunk if head.seq]
    except Damaged as error:
        trouble.add("?", error)
    return runs


async def sizes_of(store: Store, runs: Sequence[str]) -> list[tuple[str, int]]:
    """The runs, each with its number of events."""
    return [(run, (await store.head(run)).seq) for run in runs]


async def families_of(store: Store, runs: Iterable[str]) -> dict[str, str]:
    """Of each fork among the runs the run that the first of its ancestors is: what they share is to be counted once."""
    families: dict[str, str] = {}
    for run in runs:
        with suppress(Damaged):  # it is told of where it is read
            lineage = await store.lineage(run)
            if lineage:
                families[run] = lineage[0].run
    return families


T = TypeVar("T")

Problem = Damaged | CannotJudge


class Unread(NamedTuple):
    """What a pass could not read: the runs by their ids, and the first error, None where everything was read."""

    runs: list[str]
    problem: Problem | None


def not_read(runs: Sequence[str]) -> str:
    """In words, to stand behind what was found in the others; "" where all were read."""
    return f"; {figures.counted(len(runs), 'run')} could not be read" if runs else ""


_MOVED = kind_of(StateChanged)
_LAST = 100  # events: a step of a run changes its state every few


class Oldest(Generic[T]):
    """The oldest of what was found, `most` at most; `count` is how many there were."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[int, int, T]] = []
        self.count = 0

    def add(self, since: int, found: T) -> None:
        """One more, of the instant `since`."""
        self.count += 1
        # The newest comes out first; of several of one instant, the one that was added last.
        entry = (-since, -self.count, found)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    @property
    def rows(self) -> list[T]:
        """What was kept, the oldest first."""
        return [found for _, _, found in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


async def sweep(store: Store, look: Callable[[str], Awaitable[None]], *, waiting: bool = False) -> Unread:
    """Look at each run, or at those that may be `waiting` for a person. What could not be read.

    One that cannot be read does not keep the others from being looked at.
    """
    problem: Problem | None = None
    unread: list[str] = []
    try:
        async for chunk in store.runs():
            for run, head in chunk:
                try:
                    if head.seq and (not waiting or await _may_wait(store, run, head)):
                        await look(run)
                except (Damaged, CannotJudge) as error:
                    problem = problem or error
                    unread.append(run)
    except Damaged as error:
        return Unread(unread, problem or error)
    return Unread(unread, problem)


async def _may_wait(store: Store, run: str, head: Head) -> bool:
    """Whether the last change of state says so: most runs do not, and their logs need not be read for it.

    True where only the whole log tells, as behind many notes.
    """
    moved: Stored | None = None
    async for chunk in store.read(run, after=max(0, head.seq - _LAST), upto=head.seq):
        moved = next((each for each in reversed(chunk) if each.kind == _MOVED), moved)
    event = event_of(moved) if moved is not None else None
    return not isinstance(event, StateChanged) or event.target.awaits_operator
