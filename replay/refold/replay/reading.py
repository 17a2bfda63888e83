"""Logs read for people who were not there: events as they stand, one after the other, never a whole run at once."""

from collections.abc import AsyncIterator

from refold.reducers import codec
from refold.reducers.errors import DamagedLog, RefoldError
from refold.reducers.events import Event
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.state import NEW, RunState
from refold.reducers.views import remembered
from refold.store.protocol import Store, Stored, UnknownRun


async def stored_events(store: Store, run: str, upto: int | None = None) -> AsyncIterator[Stored]:
    """The run's records in order. Raises `UnknownRun` if it has none."""
    empty = True
    async for chunk in store.read(run, 0, upto):
        for stored in chunk:
            empty = False
            yield stored
    if empty:
        raise UnknownRun(run)


def event_of(stored: Stored) -> Event:
    """The event of a record. Raises `DamagedLog` or `NewerLog`, naming the event."""
    return codec.decode(stored.kind, stored.body, stored.content, run=stored.run, seq=stored.seq)


async def events(store: Store, run: str, upto: int | None = None) -> AsyncIterator[tuple[Stored, Event]]:
    """The run's events in order, each with its record."""
    async for stored in stored_events(store, run, upto):
        yield stored, event_of(stored)


async def state_at(
    store: Store, run: str, upto: int | None = None, registry: Registry = BUILTIN
) -> tuple[RunState, dict[int, Event]]:
    """The state after event `upto` (None: the last), and the events whose words a view of it needs."""
    state, seen = NEW, dict[int, Event]()
    async for stored, event in events(store, run, upto):
        state = folded(state, stored, event, registry)
        if getattr(event, "content", None) is not None:
            seen[stored.seq] = event
            if len(seen) > 2 * state.window.count + 64:
                seen = remembered(state, seen)
    return state, remembered(state, seen)


def folded(state: RunState, stored: Stored, event: Event, registry: Registry = BUILTIN) -> RunState:
    """The state after an event. Raises `DamagedLog`, naming the event, where it cannot stand."""
    if stored.seq != state.seq + 1:
        raise DamagedLog(stored.run, stored.seq, f"event {state.seq + 1} is missing before it")
    try:
        return evolve(state, event, registry)
    except RefoldError as error:
        raise DamagedLog(stored.run, stored.seq, str(error)) from error
