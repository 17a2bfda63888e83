"""Logs read for people who were not there: events as they stand, one after the other, never a whole run at once."""

from collections.abc import AsyncIterator, Iterator, Sequence
from types import MappingProxyType

from refold.reducers import codec
from refold.reducers.errors import DamagedLog, RefoldError
from refold.reducers.events import Event
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.state import NEW, RunState
from refold.reducers.views import needed_to_go_on
from refold.store.protocol import Store, Stored, UnknownRun

NO_GUARDS: Registry = MappingProxyType({})
"""For whoever asks no guard anything: what guards decided stands in the log, and asking them again is half of folding."""


class Records(AsyncIterator[Stored]):
    """A run's records in order, behind event `after`. No generator: one left half-way would be an event loop's to finalise.

    Raises as `Store.read`, `checked` or not, and `UnknownRun` where there are none.
    """

    def __init__(
        self, store: Store, run: str, upto: int | None = None, *, after: int = 0, checked: bool = True
    ) -> None:
        self._run, self._chunks = run, store.read(run, after, upto, checked=checked)
        self._chunk: Iterator[Stored] = iter(())
        self._any = after > 0

    async def __anext__(self) -> Stored:
        while (stored := next(self._chunk, None)) is None:
            self._chunk = iter(await self._following())
        self._any = True
        return stored

    async def _following(self) -> Sequence[Stored]:
        try:
            return await anext(self._chunks)
        except StopAsyncIteration:
            if not self._any:
                raise UnknownRun(self._run) from None
            raise


class Events(AsyncIterator[tuple[Stored, Event]]):
    """A run's events in order, each with its record."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def __anext__(self) -> tuple[Stored, Event]:
        stored = await anext(self._records)
        return stored, event_of(stored)


def stored_events(store: Store, run: str, upto: int | None = None) -> Records:
    """The run's records in order. Raises `UnknownRun` if it has none."""
    return Records(store, run, upto)


def event_of(stored: Stored, *, content: bool = True) -> Event:
    """The event of a record, without what was said unless `content`. Raises `DamagedLog` or `NewerLog`, naming the event."""
    said = stored.content if content else None
    return codec.decode(stored.kind, stored.body, said, run=stored.run, seq=stored.seq)


def events(store: Store, run: str, upto: int | None = None) -> Events:
    """The run's events in order, each with its record."""
    return Events(Records(store, run, upto))


async def state_at(
    store: Store, run: str, upto: int | None = None, registry: Registry = BUILTIN
) -> tuple[RunState, dict[int, Event]]:
    """The state after event `upto` (None: the last), and the events whose words a view of it needs."""
    state = NEW
    async for stored, event in events(store, run, upto):
        state = folded(state, stored, event, registry)
    return state, await words_of(store, run, state)


async def words_of(store: Store, run: str, state: RunState) -> dict[int, Event]:
    """The events whose words a view of this state of the run needs, by their numbers."""
    needed = await store.read_some(run, needed_to_go_on(state))
    return {stored.seq: event_of(stored) for stored in needed if stored.content is not None}


def folded(state: RunState, stored: Stored, event: Event, registry: Registry = BUILTIN) -> RunState:
    """The state after an event. Raises `DamagedLog`, naming the event, where it cannot stand."""
    if stored.seq != state.seq + 1:
        raise DamagedLog(stored.run, stored.seq, f"event {state.seq + 1} is missing before it")
    try:
        return evolve(state, event, registry)
    except RefoldError as error:
        raise DamagedLog(stored.run, stored.seq, str(error)) from error
