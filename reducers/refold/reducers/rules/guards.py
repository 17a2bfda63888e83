"""Guards at work: what they say is recorded and carried out, in the policy's order."""

import msgspec
from msgspec.structs import replace

from refold.reducers.events import ApprovalRequested, Fact, GuardTripped
from refold.reducers.guards.duty import judged
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
from refold.reducers.history import Shortening, cuts
from refold.reducers.machine import Trigger
from refold.reducers.messages import TextCut
from refold.reducers.rules.ends import injected, may_inject, move, refuse_open, refused
from refold.reducers.rules.flow import Flow
from refold.reducers.rules.history import trimming
from refold.reducers.state import RunState, Watch
from refold.reducers.vocabulary import Cause, Verdict
from refold.reducers.window import refs


class Guards(msgspec.Struct, frozen=True):
    """A check by the guards of one place. The first that stops the run wins; what does not stop accumulates."""

    place: Place

    def __call__(self, state: RunState, fact: Fact) -> Flow | None:
        """What this check decides, if anything."""
        for index, watch in enumerate(state.guards):
            if watch.guard is None or self.place not in watch.guard.places:
                continue  # asked of every guard at every place, so a call would cost more than the answer
            said = judged(watch, state, self.place)
            if said and not all(isinstance(judgement, Remind) for judgement in said):
                return _carry_out_from(state, self.place, index, said)
        return None


def _carry_out_from(state: RunState, place: Place, index: int, said: tuple[Judgement, ...]) -> Flow:
    # Each guard judges the state that the guards before it have left.
    for at in range(index, len(state.guards)):
        watch = state.guards[at]
        for judgement in said if at == index else judged(watch, state, place):
            state = yield from _carry_out(state, watch, judgement)
            if state.ended or state.asked_at is not None:
                return state
    return state


def _carry_out(state: RunState, watch: Watch, judgement: Judgement) -> Flow:
    match judgement:
        case Stop():
            state = yield _tripped(watch, judgement, Verdict.STOP)
            state = yield from refuse_open(state, judgement.text, Cause.GUARD, watch.name, watch.version)
            state = yield move(state, judgement.trigger, judgement.code, judgement.reason)
        case Warn():
            state = yield _tripped(watch, judgement, Verdict.WARN)
        case Inject():
            state = yield _tripped(watch, judgement, Verdict.INJECT)
            if may_inject(state):
                state = yield injected(
                    state, judgement.text, Cause.GUARD, watch.name, judgement.values, judgement.role
                )
        case Refuse():
            state = yield from _refuse(state, watch, judgement)
        case Shorten():
            state = yield from _shorten(state, watch, judgement)
        case Ask():
            state = yield from _ask(state, watch, judgement)
        case Remind():
            pass  # the next request carries it: `rules.reminders`
    return state


def _open(state: RunState, call: str) -> bool:
    return state.batch is not None and any(c.id == call and c.result is None for c in state.batch.calls)


def _refuse(state: RunState, watch: Watch, judgement: Refuse) -> Flow:
    if not _open(state, judgement.call):
        return state  # the first guard that refused a call gave it its result
    decision = refused(state, judgement.call, judgement.text, Cause.GUARD, watch.name, version=watch.version)
    return (
        yield replace(
            decision,
            why=judgement.why,
            code=judgement.code,
            saw=judgement.saw,
            metadata=judgement.metadata,
        )
    )


def _shorten(state: RunState, watch: Watch, judgement: Shorten) -> Flow:
    ref = next((ref for ref in refs(state.window) if ref.call == judgement.call), None)
    if ref is None:
        return state
    cut = TextCut(head=0, tail=0, removed=ref.size.chars)
    values = {**judgement.values, **cuts.sizes(ref)}
    shorter = Shortening(number=ref.number, text=judgement.text, cuts=(cut,), values=values)
    return (yield trimming(state, ref, shorter, Cause.GUARD, watch.name, judgement.code))


def _ask(state: RunState, watch: Watch, judgement: Ask) -> Flow:
    deadline = None if judgement.timeout is None else state.at + judgement.timeout
    state = yield ApprovalRequested(
        guard=watch.name,
        calls=judgement.calls,
        approver=judgement.approver,
        deadline=deadline,
        version=watch.version,
    )
    sentence = f"a person decides about {len(judgement.calls)} calls"
    return (yield move(state, Trigger.ASK, "approval", sentence))


def _tripped(watch: Watch, judgement: Judgement, verdict: Verdict) -> GuardTripped:
    return GuardTripped(
        guard=watch.name, version=watch.version, verdict=verdict, code=judgement.code, saw=judgement.saw
    )
