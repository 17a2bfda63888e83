"""`grep`: the events of a run that a filter means. One record is held at a time, and nothing is folded."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from refold.reducers.errors import CannotJudge, Damaged, RefoldError
from refold.reducers.events import Event, ModelResponded
from refold.reducers.patterns import find_first
from refold.replay.bulk import Shard
from refold.replay.kinds.sentences import said
from refold.replay.kinds.table import sentence
from refold.replay.queries.conditions import Fits, Holds
from refold.replay.queries.language import Question
from refold.replay.queries.rows import START, FlatEvent, event_question, moved, row_of
from refold.replay.reader import Step, Steps, stored_events
from refold.store.bundles import whole_logs
from refold.store.protocol import Store, Stored, UnknownRun

EXCERPT = 160
"""Characters of a text that are shown of what was found."""

_BEFORE = 40


class Match(NamedTuple):
    """An event that a filter means: its record, what it says, and its row."""

    stored: Stored
    event: Event
    row: FlatEvent


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around the first place of a text that a filter asks for.

    `start` and `end` are the place in `text`, both 0 where the filter does not ask for any; `before` and
    `after` say that the text goes on there.
    """

    text: str
    start: int = 0
    end: int = 0
    before: bool = False
    after: bool = False


class Erased(NamedTuple):
    """How many events of a run a filter may mean or not: what they said was erased."""

    events: int


class Sieve:
    """Says of the steps of a log, one after the other, what they say if a filter means them.

    `erased` counts those that it may mean or not, for their words were erased.
    """

    def __init__(self, asked: Question[FlatEvent]) -> None:
        self._asked, self._place = asked, START
        self.erased = 0

    def match(self, step: Step) -> Match | None:
        """The next step, if it is meant. What was said is read only where the filter asks for it, or fits.

        Raises as `Step.event`.
        """
        asks = "text" in self._asked.names
        event = step.event if asks else step.bare
        self._place = moved(self._place, step.stored.at, event)
        row = row_of(step.stored, event, self._place, text=asks)
        answer = self._asked.answer(row)
        if not answer:
            self.erased += answer is None
            return None
        return Match(step.stored, step.event, row if asks else row_of(step.stored, step.event, self._place))

    def means(self, step: Step) -> bool:
        """Whether the next step is meant; one that cannot be read always is: it should be seen."""
        try:
            return self.match(step) is not None
        except (Damaged, CannotJudge):
            return True


class Matches(AsyncIterator[Match]):
    """The events of a run that a filter means, in order. No generator, as `Records` is none."""

    def __init__(self, steps: Steps, asked: Question[FlatEvent]) -> None:
        self._steps, self._sieve = steps, Sieve(asked)

    async def __anext__(self) -> Match:
        while (found_ := self._sieve.match(await anext(self._steps))) is None:
            pass
        return found_


def grep(store: Store, run: str, asked: Question[FlatEvent], upto: int | None = None) -> Matches:
    """The events of a run that the filter means, in order. Raises `UnknownRun`, `DamagedLog` and
    `NewerLog`.
    """
    return Matches(Steps(stored_events(store, run, upto)), asked)


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was found, as it is told: its row without the text, what to show of that, and what it
    says in a line, and `at`, when it was recorded: nanoseconds since 1970 UTC, 0 where its source told no
    time.
    """

    row: FlatEvent
    excerpt: Excerpt | None
    said: str
    at: int


def look_through(
    shard: Shard, typed: str, most: int | None, *, hits: bool = True
) -> Iterator[tuple[str, Hit | Erased | int | RefoldError]]:
    """What a filter means in each run of a shard, `most` at most, with the run; then how many there were.

    Before that comes what kept a log from being read to its end, or from being searched. Without `hits`
    nothing is told but that.
    """
    asked = event_question(typed)
    for run, records in whole_logs(Path(shard.path), shard.runs):
        sieve, count = Sieve(asked), 0
        try:
            for stored in records:
                match = sieve.match(Step(stored))
                if match is not None:
                    count += 1
                    if hits:
                        yield run, _told(asked, match)
                    if count == most:
                        break
        except (Damaged, CannotJudge, UnknownRun) as error:
            yield run, error
        if sieve.erased:
            yield run, Erased(sieve.erased)
        yield run, count


def _told(asked: Question[FlatEvent], match: Match) -> Hit:
    row = msgspec.structs.replace(match.row, text="")
    return Hit(row=row, excerpt=shown(asked, match), said=sentence(match.event), at=match.stored.at)


def shown(asked: Question[FlatEvent], match: Match) -> Excerpt | None:
    """What to show of an event that was found.

    What a filter finds in a call is shown as a person reads it, if it is there.
    """
    if isinstance(match.event, ModelResponded):
        found_ = excerpt(asked, "\n".join(said(match.event)))
        if found_ is not None and found_.end:
            return found_
    return excerpt(asked, match.row.text or "")


def excerpt(asked: Question[FlatEvent], text: str) -> Excerpt | None:
    """What to show of a text: around the first place that the filter asks for, else its beginning; None: it
    is empty.
    """
    spots = [spot for test in asked.sought if (spot := _spot(test, text))]
    start, end = min(spots, default=(0, 0))
    begin = max(0, start - _BEFORE) if start + _BEFORE > EXCERPT // 2 else 0
    end = min(end, begin + EXCERPT)
    cut = text[begin : begin + EXCERPT]
    if not cut.strip():
        return None
    after = begin + EXCERPT < len(text)
    return Excerpt(text=cut, start=start - begin, end=end - begin, before=begin > 0, after=after)


def _spot(test: object, text: str) -> tuple[int, int] | None:
    if isinstance(test, Holds):
        start = text.lower().find(test.value.lower())
        return None if start < 0 else (start, start + len(test.value))
    if isinstance(test, Fits) and test.field == "text":
        return find_first(test.pattern, text)
    return None
