"""Logs read event by event, and one pass over a log for all who ask something of it.

A `Step` is an event where it stands. Nothing of it is read before somebody asks, and nothing twice: of an
event that only an audit looks at not even the body, of one that eight followers look at each part once, and
there is one fold for all. Each follower goes as far as it can. What one of them cannot take is told as its
own `problem`: the others go on.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

from refold.reducers import codec
from refold.reducers.errors import CannotJudge, Damaged, DamagedLog, RefoldError
from refold.reducers.events import Event
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.state import NEW, RunState
from refold.reducers.views import needed_to_go_on
from refold.store.chain import START, changed
from refold.store.protocol import Head, Store, Stored, UnknownRun

NO_GUARDS: Registry = MappingProxyType({})
"""For whoever asks no guard anything: what guards decided stands in the log, and asking them again is half of
folding.
"""


class Records(AsyncIterator[Stored]):
    """A run's records in order, behind event `after`. No generator: one left half-way would be an event
    loop's to finalise.

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
    """The event of a record, without what was said unless `content`.

    Raises `DamagedLog` or `NewerLog`, naming the event.
    """
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


Problem = Damaged | CannotJudge
"""What keeps a log from being followed: it is damaged, or of a newer refold."""

Found_co = TypeVar("Found_co", covariant=True)


class Step:
    """One event of a log: its record, what it says, and the states around it."""

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
        """What it says, with its words. Raises `DamagedLog` or `NewerLog`, naming it."""
        if self._event is None:
            self._event = event_of(self.stored)
        return self._event

    @property
    def bare(self) -> Event:
        """What it says, for whoever does not ask for its words: they are there only if somebody did.

        Raises as `event`.
        """
        if self._event is not None:
            return self._event
        if self._bare is None:
            self._bare = event_of(self.stored, content=False)
        return self._bare

    @property
    def before(self) -> RunState:
        """The state before it. Raises what kept an event from being folded."""
        if not isinstance(self._before, RunState):
            raise self._before
        return self._before

    @property
    def after(self) -> RunState:
        """The state after it. Raises as `before`, and `DamagedLog` where it cannot stand."""
        if self._after is None:
            # Guards may ask for what was said; nothing else in a state does.
            event = self.event if self._registry else self.bare
            self._after = folded(self.before, self.stored, event, self._registry)
        return self._after


class Follower(Protocol[Found_co]):
    """Takes the steps of one log in order, and says what it found.

    Who implements it inherits what is set here.
    """

    folds: bool = False
    """Whether it asks for states."""
    over: bool = False
    """It has seen enough, and is shown no more."""
    problem: Problem | None = None
    """What kept it from being shown the rest: set by who shows it the log."""

    def take(self, step: Step) -> None:
        """Take the next step.

        Raises `Damaged` or `CannotJudge` where it cannot go on: then this was the last.
        """
        ...

    def end(self) -> None:
        """The log ends here, and all of it was shown. Raises as `take`."""
        return

    def result(self) -> Found_co:
        """What was found, as far as it was shown the log."""
        ...


class AsRecorded(Follower[Head]):
    """Goes on as long as each event is what was recorded, of a log that is shown as it stands.

    Finds the last that is.
    """

    def __init__(self) -> None:
        self._head: Head = START

    def take(self, step: Step) -> None:
        """Hold one event against its hash. Raises `DamagedLog`."""
        if (problem := changed(step.stored, self._head)) is not None:
            raise problem
        self._head = step.stored

    def result(self) -> Head:
        """The last event that is what was recorded."""
        return self._head


class Pass:
    """Shows the records of one log, in order, to several followers."""

    def __init__(self, followers: Sequence[Follower[Any]], registry: Registry = NO_GUARDS) -> None:
        self._left, self._registry = list(followers), registry
        self._folds = any(each.folds for each in followers)
        self._state: RunState | Problem = NEW

    def take(self, stored: Stored) -> bool:
        """Show one record; whether anybody wants to be shown more."""
        step = Step(stored, self._state, self._registry)
        whole = True
        for follower in self._left:
            try:
                follower.take(step)
            except (Damaged, CannotJudge) as error:
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
        except (Damaged, CannotJudge) as error:
            self._state = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """There are no more records, or no more that can be read."""
        unread = error if isinstance(error, Damaged | CannotJudge) else None
        for follower in self._left if error is None or unread else ():
            follower.problem = unread
            if unread is None:
                self._end(follower)
        return unread is not None

    def _end(self, follower: Follower[Any]) -> None:
        try:
            follower.end()
        except (Damaged, CannotJudge) as error:
            follower.problem = error


async def follow(
    source: AsyncIterator[Stored], *followers: Follower[Any], registry: Registry = NO_GUARDS
) -> None:
    """Show a log to all followers, in one pass. The guards of `registry` are asked if states are.

    Raises `UnknownRun`.
    """
    with Pass(followers, registry) as going:
        async for stored in source:
            if not going.take(stored):
                break


def follow_all(source: Iterable[Stored], *followers: Follower[Any], registry: Registry = NO_GUARDS) -> None:
    """`follow`, where the records are read without an event loop."""
    with Pass(followers, registry) as going:
        for stored in source:
            if not going.take(stored):
                break


async def found_by(
    follower: Follower[Found_co],
    store: Store,
    run: str,
    upto: int | None = None,
    registry: Registry = NO_GUARDS,
) -> Found_co:
    """What a follower finds in a run by itself, up to event `upto`.

    Raises `UnknownRun`, and what kept it from the end.
    """
    await follow(stored_events(store, run, upto), follower, registry=registry)
    if follower.problem is not None:
        raise follower.problem
    return follower.result()


class Steps(AsyncIterator[Step]):
    """The steps of a run in order, for who tells of a log while reading it. No generator, as `Records` is
    none.

    Raises what keeps an event from being folded if `folds`, as `Records` where one cannot be read.
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
