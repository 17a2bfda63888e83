"""Events of OpenHands, whatever version wrote them, and the conversation that they are.

What the model is shown is a list of events, from which a condensation forgets some and puts a summary there: the prompt is
put together from that, and stands right before the answer that was given it.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role
from refold.replay.importers.fields import JSON, at, rows, text
from refold.replay.importers.items import Answered, Item, Place, Remarked, Returned, Said, message_of


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
    """The events of a run, told in their order."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._calls: defaultdict[str, list[MessageCall]] = defaultdict(list)
        for event in events:
            if isinstance(event.item, Answered) and event.response:
                self._calls[event.response] += event.item.calls
        self._answered: set[str] = set()
        self._condensed = False
        self._shown: list[tuple[Event, Message | None]] = []

    def begin(self) -> tuple[Message, ...]:
        """The run begins with its first event: its system prompt."""
        first = self._events[0].item
        message = message_of(first) if isinstance(first, Said) else Message(role=Role.SYSTEM)
        self._shown.append((self._events[0], message))
        return (message,)

    def items(self, begin: int) -> Iterator[Item]:
        """What happened, in order, from event `begin` on."""
        for event in self._events[begin:]:
            yield from self._items(event)
        if self._condensed:
            yield self._prompted(Place(self._events[-1].item.position))

    def _items(self, event: Event) -> Iterator[Item]:
        item = event.item
        if isinstance(item, Answered) and self._condensed:
            yield self._prompted(Place(item.position, item.at))
        if event.cut is not None:
            self._condense(event, event.cut)
        elif isinstance(item, Said | Answered | Returned):
            self._shown.append((event, message_of(item)))
        elif event.placed:
            self._shown.append((event, None))
        if isinstance(item, Answered) and event.response:
            calls = tuple(self._calls[event.response])
            again = event.again if event.response in self._answered else None
            item = again or msgspec.structs.replace(item, calls=calls)
        self._answered.add(event.response)
        yield item
        if event.more:
            yield event.more

    def _condense(self, event: Event, ids: frozenset[str]) -> None:
        """Forget the events, and say the summary (as a user's message) at that place of what is left."""
        first, last = event.between
        self._condensed = True
        self._shown = [s for s in self._shown if s[0].id not in ids and not first <= _number(s[0].id) <= last]
        if event.summary and event.offset is not None:
            summary = Message(role=Role.USER, text=event.summary)
            self._shown.insert(event.offset, (Event(id="", item=event.item), summary))

    def _prompted(self, place: Place) -> Item:
        """What is shown now: the calls of one answer stand in one message, where its first one stood."""
        self._condensed = False
        made: list[Message] = []
        places: dict[str, int] = {}
        for event, message in self._shown:
            if message is None:
                continue
            if event.response and event.response in places:
                before = made[places[event.response]]
                made[places[event.response]] = msgspec.structs.replace(
                    before, calls=before.calls + message.calls
                )
                continue
            if event.response:
                places[event.response] = len(made)
            made.append(message)
        return place.prompted(tuple(made), "condensation")


def _number(event: str) -> int:
    return int(event) if event.isdecimal() and len(event) < 19 else -1
