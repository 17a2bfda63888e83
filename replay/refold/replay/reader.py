"""Read logs event by event, in one pass for all followers.

A `Step` decodes its event lazily and at most once, and all followers share one fold. A follower that fails
stores the error as its `problem`, and the others continue.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

from refold.reducers import codec
from refold.reducers.errors import Damaged, DamagedLog, Inconclusive, RefoldError
from refold.reducers.events import Event
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.state import NEW, RunState
from refold.reducers.views import needed_to_go_on
from refold.store.chain import START, find_damage
from refold.store.protocol import Head, Store, Stored, UnknownRun

NO_GUARDS: Registry = MappingProxyType({})
"""Empty registry for readers that need no guard verdicts: they are in the log, and guards take half of the
folding time.
"""


class Records(AsyncIterator[Stored]):
    """Iterator over a run's records after event `after`.

    It is not a generator, because an abandoned one would be left to the event loop to finalize. Raises as
    `Store.read`, `checked` or not, and `UnknownRun` for a run without records.
    """

    def __init__(
        self, store: Store, run: str, upto: int | None = None, *, after: int = 0, checked: bool = True
    ) -> None:
        self._run, self._chunks = run, store.read(run, after, upto, checked=checked)
        self._chunk: Iterator[Stored] = iter(())
        self._any = after > 0

    async def __anext__(self) -> Stored:
        while (stored := next(self._chunk, None)) is None:
            self._chunk = iter(await self._next_chunk())
        self._any = True
        return stored

    async def _next_chunk(self) -> Sequence[Stored]:
        try:
            return await anext(self._chunks)
        except StopAsyncIteration:
            if not self._any:
                raise UnknownRun(self._run) from None
            raise


class Events(AsyncIterator[tuple[Stored, Event]]):
    """Iterator over a run's events, each with its record."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def __anext__(self) -> tuple[Stored, Event]:
        stored = await anext(self._records)
        return stored, event_of(stored)


def stored_events(store: Store, run: str, upto: int | None = None) -> Records:
    """Return the run's records in order. Raises `UnknownRun` if it has none."""
    return Records(store, run, upto)


def event_of(stored: Stored, *, content: bool = True) -> Event:
    """Decode the event of a record, with its payload only if `content`. Raises `DamagedLog` or `NewerLog`."""
    said = stored.content if content else None
    return codec.decode(stored.kind, stored.body, said, run=stored.run, seq=stored.seq)


def events(store: Store, run: str, upto: int | None = None) -> Events:
    """Return the run's events in order, each with its record."""
    return Events(Records(store, run, upto))


async def state_at(
    store: Store, run: str, upto: int | None = None, registry: Registry = BUILTIN
) -> tuple[RunState, dict[int, Event]]:
    """Return the state after event `upto` (None: the last), and the events whose text its prompt needs."""
    state = NEW
    async for stored, event in events(store, run, upto):
        state = fold_event(state, stored, event, registry)
    return state, await words_of(store, run, state)


async def words_of(store: Store, run: str, state: RunState) -> dict[int, Event]:
    """Return the events whose text a prompt of this state needs, by number."""
    needed = await store.read_some(run, needed_to_go_on(state))
    return {stored.seq: event_of(stored) for stored in needed if stored.content is not None}


def fold_event(state: RunState, stored: Stored, event: Event, registry: Registry = BUILTIN) -> RunState:
    """Return the state after an event. Raises `DamagedLog` if the event is invalid here."""
    if stored.seq != state.seq + 1:
        raise DamagedLog(stored.run, stored.seq, f"event {state.seq + 1} is missing before it")
    try:
        return evolve(state, event, registry)
    except RefoldError as error:
        raise DamagedLog(stored.run, stored.seq, str(error)) from error


Problem = Damaged | Inconclusive
"""Why a log cannot be read further: it is damaged, or written by a newer refold."""

Found_co = TypeVar("Found_co", covariant=True)


class Step:
    """One event of a log: its record, the decoded event, and the states before and after."""

    __slots__ = ("_after", "_bare", "_before", "_event", "_registry", "stored")

    def __init__(
        self, stored: Stored, before: RunState | Problem = NEW, registry: Registry = NO_GUARDS
    ) -> None:
        self.stored = stored
        self._before, self._registry = before, registry
        self._event: Event | None = None
        self._bare: Event | None = None
        self._after: RunState | None = None

    @property
    def event(self) -> Event:
        """The event with its payload. Raises `DamagedLog` or `NewerLog`, naming it."""
        if self._event is None:
            self._event = event_of(self.stored)
        return self._event

    @property
    def bare(self) -> Event:
        """The event; its payload is present only if another follower asked for it. Raises as `event`."""
        if self._event is not None:
            return self._event
        if self._bare is None:
            self._bare = event_of(self.stored, content=False)
        return self._bare

    @property
    def before(self) -> RunState:
        """The state before the event. Raises the error that kept an event from being folded."""
        if not isinstance(self._before, RunState):
            raise self._before
        return self._before

    @property
    def after(self) -> RunState:
        """The state after the event. Raises as `before`, and `DamagedLog` if the event is invalid here."""
        if self._after is None:
            # Only guards read payloads; the rest of a state does not.
            event = self.event if self._registry else self.bare
            self._after = fold_event(self.before, self.stored, event, self._registry)
        return self._after


class Follower(Protocol[Found_co]):
    """Takes the steps of one log in order and returns a result. Subclasses inherit these defaults."""

    folds: bool = False
    """Whether it needs states."""
    over: bool = False
    """Set when it needs no more steps."""
    problem: Problem | None = None
    """Error that kept it from reading the rest, set by the reader."""

    def take(self, step: Step) -> None:
        """Take the next step. Raises `Damaged` or `Inconclusive` if it cannot continue."""
        ...

    def end(self) -> None:
        """Handle the end of a log that was read completely. Raises as `take`."""
        return

    def result(self) -> Found_co:
        """Return the result for the steps taken."""
        ...


class AsRecorded(Follower[Head]):
    """Checks events against their hashes and finds the last intact one."""

    def __init__(self) -> None:
        self._head: Head = START

    def take(self, step: Step) -> None:
        """Check one event against its hash. Raises `DamagedLog`."""
        if (problem := find_damage(step.stored, self._head)) is not None:
            raise problem
        self._head = step.stored

    def result(self) -> Head:
        """Return the last intact event."""
        return self._head


class Pass:
    """Passes the records of one log, in order, to several followers."""

    def __init__(self, followers: Sequence[Follower[Any]], registry: Registry = NO_GUARDS) -> None:
        self._left, self._registry = list(followers), registry
        self._folds = any(each.folds for each in followers)
        self._state: RunState | Problem = NEW

    def take(self, stored: Stored) -> bool:
        """Pass on one record. Return whether any follower needs more."""
        step = Step(stored, self._state, self._registry)
        whole = True
        for follower in self._left:
            try:
                follower.take(step)
            except (Damaged, Inconclusive) as error:
                follower.problem = error
                whole = False
            else:
                whole = whole and not follower.over
        if self._folds:
            self._fold(step)
        if not whole:
            self._left = [each for each in self._left if each.problem is None and not each.over]
            self._folds = any(each.folds for each in self._left)
        return bool(self._left)

    def _fold(self, step: Step) -> None:
        try:
            self._state = step.after
        except (Damaged, Inconclusive) as error:
            self._state = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Finish: all records that can be read were passed on."""
        unread = error if isinstance(error, Damaged | Inconclusive) else None
        for follower in self._left if error is None or unread else ():
            follower.problem = unread
            if unread is None:
                self._end(follower)
        return unread is not None

    def _end(self, follower: Follower[Any]) -> None:
        try:
            follower.end()
        except (Damaged, Inconclusive) as error:
            follower.problem = error


async def follow(
    source: AsyncIterator[Stored], *followers: Follower[Any], registry: Registry = NO_GUARDS
) -> None:
    """Pass a log to all followers, with the guards of `registry` if states are needed.

    Raises `UnknownRun`.
    """
    with Pass(followers, registry) as going:
        async for stored in source:
            if not going.take(stored):
                break


def follow_all(source: Iterable[Stored], *followers: Follower[Any], registry: Registry = NO_GUARDS) -> None:
    """Do `follow` for records that are read without an event loop."""
    with Pass(followers, registry) as going:
        for stored in source:
            if not going.take(stored):
                break


async def run_follower(
    follower: Follower[Found_co],
    store: Store,
    run: str,
    upto: int | None = None,
    registry: Registry = NO_GUARDS,
) -> Found_co:
    """Return the result of one follower, up to event `upto`. Raises `UnknownRun` and its problem."""
    await follow(stored_events(store, run, upto), follower, registry=registry)
    if follower.problem is not None:
        raise follower.problem
    return follower.result()


class Steps(AsyncIterator[Step]):
    """Iterator over the steps of a run, for callers that process a log while reading it.

    It is not a generator, as `Records`. Raises folding errors if `folds`, and reading errors as `Records`.
    """

    def __init__(self, records: Records, registry: Registry = NO_GUARDS, *, folds: bool = False) -> None:
        self._records, self._registry, self._folds = records, registry, folds
        self.state: RunState = NEW
        """The state after the last step, if it `folds`."""

    async def __anext__(self) -> Step:
        step = Step(await anext(self._records), self.state, self._registry)
        if self._folds:
            self.state = step.after
        return step
