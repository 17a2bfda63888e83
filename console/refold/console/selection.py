"""Which runs a question is about, and what kept it from being answered of some of them."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from refold.console import addresses
from refold.console.codes import worst
from refold.console.screen import note
from refold.reducers.errors import CannotJudge, Damaged, RefoldError, WorldFailed, WrongUse
from refold.replay.summary import goes_on_in
from refold.store.protocol import Store, UnknownRun

if TYPE_CHECKING:
    from refold.replay.shards import Ended


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
