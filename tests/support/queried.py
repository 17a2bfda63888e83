"""Logs as records, for questions that are asked of records and not of a store."""

from collections.abc import Sequence

from hypothesis import strategies as st

from refold.reducers.events import Annotation, Event, Fact
from refold.store import GENESIS, Head, MemoryStore
from refold.store.chain import extend
from refold.store.protocol import Record, Stored
from refold.testing.strategies.driver import Driver, drive
from refold.testing.strategies.policies import policies
from support.forging import recorded, write

choices = st.lists(st.integers(0, 10_000), min_size=5, max_size=60)


def driven() -> st.SearchStrategy[Driver]:
    """Whole runs of some length, ended or not, under any policy."""
    return st.builds(drive, policies(), choices)


def records(log: Sequence[Event], salt: bytes = b"salt") -> list[Record]:
    """The events as they are appended, each at its instant: a decision has that of its fact."""
    at, made = 0, list[Record]()
    for event in log:
        at = event.at if isinstance(event, Fact | Annotation) else at
        made.append(recorded(event, at, salt))
    return made


def kept(log: Sequence[Event], run: str = "r1") -> list[Stored]:
    """The events as a store has them."""
    return extend(run, Head(seq=0, hash=GENESIS), records(log))


async def holding(**logs: Sequence[Event]) -> MemoryStore:
    """A store with these runs, by their ids."""
    store = MemoryStore()
    for run, log in logs.items():
        await write(store, run, records(log))
    return store
