"""Guards at work: what they say is recorded and carried out, in the policy's order."""

from msgspec.structs import replace

from refold.reducers.events import Fact, GuardTripped
from refold.reducers.guards.duty import judged
from refold.reducers.guards.protocol import Inject, Judgement, Place, Refuse, Stop, Warn
from refold.reducers.rules.ending import injected, may_inject, move, refuse_open, refused
from refold.reducers.rules.flow import Check, Flow
from refold.reducers.state import RunState, Watch
from refold.reducers.vocabulary import Verdict


def guards(place: Place) -> Check:
    """A check by the guards of one place. The first that stops the run wins; what does not stop accumulates."""

    def check(state: RunState, fact: Fact) -> Flow | None:
        for index, watch in enumerate(state.guards):
            said = judged(watch, state, place)
            if said:
                return _carry_out_from(state, place, index, said)
        return None

    return check


def _carry_out_from(state: RunState, place: Place, index: int, said: tuple[Judgement, ...]) -> Flow:
    # Each guard judges the state that the guards before it have left.
    for at in range(index, len(state.guards)):
        watch = state.guards[at]
        for judgement in said if at == index else judged(watch, state, place):
            state = yield from _carry_out(state, watch, judgement)
            if state.ended:
                return state
    return state


def _carry_out(state: RunState, watch: Watch, judgement: Judgement) -> Flow:
    match judgement:
        case Stop():
            state = yield _tripped(watch, judgement, Verdict.STOP)
            state = yield from refuse_open(state, watch.name, judgement.text, watch.version)
            state = yield move(state, judgement.trigger, judgement.code, judgement.reason)
        case Warn():
            state = yield _tripped(watch, judgement, Verdict.WARN)
        case Inject():
            state = yield _tripped(watch, judgement, Verdict.INJECT)
            if may_inject(state):
                state = yield injected(state, judgement.text, watch.name, judgement.values, judgement.role)
        case Refuse():
            state = yield from _refuse(state, watch, judgement)
    return state


def _open(state: RunState, call: str) -> bool:
    return state.batch is not None and any(c.id == call and c.result is None for c in state.batch.calls)


def _refuse(state: RunState, watch: Watch, judgement: Refuse) -> Flow:
    if not _open(state, judgement.call):
        return state  # the first guard that refused a call gave it its result
    decision = refused(state, judgement.call, watch.name, judgement.text, version=watch.version)
    return (
        yield replace(
            decision,
            why=judgement.why,
            code=judgement.code,
            saw=judgement.saw,
            metadata=judgement.metadata,
        )
    )


def _tripped(watch: Watch, judgement: Judgement, verdict: Verdict) -> GuardTripped:
    return GuardTripped(
        guard=watch.name, version=watch.version, verdict=verdict, code=judgement.code, saw=judgement.saw
    )
