"""Positions in a log: turns, and places where it can be cut.

The rule is in `refold.reducers.pending`.
"""

from collections.abc import Callable

from refold.reducers.errors import WrongUse
from refold.reducers.events import InputReceived, ModelRequested, ModelResponded, kind_of
from refold.reducers.pending import underway, whole
from refold.reducers.state import NEW, RunState
from refold.replay.reader import Follower, Step, event_of, events, run_follower, stored_events
from refold.store.protocol import Store

Suits = Callable[[RunState], bool]
"""Condition on the state at which a fork begins, for the purpose of the fork."""


class NoSuchCall(WrongUse):
    """The run has no call with this id."""

    def __init__(self, run: str, call: str, calls: int) -> None:
        super().__init__(run, call, calls)
        self.run, self.call, self.calls = run, call, calls

    def __str__(self) -> str:
        known = f"its calls are c1 to c{self.calls}" if self.calls else "it has no calls"
        return f"run {self.run} has no call {self.call}: {known}"


async def response_of(store: Store, run: str, call: str) -> int:
    """Return the number of the event of the response that made a call. Raises `NoSuchCall`."""
    calls = 0
    async for stored in stored_events(store, run):
        if stored.kind != "model_responded":
            continue
        event = event_of(stored, content=False)
        if isinstance(event, ModelResponded):
            calls += len(event.calls)
            if any(each.id == call for each in event.calls):
                return stored.seq
    raise NoSuchCall(run, call, calls)


class NoCut(WrongUse):
    """The log cannot be cut at this place.

    `before` and `after` are the nearest possible places, None if there is none.
    """

    def __init__(self, run: str, at: int | None, why: str, before: int | None, after: int | None) -> None:
        super().__init__(run, at, why, before, after)
        self.run, self.at, self.why, self.before, self.after = run, at, why, before, after

    def __str__(self) -> str:
        places = [f"event {place}" for place in (self.before, self.after) if place is not None]
        way_out = f"the nearest places are {' and '.join(places)}" if places else "no other place is possible"
        where = "" if self.at is None else f" after event {self.at}"
        return f"run {self.run} cannot be cut{where}: {self.why}; {way_out}"


class _Places(Follower["_Places"]):
    """Finds places where a log can be cut, given a state and the kind of the next event."""

    folds = True

    def __init__(self, at: int | None, suits: Suits) -> None:
        self._at, self._suits = at, suits
        self.before: int | None = None  # the last possible one at or before the place, or of all
        self.after: int | None = None  # the first possible one after it
        self.state: RunState = NEW  # at the place
        self.following = ""
        self.last: RunState = NEW

    def take(self, step: Step) -> None:
        """Check the place before this event. Raises as `Step.after`."""
        if self.last.seq:
            self._check(self.last, step.stored.kind)
        self.last = step.after

    def end(self) -> None:
        """Check the place after the last event."""
        self._check(self.last, None)

    def result(self) -> "_Places":
        """Return this object, which holds the results."""
        return self

    def _check(self, state: RunState, following: str | None) -> None:
        if state.seq == self._at:
            self.state, self.following = state, following or ""
        if not whole(state, following) or not self._suits(state):
            return
        if self._at is None or state.seq <= self._at:
            self.before = state.seq
        elif self.after is None:
            self.after = state.seq


async def cut(store: Store, run: str, at: int | None = None, suits: Suits = lambda state: True) -> int:  # noqa: ARG005
    """Return the event after which to cut the log: `at` if possible; for None the last possible one.

    Raises `NoCut` with the nearest places, `UnknownRun`, `DamagedLog`.
    """
    places = await _places(store, run, at, suits)
    if places.before is None or at not in (None, places.before):
        raise NoCut(run, at, _why(places, at), places.before, places.after)
    return places.before


async def cut_from(store: Store, run: str, at: int) -> int:
    """Return the first event from `at` on after which the log can be cut, so that its decisions are included.

    Raises as `cut`.
    """
    places = await _places(store, run, at, lambda state: True)  # noqa: ARG005
    found = at if places.before == at else places.after
    if found is None:
        raise NoCut(run, at, _why(places, at), places.before, None)
    return found


def have_calls(calls: frozenset[str]) -> Suits:
    """Return a condition: these calls are in progress, so a fork can supply their results."""
    return lambda state: calls <= {call.id for call in underway(state)}


def accepts_message(state: RunState) -> bool:
    """Return whether a user message can join: no calls, approval or stop are in progress."""
    return state.batch is None and state.approval is None and state.stopping is None


async def _places(store: Store, run: str, at: int | None, suits: Suits) -> _Places:
    places = await run_follower(_Places(at, suits), store, run)
    if at is not None and not 0 < at <= places.last.seq:
        raise NoCut(run, at, f"it has events 1 to {places.last.seq}", places.before, places.after)
    return places


def _why(places: _Places, at: int | None) -> str:
    if at is None:
        return "no place in it suits the fork"
    if places.state.ended:
        return f"it has ended there ({places.state.agent_state})"
    if not whole(places.state, places.following or None):
        return f"event {at + 1} ({places.following}) was decided together with it"
    return "the requested fork is not possible there"


_REQUESTED, _SAID = kind_of(ModelRequested), kind_of(InputReceived)


class NoSuchTurn(WrongUse):
    """The run has no turn of this number, or none at all."""

    def __init__(self, run: str, step: int | None, turns: int) -> None:
        super().__init__(run, step, turns)
        self.run, self.step, self.turns = run, step, turns

    def __str__(self) -> str:
        had = f"it has turns 1 to {self.turns}" if self.turns else "it made no request"
        return f"run {self.run} has no turn {self.step or 1}: {had}"


async def request_of(store: Store, run: str, step: int | None = None) -> int:
    """Return the event number of turn `step`'s request, or of its last attempt. None: the last turn.

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
    """Return the first and the last event number of turn `step`.

    A turn begins with its request, or with the user message before it, and ends before the next turn. Raises
    as `request_of`.
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
