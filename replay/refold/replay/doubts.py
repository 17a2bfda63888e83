"""Calls whose outcome is unknown, and the runs that calls started.

An operator's finding is recorded as a fact while the run waits for it. Later findings (after the model was
informed that the outcome is unknown, or after the run ended) are recorded as a note about the call's result.
Such a note begins with one of three fixed sentences.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.meters import child_run_id, open_children
from refold.reducers.pending import repeatable
from refold.reducers.source_marks import BEGAN
from refold.reducers.vocabulary import Doubt, Replay, ToolError
from refold.replay.reader import Follower, Step, events, run_follower
from refold.store.protocol import Store

Standing = Literal["open", "asked", "told", "resolved"]

_LOOKED_AT: frozenset[type[ev.Event]] = frozenset(
    {
        ev.RunStarted,
        ev.RunForked,
        ev.ModelResponded,
        ev.ToolsDispatched,
        ev.RunResumed,
        ev.DoubtResolved,
        ev.ToolReturned,
        ev.StateChanged,
        ev.LateResult,
        ev.NoteAdded,
    }
)
_KINDS = frozenset(map(ev.kind_of, _LOOKED_AT))
_NOTE = ev.kind_of(ev.NoteAdded)

# These texts are in logs, so every later version must recognize them.
_SENTENCES: Mapping[Doubt, str] = MappingProxyType(
    {Doubt.HAPPENED: "it happened", Doubt.DID_NOT: "it did not happen", Doubt.UNKNOWN: "nobody knows"}
)


class DoubtfulCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose outcome is unknown; `tool` is its name, `since` the time it began.

    `standing`: `open` (no result yet; an active engine may still get one), `asked` (the run waits for an
    operator), `told` (the result states that the outcome is unknown: the model was informed or the run was
    stopped), `resolved` (an operator recorded the outcome, or that it cannot be found out). `doubt` is the
    latest finding, by `by` at time `at`; for an open or asked call, it is the tool's own report that it does
    not know. `result` is the number of the event that records the unknown outcome: later findings are notes
    about it. Times are nanoseconds since the epoch.
    """

    run: str
    call: str
    tool: str
    since: int
    standing: Standing
    doubt: Doubt | None = None
    by: str = ""
    at: int | None = None
    result: int | None = None


def remark_of(doubt: Doubt, note: str) -> str:
    """Return the note text that records an operator's finding about a call with an unknown outcome."""
    return f"{_SENTENCES[doubt]}: {note}" if note else _SENTENCES[doubt]


def doubt_of(text: str) -> Doubt | None:
    """Parse such a note; None for any other text."""
    sentence = text.partition(": ")[0]
    return next((doubt for doubt, said in _SENTENCES.items() if said == sentence), None)


def is_unresolved(call: DoubtfulCall) -> bool:
    """Return whether the outcome is still open. Informing the model does not resolve it."""
    return call.standing != "resolved"


async def doubts(store: Store, run: str) -> tuple[DoubtfulCall, ...]:
    """Return every call of the run whose outcome was unknown, in the order they began.

    A call that returned later or has no side effects is not listed. Neither is a repeatable call, unless its
    run was stopped before the repeat. Only a few kinds of event are read, and payloads of notes only; an
    erased note counts as no finding. Raises `UnknownRun`, `DamagedLog` and `NewerLog`.
    """
    return await run_follower(DoubtFinder(run), store, run)


class DoubtFinder(Follower[tuple[DoubtfulCall, ...]]):
    """Follower that finds calls with an unknown outcome."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._replays: dict[str, Replay] = {}
        self._names: dict[str, str] = {}  # by call of the last response
        self._begun: dict[str, int] = {}  # start times of calls without a result
        self._rows: dict[str, DoubtfulCall] = {}
        self._results: dict[int, str] = {}  # calls whose unknown outcome is recorded, with the event
        self._late: set[str] = set()
        self._asked = self._unattended = False

    def take(self, step: Step) -> None:
        """Take one event. Bodies of irrelevant kinds are not decoded."""
        seq, at, kind = step.stored.seq, step.stored.at, step.stored.kind
        if kind not in _KINDS:
            return
        match event := step.event if kind == _NOTE else step.bare:
            case ev.RunResumed():
                self._unattended = event.unattended
                self._rows.update((call, self._row(call, "open")) for call in event.in_doubt)
            case ev.DoubtResolved():
                self._resolve(at, event)
            case ev.ToolReturned():
                self._returned(seq, event)
            case ev.LateResult(fact=ev.ToolReturned(call=call)):
                self._late.add(call)
            case ev.NoteAdded():
                self._take_note(at, event)
            case _:
                self._learn(at, event)

    def _learn(self, at: int, event: ev.Event) -> None:
        match event:
            case ev.RunStarted(tools=tools) | ev.RunForked(tools=tools) if tools is not None:
                self._replays = {tool.name: tool.replay for tool in tools}
            case ev.ModelResponded():
                self._names = {call.id: call.name for call in event.calls}
            case ev.ToolsDispatched():
                self._begun.update(dict.fromkeys(event.calls, at))
            case ev.StateChanged():
                self._asked = event.target.awaits_operator and event.code == "in_doubt"
            case _:
                pass

    def result(self) -> tuple[DoubtfulCall, ...]:
        """Return the calls found so far."""
        rows = dict(self._rows)
        if not (self._asked or self._unattended):
            # The engine that started these may no longer run.
            for call in self._begun:
                if not repeatable(self._replay(call)) and (
                    call not in rows or rows[call].doubt is Doubt.DID_NOT
                ):
                    rows[call] = self._row(call, "open")
        standing: Standing = "asked" if self._asked else "open"
        told = (replace(row, standing=standing) if row.standing == "open" else row for row in rows.values())
        return tuple(sorted(filter(self._list_unrecorded, told), key=lambda row: row.since))

    def _list_unrecorded(self, row: DoubtfulCall) -> bool:
        return row.standing != "told" or row.call not in self._late  # otherwise it returned later

    def _replay(self, call: str) -> Replay | None:
        return self._replays.get(self._names.get(call, ""))

    def _row(self, call: str, standing: Standing) -> DoubtfulCall:
        since = self._begun.get(call, 0)
        return DoubtfulCall(
            run=self._run, call=call, tool=self._names.get(call, ""), since=since, standing=standing
        )

    def _resolve(self, at: int, event: ev.DoubtResolved) -> None:
        row = self._rows.get(event.call) or self._row(event.call, "open")
        knows_nothing = event.reconciled and event.doubt is Doubt.UNKNOWN
        standing: Standing = "open" if knows_nothing else "resolved"
        self._rows[event.call] = replace(row, standing=standing, doubt=event.doubt, by=event.by, at=at)
        if event.doubt is Doubt.DID_NOT:
            self._begun[event.call] = at

    def _returned(self, seq: int, event: ev.ToolReturned) -> None:
        row = self._rows.get(event.call)
        # In a stopped run a repeatable call was not repeated: only read-only calls have no unknown outcome.
        if event.error is ToolError.IN_DOUBT and self._replay(event.call) is not Replay.READ_ONLY:
            row = row or self._row(event.call, "open")
            # After the finding that it did not run, the call ran again, with an unknown outcome.
            told = row.standing == "open" or row.doubt is Doubt.DID_NOT
            self._rows[event.call] = replace(row, standing="told" if told else row.standing, result=seq)
            self._results[seq] = event.call
        elif row is not None and row.standing == "open":
            del self._rows[event.call]
        self._begun.pop(event.call, None)

    def _take_note(self, at: int, event: ev.NoteAdded) -> None:
        row = self._rows.get(self._results.get(event.seq or 0, ""))
        doubt = doubt_of(event.content.text) if event.content is not None else None
        if row is not None and doubt is not None:
            self._rows[row.call] = replace(row, standing="resolved", doubt=doubt, by=event.by, at=at)


_DISPATCHED = ev.kind_of(ev.ToolsDispatched)
_RETURNED, _RECORDED = ev.kind_of(ev.ToolReturned), ev.kind_of(ev.SourceRecorded)


class ChildRuns(Follower[Sequence[str]]):
    """Collects the ids of subagent runs in call order; a call that never started has no run."""

    folds = True

    def __init__(self) -> None:
        self._runs: dict[str, None] = {}

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.after`."""
        if step.stored.kind == _DISPATCHED:
            self._runs.update(dict.fromkeys(open_children(step.after)))

    def result(self) -> Sequence[str]:
        """Return the ids; for a fork, including those started by its parents."""
        return tuple(self._runs)


class NamedDoubt(Follower[Mapping[str, str]]):
    """Maps source keys of subagent runs to the calls of an imported run that started them.

    If several calls name a run, the first one started it and the others continued it.
    """

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._returned = 0, ""

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.bare`."""
        if step.stored.kind not in (_RETURNED, _RECORDED):
            return
        match step.bare:
            case ev.ToolReturned(call=call):
                self._returned = step.stored.seq, call
            case ev.SourceRecorded(what=what, seq=seq) if what.startswith(BEGAN) and seq == self._returned[0]:
                self._calls.setdefault(what.removeprefix(BEGAN), self._returned[1])
            case _:
                pass

    def result(self) -> Mapping[str, str]:
        """Return the calls by source key."""
        return self._calls


async def family_of(store: Store, run: str) -> list[str]:
    """Return the ids of the run and all stored runs below it, each once. Raises `UnknownRun`."""
    found, left = [run], [run]
    while left:
        for child in await _children(store, left.pop()):
            if child not in found and (await store.head(child)).seq:
                found.append(child)
                left.append(child)
    return found


async def _children(store: Store, run: str) -> list[str]:
    """Return the runs that calls of this run started or would have started, ended or not."""
    agents, found = frozenset[str](), list[str]()
    async for stored, event in events(store, run):
        if isinstance(event, ev.RunStarted | ev.RunForked):
            agents = frozenset(tool.name for tool in event.tools or () if tool.agent) or agents
        found += _list_started(stored.run, event, agents)  # started by the parent, in a fork's prefix
    return found


def _list_started(run: str, event: ev.Event, agents: frozenset[str]) -> Iterable[str]:
    if isinstance(event, ev.ChildEnded):
        return [event.run]
    calls = event.calls if isinstance(event, ev.ModelResponded) else ()
    return [child_run_id(run, call.id) for call in calls if call.name in agents]
