"""A run as a person reads it: one row a turn, and how it ended. A fold over the log, like everything else."""

from collections.abc import AsyncIterator, Iterator

import msgspec
from msgspec.structs import replace

from refold.reducers.events import (
    AnswerDiscarded,
    ApprovalAnswered,
    ApprovalRequested,
    CallRefused,
    CancelRequested,
    ChildEnded,
    ContextObserved,
    ContextOverflowed,
    Diagnosed,
    DoubtResolved,
    Event,
    GuardTripped,
    HistoryPruned,
    InputReceived,
    LateResult,
    LimitNeared,
    LimitReached,
    MessageInjected,
    MessageTrimmed,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    PolicyAmended,
    RetryScheduled,
    RunForked,
    RunResumed,
    RunStarted,
    SourceRecorded,
    StepFreed,
    SummaryAbandoned,
    SummaryRequested,
    ToolReturned,
    kind_of,
)
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.messages import Usage
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt
from refold.replay import known
from refold.replay.causes import by, spoken
from refold.replay.reader import events
from refold.replay.source_words import context_remark, cuts, source_remark
from refold.replay.summary import EXCERPT, Summary, summary
from refold.store.protocol import Store

_BESIDE = 20  # remarks of one turn about the source that it was imported from


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a turn. `result` is `ok`, an error class, `refused`, or `open` while nothing came back.

    While nobody knows how it ended it is `doubted`; then, until the model is told, what was found out: `happened` or
    `unknown`. One that did not happen is open again.

    `arguments` are the first characters of the JSON text, None where they were erased. `size` is in bytes before
    the cap, `duration` in nanoseconds, None where nobody took it.
    """

    id: str
    name: str
    arguments: str | None
    result: str = "open"
    size: int = 0
    cut: bool = False
    duration: int | None = None


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """A turn: one request with what followed from it, counted from 1. `first` and `last` are event numbers.

    `text` is the first characters of the answer, None where it was erased or there is none yet; `chars` counts
    all of it. `duration` is from the request to the last event of the turn, nanoseconds. `cost_nanousd` is None
    where no price is known. `marks` say in words what else happened: retries, prunes, guards, refusals. `purpose` is `grace` for the
    one request that a limit granted, which is no step.
    """

    step: int
    first: int
    last: int
    at: int
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
    told, state = await summary(store, run, upto, registry)
    rows = [turn async for turn in turns(store, run, told.events)]
    return Timeline(**msgspec.structs.asdict(told), turns=tuple(rows)), state


async def turns(store: Store, run: str, upto: int) -> AsyncIterator[TurnRow]:
    """The turns of a run up to event `upto`, in order; 0: none. Raises `Damaged` and `NewerLog`."""
    teller = Teller()
    if upto:
        async for stored, event in events(store, run, upto):
            ended = teller.take(stored.seq, stored.at, event)
            if ended is not None:
                yield ended
    going_on = teller.last()
    if going_on is not None:
        yield going_on


class Teller:
    """Takes a run's events in order, and tells its turns. It holds the one that goes on, and no other."""

    def __init__(self) -> None:
        self._turn: TurnRow | None = None
        # What happens before a request belongs to the turn that the request opens.
        self._pending: list[str] = []

    def take(self, seq: int, at: int, event: Event) -> TurnRow | None:
        """Take one event, recorded at the instant `at`: the turn before, if this one begins another."""
        match event:
            case ModelRequested():
                return self._request(seq, at, event)
            case ModelResponded():
                self._change(seq, at, **_answered(event))
            case ToolReturned():
                self._call(
                    seq, at, event.call, result=str(event.error or "ok"), size=event.output_bytes, cut=event.cut,
                    duration=known.took(event.duration),
                )  # fmt: skip
            case RunResumed() | DoubtResolved():
                self._mark(seq, at, remark(event))
                self._doubt(seq, at, event)
            case CallRefused():
                self._call(seq, at, event.call, result="refused")
                self._mark(seq, at, f"{event.why} by {by(event.cause, event.name)}")
            case (
                HistoryPruned()
                | MessageTrimmed()
                | MessageInjected()
                | SummaryRequested()
                | ContextObserved()
            ):
                self._pending.append(remark(event))
            case InputReceived():
                self._pending.append(remark(event))
            case RunStarted():
                pass
            case RunForked():
                # The request that it makes anew was never made here: what follows is no second attempt.
                attempts = self._turn.attempts - event.again if self._turn else 0
                self._mark(seq, at, remark(event))
                self._change(seq, at, attempts=attempts)
            case _:
                self._other(seq, at, event)
        return None

    def _doubt(self, seq: int, at: int, event: RunResumed | DoubtResolved) -> None:
        calls, known = (
            ((event.call,), event.doubt) if isinstance(event, DoubtResolved) else (event.in_doubt, None)
        )
        for call in calls:
            self._call(seq, at, call, result="open" if known is Doubt.DID_NOT else str(known or "doubted"))

    def last(self) -> TurnRow | None:
        """The turn that goes on still, with what happened since; None before the first."""
        return self._turn and replace(self._turn, marks=(*self._turn.marks, *self._pending))

    def _request(self, seq: int, at: int, event: ModelRequested) -> TurnRow | None:
        last = self._turn
        # A step that was given back, and the one request that a limit grants, share a number with the turn before.
        if last is not None and last.step == event.step and not last.stop and last.purpose == event.purpose:
            self._change(seq, at, attempts=last.attempts + 1)
            return None
        marks = (*self._pending, *_shown_once(event))
        self._turn = TurnRow(step=event.step, first=seq, last=seq, at=at, marks=marks, purpose=event.purpose)
        self._pending.clear()
        return last

    def _change(self, seq: int, at: int, **fields: object) -> None:
        if self._turn is not None:
            self._turn = replace(self._turn, last=seq, duration=known.took(at - self._turn.at), **fields)

    def _mark(self, seq: int, at: int, said: str) -> None:
        if self._turn is None:
            self._pending.append(said)
        else:
            self._change(seq, at, marks=(*self._turn.marks, said))

    def _other(self, seq: int, at: int, event: Event) -> None:
        said = remark(event)
        early = self._turn is None or (isinstance(event, SourceRecorded) and cuts(event.what))
        if isinstance(event, SourceRecorded | Diagnosed):
            # A source may repeat itself without end: once is enough to know where to look.
            marks = self._pending if early or self._turn is None else self._turn.marks
            said = "" if said in marks or len(marks) >= _BESIDE else said
        if said and early:
            self._pending.append(said)
        elif said:
            self._mark(seq, at, said)
        else:
            self._change(seq, at)

    def _call(self, seq: int, at: int, call: str, **fields: object) -> None:
        if self._turn is not None:
            rows = (replace(row, **fields) if row.id == call else row for row in self._turn.calls)
            self._change(seq, at, calls=tuple(rows))


def remark(event: Event) -> str:  # noqa: PLR0912 - one line a kind
    """What else happened, in a few words of ours; "" for what is no remark."""
    match event:
        case HistoryPruned():
            return f"pruned {event.before} to {event.after} messages ({event.name})"
        case MessageTrimmed():
            return f"trimmed message {event.message} ({event.name})"
        case MessageInjected():
            return f"told {event.text} (by {by(event.cause, event.name)})"
        case InputReceived():
            return f"message from {event.by}"
        case ApprovalAnswered():
            said = ", ".join(f"{answer.decision} {answer.call}" for answer in event.answers)
            return f"{event.by}: {said}"
        case ApprovalRequested():
            return f"asked a person about {', '.join(event.calls)}"
        case SummaryRequested():
            count = sum(last - first + 1 for first, last in event.messages)
            return f"asked for a summary of {count} messages ({event.name})"
        case ChildEnded():
            return f"{event.call}: run {event.run} ended {event.agent_state}"
        case GuardTripped() | LimitReached() | LimitNeared():
            verdict = spoken(event)
            return f"{verdict.who}: {verdict.said} ({verdict.code})" if verdict else ""
        case StepFreed():
            return f"not counted by the limit {event.limit}"
        case ContextOverflowed():
            return "the context was too long"
        case AnswerDiscarded():
            return f"empty answer number {event.count} in a row, asked again"
        case SummaryAbandoned():
            return f"no summary: {event.failure} ({event.name})"
        case RetryScheduled():
            return f"retry {event.attempt} after {event.failure}, {_seconds(event.delay)} s later"
        case ModelFailed():
            return f"failed: {event.failure}" + (f" {event.status}" if event.status else "")
        case RunResumed():
            return "resumed" + (f", in doubt: {', '.join(event.in_doubt)}" if event.in_doubt else "")
        case RunForked():
            made_up = (
                f", results of {', '.join(event.results)} made up by {event.by}" if event.results else ""
            )
            told = f", told something by {event.by}" if event.size else ""
            doubted = f", in doubt: {', '.join(event.in_doubt)}" if event.in_doubt else ""
            return f"forked from event {event.parent_seq} of run {event.parent}{made_up}{told}{doubted}"
        case CancelRequested():
            return f"cancel asked by {event.by}"
        case DoubtResolved():
            return f"{event.call}: {event.doubt}, says {event.by}"
        case PolicyAmended():
            return f"new policy by {event.by}"
        case LateResult():
            return f"late {kind_of(event.fact)}"
        case ContextObserved():
            return context_remark(event)
        case SourceRecorded():
            return source_remark(event)
        case Diagnosed():
            return f"odd: {event.code}"
        case _:
            return ""


def _shown_once(event: ModelRequested) -> Iterator[str]:
    # A nudge goes with every request, and says nothing about this one.
    yield from (f"shown once {text.text}" for text in event.request_only if text.text != "nudge")
    if event.model:
        yield f"asked {event.model}"


def _seconds(nanoseconds: int) -> str:
    # In integers: a forged wait may be longer than any double.
    if nanoseconds > 10**30:
        return "over 10^21"
    whole, tenths = divmod((nanoseconds + 50_000_000) // 100_000_000, 10)
    return f"{whole}.{tenths}"


def _answered(event: ModelResponded) -> dict[str, object]:
    content = event.content
    texts = content.arguments if content else ()
    calls = (
        CallRow(id=call.id, name=call.name, arguments=texts[place][:EXCERPT] if place < len(texts) else None)
        for place, call in enumerate(event.calls)
    )
    return {
        "stop": str(event.stop),
        "text": content.text[:EXCERPT] if content else None,
        "chars": event.size.chars,
        "calls": tuple(calls),
        "usage": event.usage,
        "cost_nanousd": event.cost_nanousd,
    }
