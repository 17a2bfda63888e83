"""Events of OpenHands, whatever version wrote them, and the conversation that they are.

What the model is shown is a list of events, from which a condensation forgets some and puts a summary there.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from refold.importers.cuts import BEGINNING, Cut, only
from refold.importers.fields import JSON, at, rows, text
from refold.importers.items import Answered, Item, Place, Remarked, Returned, Said, message_of
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event, and what it says. Those of one answer share `response`; `again` is what is told of all but the first.

    `placed`: the list that the model is shown has a place for it, though it is no message. Of a condensation `cut` says
    which events are left out, with those numbered within `between`, and `offset` is the place of its `summary`.
    """

    id: str
    item: Item
    response: str = ""
    again: Remarked | None = None
    more: Item | None = None
    placed: bool = False
    cut: frozenset[str] | None = None
    between: tuple[int, int] = (0, -1)
    summary: str = ""
    offset: int | None = None


def condensed(id_: str, item: Remarked, said: JSON, *, between: tuple[int, int] = (0, -1)) -> Event:
    """A condensation, which says by the same names in both versions what it leaves out."""
    offset, ids = at(said, "summary_offset"), frozenset(map(str, rows(said, "forgotten_event_ids")))
    place = offset if isinstance(offset, int) else None
    return Event(id=id_, item=item, cut=ids, between=between, summary=text(said, "summary"), offset=place)


class Conversation:
    """The events of a run, told in their order. Each is numbered by its place; those of one answer by the place of the first."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._calls: defaultdict[str, list[MessageCall]] = defaultdict(list)
        for event in events:
            if isinstance(event.item, Answered) and event.response:
                self._calls[event.response] += event.item.calls
        self._answered: dict[str, int] = {}
        self._shown: list[int] = []

    def begin(self) -> tuple[Message, ...]:
        """The run begins with its first event: its system prompt."""
        first = self._events[0].item
        self._shown.append(BEGINNING)
        return (message_of(first) if isinstance(first, Said) else Message(role=Role.SYSTEM),)

    def items(self, begin: int) -> Iterator[Item]:
        """What happened, in order, from event `begin` on."""
        for place, event in enumerate(self._events[begin:], begin):
            yield from self._items(event, place)

    def _items(self, event: Event, place: int) -> Iterator[Item]:
        item = event.item
        if event.placed or isinstance(item, Said | Answered | Returned):
            self._shown.append(place)
        if isinstance(item, Answered) and event.response:
            again = event.again if event.response in self._answered else None
            self._answered.setdefault(event.response, place)
            item = again or msgspec.structs.replace(item, calls=tuple(self._calls[event.response]))
        yield item
        if event.cut is not None:
            yield self._condensed(event, event.cut, place)
        if event.more:
            yield event.more

    def _condensed(self, event: Event, ids: frozenset[str], place: int) -> Item:
        """It forgets the events, and says its summary (as a user's message) at that place of what is left."""
        first, last = event.between
        named = ((number, self._events[number].id) for number in self._shown)
        self._shown = [
            number for number, id_ in named if id_ not in ids and not first <= _number(id_) <= last
        ]
        offset = event.offset or 0
        head, tail = self._rows(self._shown[:offset]), self._rows(self._shown[offset:])
        where = Place(event.item.position, event.item.at, row=place)
        joins = (where.said(event.summary, "harness"),) if event.summary and event.offset is not None else ()
        self._shown[offset:offset] = [place] if joins else []
        return Cut(*where.common(), why="condensation", head=only(head), joins=joins, tail=only(tail - head))

    def _rows(self, shown: Sequence[int]) -> set[int]:
        """The numbers of events, where those of one answer have one."""
        return {self._answered.get(self._events[number].response, number) for number in shown}


def _number(event: str) -> int:
    return int(event) if event.isdecimal() and len(event) < 19 else -1
