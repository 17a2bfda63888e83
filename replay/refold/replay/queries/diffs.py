"""`diff`: where two runs part, and in what they differ.

Events are aligned by turn, kind, tool and place: the second result of `bash` in turn 7 stands beside the second result of
`bash` in turn 7, whatever came between. So one event more shifts nothing, and both logs are read once, a turn at a time.
"""

from typing import NamedTuple

import msgspec

from refold.reducers.events import Event, ModelRequested
from refold.replay import known
from refold.replay.following import Steps
from refold.replay.kinds.table import kind_for
from refold.replay.queries.likeness import (
    Calls,
    Compared,
    ComparedEvent,
    FieldDifference,
    differences,
)
from refold.replay.reader import stored_events
from refold.store.protocol import Store

MOST = 100
"""How many differences are kept; further ones are counted."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is otherwise in the other run, or not in it at all.

    `left` and `right` are its numbers in the two runs, None where one lacks it; `turn` counts requests from 1, 0 before the
    first. `name` is the call, guard or pass that it is about. `fields` is empty where a run lacks it.
    """

    turn: int
    kind: str
    name: str = ""
    left: int | None = None
    right: int | None = None
    fields: tuple[FieldDifference, ...] = ()


class RunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to. `elapsed` is in nanoseconds, `tokens` input and output, each None where it is not known; `code` None while it goes on."""

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
    """Two runs side by side. `differing` counts the events that differ, `differences` has the first in their order.

    `kinds` counts them by kind, `compared` all that were looked at. `said` is the first that changed what the model is
    shown, or what it said. `unknown` counts events whose words are gone on one side.
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
        """Whether nothing differs, as far as anybody knows."""
        return not self.differing


class _Key(NamedTuple):
    """What an event is aligned by within its turn."""

    kind: str
    name: str
    nth: int


_Turn = dict[_Key, tuple[int, ComparedEvent]]
"""A turn's events by what they are aligned by, each with its offset."""


async def diff(stores: tuple[Store, Store], runs: tuple[str, str]) -> Diff:
    """Two runs side by side, of one store or two. Raises `UnknownRun`, `DamagedLog` and `NewerLog`."""
    left, right = (_Reader(store, run) for store, run in zip(stores, runs, strict=True))
    found = _Found()
    while True:
        one, other = await left.turn(), await right.turn()
        if one is None and other is None:
            return found.result(left.side(), right.side())
        found.take(max(left.number, right.number), one or {}, other or {})


class _Reader:
    """Reads a run a turn at a time, folding it as it goes. A turn begins with the first attempt of a request."""

    def __init__(self, store: Store, run: str) -> None:
        self._run, self._steps = run, Steps(stored_events(store, run), folds=True)
        self._compared = Compared(self._steps)
        self._next: ComparedEvent | None = None
        self._over = False
        self.number = -1
        self._turns = 0

    async def turn(self) -> _Turn | None:
        """The next turn's events by what they are aligned by, each with its offset; None after the last."""
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
        """What the run came to, as far as it was read."""
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
    """Collects what differs, turn by turn."""

    def __init__(self) -> None:
        self._compared = self._differing = self._unknown = 0
        self._kinds: dict[str, int] = {}
        self._first: list[Difference] = []
        self._said: Difference | None = None

    def take(self, number: int, left: _Turn, right: _Turn) -> None:
        """Compare the turn of this number. What differs is told in the order of the log that has it first."""
        for key in sorted({*left, *right}, key=lambda key: (_offset(left, right, key), key)):
            self._compared += 1
            one, other = left.get(key), right.get(key)
            fields = differences(one[1], other[1]) if one and other else ()
            if fields and all(field.erased for field in fields):
                self._unknown += 1
            elif fields or not (one and other):
                self._keep(number, key, one and one[1], other and other[1], fields)

    def _keep(
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
        """All that was found."""
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
