"""The check that runs guards: records their verdicts and carries them out, in the policy's order."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from refold.reducers.events import ApprovalRequested, CallRefused, GuardTripped
from refold.reducers.guards.duty import judged, list_judging_guards
from refold.reducers.guards.protocol import (
    Ask,
    Inject,
    Judgement,
    Place,
    Refuse,
    Remind,
    Shorten,
    Stop,
    Warn,
)
from refold.reducers.history import Shortening, cut_values
from refold.reducers.machine import Trigger
from refold.reducers.messages import TextCut
from refold.reducers.policy import Policy, text_of
from refold.reducers.rules.flow import (
    Check,
    Flow,
    Rule,
    make_injection,
    make_move,
    make_refusal,
    may_inject,
    refuse_open,
)
from refold.reducers.rules.history import make_trimming
from refold.reducers.state import RunState, Watch
from refold.reducers.text import render
from refold.reducers.vocabulary import Cause, Verdict
from refold.reducers.window import refs


class Guards(Rule):
    """A check by the guards of one place. The first that stops the run wins; the others accumulate."""

    __slots__ = ("place",)

    def __init__(self, place: Place) -> None:
        self.place = place

    def bind(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """Return the check by the guards that run at this place."""
        here = list_judging_guards(guards, self.place)
        return partial(self._ask, here) if here else None

    def _ask(self, here: Sequence[int], flow: Flow) -> bool:
        spoken = False
        for at in here:
            # Each guard judges the state after the guards before it.
            watch = flow.state.guards[at]
            for judgement in judged(watch, flow.state, self.place):
                spoken = spoken or not isinstance(judgement, Remind)
                _carry_out(flow, watch, judgement)
                if flow.state.ended or flow.state.asked_at is not None:
                    return True
        return spoken


def _carry_out(flow: Flow, watch: Watch, judgement: Judgement) -> None:
    match judgement:
        case Stop():
            flow.say(_make_trip(watch, judgement, Verdict.STOP))
            refuse_open(flow, judgement.text, Cause.GUARD, watch.name, watch.version, judgement.values)
            flow.say(make_move(flow.state, judgement.trigger, judgement.code, judgement.reason))
        case Warn():
            flow.say(_make_trip(watch, judgement, Verdict.WARN))
        case Inject():
            flow.say(_make_trip(watch, judgement, Verdict.INJECT))
            if may_inject(flow.state):
                said = make_injection(
                    flow.state, judgement.text, Cause.GUARD, watch.name, judgement.values, judgement.role
                )
                flow.say(said)
        case Refuse():
            batch = flow.state.batch
            # The first guard that refused a call has already given it its result.
            if batch and batch.open_call(judgement.call):
                flow.say(_make_refusal(flow.state, watch, judgement))
        case Shorten():
            _shorten(flow, watch, judgement)
        case Ask():
            _ask(flow, watch, judgement)
        case Remind():
            pass  # the next request has it: `rules.requests.reminders`


def _make_refusal(state: RunState, watch: Watch, judgement: Refuse) -> CallRefused:
    said = judgement
    decision = make_refusal(
        state, said.call, said.text, Cause.GUARD, watch.name, version=watch.version, values=said.values
    )
    return replace(decision, why=said.why, code=said.code, measured=said.measured, metadata=said.metadata)


def _shorten(flow: Flow, watch: Watch, judgement: Shorten) -> None:
    ref = next((ref for ref in refs(flow.state.window) if ref.call == judgement.call), None)
    if ref is None:
        return
    cut = TextCut(head=0, tail=0, removed=ref.size.chars)
    values = {**judgement.values, **cut_values(ref.whole, cut.removed)}
    words = render(text_of(flow.state.policy, judgement.text), values)
    shorter = Shortening(number=ref.number, cuts=(cut,), texts=(words,))
    flow.say(make_trimming(flow.state, ref, shorter, Cause.GUARD, watch.name, judgement.code))


def _ask(flow: Flow, watch: Watch, judgement: Ask) -> None:
    deadline = None if judgement.timeout is None else flow.state.at + judgement.timeout
    asked = ApprovalRequested(
        guard=watch.name,
        calls=judgement.calls,
        approver=judgement.approver,
        deadline=deadline,
        version=watch.version,
    )
    flow.say(asked)
    sentence = f"a person decides about {len(judgement.calls)} calls"
    flow.say(make_move(flow.state, Trigger.ASK, "approval", sentence))


def _make_trip(watch: Watch, judgement: Judgement, verdict: Verdict) -> GuardTripped:
    return GuardTripped(
        guard=watch.name,
        version=watch.version,
        verdict=verdict,
        code=judgement.code,
        measured=judgement.measured,
    )
