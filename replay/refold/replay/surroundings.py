"""What an event belongs to: who asked for it, what it says of which calls, and what followed from it.

All of it is in the log. A decision follows from the fact before it; an answer names its request; what
happened to a call names the call; a note names the event that it is about. Nothing is derived again:
`refold.replay.why` does that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from refold.reducers import events as ev
from refold.reducers.errors import CannotJudge, Damaged, DamagedLog
from refold.reducers.vocabulary import ToolError
from refold.replay.kinds.table import details_of, sentence
from refold.replay.queries.rows import Side, side_of
from refold.replay.reader import AsRecorded, Follower, Pass, Problem, Records, Step, event_of
from refold.store.protocol import Store, Stored

# What may be said of an event, or of a call, whenever it was.
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
    """Another event, and how it belongs to one.

    `request`: what it is the answer to, or what the answer with its call is the answer to; `answer`: what
    came of it; `fact`: what it was decided on; `decided`: what was decided on it; `call`: what else happened
    to its calls; `note`: what was noted about it; `about`: what it is a note about. `says` is that event in a
    line.
    """

    how: How
    seq: int
    kind: str
    says: str


class AskedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that an event is about: the answer at event `asked` wants it, with these `arguments`, the text
    that the model wrote.

    None: they were erased. `ran` is what it ran with where a person edited that, None where nobody did.
    """

    id: str
    name: str
    asked: int
    arguments: str | None
    ran: str | None = None


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What an event belongs to. `turn` is the last request up to it, 0 before the first; `since` nanoseconds
    since the run began, None where no time was taken; `related` are in order.
    """

    turn: int
    side: Side
    says: str
    since: int | None
    calls: tuple[AskedCall, ...]
    related: tuple[Related, ...]


class Surrounded(msgspec.Struct, frozen=True):
    """An event as it stands in the log, and what it belongs to."""

    stored: Stored
    event: ev.Event
    around: Surroundings


async def surrounded(
    store: Store, run: str, first: int, last: int
) -> tuple[Sequence[Surrounded], Problem | None]:
    """The events `first` to `last` as they stand, each with what it belongs to; and what is wrong with the
    log as far as it was read for that.

    Raises `UnknownRun`, `DamagedLog` and `NewerLog` of one of these events.
    """
    stored = {each.seq: each for each in await store.read_some(run, range(first, last + 1), checked=False)}
    if missing := [seq for seq in range(first, last + 1) if seq not in stored]:
        raise DamagedLog(run, missing[0], "it is missing")
    about = {seq: event_of(each) for seq, each in stored.items()}
    try:
        links, problem = await _linked(store, run, about)
    except (Damaged, CannotJudge):  # of something late: what stands there is shown nevertheless
        links, problem = await _linked(store, run, about, whole=True)
    wanted = sorted(links.wanted())
    others = {each.seq: _legible(each) for each in await store.read_some(run, wanted, checked=False)}
    told = [
        Surrounded(stored[seq], links.about[seq], links.of(stored[seq], others)) for seq in sorted(stored)
    ]
    return told, problem


async def _linked(
    store: Store, run: str, about: Mapping[int, ev.Event], *, whole: bool = False
) -> tuple["Links", Problem | None]:
    """What the events belong to, and what is wrong with the log as far as it was read for that: to its end if
    `whole`.

    Raises what is wrong with what came late.
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
    """Which other events the events `about` belong to, by their numbers. No words are read for it.

    They are `settled` where nothing more can belong to them but what may be said of anything at any time:
    `_LATE`.
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
        self._belongs(seq, event)

    def take_late(self, step: Step) -> None:
        """Take an event of the kinds `_LATE`, from wherever in the log, if it was not taken yet."""
        if step.stored.seq > self._reached:
            self._belongs(step.stored.seq, step.bare)

    def _settle(self, seq: int, event: ev.Event) -> None:
        self._reached = seq
        if isinstance(event, ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned):
            self._left.discard(event.request)
        elif isinstance(event, ev.CallRefused) or (
            isinstance(event, ev.ToolReturned) and event.error is not ToolError.IN_DOUBT
        ):
            self._running.discard(event.call)
        # What was decided on the last of the events ends where the next fact begins.
        last = seq > max(self.about) and isinstance(event, ev.Fact)
        self.settled = last and not self._left and not self._running

    def _belongs(self, seq: int, event: ev.Event) -> None:
        for noted in _noted(event):
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
        """What was found is kept here."""
        return self

    def wanted(self) -> set[int]:
        """The events that the others belong to."""
        return {other for seq in self.about for other in self._of(seq)} - {0}

    def of(self, stored: Stored, others: Mapping[int, ev.Event]) -> Surroundings:
        """What one of the events belongs to; `others` are those wanted, as far as they are there."""
        seq, event = stored.seq, self.about[stored.seq]
        return Surroundings(
            turn=self._turns.get(seq, 0),
            side=side_of(event),
            says=sentence(event),
            since=max(0, stored.at - self._began) if stored.at and self._began else None,
            calls=tuple(self._asked(seq, others)),
            related=tuple(
                Related(how=how, seq=other, kind=ev.kind_of(others[other]), says=sentence(others[other]))
                for other, how in sorted(self._of(seq).items())
                if other in others
            ),
        )

    def _of(self, seq: int) -> dict[int, How]:
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
        for other in _noted(event):
            found.setdefault(other, "about")
        for call in _calls(event):
            for other in self._calls[call]:
                found.setdefault(other, "call")
                if other in self._requests:
                    found.setdefault(self._requests[other], "request")
        found.pop(seq, None)
        return found

    def _asked(self, seq: int, others: Mapping[int, ev.Event]) -> Iterator[AskedCall]:
        among = {**others, seq: self.about[seq]}
        for call in _calls(self.about[seq]):
            told = [(place, among[place]) for place in self._calls[call] if place in among]
            ran = _edited(call, [event for _, event in told])
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


def _edited(call: str, told: Sequence[ev.Event]) -> str | None:
    """The arguments with which a person let a call run, the last ones; None: as it was asked for."""
    for event in reversed(told):
        if isinstance(event, ev.ApprovalAnswered) and event.content and call in event.content.arguments:
            return event.content.arguments[call]
    return None


def _legible(stored: Stored) -> ev.Event:
    """An event that was read before without its words; where they cannot be read, without them again."""
    try:
        return event_of(stored)
    except DamagedLog:
        return event_of(stored, content=False)


def _calls(event: ev.Event) -> Sequence[str]:
    return details_of(event.fact if isinstance(event, ev.LateResult) else event, {}).call


def _noted(event: ev.Event) -> Iterable[int]:
    match event:
        case ev.ContentErased(seqs=seqs):
            return seqs
        case ev.NoteAdded(seq=seq) | ev.Diagnosed(seq=seq) | ev.SourceRecorded(seq=seq):
            return () if seq is None else (seq,)
        case _:
            return ()
