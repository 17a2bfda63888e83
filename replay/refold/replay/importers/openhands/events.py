"""Events of OpenHands, whatever version wrote them, and the conversation that they are.

What the model is shown is a list of events, from which a condensation forgets some and puts a summary there: the prompt is
put together from that, and stands right before the answer that was given it.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role, ToolError
from refold.replay.importers.fields import JSON
from refold.replay.importers.items import Item, Place


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event: a call or words of an answer, a result, words of others, a condensation (`cut`), or none of these.

    Those of one answer share `response`; `again` is what the second of them and the others hold. `call` is what an answer
    asks for, or what a result answers. `forgets` are the events that a condensation leaves out, with those numbered
    within `between`; `offset` is the place of its summary. `item` is what any other event says; `placed`: the list that
    the model is shown has a place for it all the same.
    """

    place: Place
    id: str = ""
    kind: Literal["answer", "result", "said", "cut", "other"] = "other"
    said: str = ""
    role: Role = Role.USER
    by: str = "user"
    response: str = ""
    reasoning: str = ""
    call: MessageCall | None = None
    usage: Usage | None = None
    cost: int | None = None
    model: str = ""
    stop: str = ""
    error: ToolError | None = None
    approval: JSON = None
    forgets: frozenset[str] = frozenset()
    between: tuple[int, int] = (0, -1)
    offset: int | None = None
    item: Item | None = None
    placed: bool = False
    rest: str = ""
    again: str = ""
    value: JSON = None

    def message(self) -> Message | None:
        """What of it the model is shown, None for nothing."""
        match self.kind, self.call:
            case "answer", call:
                return Message(role=Role.ASSISTANT, text=self.said, calls=(call,) if call else ())
            case "result", MessageCall() as call:
                return Message(role=Role.TOOL, text=self.said, call=call.id, name=call.name)
            case "said", _:
                return Message(role=self.role, text=self.said)
            case _:
                return None


class Conversation:
    """The events of a run, told in their order."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._calls: defaultdict[str, list[MessageCall]] = defaultdict(list)
        for event in events:
            if event.kind == "answer" and event.response and event.call:
                self._calls[event.response].append(event.call)
        self._answered: set[str] = set()
        self._condensed = False
        self._shown: list[tuple[Event, Message | None]] = []

    def begin(self, event: Event) -> tuple[Message, ...]:
        """The run begins with this event, if it is the system prompt."""
        message = event.message() if event.role is Role.SYSTEM else None
        self._shown += [(event, message)] if message else []
        return (message,) if message else ()

    def items(self, begin: int) -> Iterator[Item]:
        """What happened, in order, from event `begin` on."""
        for event in self._events[begin:]:
            yield from self._items(event)
        if self._condensed:
            yield self._prompted(Place(self._events[-1].place.position))

    def _items(self, event: Event) -> Iterator[Item]:
        if event.kind == "answer" and self._condensed:
            yield self._prompted(event.place)
        if event.message() or event.placed:
            self._shown.append((event, event.message()))
        match event.kind:
            case "answer":
                yield self._answer(event)
            case "said":
                yield event.place.said(event.said, event.by, role=event.role, rest=event.rest)
            case "result":
                call, name = (event.call.id, event.call.name) if event.call else ("", "")
                yield event.place.returned(call, event.said, name=name, error=event.error, rest=event.rest)
                if event.error is ToolError.CANCELLED:
                    yield event.place.remarked("approval", event.approval)
            case "cut":
                self._condense(event)
                yield event.place.remarked("condensation", event.value)
            case _ if event.item:
                yield event.item

    def _answer(self, event: Event) -> Item:
        if event.response and event.response in self._answered:
            return event.place.remarked("call", rest=event.again)
        self._answered.add(event.response)
        own = (event.call,) if event.call else ()
        calls = tuple(self._calls[event.response]) if event.response else own
        return event.place.answered(
            Message(role=Role.ASSISTANT, text=event.said, reasoning=event.reasoning, calls=calls),
            event.usage,
            stop=event.stop,
            cost=event.cost,
            model=event.model,
            response=event.response,
            rest=event.rest,
        )

    def _condense(self, event: Event) -> None:
        """Forget the events, and say the summary (as a user's message) at that place of what is left."""
        first, last = event.between
        self._condensed = True
        self._shown = [
            shown
            for shown in self._shown
            if shown[0].id not in event.forgets and not first <= _number(shown[0].id) <= last
        ]
        if event.said and event.offset is not None:
            summary = Event(place=event.place)
            self._shown.insert(event.offset, (summary, Message(role=Role.USER, text=event.said)))

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
