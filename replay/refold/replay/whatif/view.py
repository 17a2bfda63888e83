"""The prompt of a request under another policy, compared with the recorded prompt."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from refold.reducers.errors import Inconclusive
from refold.reducers.events import CallRefused, Event, HistoryPruned, MessageInjected, MessageTrimmed
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.messages import Message
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.views import MissingContent, message_of, needed
from refold.reducers.window import MessageRef, refs
from refold.replay.reader import event_of, run_follower
from refold.replay.seen import list_request_texts
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.facts import Change
from refold.replay.whatif.mismatches import OF_THE_FACT, ComparedRun
from refold.replay.whatif.tables import Contexts, Prices
from refold.replay.whatif.verdict import WhatIf
from refold.store.protocol import Store

RowSide = Literal["both", "changed", "recorded", "derived"]


class NoEvidence(Inconclusive):
    """The other policy's prompt is unknown here, because the runs diverged before, at event `seq`.

    `last` is the last turn whose prompt is known, 0 if there is none.
    """

    def __init__(self, run: str, seq: int, turn: int, why: str, last: int) -> None:
        super().__init__(run, seq, turn, why, last)
        self.run, self.seq, self.turn, self.why, self.last = run, seq, turn, why, last

    def __str__(self) -> str:
        return (
            f"run {self.run}: under the other policy the evidence ends at event {self.seq}, in turn {self.turn}: "
            f"{self.why}. Later prompts are unknown"
            f"{f'. Use {self.run}@t{self.last}' if self.last else ''}"
        )


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message of one or both prompts.

    `number` is its number in the run that contains it, 0 for a message of one request only. `where`: in
    `both`; in both but `changed` (then `message` is the other policy's version); only `recorded`; only
    `derived`. `why` names the cause of the difference. `message` is None if its text was erased.
    """

    number: int
    where: RowSide
    tokens: int
    message: Message | None
    why: str = ""


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True):
    """A request under another policy, beside the recorded one.

    `asked`: whether the other policy would make the request. `found` is the divergence, if any. `tokens` are
    the two estimates, recorded and derived.
    """

    run: str
    seq: int
    step: int
    asked: bool
    found: WhatIf
    rows: tuple[MessageRow, ...]
    tokens: tuple[int, int]
    tools: tuple[tuple[str, ...], tuple[str, ...]]


async def hypothesis(
    store: Store,
    run: str,
    upto: int,
    policy: Policy | Change,
    registry: Registry = BUILTIN,
    *,
    prices: Prices | None = None,
    contexts: Contexts | None = None,
) -> Hypothesis:
    """Derive the request at event `upto` under the other policy; tables as in `whatif`.

    Raises `NoEvidence` if the runs diverged before it, and as `whatif`.
    """
    comparison = Comparison(run, policy, registry, prices=prices, contexts=contexts)
    found = await run_follower(comparison, store, run, upto)
    one, other = comparison.recorded, comparison.derived
    if _is_behind(comparison, found):
        step = one.state.spent.steps
        raise NoEvidence(run, found.seq, found.turn, found.why, found.turn if found.turn < step else step - 1)
    seen = await _read_texts(store, run, needed(one.state))
    other_seen = await _read_other_texts(store, run, comparison)
    rows = (
        *_window_rows(comparison, seen, other_seen),
        *_request_rows(_request_texts(one.state, seen), _request_texts(other.state, other_seen)),
    )
    requests = one.state.request, other.state.request
    return Hypothesis(
        run=run,
        seq=one.state.seq,
        step=one.state.spent.steps,
        asked=requests[1] is not None,
        found=found,
        rows=rows,
        tokens=(one.state.window.tokens, other.state.window.tokens),
        tools=(_tool_names(one.state), _tool_names(other.state)),
    )


def _is_behind(comparison: Comparison, found: WhatIf) -> bool:
    """Return whether the runs diverged before the request, at an earlier fact or the request's own fact."""
    if comparison.diverged_after == comparison.last_fact:
        # The other run never took this fact, so its window is the one before it.
        return found.kind in OF_THE_FACT or found.kind == "clock"
    return comparison.diverged_after > 0


async def _read_texts(store: Store, run: str, seqs: tuple[int, ...]) -> dict[int, Event]:
    return {stored.seq: event_of(stored) for stored in await store.read_some(run, seqs)}


async def _read_other_texts(store: Store, run: str, comparison: Comparison) -> dict[int, Event]:
    """Return the texts of the other run: facts as recorded, harness messages as it would write them."""
    wanted = {seq: comparison.origins.get(seq, seq) for seq in needed(comparison.derived.state)}
    said = comparison.derived.harness
    facts = {seq: origin for seq, origin in wanted.items() if seq not in said}
    recorded = await _read_texts(store, run, tuple(sorted(set(facts.values()))))
    return {**said, **{seq: recorded[origin] for seq, origin in facts.items() if origin in recorded}}


def _window_rows(
    comparison: Comparison, seen: Mapping[int, Event], other_seen: Mapping[int, Event]
) -> Iterator[MessageRow]:
    one, other = comparison.recorded, comparison.derived
    origins, theirs = _MessageOrigins(one, {}), _MessageOrigins(other, comparison.origins)
    left = {theirs.of(ref): ref for ref in refs(other.state.window)}
    order = list(left)
    places = {key: place for place, key in enumerate(order)}
    told = 0
    for ref in refs(one.state.window):
        place = places.get(origins.of(ref), -1)
        if place < told:
            why = _explain_drop(comparison, ref) if place < 0 else "moved under the other policy"
            yield _message_row(one.state, ref, seen, "recorded", why)
            continue
        yield from _added_rows(other, other_seen, map(left.__getitem__, order[told:place]))
        told, twin = place + 1, left[order[place]]
        same = one.appearance(ref) == other.appearance(twin)
        why = "" if same else _explain_cut(comparison, twin)
        yield _message_row(other.state, twin, other_seen, "both" if same else "changed", why)
    yield from _added_rows(other, other_seen, map(left.__getitem__, order[told:]))


def _added_rows(
    side: ComparedRun, seen: Mapping[int, Event], added: Iterable[MessageRef]
) -> Iterator[MessageRow]:
    for ref in added:
        yield _message_row(
            side.state, ref, seen, "derived", ref.gap.filling if ref.gap else "from the harness"
        )


_Texts = dict[tuple[str, str], tuple[int, Message | None]]
"""Texts of one request only, by role and digest: their tokens and text, None if erased."""


class _MessageOrigins:
    """Origins of a run's messages: a recorded fact, or the n-th occurrence of a harness text."""

    def __init__(self, side: ComparedRun, origins: Mapping[int, int]) -> None:
        said = Counter[tuple[str, str]]()
        self._facts, self._times = origins, dict[int, int]()
        for seq, event in side.harness.items():  # in their order
            if not isinstance(event, MessageInjected | CallRefused):
                continue
            words = event.size.digest, event.call if isinstance(event, CallRefused) else event.role
            said[words] += 1
            self._times[seq] = said[words]

    def of(self, ref: MessageRef) -> tuple[object, ...]:
        """Return an origin that is equal across runs for the same message and unique within a run."""
        source = ref.gap.source if ref.gap else 0
        if source:
            return self._facts.get(source, source), "summary"
        if ref.seq in self._times:
            return ref.role, ref.whole.digest, ref.call, self._times[ref.seq]
        return self._facts.get(ref.seq, ref.seq), ref.part


def _message_row(
    state: RunState, ref: MessageRef, seen: Mapping[int, Event], where: RowSide, why: str
) -> MessageRow:
    try:
        message = message_of(state, ref, seen)
    except MissingContent:
        message = None
    return MessageRow(number=ref.number, where=where, tokens=ref.size.tokens, message=message, why=why)


def _explain_drop(comparison: Comparison, ref: MessageRef) -> str:
    for fact, change in comparison.changes:
        if not isinstance(change, HistoryPruned) or fact < ref.seq:
            continue
        if not any(first <= ref.number <= last for first, last in change.kept):
            return f"dropped by {change.name} ({change.reason})"
    return "not sent under the other policy"


def _explain_cut(comparison: Comparison, ref: MessageRef) -> str:
    trimmed = (change for _, change in comparison.changes if isinstance(change, MessageTrimmed))
    names = [change.name for change in trimmed if change.message == ref.number]
    return f"shortened by {names[-1]}" if names else "in full, or with another text"


def _request_rows(was: _Texts, would: _Texts) -> Iterator[MessageRow]:
    for key, (tokens, message) in was.items():
        where: RowSide = "both" if key in would else "recorded"
        yield MessageRow(number=0, where=where, tokens=tokens, message=message, why="in this request only")
    for key, (tokens, message) in would.items():
        if key not in was:
            yield MessageRow(
                number=0, where="derived", tokens=tokens, message=message, why="in this request only"
            )


def _request_texts(state: RunState, seen: Mapping[int, Event]) -> _Texts:
    said = list_request_texts(state, seen)
    return {(text.role, text.size.digest): (text.size.tokens, message) for text, message in said}


def _tool_names(state: RunState) -> tuple[str, ...]:
    if state.request is None:
        return ()
    names = state.request.event.tools
    return tuple(tool.name for tool in state.setup.tools if names is None or tool.name in names)
