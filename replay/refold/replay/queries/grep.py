"""`grep`: the events of a run that a filter means. One record is held at a time, and nothing is folded."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from refold.reducers.errors import CannotJudge, Damaged
from refold.reducers.events import Event
from refold.replay.queries.filters import Filter, Fits, Holds, found
from refold.replay.queries.rows import START, FlatEvent, LogPlace, moved, row_of
from refold.replay.reading import Records, event_of, stored_events
from refold.store.protocol import Store, Stored

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

    `start` and `end` are the place in `text`, both 0 where the filter does not ask for any; `before` and `after` say
    that the text goes on there.
    """

    text: str
    start: int = 0
    end: int = 0
    before: bool = False
    after: bool = False


class Matches(AsyncIterator[Match]):
    """The events of a run that a filter means, in order. No generator, as `Records` is none."""

    def __init__(self, records: Records, asked: Filter) -> None:
        self._records, self._asked, self._place = records, asked, START

    async def __anext__(self) -> Match:
        while True:
            self._place, found_ = looked(await anext(self._records), self._asked, self._place)
            if found_ is not None:
                return found_


def grep(store: Store, run: str, asked: Filter, upto: int | None = None) -> Matches:
    """The events of a run that the filter means, in order. Raises `UnknownRun`, `DamagedLog` and `NewerLog`.

    What was said is read only where the filter asks for it, or fits.
    """
    return Matches(stored_events(store, run, upto), asked)


def looked(stored: Stored, asked: Filter, place: LogPlace) -> tuple[LogPlace, Match | None]:
    """The place of the record, whose predecessors led to `place`, and what it says if the filter means it.

    Raises `DamagedLog` and `NewerLog`.
    """
    event = event_of(stored, content=asked.reads_text)
    place = moved(place, stored.at, event)
    row = row_of(stored, event, place, text=asked.reads_text)
    if not asked.matches(row):
        return place, None
    if not asked.reads_text:
        event = event_of(stored)
        row = row_of(stored, event, place)
    return place, Match(stored, event, row)


class Sieve:
    """Takes a run's records in order, and says of each whether a filter means it.

    One that cannot be read, it means always: it should be seen.
    """

    def __init__(self, asked: Filter) -> None:
        self._asked, self._place = asked, START

    def means(self, stored: Stored) -> bool:
        """Take one record."""
        try:
            self._place, found_ = looked(stored, self._asked, self._place)
        except (Damaged, CannotJudge):
            return True
        return found_ is not None


def excerpt(asked: Filter, text: str) -> Excerpt | None:
    """What to show of a text: around the first place that the filter asks for, else its beginning; None: it is empty."""
    spots = [spot for term in asked.terms if not term.contrary and (spot := _spot(term.test, text))]
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
        begin = 0
        for line in text.split("\n"):
            match = found(test.compiled, line)
            if match is not None:
                return begin + match.start(), begin + match.end()
            begin += len(line) + 1
    return None
