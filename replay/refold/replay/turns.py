"""Where in a log a turn is: the event of its request, and all of its events."""

from refold.reducers.errors import WrongUse
from refold.reducers.events import InputReceived, ModelRequested, kind_of
from refold.replay.reader import event_of, events, stored_events
from refold.store.protocol import Store

_REQUESTED, _SAID = kind_of(ModelRequested), kind_of(InputReceived)


class NoSuchTurn(WrongUse):
    """The run has no turn of this number, or none at all."""

    def __init__(self, run: str, step: int | None, turns: int) -> None:
        super().__init__(run, step, turns)
        self.run, self.step, self.turns = run, step, turns

    def __str__(self) -> str:
        had = f"it has turns 1 to {self.turns}" if self.turns else "no request was made in it"
        return f"run {self.run} has no turn {self.step or 1}: {had}"


async def request_of(store: Store, run: str, step: int | None = None) -> int:
    """The number of the event that made turn `step`'s request; of several attempts the last. None: the last turn.

    Raises `NoSuchTurn`, `UnknownRun`, `DamagedLog`.
    """
    found, turns = 0, 0
    async for stored, event in events(store, run):
        if isinstance(event, ModelRequested):
            turns = event.step
            if step is not None and turns > step:
                break
            found = stored.seq if step in (None, turns) else found
    if not found:
        raise NoSuchTurn(run, step, turns)
    return found


async def span_of(store: Store, run: str, step: int) -> tuple[int, int]:
    """The numbers of the first and the last event of turn `step`: from its request, or a person's message that began it, to
    what is before the next turn.

    Raises as `request_of`.
    """
    first, said, last, turns = 0, 0, 0, 0
    async for stored in stored_events(store, run):
        asked = event_of(stored, content=False) if stored.kind == _REQUESTED else None
        said = said or (stored.seq if stored.kind == _SAID else 0)
        if isinstance(asked, ModelRequested):
            turns = asked.step
            if turns > step:
                break
            first = first or (said or stored.seq if turns == step else 0)
            said, last = 0, stored.seq
        last = last if said else stored.seq
    if not first:
        raise NoSuchTurn(run, step, turns)
    return first, last
