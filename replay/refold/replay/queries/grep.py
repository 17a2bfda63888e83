"""`grep`: find the events of a run that match a filter. Holds one record at a time and folds nothing."""

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import msgspec

from refold.reducers.errors import Damaged, Inconclusive, RefoldError
from refold.reducers.events import Event, ModelResponded
from refold.reducers.patterns import find_first
from refold.replay.kinds.sentences import list_texts
from refold.replay.kinds.table import sentence
from refold.replay.queries.conditions import Fits, Holds
from refold.replay.queries.language import Question
from refold.replay.queries.rows import START, FlatEvent, advance_place, event_question, row_of
from refold.replay.reader import Step, Steps, stored_events
from refold.replay.shards import Shard
from refold.store.protocol import Store, Stored, UnknownRun
from refold.store.scans import whole_logs

EXCERPT = 160
"""Maximum characters of an excerpt."""

_BEFORE = 40


class Match(NamedTuple):
    """An event that matches a filter: its record, the decoded event, and its row."""

    stored: Stored
    event: Event
    row: FlatEvent


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """Text around the first match of a filter.

    `start` and `end` delimit the match in `text`, both 0 if the filter has no text condition; `before` and
    `after` say whether the text continues on that side.
    """

    text: str
    start: int = 0
    end: int = 0
    before: bool = False
    after: bool = False


class ErasedCount(NamedTuple):
    """Number of events of a run whose match is unknown because their text was erased."""

    events: int


class Sieve:
    """Applies a filter to the steps of a log. `erased` counts events whose text was erased."""

    def __init__(self, asked: Question[FlatEvent]) -> None:
        self._asked, self._place = asked, START
        self.erased = 0

    def match(self, step: Step) -> Match | None:
        """Return the next step if it matches. Payloads are read only if needed. Raises as `Step.event`."""
        asks = "text" in self._asked.names
        event = step.event if asks else step.bare
        self._place = advance_place(self._place, step.stored.at, event)
        row = row_of(step.stored, event, self._place, text=asks)
        answer = self._asked.answer(row)
        if not answer:
            self.erased += answer is None
            return None
        return Match(step.stored, step.event, row if asks else row_of(step.stored, step.event, self._place))

    def means(self, step: Step) -> bool:
        """Return whether the next step matches; an unreadable one always does, so that it is seen."""
        try:
            return self.match(step) is not None
        except (Damaged, Inconclusive):
            return True


class Matches(AsyncIterator[Match]):
    """Iterator over matching events. It is not a generator, as `Records`."""

    def __init__(self, steps: Steps, asked: Question[FlatEvent]) -> None:
        self._steps, self._sieve = steps, Sieve(asked)

    async def __anext__(self) -> Match:
        while (found_ := self._sieve.match(await anext(self._steps))) is None:
            pass
        return found_


def grep(store: Store, run: str, asked: Question[FlatEvent], upto: int | None = None) -> Matches:
    """Return the matching events of the run, in order. Raises `UnknownRun`, `DamagedLog` and `NewerLog`."""
    return Matches(Steps(stored_events(store, run, upto)), asked)


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A matching event for display: its row without the text, an excerpt, and a one-line summary.

    `at` is nanoseconds since 1970 UTC, 0 if its source has no time.
    """

    row: FlatEvent
    excerpt: Excerpt | None
    said: str
    at: int


def look_through(
    shard: Shard, typed: str, most: int | None, *, hits: bool = True
) -> Iterator[tuple[str, Hit | ErasedCount | int | RefoldError]]:
    """Yield the matches in each run of a shard, `most` at most, then their number.

    Problems that kept a log from being read or searched come first. Without `hits`, only they are yielded.
    """
    asked = event_question(typed)
    for run, records in whole_logs(shard.address, shard.runs):
        sieve, count = Sieve(asked), 0
        try:
            for stored in records:
                match = sieve.match(Step(stored))
                if match is not None:
                    count += 1
                    if hits:
                        yield run, _make_hit(asked, match)
                    if count == most:
                        break
        except (Damaged, Inconclusive, UnknownRun) as error:
            yield run, error
        if sieve.erased:
            yield run, ErasedCount(sieve.erased)
        yield run, count


def _make_hit(asked: Question[FlatEvent], match: Match) -> Hit:
    row = msgspec.structs.replace(match.row, text="")
    return Hit(row=row, excerpt=make_excerpt(asked, match), said=sentence(match.event), at=match.stored.at)


def make_excerpt(asked: Question[FlatEvent], match: Match) -> Excerpt | None:
    """Return the excerpt of a match. A match in a call shows its main argument if that contains the match."""
    if isinstance(match.event, ModelResponded):
        found_ = excerpt(asked, "\n".join(list_texts(match.event)))
        if found_ is not None and found_.end:
            return found_
    return excerpt(asked, match.row.text or "")


def excerpt(asked: Question[FlatEvent], text: str) -> Excerpt | None:
    """Return the text around the first match of the filter, else its beginning; None if it is empty."""
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
