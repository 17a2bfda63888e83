"""A run as a person reads it: one row a turn, and how it ended. A fold over the log, like everything else."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from refold.reducers.events import (
    Annotation,
    ApprovalAnswered,
    ApprovalRequested,
    CallRefused,
    Diagnosed,
    DoubtResolved,
    Event,
    ModelRequested,
    ModelResponded,
    RunForked,
    RunResumed,
    RunStarted,
    SourceRecorded,
    ToolReturned,
)
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.messages import Usage
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, Refuser, Replay, ToolError
from refold.replay import known
from refold.replay.following import Follower, Step, Steps
from refold.replay.kinds.arguments import shown_argument
from refold.replay.kinds.effects import UNKNOWN, Effect, effect_of
from refold.replay.kinds.table import kind_for, remark
from refold.replay.reader import stored_events
from refold.replay.source_words import cuts
from refold.replay.summary import EXCERPT, Summary, summary
from refold.store.protocol import Store

_BESIDE = 20  # remarks of one turn about the source that it was imported from


WAITING = "waiting"
"""How a call stands that waits for a person's approval."""
_NEVER_RAN = frozenset({known.REFUSED, WAITING, str(ToolError.BAD_ARGUMENTS), str(ToolError.UNKNOWN_TOOL)})
_PERHAPS_RAN = frozenset(
    {"open", "doubted", "unknown", known.NOT_RECORDED, str(ToolError.CANCELLED), str(ToolError.IN_DOUBT)}
)
"""A call stopped while it ran and one stopped before are both `cancelled`."""


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a turn. `result` is `ok`, an error class, `unmarked` where its source says neither, `refused`, or `open` while nothing came back.

    `waiting` for a person's approval. `not_recorded`: the source of an imported run does not say how it ended.

    While nobody knows how it ended it is `doubted`; then, until the model is told, what was found out: `happened` or
    `unknown`. One that did not happen is open again.

    `argument` is its main argument (`refold.replay.kinds.arguments`), of a long one head and tail, None where it was erased.
    `size` is in bytes before the cap, `duration` in nanoseconds, None where nobody took it. `failed`: whether it did, None where
    nobody knows, or it did not run. `seq` is the event that says how it ended, 0 while none does. `effect` is what it asks to
    change, whether it ran or not.
    """

    id: str
    name: str
    argument: str | None
    result: str = "open"
    size: int = 0
    cut: bool = False
    duration: int | None = None
    failed: bool | None = None
    seq: int = 0
    effect: Effect = UNKNOWN

    @property
    def ran(self) -> bool:
        """Whether it may have run: it was not refused, and its tool was there and took the arguments."""
        return self.result not in _NEVER_RAN

    @property
    def surely_ran(self) -> bool:
        """Whether it is known to have run."""
        return self.ran and self.result not in _PERHAPS_RAN


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """A turn: one request with what followed from it, counted from 1. `first` and `last` are event numbers, and
    so is `answer`, 0 while there is none.

    `text` is the first characters of the answer, None where it was erased or there is none yet; `chars` counts
    all of it. `duration` is from the request to the last fact or decision of the turn, nanoseconds: a note or an erasure of
    a year later is no part of it. `cost_nanousd` is None
    where no price is known. `marks` say in words what else happened: retries, prunes, guards, refusals. `purpose` is `grace` for the
    one request that a limit granted, which is no step.
    """

    step: int
    first: int
    last: int
    at: int
    answer: int = 0
    attempts: int = 1
    stop: str = ""
    text: str | None = None
    chars: int = 0
    calls: tuple[CallRow, ...] = ()
    usage: Usage = Usage()
    cost_nanousd: int | None = None
    duration: int | None = None
    marks: tuple[str, ...] = ()
    purpose: str = "step"


class Timeline(Summary, frozen=True, kw_only=True):
    """A run with all its turns. Of a long run that is much: `turns` tells them one after the other."""

    turns: tuple[TurnRow, ...]


async def timeline(
    store: Store, run: str, upto: int | None = None, registry: Registry = BUILTIN
) -> tuple[Timeline, RunState]:
    """`summary`, and every turn. Raises as `summary`."""
    rows: list[TurnRow] = []
    teller = Teller(rows.append)
    told, state = await summary(store, run, upto, registry, teller)
    return Timeline(**msgspec.structs.asdict(told), turns=(*rows, *teller.result())), state


async def turns(store: Store, run: str, upto: int) -> AsyncIterator[TurnRow]:
    """The turns of a run up to event `upto`, in order; 0: none. Raises `Damaged` and `NewerLog`."""
    ended: list[TurnRow] = []
    teller = Teller(ended.append)
    if upto:
        async for step in Steps(stored_events(store, run, upto)):
            teller.take(step)
            while ended:
                yield ended.pop()
    for going_on in teller.result():
        yield going_on


class Teller(Follower[Sequence[TurnRow]]):
    """Tells turns, each once it is over. It holds the one that goes on, and no other."""

    def __init__(self, tell: Callable[[TurnRow], None]) -> None:
        self._tell = tell
        self._turn: TurnRow | None = None
        self._read_only = frozenset[str]()
        # What happens before a request belongs to the turn that the request opens.
        self._pending: list[str] = []

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.event`."""
        seq, at, event = step.stored.seq, step.stored.at, step.event
        match event:
            case ModelRequested():
                self._request(seq, at, event)
                return
            case RunStarted():
                self._read_only = frozenset(
                    each.name for each in event.tools if each.replay is Replay.READ_ONLY
                )
            case ModelResponded():
                self._change(seq, at, answer=seq, **_answered(event, self._read_only))
            case ToolReturned(refused_by=Refuser()):
                self._call(seq, at, event.call, result=known.REFUSED, size=event.output_bytes)
            case ToolReturned():
                self._call(
                    seq, at, event.call, result=known.outcome(event), size=event.output_bytes, cut=event.cut,
                    duration=known.took(event.duration), failed=known.failed(event),
                )  # fmt: skip
            case RunResumed() | DoubtResolved():
                self._doubt(seq, at, event)
            case CallRefused():
                self._call(seq, at, event.call, result=known.REFUSED)
            case ApprovalRequested() | ApprovalAnswered():
                self._approval(seq, at, event)
            case RunForked():
                # The request that it makes anew was never made here: what follows is no second attempt.
                self._change(seq, at, attempts=self._turn.attempts - event.again if self._turn else 0)
            case _:
                pass
        self._remark(seq, at, event)

    def _approval(self, seq: int, at: int, event: ApprovalRequested | ApprovalAnswered) -> None:
        if isinstance(event, ApprovalRequested):
            found = dict.fromkeys(event.calls, WAITING)
        else:
            found = {each.call: "open" for each in event.answers if each.decision in ("approve", "edit")}
        for call, result in found.items():
            self._call(seq, at, call, result=result)

    def _doubt(self, seq: int, at: int, event: RunResumed | DoubtResolved) -> None:
        calls, known = (
            ((event.call,), event.doubt) if isinstance(event, DoubtResolved) else (event.in_doubt, None)
        )
        for call in calls:
            self._call(seq, at, call, result="open" if known is Doubt.DID_NOT else str(known or "doubted"))

    def result(self) -> Sequence[TurnRow]:
        """The turn that goes on still, with what happened since; none before the first."""
        return [replace(turn, marks=(*turn.marks, *self._pending)) for turn in (self._turn,) if turn]

    def _request(self, seq: int, at: int, event: ModelRequested) -> None:
        last = self._turn
        # A step that was given back, and the one request that a limit grants, share a number with the turn before.
        if last is not None and last.step == event.step and not last.stop and last.purpose == event.purpose:
            self._change(seq, at, attempts=last.attempts + 1)
            return
        if last is not None:
            self._tell(last)
        marks = (*self._pending, *_shown_once(event))
        self._turn = TurnRow(step=event.step, first=seq, last=seq, at=at, marks=marks, purpose=event.purpose)
        self._pending.clear()

    def _change(self, seq: int, at: int | None, **fields: object) -> None:
        """Change the turn by an event of this time; None for an event that takes none of the turn's time."""
        if self._turn is not None:
            took = self._turn.duration if at is None else known.took(at - self._turn.at)
            self._turn = replace(self._turn, last=seq, duration=took, **fields)

    def _remark(self, seq: int, at: int, event: Event) -> None:
        said, turn = remark(event), self._turn
        cut = isinstance(event, SourceRecorded) and cuts(event.what)
        early = turn is None or cut or kind_for(event).marks == "next"
        marks = self._pending if early or turn is None else turn.marks
        if isinstance(event, SourceRecorded | Diagnosed) and (said in marks or len(marks) >= _BESIDE):
            said = ""  # a source may repeat itself without end: once is enough to know where to look
        if not early:
            beside = isinstance(event, Annotation)
            self._change(seq, None if beside else at, marks=(*marks, said) if said else marks)
        elif said:
            self._pending.append(said)

    def _call(self, seq: int, at: int, call: str, **fields: object) -> None:
        if self._turn is not None:
            rows = (replace(row, seq=seq, **fields) if row.id == call else row for row in self._turn.calls)
            self._change(seq, at, calls=tuple(rows))


def _shown_once(event: ModelRequested) -> Iterator[str]:
    # A nudge goes with every request, and says nothing about this one.
    yield from (f"shown once {text.text}" for text in event.request_only if text.text != "nudge")
    if event.model:
        yield f"asked {event.model}"


def _answered(event: ModelResponded, read_only: frozenset[str]) -> dict[str, object]:
    content = event.content
    texts = content.arguments if content else ()
    calls: list[CallRow] = []
    for place, call in enumerate(event.calls):
        given = texts[place] if place < len(texts) else None
        calls.append(
            CallRow(
                id=call.id,
                name=call.name,
                argument=None if given is None else shown_argument(given, EXCERPT),
                effect=effect_of(call.name, given, read_only=call.name in read_only),
            )
        )
    return {
        "stop": known.stopped(event),
        "text": content.text[:EXCERPT] if content else None,
        "chars": event.size.chars,
        "calls": tuple(calls),
        "usage": event.usage,
        "cost_nanousd": event.cost_nanousd,
    }
