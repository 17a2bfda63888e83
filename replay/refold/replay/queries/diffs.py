"""`diff` compares two runs; `bisect --when` finds the first event at which a condition holds.

Events are aligned by turn, kind, tool and position: the second result of `bash` in turn 7 is compared with
the second result of `bash` in turn 7 of the other run. An extra event therefore shifts nothing, and both logs
are read once, one turn at a time.

`bisect` computes states by folding the log, so it reads every event before the one it finds. If the condition
stays true once it is true, it is evaluated once per stretch of events, and by bisection within the stretch
where it became true. Any other condition is evaluated after every event.
"""

from bisect import bisect_left
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from refold.reducers.events import Event, ModelRequested
from refold.reducers.state import NEW, RunState
from refold.replay import known
from refold.replay.kinds.table import kind_for
from refold.replay.queries.blame import make_look
from refold.replay.queries.divergence import (
    Calls,
    ComparedEvent,
    ComparedEvents,
    FieldDifference,
    differences,
)
from refold.replay.queries.language import Question
from refold.replay.reader import Follower, Step, Steps, run_follower, stored_events
from refold.store.protocol import Store, Stored

MOST = 100
"""Maximum number of differences listed; further ones are only counted."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """An event that differs between the runs or exists in only one.

    `left` and `right` are its numbers in the two runs, None if it is missing; `turn` counts requests from 1,
    0 before the first. `name` is the call, guard or compaction step concerned. `fields` is empty if one run
    lacks the event.
    """

    turn: int
    kind: str
    name: str = ""
    left: int | None = None
    right: int | None = None
    fields: tuple[FieldDifference, ...] = ()


class RunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a run.

    `elapsed` is in nanoseconds, `tokens` is input plus output; each is None if unknown. `code` is None while
    the run is active.
    """

    run: str
    events: int
    turns: int
    messages: int
    tokens: int | None
    cost_nanousd: int | None
    unpriced: int
    elapsed: int | None
    agent_state: str
    code: str | None


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of two runs. `differing` counts the events that differ, `differences` lists the first ones.

    `kinds` counts them by kind, `compared` counts all compared events. `said` is the first difference that
    changed the prompt or the response. `unknown` counts events whose payload is erased on one side.
    """

    left: RunTotals
    right: RunTotals
    compared: int
    differing: int
    unknown: int
    kinds: dict[str, int]
    differences: tuple[Difference, ...]
    said: Difference | None = None

    @property
    def same(self) -> bool:
        """Whether no known difference exists."""
        return not self.differing


class _Key(NamedTuple):
    """Alignment key of an event within its turn."""

    kind: str
    name: str
    nth: int


_Turn = dict[_Key, tuple[int, ComparedEvent]]
"""A turn's events by alignment key, each with its offset."""


async def diff(stores: tuple[Store, Store], runs: tuple[str, str]) -> Diff:
    """Compare two runs of one store or two. Raises `UnknownRun`, `DamagedLog` and `NewerLog`."""
    left, right = (_LogReader(store, run) for store, run in zip(stores, runs, strict=True))
    found = _Found()
    while True:
        one, other = await left.turn(), await right.turn()
        if one is None and other is None:
            return found.result(left.side(), right.side())
        found.take(max(left.number, right.number), one or {}, other or {})


class _LogReader:
    """Reads and folds a run one turn at a time. A turn begins with the first attempt of a request."""

    def __init__(self, store: Store, run: str) -> None:
        self._run, self._steps = run, Steps(stored_events(store, run), folds=True)
        self._compared = ComparedEvents(self._steps)
        self._next: ComparedEvent | None = None
        self._over = False
        self.number = -1
        self._turns = 0

    async def turn(self) -> _Turn | None:
        """Return the next turn's events by alignment key, each with its offset; None after the last."""
        if self._over and self._next is None:
            return None
        self.number += 1
        turn, counts = _Turn(), dict[tuple[str, str], int]()
        if self._next is not None:
            _add(turn, counts, self._next)
            self._next = None
        async for told in self._compared:
            event = told.event
            if isinstance(event, ModelRequested) and event.attempt == 1:
                self._next = told
                self._turns += 1
                return turn
            _add(turn, counts, told)
        self._over = True
        return turn

    def side(self) -> RunTotals:
        """Return the totals of the events read."""
        state = self._steps.state
        return RunTotals(
            run=self._run,
            events=state.seq,
            turns=self._turns,
            messages=state.messages,
            tokens=known.tokens(state.spent.usage),
            cost_nanousd=known.cost(state.spent),
            unpriced=state.spent.unpriced,
            elapsed=known.took(state.fact_at - self._compared.began),
            agent_state=str(state.agent_state),
            code=state.outcome.code if state.outcome else None,
        )


def _add(turn: _Turn, counts: dict[tuple[str, str], int], told: ComparedEvent) -> None:
    alike = told.stored.kind, _name(told.event, told.calls)
    counts[alike] = nth = counts.get(alike, 0) + 1
    turn[_Key(*alike, nth)] = len(turn), told


def _name(event: Event, calls: Calls) -> str:
    row = kind_for(event)
    if not row.named:
        return ""
    details = row.details(event, calls)
    return next(iter((*details.name, *details.call)), "")


class _Found:
    """Collects the differences turn by turn."""

    def __init__(self) -> None:
        self._compared = self._differing = self._unknown = 0
        self._kinds: dict[str, int] = {}
        self._first: list[Difference] = []
        self._said: Difference | None = None

    def take(self, number: int, left: _Turn, right: _Turn) -> None:
        """Compare the turn of this number. Differences are ordered as in the log that has them first."""
        for key in sorted({*left, *right}, key=lambda key: (_offset(left, right, key), key)):
            self._compared += 1
            one, other = left.get(key), right.get(key)
            if one is None or other is None:
                self._add_difference(number, key, one and one[1], other and other[1], ())
                continue
            fields = differences(one[1], other[1])
            if fields and all(field.erased for field in fields):
                self._unknown += 1
            elif fields:
                self._add_difference(number, key, one[1], other[1], fields)

    def _add_difference(
        self,
        number: int,
        key: _Key,
        one: ComparedEvent | None,
        other: ComparedEvent | None,
        fields: tuple[FieldDifference, ...],
    ) -> None:
        self._differing += 1
        self._kinds[key.kind] = self._kinds.get(key.kind, 0) + 1
        speaks = self._said is None and any(kind_for(told.event).tells for told in (one, other) if told)
        if len(self._first) >= MOST and not speaks:
            return
        difference = Difference(
            turn=number,
            kind=key.kind,
            name=key.name,
            left=one.stored.seq if one else None,
            right=other.stored.seq if other else None,
            fields=fields,
        )
        self._said = difference if speaks else self._said
        if len(self._first) < MOST:
            self._first.append(difference)

    def result(self, left: RunTotals, right: RunTotals) -> Diff:
        """Return the comparison."""
        return Diff(
            left=left,
            right=right,
            compared=self._compared,
            differing=self._differing,
            unknown=self._unknown,
            kinds=self._kinds,
            differences=tuple(self._first),
            said=self._said,
        )


def _offset(left: _Turn, right: _Turn, key: _Key) -> int:
    return min(turn[key][0] for turn in (left, right) if key in turn)


STRETCH = 256
"""Events between two evaluations. This many states, which share most of their data, are in memory."""

How = Literal["halving", "every event"]


class FirstTrue(msgspec.Struct, frozen=True, kw_only=True):
    """The first event after which the condition `when` holds: its number, kind and time `at`.

    `seq` is None if the condition never held up to event `events`. `how` is the search method, `asked` the
    number of evaluations. `fields` are the fields that the condition reads, with their JSON values before and
    after the event.
    """

    run: str
    when: str
    events: int
    how: How
    asked: int
    seq: int | None = None
    kind: str = ""
    at: int = 0
    turn: int = 0
    fields: dict[str, tuple[msgspec.Raw, msgspec.Raw]] = {}


async def bisect(store: Store, run: str, question: Question[RunState]) -> FirstTrue:
    """Return the first event after which the condition holds. Raises `UnknownRun`, `DamagedLog`, `NewerLog`.

    The log is read up to that event, or to its end.
    """
    return await run_follower(DifferenceFinder(run, question), store, run)


class DifferenceFinder(Follower[FirstTrue]):
    """Finds the first event of a run after which a condition holds.

    With `halving` false, every state is evaluated.
    """

    folds = True

    def __init__(self, run: str, question: Question[RunState], *, halving: bool = True) -> None:
        self._run, self._question, self._holds = run, question, question.matches
        self._stretch = STRETCH if halving and question.lasts else 1
        self._halves = halving and question.lasts
        self._last = NEW
        self._states: list[tuple[RunState, Stored]] = []
        self._asked = 0
        self._found: tuple[RunState, RunState, Stored] | None = None

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.after`."""
        self._states.append((step.after, step.stored))
        if len(self._states) == self._stretch:
            self._evaluate_from()

    def end(self) -> None:
        """Evaluate the remaining states."""
        if self._states:
            self._evaluate_from()

    def result(self) -> FirstTrue:
        """Return the event found, if any."""
        how: How = "halving" if self._halves else "every event"
        found = FirstTrue(
            run=self._run, when=self._question.text, events=self._last.seq, how=how, asked=self._asked
        )
        if self._found is None:
            return found
        before, after, stored = self._found
        looks = {field: make_look(field) for field in self._question.names}
        fields = {field: (_raw(look(before)), _raw(look(after))) for field, look in looks.items()}
        turn, seq = after.spent.steps, stored.seq
        return replace(found, events=seq, seq=seq, kind=stored.kind, at=stored.at, turn=turn, fields=fields)

    def _evaluate_from(self) -> None:
        states = self._states
        if self._is_so(states[-1][0]):
            place = bisect_left(states, x=True, hi=len(states) - 1, key=lambda each: self._is_so(each[0]))
            before = states[place - 1][0] if place else self._last
            self._found = before, *states[place]
            self.over = True
        self._last = states[-1][0]
        self._states = []

    def _is_so(self, state: RunState) -> bool:
        self._asked += 1
        return self._holds(state)


def _raw(value: str) -> msgspec.Raw:
    return msgspec.Raw(value.encode() or b"null")
