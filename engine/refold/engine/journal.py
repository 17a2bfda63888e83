"""The engine's hold on one run's log: events out as records, and back into a state and the words it needs."""

from collections.abc import Sequence

from refold.engine import prune_log
from refold.reducers import codec
from refold.reducers.errors import DamagedLog, RefoldError, WrongUse
from refold.reducers.events import Annotation, Event, Fact
from refold.reducers.evolution import evolve
from refold.reducers.guards import Registry
from refold.reducers.state import NEW, RunState
from refold.reducers.views import remembered
from refold.store.protocol import Conflict, Lease, Record, Store, Stored, UnknownRun


class RunExists(WrongUse):
    """A run was to be started under an id that the store has already. Nothing was written."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        return f"there is a run {self.run!r} in this store already; take another id, or resume it"


class Journal:
    """Appends what was decided, and keeps the contents that a view of the present state needs: no more.

    `contents` has the events of the window and of the open batch, by their numbers.
    """

    def __init__(self, store: Store, run: str) -> None:
        self.store, self._run = store, run
        self._lease: Lease | None = None
        self.contents: dict[int, Event] = {}

    async def load(self, registry: Registry) -> RunState:
        """The state that the log says. Raises `UnknownRun`, or `Damaged` naming the event that cannot stand."""
        state = NEW
        async for chunk in self.store.read(self._run):
            for stored in chunk:
                state = self._folded(state, stored, registry)
        if state.seq == 0:
            raise UnknownRun(self._run)
        return state

    async def append(self, before: RunState, after: RunState, events: Sequence[Event], salt: bytes) -> None:
        """Write one fact and what followed from it: on disk when this returns, or nothing of it is."""
        if self._lease is None:
            self._lease = await self.store.lease(self._run)
        records = [record(event, max(before.at, after.at), salt) for event in events]
        try:
            await self.store.append(self._run, before.seq, self._lease, records)
        except Conflict as error:
            if before.seq == 0:
                raise RunExists(self._run) from error
            raise
        prune_log.tell(self._run, before.seq + 1, after, events)
        for place, event in enumerate(events):
            self._keep(before.seq + 1 + place, event, after)

    def _folded(self, state: RunState, stored: Stored, registry: Registry) -> RunState:
        event = codec.decode(stored.kind, stored.body, stored.content, run=stored.run, seq=stored.seq)
        if stored.seq != state.seq + 1:
            raise DamagedLog(stored.run, stored.seq, f"event {state.seq + 1} is missing before it")
        try:
            state = evolve(state, event, registry)
        except RefoldError as error:
            raise DamagedLog(stored.run, stored.seq, str(error)) from error
        self._keep(stored.seq, event, state)
        return state

    def _keep(self, seq: int, event: Event, state: RunState) -> None:
        if getattr(event, "content", None) is None:
            return
        self.contents[seq] = event
        # Looking through the window costs as much as the window: do it when it pays, not at each event.
        if len(self.contents) > 2 * state.window.count + 64:
            self.contents = remembered(state, self.contents)


def record(event: Event, at: int, salt: bytes) -> Record:
    """An event as the store takes it. The salt blinds what the world said; the harness's own words need none."""
    encoded = codec.encode(event)
    blinded = encoded.content is not None and isinstance(event, Fact | Annotation)
    return Record(
        at=at,
        kind=encoded.kind,
        body=encoded.body,
        content=encoded.content,
        salt=salt if blinded else b"",
    )
