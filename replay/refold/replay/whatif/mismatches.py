"""Compare what two runs request, and when.

Event and message numbers, estimates, digests and the policy key that produced a text differ between the runs,
but no model, tool or user sees them. Only what they see is compared.

The record has the time of each fact, and a policy does not change how long a model or tool takes. A deadline
of the other policy that falls between two facts is therefore exact. A deadline that would fall after its fact
has no effect.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import msgspec

from refold.reducers import events as ev
from refold.reducers.effects import WaitUntil, next_effects
from refold.reducers.evolution import evolve
from refold.reducers.guards import Registry
from refold.reducers.guards.duty import FAILED
from refold.reducers.messages import TextCut
from refold.reducers.meters import limit_child_policy
from refold.reducers.pending import course, underway
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import FailureClass, ToolError
from refold.reducers.window import Chunk, MessageRef, refs
from refold.replay.figures import by

MismatchKind = Literal[
    "view", "texts", "tools", "model", "output_limit", "request", "summary", "calls", "child", "question",
    "wait", "end", "clock", "cut_off", "output", "wording", "redaction", "overflow", "fact", "unknown",
]  # fmt: skip
"""How two runs differ first: in a request, in the end of the run, or in the fact itself.

`unknown` is not a divergence: the record lacks the data.
"""
OF_CALLS = frozenset({"calls", "question", "request"})
OF_THE_FACT = frozenset({"cut_off", "output", "wording", "redaction", "overflow", "fact", "unknown"})

_NO_LIMITS = Policy(limits=())
_NAMED = 3  # calls listed in a sentence; further ones are counted


class ComparedRun:
    """One of the two runs: its state, and the harness messages by event number."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.harness: dict[int, ev.Decision] = {}

    def fold(self, event: ev.Event, registry: Registry) -> None:
        """Fold one event. Raises as `evolve`."""
        self.take((event,), evolve(self.state, event, registry))

    def take(self, events: Sequence[ev.Event], after: RunState) -> None:
        """Record these events and the state after them."""
        for seq, event in enumerate(events, self.state.seq + 1):
            if isinstance(event, ev.Decision) and getattr(event, "content", None) is not None:
                self.harness[seq] = event
        self.state = after

    def appearance(self, ref: MessageRef) -> tuple[Any, ...]:
        """Return a comparable value of a message as the model sees it."""
        shown, said = ref.shown, self.harness.get(ref.seq)
        framed = ref.gap and (ref.gap.source or ref.sources)
        if (
            shown is None
            or framed
            or not isinstance(said, ev.CallRefused | ev.MessageInjected)
            or not said.content
        ):
            return ref.role, ref.call, ref.size.digest
        # Harness texts are known on both sides: the parts removed by a cut may differ.
        trimmed = self.harness.get(shown.seq)
        markers = trimmed.content if isinstance(trimmed, ev.MessageTrimmed) else None
        cuts = [(cut.part, cut.head, cut.tail, _cut_text(said.content.texts[0], cut)) for cut in shown.cuts]
        return ref.role, ref.call, cuts, markers


def _cut_text(text: str, cut: TextCut) -> str:
    return text[: cut.head] + text[max(cut.head, len(text) - cut.tail) :] if cut.part == "text" else text


class Windows:
    """Compares the windows of two runs repeatedly, skipping the unchanged part."""

    def __init__(self) -> None:
        self._alike: tuple[tuple[Chunk, Chunk], ...] = ()

    def same(self, recorded: ComparedRun, derived: ComparedRun) -> bool:
        """Return whether both prompts contain the same messages in the same order."""
        one, other = recorded.state.window, derived.state.window
        if one.count != other.count:
            return False
        pairs = tuple(
            zip(one.chunks, other.chunks, strict=True)
        )  # all chunks but the last are full: see `window`
        for place, pair in enumerate(pairs):
            known = self._alike[place] if place < len(self._alike) else None
            if known is not None and known[0] is pair[0] and known[1] is pair[1]:
                continue
            if pair[0] is pair[1]:  # taken while one state served both runs
                continue
            if list(map(recorded.appearance, pair[0])) != list(map(derived.appearance, pair[1])):
                return False
        self._alike = pairs
        return True


class Mismatch(msgspec.Struct, frozen=True):
    """A visible difference between two runs, with a sentence that explains it.

    `stops` means that the other run ends there, with that `code`.
    """

    kind: MismatchKind
    why: str
    stops: bool = False
    code: str = ""


def find_mismatch(recorded: ComparedRun, derived: ComparedRun, windows: Windows) -> Mismatch | None:
    """Return the first visible difference: how the other run ends or what it requests; None if equal."""
    one, other = recorded.state, derived.state
    blind = [f"guard {each.name}: {each.blind}" for each in other.guards if each.blind not in ("", FAILED)]
    if blind:
        return Mismatch("unknown", "; ".join(blind))
    if other.outcome is not None:
        if one.ended and _end_key(one) == _end_key(other):
            return None
        return Mismatch("end", other.outcome.reason, stops=True, code=other.outcome.code)
    if other.stopping is not None and one.stopping is None:
        return Mismatch("end", other.stopping.reason, stops=True, code=other.stopping.code)
    if one.outcome is not None:
        why = f"the recorded run ends here ({one.outcome.code}), but the other run would continue"
        return Mismatch("end", why)
    return next(_mismatches(recorded, derived, windows), None)


def _end_key(state: RunState) -> tuple[str, ...]:
    outcome = state.outcome
    fallback = state.policy.fallback if outcome and outcome.source == "fallback" else None
    return (
        str(state.agent_state),
        outcome.code if outcome else "",
        outcome.source if outcome else "",
        fallback or "",
    )


def _mismatches(recorded: ComparedRun, derived: ComparedRun, windows: Windows) -> Iterator[Mismatch]:
    one, other = recorded.state, derived.state
    if (one.stopping is None) != (other.stopping is None):
        yield Mismatch("end", "the recorded run is being stopped here, but the other run would continue")
    yield from _compare_requests(recorded, derived, windows)
    yield from _compare_summaries(recorded, derived)
    yield from _compare_calls(recorded, derived)
    yield from _compare_questions(one, other)
    waits = [state.backoff and state.backoff.until for state in (one, other)]
    if waits[0] != waits[1]:
        yield Mismatch("wait", "the wait before the next attempt would have been different")


def _compare_requests(recorded: ComparedRun, derived: ComparedRun, windows: Windows) -> Iterator[Mismatch]:
    one, other = _request(recorded.state), _request(derived.state)
    if one is None or other is None:
        if one is not other:
            asked = "would not have been made" if other is None else "would have been made here"
            why = filter(None, (f"a model request {asked}", _refusal(recorded, derived)))
            yield Mismatch("request", ": ".join(why))
        return
    if not windows.same(recorded, derived):
        yield Mismatch("view", "the prompt would have had other messages")
    if _request_texts(one) != _request_texts(other):
        yield Mismatch("texts", "a text sent in this request only would have been different")
    if _tool_names(recorded.state, one) != _tool_names(derived.state, other):
        yield Mismatch("tools", "other tools would have been offered")
    if one.model != other.model:
        yield Mismatch("model", "another model would have been used")
    if one.max_output != other.max_output:
        yield Mismatch("output_limit", "the response would have had another token limit")


def _request(state: RunState) -> ev.ModelRequested | None:
    return None if state.request is None else state.request.event


def _request_texts(request: ev.ModelRequested) -> list[tuple[str, str]]:
    return [(text.role, text.size.digest) for text in request.request_only]


def _tool_names(state: RunState, request: ev.ModelRequested) -> list[str]:
    return [tool.name for tool in state.setup.tools if request.tools is None or tool.name in request.tools]


def _compare_summaries(recorded: ComparedRun, derived: ComparedRun) -> Iterator[Mismatch]:
    one, other = recorded.state.summary, derived.state.summary
    if one is None and other is None:
        return
    if (
        one is None
        or other is None
        or _summary_key(recorded, one.event) != _summary_key(derived, other.event)
    ):
        yield Mismatch("summary", "summary requests would have been different")


def _summary_key(side: ComparedRun, pending: ev.SummaryRequested) -> tuple[Any, ...]:
    numbers = {number for first, last in pending.messages for number in range(first, last + 1)}
    covered = [side.appearance(ref) for ref in refs(side.state.window) if ref.number in numbers]
    return pending.instructions.digest, covered, pending.max_output


def _compare_calls(recorded: ComparedRun, derived: ComparedRun) -> Iterator[Mismatch]:
    one, other = recorded.state, derived.state
    if _calls_under_way(one) != _calls_under_way(other):
        # The reason for a refusal is more useful than the fact that calls differ.
        why = _refusal(recorded, derived) or next((asked.why for asked in _compare_questions(one, other)), "")
        yield Mismatch("calls", why or "other calls would have run, or in another order")
    if _starts_run(one) and limit_child_policy(_NO_LIMITS, one) != limit_child_policy(_NO_LIMITS, other):
        yield Mismatch("child", "a call starts a child run, which would have had other limits")


def _starts_run(state: RunState) -> bool:
    """Return whether a running call starts a subagent run."""
    starts = {tool.name for tool in state.setup.tools if tool.agent}
    return any(call.name in starts for call in underway(state))


def _calls_under_way(state: RunState) -> list[tuple[str, str, bool]]:
    return [(call.id, course(state, call), bool(call.edited)) for call in underway(state)]


def _refusal(recorded: ComparedRun, derived: ComparedRun) -> str:
    """Describe a call that only one of the runs refuses; "" without one."""
    for side, other, would in ((recorded, derived, "would"), (derived, recorded, "would not")):
        batch = side.state.batch
        left = {call.id for call in batch.calls if call.result is None} if batch else set[str]()
        for event in other.harness.values():
            if isinstance(event, ev.CallRefused) and event.call in left:
                code = f", {event.code}" if event.code else ""
                return f"call {event.call} {would} have been refused ({event.why} by {by(event.cause, event.name)}{code})"
    return ""


def _compare_questions(one: RunState, other: RunState) -> Iterator[Mismatch]:
    if (one.asked_at is None) != (other.asked_at is None):
        would = "would not have" if other.asked_at is None else "would have"
        asked = _name_calls(one if other.asked_at is None else other)
        yield Mismatch("question", f"the run {would} waited {asked}")
    elif _question_key(one) != _question_key(other):
        yield Mismatch("question", "the run would have waited for another approval")


def _name_calls(state: RunState) -> str:
    if state.approval is None:
        return "for an operator here"
    calls = state.approval.event.calls
    more = f" and {len(calls) - _NAMED} more" if len(calls) > _NAMED else ""
    return f"for approval of {', '.join(calls[:_NAMED])}{more}"


def _question_key(state: RunState) -> tuple[Any, ...]:
    approval = state.approval and state.approval.event
    return (state.asked_at is not None, approval and (approval.calls, approval.approver), state.batch is None)


class UnobservedChanges:
    """Facts whose text the other policy would change (`words`), by their number in the other run."""

    def __init__(self) -> None:
        self._facts: dict[int, Mismatch] = {}

    def __bool__(self) -> bool:
        return bool(self._facts)

    def copy(self) -> "UnobservedChanges":
        """Return an independent copy."""
        other = UnobservedChanges()
        other._facts = dict(self._facts)
        return other

    def add(self, seq: int, apart: Mismatch) -> None:
        """Add a changed fact with its mismatch."""
        self._facts[seq] = apart

    def find_reader(self, state: RunState) -> Mismatch | None:
        """Return the mismatch of a changed fact read by the requester or an approver."""
        if not self._facts:
            return None
        outcome = state.outcome
        if outcome is not None:
            words = (*outcome.parts, outcome.answer)
            return next((self._facts[seq] for seq in words if seq in self._facts), None)
        return next(iter(self._facts.values())) if state.asked_at is not None else None

    def explain(self, state: RunState, apart: Mismatch) -> Mismatch:
        """Return the cause of a divergence: a changed fact in the prompt, if there is one."""
        if apart.kind not in ("view", "summary") or not self._facts:
            return apart
        return next((self._facts[ref.seq] for ref in refs(state.window) if ref.seq in self._facts), apart)

    def list_first(self, origins: Mapping[int, int], most: int) -> tuple[tuple[int, str], ...]:
        """List the first changed facts by recorded number with their mismatch.

        `origins` maps numbers in the other run to recorded numbers.
        """
        first = islice(self._facts.items(), most)
        return tuple((origins.get(seq, seq), apart.why) for seq, apart in first)


def next_ring(recorded: RunState, derived: RunState, at: int) -> int | None:
    """Return the first time before `at` for which only the other run waits, or None.

    If both runs wait for a time, the record has the order. At equal times the fact comes first.
    """
    known = _wait_instants(recorded)
    return min(
        (instant for instant in _wait_instants(derived) if instant < at and instant not in known),
        default=None,
    )


def time_before(fact: ev.Fact) -> int:
    """Return the time up to which time passed before the fact. None passes between parent and fork."""
    return fact.at - fact.downtime if isinstance(fact, ev.RunForked) else fact.at


def is_attended(state: RunState, fact: ev.Fact, instant: int) -> bool:
    """Return whether an engine was surely running at a time before the fact, or whether it is irrelevant.

    A run that waits for an operator applies a passed deadline when it is resumed, so no engine is needed.
    """
    if not isinstance(fact, ev.RunResumed) or state.asked_at is not None:
        return True
    return instant < fact.at - fact.downtime


def find_cut_off(
    recorded: RunState, derived: RunState, at: int, fact: ev.Fact | None = None
) -> Mismatch | None:
    """Return a mismatch if work in progress would be cut off at time `at`, or would last longer.

    None means as recorded. `fact` is what arrived then.
    """
    was, would = _deadline(recorded), _deadline(derived)
    stopped = recorded.stopping is not None and derived.stopping is not None
    if was == would or stopped:  # work in progress is already being stopped
        return None
    if would is not None and at > would:
        return Mismatch(
            "cut_off", f"work in progress would have been cut off {format_seconds(at - would)} earlier"
        )
    if was is not None and at >= was and _is_timeout(fact):
        return Mismatch("cut_off", "work that the recorded policy cut off here would have had more time")
    return None


def is_expected(recorded: RunState, derived: RunState, clock: ev.ClockRead) -> bool:
    """Return whether a clock fact matters to the other run: it waits for it, or neither run did."""
    due = [any(instant <= clock.at for instant in _wait_instants(state)) for state in (derived, recorded)]
    return due[0] or not due[1]


def format_seconds(nanoseconds: int) -> str:
    """Format a time in seconds, to the millisecond if it is short."""
    if 0 < nanoseconds < 10**6:
        return "less than 1 ms"
    return f"{nanoseconds // 10**9}.{nanoseconds // 10**6 % 1000:03} s"


def _is_timeout(fact: ev.Fact | None) -> bool:
    match fact:
        case ev.ToolReturned(error=ToolError.TIMEOUT):
            return True
        case ev.ModelFailed(failure=FailureClass.TIMEOUT | FailureClass.CONTEXT_OVERFLOW):
            return True  # a policy's overflow pattern may match a timeout, too
        case _:
            return False


def _deadline(state: RunState) -> int | None:
    under_way = state.request or state.summary or (state.batch if state.asked_at is None else None)
    return under_way.until if under_way else None


def _wait_instants(state: RunState) -> set[int]:
    return {effect.at for effect in next_effects(state) if isinstance(effect, WaitUntil)}
