"""Reading what was recorded, and nothing else: each event is held against its hash before anybody is given it.

Who reads edited words believes them. So a store gives the events of a log up to the first that is not what was recorded,
and then raises; who judges logs himself asks for them with `checked=False`. This shows what a chain shows: no log that was
computed anew, and no tail that was cut off.
"""

from collections.abc import AsyncIterator, Mapping, Sequence

from refold.reducers.errors import DamagedLog
from refold.store.chain import START, check, unbroken
from refold.store.protocol import Head, Stored


class Checker:
    """Is given the events of one log in order, those behind `head`, and gives them on as far as they are what was recorded."""

    def __init__(self, head: Head = START) -> None:
        self._head = head
        self._problem: DamagedLog | None = None

    def held(self, events: Sequence[Stored]) -> Sequence[Stored]:
        """These events up to the first that is not what was recorded. Raises `DamagedLog` if that came before them, or first."""
        self.go_on()
        whole = unbroken(events, self._head)
        self._head = events[whole - 1] if whole else self._head
        if whole < len(events):
            self._problem = changed(events[whole], self._head)
        if not whole and events:
            self.go_on()
        return events[:whole]

    def go_on(self) -> None:
        """Raise `DamagedLog` where there was an event that is not what was recorded."""
        if self._problem is not None:
            raise self._problem


class CheckedPages(AsyncIterator[Sequence[Stored]]):
    """The events behind event `after`, of pages that begin with that one: with its hash the next is chained."""

    def __init__(self, pages: AsyncIterator[Sequence[Stored]], after: int) -> None:
        self._pages, self._after = pages, max(after, 0)
        # Without that event nothing shows what the next one was chained to: it is missing.
        self._checker = Checker(Head(seq=self._after - 1, hash=b"") if self._after else START)

    async def __anext__(self) -> Sequence[Stored]:
        self._checker.go_on()
        page = await anext(self._pages)
        if self._after and page[0].seq == self._after:
            self._checker, self._after, page = Checker(page[0]), 0, page[1:]
        return self._checker.held(page) if page else await anext(self)


def held_apart(events: Sequence[Stored], hashes: Mapping[int, bytes]) -> Sequence[Stored]:
    """These events, from here and there in a log, with the hashes of those before them. Raises `DamagedLog`."""
    for stored in events:
        before = stored.seq - 1
        previous = Head(seq=before, hash=hashes.get(before, b"")) if before else START
        if (problem := changed(stored, previous)) is not None:
            raise problem
    return events


def changed(stored: Stored, previous: Head) -> DamagedLog | None:
    """That an event, which stands after `previous`, is not what was recorded, and what is wrong with it; None if it is."""
    problem = check(stored, previous)
    if problem is None:
        return None
    if stored.seq == previous.seq + 1:
        problem = f"it is not what was recorded: {problem}; see `refold verify`"
    return DamagedLog(stored.run, stored.seq, problem)
