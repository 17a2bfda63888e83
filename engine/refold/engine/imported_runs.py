"""Runs that were imported: evidence of what another program's agent did, in which nothing is ever decided here.

Their agent is not ours, and neither are its tools: to answer, stop or drive such a run would write into the log
what never happened. A fork of one is ours, and begins with an event of its own.
"""

from refold.engine.journal import event_of
from refold.reducers.errors import WrongUse
from refold.reducers.events import RunStarted
from refold.reducers.vocabulary import SOURCE_LABEL
from refold.store.protocol import Store


class RunImported(WrongUse):
    """Something was to be decided in an imported run. Nothing was written. `source` is the format it came from."""

    def __init__(self, run: str, source: str) -> None:
        super().__init__(run, source)
        self.run, self.source = run, source

    def __str__(self) -> str:
        return (
            f"run {self.run} was imported ({self.source}): its agent is not ours, and what would be decided here "
            f"never happened; go on from it in a fork: `refold fork {self.run}`"
        )


async def opening_of(store: Store, run: str) -> RunStarted | None:
    """Event 1 of a run, of a fork that of the run at its root; None for a run that is not there."""
    events = [event_of(stored) for stored in await store.read_some(run, [1])]
    return next((event for event in events if isinstance(event, RunStarted)), None)


async def source_of(store: Store, run: str) -> str:
    """The format of which the run was imported; "" for one of our own, which a fork of an imported one is too."""
    opened = await opening_of(store, run)
    return opened.labels.get(SOURCE_LABEL, "") if opened and opened.run == run else ""


async def refuse_imported(store: Store, run: str) -> None:
    """Raise `RunImported` for one: before its lease is taken, so that nothing of it changes."""
    if source := await source_of(store, run):
        raise RunImported(run, source)
