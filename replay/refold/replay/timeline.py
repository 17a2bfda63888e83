"""Timeline of a run: one row per turn, or one line in all."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.messages import Usage
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, Refuser, Replay, ToolError
from refold.replay import figures, known
from refold.replay.kinds.arguments import UNKNOWN, Effect, effect_of, elide, is_harmful, short_argument
from refold.replay.kinds.table import kind_for, remark
from refold.replay.reader import Follower, Step, Steps, stored_events
from refold.replay.source_words import cuts
from refold.replay.summary import EXCERPT, RunSummary, summary
from refold.store.protocol import Store

_BESIDE = 20  # maximum remarks per turn about the source of an import


WAITING = "waiting"
"""Standing of a call that waits for approval."""
_NEVER_RAN = frozenset({known.REFUSED, WAITING, str(ToolError.BAD_ARGUMENTS), str(ToolError.UNKNOWN_TOOL)})
_PERHAPS_RAN = frozenset(
    {"open", "doubted", "unknown", known.NOT_RECORDED, str(ToolError.CANCELLED), str(ToolError.IN_DOUBT)}
)
"""A call stopped while it ran and one stopped before are both `cancelled`."""


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a turn.

    `result` is `ok`, an error class, `unmarked` (status not recorded), `refused`, `open` (no result yet),
    `waiting` (for approval), or `not_recorded` (an imported run whose source has no result). A call with an
    unknown outcome is `doubted`; after an operator's finding, until the model gets it, `happened` or
    `unknown`; if it did not happen, it is `open` again.

    `argument` is its main argument (`refold.replay.kinds.arguments`), shortened in the middle, None if
    erased. `size` is in bytes before the cap, `duration` in nanoseconds, None if not measured. `failed` is
    None if unknown or if it did not run. `seq` is the event of its end, 0 if there is none. `effect` is what
    it would change, whether it ran or not.
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
        """Whether it may have run: it was not refused, the tool exists and accepted the arguments."""
        return self.result not in _NEVER_RAN

    @property
    def surely_ran(self) -> bool:
        """Whether it is known to have run."""
        return self.ran and self.result not in _PERHAPS_RAN


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """A turn: one request with everything that follows from it, counted from 1.

    `first`, `last` and `answer` are event numbers; `answer` is 0 without a response. `text` is the start of
    the response, None if erased or missing; `chars` is its full length. `duration` is from the request to the
    last fact or decision of the turn in nanoseconds, without later notes and erasures. `cost_nanousd` is None
    if no price is known. `marks` describe what else happened: retries, compaction, guards, refusals.
    `purpose` is `grace` for the request that a limit grants, which is not a step.
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


class Timeline(RunSummary, frozen=True, kw_only=True):
    """A run with all its turns in memory. `turns` yields them one at a time instead."""

    turns: tuple[TurnRow, ...]


async def timeline(
    store: Store, run: str, upto: int | None = None, registry: Registry = BUILTIN
) -> tuple[Timeline, RunState]:
    """Return the summary and every turn. Raises as `summary`."""
    rows: list[TurnRow] = []
    teller = Teller(rows.append)
    told, state = await summary(store, run, upto, registry, teller)
    return Timeline(**msgspec.structs.asdict(told), turns=(*rows, *teller.result())), state


async def turns(store: Store, run: str, upto: int) -> AsyncIterator[TurnRow]:
    """Yield the turns of a run up to event `upto`; 0: none. Raises `Damaged` and `NewerLog`."""
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
    """Builds turns and passes each to `tell` when it is complete. Holds only the current one."""

    def __init__(self, tell: Callable[[TurnRow], None]) -> None:
        self._tell = tell
        self._turn: TurnRow | None = None
        self._read_only = frozenset[str]()
        # Events before a request belong to the turn of that request.
        self._pending: list[str] = []

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.event`."""
        seq, at, event = step.stored.seq, step.stored.at, step.event
        match event:
            case ev.ModelRequested():
                self._request(seq, at, event)
                return
            case ev.RunStarted():
                self._read_only = frozenset(
                    each.name for each in event.tools if each.replay is Replay.READ_ONLY
                )
            case ev.ModelResponded():
                self._change(seq, at, answer=seq, **_response_fields(event, self._read_only))
            case ev.ToolReturned(refused_by=Refuser()):
                self._change_call(seq, at, event.call, result=known.REFUSED, size=event.output_bytes)
            case ev.ToolReturned():
                self._change_call(
                    seq, at, event.call, result=known.outcome(event), size=event.output_bytes, cut=event.cut,
                    duration=known.took(event.duration), failed=known.failed(event),
                )  # fmt: skip
            case ev.RunResumed() | ev.DoubtResolved():
                self._take_doubt(seq, at, event)
            case ev.CallRefused():
                self._change_call(seq, at, event.call, result=known.REFUSED)
            case ev.ApprovalRequested() | ev.ApprovalAnswered():
                self._take_approval(seq, at, event)
            case ev.RunForked():
                # The repeated request is not a second attempt: the first one was made in the parent.
                self._change(seq, at, attempts=self._turn.attempts - event.again if self._turn else 0)
            case _:
                pass
        self._remark(seq, at, event)

    def _take_approval(self, seq: int, at: int, event: ev.ApprovalRequested | ev.ApprovalAnswered) -> None:
        if isinstance(event, ev.ApprovalRequested):
            found = dict.fromkeys(event.calls, WAITING)
        else:
            found = {each.call: "open" for each in event.answers if each.decision in ("approve", "edit")}
        for call, result in found.items():
            self._change_call(seq, at, call, result=result)

    def _take_doubt(self, seq: int, at: int, event: ev.RunResumed | ev.DoubtResolved) -> None:
        calls, known = (
            ((event.call,), event.doubt) if isinstance(event, ev.DoubtResolved) else (event.in_doubt, None)
        )
        for call in calls:
            self._change_call(
                seq, at, call, result="open" if known is Doubt.DID_NOT else str(known or "doubted")
            )

    def result(self) -> Sequence[TurnRow]:
        """Return the current turn so far; empty before the first."""
        return [replace(turn, marks=(*turn.marks, *self._pending)) for turn in (self._turn,) if turn]

    def _request(self, seq: int, at: int, event: ev.ModelRequested) -> None:
        last = self._turn
        # A repeated step, and the request that a limit grants, have the number of the previous turn.
        if last is not None and last.step == event.step and not last.stop and last.purpose == event.purpose:
            self._change(seq, at, attempts=last.attempts + 1)
            return
        if last is not None:
            self._tell(last)
        marks = (*self._pending, *_list_request_texts(event))
        self._turn = TurnRow(step=event.step, first=seq, last=seq, at=at, marks=marks, purpose=event.purpose)
        self._pending.clear()

    def _change(self, seq: int, at: int | None, **fields: object) -> None:
        """Change the current turn; `at` is None for events that do not extend its duration."""
        if self._turn is not None:
            took = self._turn.duration if at is None else known.took(at - self._turn.at)
            self._turn = replace(self._turn, last=seq, duration=took, **fields)

    def _remark(self, seq: int, at: int, event: ev.Event) -> None:
        said, turn = remark(event), self._turn
        cut = isinstance(event, ev.SourceRecorded) and cuts(event.what)
        early = turn is None or cut or kind_for(event).marks == "next"
        marks = self._pending if early or turn is None else turn.marks
        if isinstance(event, ev.SourceRecorded | ev.Diagnosed) and (said in marks or len(marks) >= _BESIDE):
            said = ""  # a source may repeat a remark many times
        if not early:
            beside = isinstance(event, ev.Annotation)
            self._change(seq, None if beside else at, marks=(*marks, said) if said else marks)
        elif said:
            self._pending.append(said)

    def _change_call(self, seq: int, at: int, call: str, **fields: object) -> None:
        if self._turn is not None:
            rows = (replace(row, seq=seq, **fields) if row.id == call else row for row in self._turn.calls)
            self._change(seq, at, calls=tuple(rows))


def _list_request_texts(event: ev.ModelRequested) -> Iterator[str]:
    # A nudge is in every request, so it is not worth a remark.
    yield from (f"sent once: {text.text}" for text in event.request_only if text.text != "nudge")
    if event.model:
        yield f"model {event.model}"


def _response_fields(event: ev.ModelResponded, read_only: frozenset[str]) -> dict[str, object]:
    content = event.content
    texts = content.arguments if content else ()
    calls: list[CallRow] = []
    for place, call in enumerate(event.calls):
        given = texts[place] if place < len(texts) else None
        calls.append(
            CallRow(
                id=call.id,
                name=call.name,
                argument=None if given is None else short_argument(given, EXCERPT),
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


_MOST, _NAME = 6, 40  # maximum number of tools and length of a name
_LEAST = 2  # minimum number of other changes listed after the harmful ones
_REDIRECTION = "> "


def tally(turns: Iterable[TurnRow]) -> str:
    """Summarize turns: `18 turns, 12 Bash, 3 Edit, 1 failed, 1 without a result`.

    Not sanitized: tool names are those of the log.
    """
    count, tools, ends = 0, Counter[str](), Counter[str]()
    for turn in turns:
        count += 1
        tools.update(elide(call.name, _NAME) for call in turn.calls)
        ends.update(filter(None, map(_end, turn.calls)))
    most = tools.most_common(_MOST)
    others = tools.total() - sum(number for _, number in most)
    told = [f"{figures.count(number)} {name}" for name, number in most]
    told += [f"{figures.quantity(others, 'other call')}"] if others else []
    told += [f"{figures.count(ends[end])} {end}" for end in _ENDS if ends[end]]
    return ", ".join([figures.quantity(count, "turn"), *told])


_ENDS = ("failed", "refused", "waiting for approval", "without a result", "in doubt", "without a status")


def _end(call: CallRow) -> str:
    """Return how a call ended that is not known to be successful."""
    if call.failed is not None:
        return "failed" if call.failed else ""
    by_result = {
        "refused": "refused",
        WAITING: "waiting for approval",
        "open": "without a result",
        "doubted": "in doubt",
        "unknown": "in doubt",
    }
    return by_result.get(call.result, "" if call.result == "happened" else _ENDS[-1])


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """Changes made by the calls of a run, judged by tools and commands: see `refold.replay.kinds.arguments`.

    `made` lists each change, the number of calls that made it, and its first event: `("git push", 2, 103)`.
    The first `harmful` ones reach outside of the project or destroy something; the others are ordered by
    frequency, with files written by redirection (`> notes.txt`) last. Calls that were refused, or that their
    tool did not accept, are left out. Failed calls are included, since they may have changed something before
    they failed; `failed` counts them. `doubtful` counts calls that would have changed something and may not
    have run, such as cancelled ones. `unknown` counts calls with an unknown tool or command, of `calls` in
    total.
    """

    calls: int = 0
    made: tuple[tuple[str, int, int], ...] = ()
    harmful: int = 0
    failed: int = 0
    doubtful: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        """Summarize: `1 git push, 4 Edit (1 failed); 14 calls unknown`; `nothing` if all calls only read.

        Not sanitized.
        """
        verbs = [each for each in self.made if not each[0].startswith(_REDIRECTION)]
        files, shown = len(self.made) - len(verbs), max(_MOST, self.harmful + _LEAST)
        others = sum(number for _, number, _ in verbs[shown:])
        told = [f"{figures.count(number)} {what}" for what, number, _ in verbs[:shown]]
        told += [
            _count_phrase(files, "file", " written by redirection"),
            _count_phrase(others, "other change"),
        ]
        failed = f" ({figures.count(self.failed)} failed)" if self.failed else ""
        doubtful = _count_phrase(self.doubtful, "call", " not known to have run")
        unknown = _count_phrase(self.unknown, "call", " unknown")
        made = ", ".join(filter(None, told)) + failed
        return "; ".join(filter(None, [made, doubtful, unknown])) or "nothing"


class EffectCounter:
    """Counts what the calls of a run changed, turn by turn."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, int]] = {}
        self._calls = self._failed = self._doubtful = self._unknown = 0

    def take(self, turn: TurnRow) -> None:
        """Take one turn."""
        for call in turn.calls:
            self._calls += 1
            if not call.ran:
                continue
            self._unknown += call.effect.kind == "unknown"
            if call.effect.kind == "changes" and not call.surely_ran:
                self._doubtful += 1
                continue
            self._failed += call.effect.kind == "changes" and call.failed is True
            for what in call.effect.what:
                name = elide(what, _NAME)
                number, first = self._made.get(name, (0, call.seq or turn.answer))
                self._made[name] = (number + 1, first)

    def result(self) -> Effects:
        """Return the changes so far: harmful ones first, then the most frequent."""
        made = sorted(((what, *found) for what, found in self._made.items()), key=_rank)
        return Effects(
            calls=self._calls,
            made=tuple(made),
            harmful=sum(is_harmful(what) for what in self._made),
            failed=self._failed,
            doubtful=self._doubtful,
            unknown=self._unknown,
        )


def _count_phrase(number: int, what: str, more: str = "") -> str:
    return figures.quantity(number, what) + more if number else ""


def _rank(change: tuple[str, int, int]) -> tuple[bool, bool, int, int]:
    what, number, first = change
    return (not is_harmful(what), what.startswith(_REDIRECTION), -number, first)
