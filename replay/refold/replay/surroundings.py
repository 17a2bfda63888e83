"""Events related to an event: its cause, its calls and its results.

Everything is read from the log. A decision follows from the preceding fact; a response names its request; a
call's event names the call; a note names its event. `refold.replay.why` derives decisions again; this module
does not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from refold.reducers import events as ev
from refold.reducers.errors import Damaged, DamagedLog, Inconclusive
from refold.reducers.vocabulary import ToolError
from refold.replay.kinds.table import details_of, sentence
from refold.replay.queries.rows import Side, side_of
from refold.replay.reader import AsRecorded, Follower, Pass, Problem, Records, Step, event_of
from refold.store.protocol import Store, Stored

# Kinds that can refer to an event or a call from any later position.
_LATE_EVENTS: tuple[type[ev.Event], ...] = (
    ev.ApprovalAnswered,
    ev.ApprovalRequested,
    ev.ChildEnded,
    ev.ContentErased,
    ev.Diagnosed,
    ev.DoubtResolved,
    ev.LateResult,
    ev.NoteAdded,
    ev.RunResumed,
    ev.SourceRecorded,
)
_LATE = frozenset(ev.kind_of(each) for each in _LATE_EVENTS)

How = Literal["request", "answer", "fact", "decided", "call", "note", "about"]


class Related(msgspec.Struct, frozen=True, kw_only=True):
    """An event related to another one, and how.

    `request`: the request of a response, or of the response that made the call; `answer`: the response to a
    request; `fact`: the fact a decision follows; `decided`: a decision on a fact; `call`: another event of
    the same calls; `note`: a note about the event; `about`: the event a note is about. `says` is a one-line
    summary.
    """

    how: How
    seq: int
    kind: str
    says: str


class AskedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that an event concerns, requested by the response at event `asked`.

    `arguments` is the text the model wrote, None if erased. `ran` holds the arguments edited by an approver,
    None if they were not edited.
    """

    id: str
    name: str
    asked: int
    arguments: str | None
    ran: str | None = None


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Position and related events of an event.

    `turn` is the last request up to it, 0 before the first. `says` is a one-line summary. `since` is
    nanoseconds since the run began, None if times are unknown. `related` is in event order.
    """

    turn: int
    side: Side
    says: str
    since: int | None
    calls: tuple[AskedCall, ...]
    related: tuple[Related, ...]


class EventInContext(msgspec.Struct, frozen=True):
    """An event as recorded, with its surroundings."""

    stored: Stored
    event: ev.Event
    around: Surroundings


async def read_surroundings(
    store: Store, run: str, first: int, last: int
) -> tuple[Sequence[EventInContext], Problem | None]:
    """Return events `first` to `last` with their surroundings, and the first problem found in the log.

    Raises `UnknownRun`, and `DamagedLog` or `NewerLog` for a requested event.
    """
    stored = {each.seq: each for each in await store.read_some(run, range(first, last + 1), checked=False)}
    if missing := [seq for seq in range(first, last + 1) if seq not in stored]:
        raise DamagedLog(run, missing[0], "it is missing")
    about = {seq: event_of(each) for seq, each in stored.items()}
    try:
        links, problem = await _find_links(store, run, about)
    except (Damaged, Inconclusive):  # in a late event: the requested events are still returned
        links, problem = await _find_links(store, run, about, whole=True)
    wanted = sorted(links.wanted())
    others = {each.seq: _decode(each) for each in await store.read_some(run, wanted, checked=False)}
    told = [
        EventInContext(stored[seq], links.about[seq], links.of(stored[seq], others)) for seq in sorted(stored)
    ]
    return told, problem


async def _find_links(
    store: Store, run: str, about: Mapping[int, ev.Event], *, whole: bool = False
) -> tuple["Links", Problem | None]:
    """Return the related events and the first problem found; read to the end of the log if `whole`.

    Raises problems found in late events.
    """
    links, recorded = Links(about), AsRecorded()
    with Pass([links, recorded]) as going:
        async for stored in Records(store, run, checked=False):
            if not going.take(stored) or (links.settled and not whole):
                break
    if links.settled and not whole:
        for stored in await store.read_kinds(run, _LATE):
            links.take_late(Step(stored))
    return links, recorded.problem or links.problem


class Links(Follower["Links"]):
    """Finds the events related to the events `about`, without reading payloads.

    They are `settled` once only the kinds in `_LATE`, which may occur at any time, can still relate to them.
    """

    def __init__(self, about: Mapping[int, ev.Event]) -> None:
        self.about = about
        self.settled = False
        self._reached = 0
        self._left = {
            seq for seq, event in about.items() if isinstance(event, ev.ModelRequested | ev.SummaryRequested)
        }
        self._running = {call for event in about.values() for call in _calls(event)}
        self._calls = {call: list[int]() for event in about.values() for call in _calls(event)}
        self._turns: dict[int, int] = {}
        self._notes: dict[int, list[int]] = {seq: [] for seq in about}
        self._answers: dict[int, int] = {}
        self._decided: dict[int, list[int]] = {}
        self._requests: dict[int, int] = {}
        self._turn = self._began = 0
        self._group: list[int] = []

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.bare`."""
        seq, event = step.stored.seq, step.bare
        self._settle(seq, event)
        self._began = self._began or step.stored.at
        if isinstance(event, ev.ModelRequested):
            self._turn = event.step
        if isinstance(event, ev.Fact):
            self._group = [seq]
        elif isinstance(event, ev.Decision):
            self._group.append(seq)
        if seq in self.about:
            self._turns[seq], self._decided[seq] = self._turn, self._group
        self._relate(seq, event)

    def take_late(self, step: Step) -> None:
        """Take an event of the kinds `_LATE` from any position, unless it was taken before."""
        if step.stored.seq > self._reached:
            self._relate(step.stored.seq, step.bare)

    def _settle(self, seq: int, event: ev.Event) -> None:
        self._reached = seq
        if isinstance(event, ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned):
            self._left.discard(event.request)
        elif isinstance(event, ev.CallRefused) or (
            isinstance(event, ev.ToolReturned) and event.error is not ToolError.IN_DOUBT
        ):
            self._running.discard(event.call)
        # The decisions on the last event end at the next fact.
        last = seq > max(self.about) and isinstance(event, ev.Fact)
        self.settled = last and not self._left and not self._running

    def _relate(self, seq: int, event: ev.Event) -> None:
        for noted in _list_noted(event):
            if noted in self._notes:
                self._notes[noted].append(seq)
        if (
            isinstance(event, ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned)
            and event.request in self.about
        ):
            self._answers.setdefault(event.request, seq)
        for call in _calls(event):
            if call in self._calls:
                self._calls[call].append(seq)
                if isinstance(event, ev.ModelResponded):
                    self._requests[seq] = event.request

    def result(self) -> "Links":
        """Return this object, which holds the results."""
        return self

    def wanted(self) -> set[int]:
        """Return the numbers of the related events."""
        return {other for seq in self.about for other in self._list_related(seq)} - {0}

    def of(self, stored: Stored, others: Mapping[int, ev.Event]) -> Surroundings:
        """Return the surroundings of an event; `others` holds the wanted events that could be read."""
        seq, event = stored.seq, self.about[stored.seq]
        return Surroundings(
            turn=self._turns.get(seq, 0),
            side=side_of(event),
            says=sentence(event),
            since=max(0, stored.at - self._began) if stored.at and self._began else None,
            calls=tuple(self._list_calls(seq, others)),
            related=tuple(
                Related(how=how, seq=other, kind=ev.kind_of(others[other]), says=sentence(others[other]))
                for other, how in sorted(self._list_related(seq).items())
                if other in others
            ),
        )

    def _list_related(self, seq: int) -> dict[int, How]:
        event, found = self.about[seq], dict[int, How]()
        fact, *decided = self._decided.get(seq, [0])
        if isinstance(event, ev.Decision):
            found[fact] = "fact"
        elif isinstance(event, ev.Fact):
            found |= dict.fromkeys(decided, "decided")
        if isinstance(event, ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned):
            found.setdefault(event.request, "request")
        if seq in self._answers:
            found.setdefault(self._answers[seq], "answer")
        for other in self._notes[seq]:
            found.setdefault(other, "note")
        for other in _list_noted(event):
            found.setdefault(other, "about")
        for call in _calls(event):
            for other in self._calls[call]:
                found.setdefault(other, "call")
                if other in self._requests:
                    found.setdefault(self._requests[other], "request")
        found.pop(seq, None)
        return found

    def _list_calls(self, seq: int, others: Mapping[int, ev.Event]) -> Iterator[AskedCall]:
        among = {**others, seq: self.about[seq]}
        for call in _calls(self.about[seq]):
            told = [(place, among[place]) for place in self._calls[call] if place in among]
            ran = _find_edit(call, [event for _, event in told])
            for place, event in told:
                if isinstance(event, ev.ModelResponded):
                    index = next(index for index, each in enumerate(event.calls) if each.id == call)
                    yield AskedCall(
                        id=call,
                        name=event.calls[index].name,
                        asked=place,
                        arguments=event.content.arguments[index] if event.content else None,
                        ran=ran,
                    )


def _find_edit(call: str, told: Sequence[ev.Event]) -> str | None:
    """Return the last edited arguments of a call, None if an approver did not edit them."""
    for event in reversed(told):
        if isinstance(event, ev.ApprovalAnswered) and event.content and call in event.content.arguments:
            return event.content.arguments[call]
    return None


def _decode(stored: Stored) -> ev.Event:
    """Return the event with its payload, or without it if the payload cannot be read."""
    try:
        return event_of(stored)
    except DamagedLog:
        return event_of(stored, content=False)


def _calls(event: ev.Event) -> Sequence[str]:
    return details_of(event.fact if isinstance(event, ev.LateResult) else event, {}).call


def _list_noted(event: ev.Event) -> Iterable[int]:
    match event:
        case ev.ContentErased(seqs=seqs):
            return seqs
        case ev.NoteAdded(seq=seq) | ev.Diagnosed(seq=seq) | ev.SourceRecorded(seq=seq):
            return () if seq is None else (seq,)
        case _:
            return ()
