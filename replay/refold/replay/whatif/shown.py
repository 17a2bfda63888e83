"""Whether two runs over the same facts ask the same of the world: what the model is shown, what is run, who is asked.

Event and message numbers differ between them, estimates do, digests, and who in the policy asked for a text: none of it
is seen by the model, by a tool or by a person. What they would see is compared, and nothing else.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from refold.reducers.events import (
    CallRefused,
    Decision,
    Event,
    MessageInjected,
    MessageTrimmed,
    ModelRequested,
    SummaryRequested,
)
from refold.reducers.evolution import evolve
from refold.reducers.guards import Registry
from refold.reducers.guards.duty import FAILED
from refold.reducers.messages import TextCut
from refold.reducers.meters import bounded
from refold.reducers.pending import course, underway
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.window import Chunk, MessageRef, refs
from refold.replay.causes import by

Parting = Literal[
    "view", "texts", "tools", "model", "output_limit", "request", "summary", "calls", "child", "question",
    "wait", "end", "clock", "cut_off", "output", "wording", "redaction", "overflow", "fact", "unknown",
]  # fmt: skip
"""In what two runs part first: what is asked of the world, how the run ends, or the fact itself. `unknown` is no parting."""
OF_CALLS = frozenset({"calls", "question", "request"})
OF_THE_FACT = frozenset({"cut_off", "output", "wording", "redaction", "overflow", "fact", "unknown"})

_NO_LIMITS = Policy(limits=())
_NAMED = 3  # calls that are named in a sentence; further ones are counted


class Side:
    """One of the two runs: its state, and what its harness said, by event number."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.harness: dict[int, Decision] = {}

    def fold(self, event: Event, registry: Registry) -> None:
        """Fold one event. Raises as `evolve`."""
        self.take((event,), evolve(self.state, event, registry))

    def take(self, events: Sequence[Event], after: RunState) -> None:
        """Take these events, and the state after them."""
        for seq, event in enumerate(events, self.state.seq + 1):
            if isinstance(event, Decision) and getattr(event, "content", None) is not None:
                self.harness[seq] = event
        self.state = after

    def looks(self, ref: MessageRef) -> tuple[Any, ...]:
        """What the model sees of a message of the window, as a value that is equal where that is."""
        shown, said = ref.shown, self.harness.get(ref.seq)
        framed = ref.gap and (ref.gap.source or ref.sources)
        if shown is None or framed or not isinstance(said, CallRefused | MessageInjected) or not said.content:
            return ref.role, ref.call, ref.size.digest
        # Words of the harness are known on both sides: those that a cut took away may be others.
        trimmed = self.harness.get(shown.seq)
        markers = trimmed.content if isinstance(trimmed, MessageTrimmed) else None
        cuts = [(cut.part, cut.head, cut.tail, _left(said.content.texts[0], cut)) for cut in shown.cuts]
        return ref.role, ref.call, cuts, markers


def _left(text: str, cut: TextCut) -> str:
    return text[: cut.head] + text[max(cut.head, len(text) - cut.tail) :] if cut.part == "text" else text


class Windows:
    """Compares the windows of two runs, again and again, without looking twice at what stayed as it was."""

    def __init__(self) -> None:
        self._alike: tuple[tuple[Chunk, Chunk], ...] = ()

    def same(self, recorded: Side, derived: Side) -> bool:
        """Whether the model would be shown the same messages, in the same order."""
        one, other = recorded.state.window, derived.state.window
        if one.count != other.count:
            return False
        pairs = tuple(zip(one.chunks, other.chunks, strict=True))  # both are filled to the brim: see `window`
        for place, pair in enumerate(pairs):
            known = self._alike[place] if place < len(self._alike) else None
            if known is not None and known[0] is pair[0] and known[1] is pair[1]:
                continue
            if list(map(recorded.looks, pair[0])) != list(map(derived.looks, pair[1])):
                return False
        self._alike = pairs
        return True


class Parted(msgspec.Struct, frozen=True):
    """In what two runs part, and one sentence on it."""

    kind: Parting
    why: str


class Apart(msgspec.Struct, frozen=True):
    """In what a run parts from the recorded one; `stops`: it ends there, with that `code`."""

    parted: Parted
    stops: bool = False
    code: str = ""


def apart(recorded: Side, derived: Side, windows: Windows) -> Apart | None:
    """In what the two are not one any more for the world; None: they are."""
    one, other = recorded.state, derived.state
    blind = [watch for watch in other.guards if watch.blind and watch.blind != FAILED]
    if blind:
        return Apart(Parted("unknown", "; ".join(f"guard {watch.name}: {watch.blind}" for watch in blind)))
    if other.outcome is not None:
        if one.ended and _ending(one) == _ending(other):
            return None
        return Apart(Parted("end", other.outcome.reason), stops=True, code=other.outcome.code)
    if other.stopping is not None and one.stopping is None:
        return Apart(Parted("end", other.stopping.reason), stops=True, code=other.stopping.code)
    if one.outcome is not None:
        why = f"the record ends here ({one.outcome.code}), and the other run would go on"
        return Apart(Parted("end", why))
    found = parted(recorded, derived, windows)
    return None if found is None else Apart(found)


def _ending(state: RunState) -> tuple[str, ...]:
    outcome = state.outcome
    fallback = state.policy.fallback if outcome and outcome.source == "fallback" else None
    return (
        str(state.agent_state),
        outcome.code if outcome else "",
        outcome.source if outcome else "",
        fallback or "",
    )


def parted(recorded: Side, derived: Side, windows: Windows) -> Parted | None:
    """The first thing that the two, both going on, would ask of the world otherwise; None: nothing."""
    return next(_partings(recorded, derived, windows), None)


def _partings(recorded: Side, derived: Side, windows: Windows) -> Iterator[Parted]:
    one, other = recorded.state, derived.state
    if (one.stopping is None) != (other.stopping is None):
        yield Parted("end", "the recorded run is brought to an end here, and the other would go on")
    yield from _requests(recorded, derived, windows)
    yield from _summaries(recorded, derived)
    yield from _calls(recorded, derived)
    yield from _questions(one, other)
    waits = [state.backoff and state.backoff.until for state in (one, other)]
    if waits[0] != waits[1]:
        yield Parted("wait", "the pause before the next attempt would have been another, or none")


def _requests(recorded: Side, derived: Side, windows: Windows) -> Iterator[Parted]:
    one, other = _request(recorded.state), _request(derived.state)
    if one is None and other is None:
        return
    if one is None or other is None:
        asked = "would not have been made" if other is None else "would have been made here"
        refusal = _refusal(recorded, derived)
        yield Parted("request", f"a request to the model {asked}{f': {refusal}' if refusal else ''}")
        return
    if not windows.same(recorded, derived):
        yield Parted("view", "the model would have been shown other messages")
    if _texts(one) != _texts(other):
        yield Parted("texts", "the model would have been told something else in this one request")
    if _offered(recorded.state, one) != _offered(derived.state, other):
        yield Parted("tools", "other tools would have been offered")
    if one.model != other.model:
        yield Parted("model", "another model would have been asked")
    if one.max_output != other.max_output:
        yield Parted("output_limit", "the answer would have had another limit")


def _request(state: RunState) -> ModelRequested | None:
    return None if state.request is None else state.request.event


def _texts(request: ModelRequested) -> list[tuple[str, str]]:
    return [(text.role, text.size.digest) for text in request.request_only]


def _offered(state: RunState, request: ModelRequested) -> list[str]:
    return [tool.name for tool in state.setup.tools if request.tools is None or tool.name in request.tools]


def _summaries(recorded: Side, derived: Side) -> Iterator[Parted]:
    one, other = recorded.state.summary, derived.state.summary
    if one is None and other is None:
        return
    if one is None or other is None or _summed_up(recorded, one.event) != _summed_up(derived, other.event):
        yield Parted("summary", "a summary would have been asked for, or not, or of other messages")


def _summed_up(side: Side, pending: SummaryRequested) -> tuple[Any, ...]:
    numbers = {number for first, last in pending.messages for number in range(first, last + 1)}
    covered = [side.looks(ref) for ref in refs(side.state.window) if ref.number in numbers]
    return pending.instructions.digest, covered, pending.max_output


def _calls(recorded: Side, derived: Side) -> Iterator[Parted]:
    one, other = recorded.state, derived.state
    if _under_way(one) != _under_way(other):
        # Why they would not be run is more to a reader than that they would not.
        why = _refusal(recorded, derived) or next((asked.why for asked in _questions(one, other)), "")
        yield Parted("calls", why or "other calls would have been run, or in another order")
    starts = {tool.name for tool in one.setup.tools if tool.agent}
    delegated = starts and any(call.name in starts for call in underway(one))
    if delegated and bounded(_NO_LIMITS, one) != bounded(_NO_LIMITS, other):
        yield Parted("child", "a call starts a run of its own, which would have been given other limits")


def _under_way(state: RunState) -> list[tuple[str, str, bool]]:
    return [(call.id, course(state, call), bool(call.edited)) for call in underway(state)]


def _refusal(recorded: Side, derived: Side) -> str:
    """A call that only one of the two refuses, told in a sentence; "" if there is none."""
    for side, other, would in ((recorded, derived, "would"), (derived, recorded, "would not")):
        batch = side.state.batch
        left = {call.id for call in batch.calls if call.result is None} if batch else set[str]()
        for event in other.harness.values():
            if isinstance(event, CallRefused) and event.call in left:
                code = f", {event.code}" if event.code else ""
                return f"call {event.call} {would} have been refused ({event.why} by {by(event.cause, event.name)}{code})"
    return ""


def _questions(one: RunState, other: RunState) -> Iterator[Parted]:
    if (one.asked_at is None) != (other.asked_at is None):
        asked = "would not have been asked" if other.asked_at is None else "would have been asked"
        yield Parted("question", f"a person {asked}{_about(one if other.asked_at is None else other)}")
    elif _asked(one) != _asked(other):
        yield Parted("question", "a person would have been asked about something else")


def _about(state: RunState) -> str:
    if state.approval is None:
        return " here"
    calls = state.approval.event.calls
    more = f" and {len(calls) - _NAMED} more" if len(calls) > _NAMED else ""
    return f" about {', '.join(calls[:_NAMED])}{more}"


def _asked(state: RunState) -> tuple[Any, ...]:
    approval = state.approval and state.approval.event
    return (state.asked_at is not None, approval and (approval.calls, approval.approver), state.batch is None)
