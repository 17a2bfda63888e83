"""The order of checks: every phase and its checks, in one place; and every version of the rules.

A policy only switches checks on: each phase is bound to it once, and only what is on is asked. The first
check that stops the run wins; what does not stop accumulates. Limits win over recoveries, recoveries over the
end of a turn. A new rule is a line here, a new guard is not even that: it names the place where it speaks.

A run is decided by the rules that it was started under, for as long as it lives: resumed or audited, by
whatever version of refold.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Protocol

from refold.reducers import events as ev
from refold.reducers.errors import NewerLog
from refold.reducers.evolution import state_digest
from refold.reducers.guards.protocol import Place
from refold.reducers.limits import BEFORE, BUDGETS, COUNTED, OTHERS
from refold.reducers.machine import Trigger
from refold.reducers.pending import doubted, is_fresh, waits
from refold.reducers.rules.answers import (
    dispatch,
    dispatch_next,
    end_of_turn,
    graced,
    not_offered,
    provider_refusal,
    tools_done,
    turned_down,
)
from refold.reducers.rules.failures import (
    broken_calls,
    broken_stream,
    empty,
    give_up,
    overflow,
    overflow_stop,
    retry,
    room,
    silent_stream,
    truncation,
)
from refold.reducers.rules.flow import (
    Check,
    Entry,
    FirstOf,
    Flow,
    WithoutCalls,
    ask_about_doubts,
    asked_to_stop,
    bound,
    move,
    settled,
)
from refold.reducers.rules.guards import Guards
from refold.reducers.rules.history import history, observed_history, summarised
from refold.reducers.rules.limits import (
    SPENT,
    Limits,
    TimeLimits,
    deferred,
    free_steps,
    near_budget,
    near_time,
)
from refold.reducers.rules.requests import Request, progress, request_again
from refold.reducers.state import RunState

RULES = 1
"""The version of the decision rules in this file, recorded in `run_started.rules`."""

DIGEST_EVERY = 256


@unique
class Phase(StrEnum):
    """A moment at which decisions are made."""

    REQUEST = "before a request"
    AGAIN = "before another attempt"
    RESPONSE = "on a response"
    ANSWER = "when nothing has ended the run by a response"
    RESULTS = "when a batch is complete"
    FAILURE = "on a failure"
    PARTIAL = "when part of a batch is back"
    APPROVAL = "when a person, or their time, decided about calls"
    DOUBT = "when calls are found in doubt, or out of it"
    SUMMARY = "when a summary came back, or failed to"
    ASIDE = "when a clock was read, or a cancellation came"

    # Looked up with every fact: see `AgentState`.
    __hash__ = str.__hash__


def answered(flow: Flow) -> bool:
    """A person's answer moves the machine back to where it came from; so does the end of their time."""
    state = flow.state
    if not state.agent_state.awaits_operator or state.asked_at is not None:
        return False
    flow.say(move(state, Trigger.ANSWERED, *_how_answered(state, flow.fact)))
    return True


def _how_answered(state: RunState, fact: ev.Fact) -> tuple[str, str]:
    if isinstance(fact, ev.ClockRead):
        return "unanswered", "nobody answered in time: what the policy says of that counts"
    if isinstance(fact, ev.ContextObserved):
        return "went_on", "the model was asked again without a message"
    if isinstance(fact, ev.RunForked) and state.batch is None:
        return "went_on", "the fork goes on where the source ended"
    return "answered", "a person answered"


def unasked(flow: Flow) -> bool:
    """Before anything is judged of a request that an imported run's source does not show: it was not made."""
    if not flow.state.unasked:
        return False
    sentence = "the source shows no request after this"
    flow.say(move(flow.state, Trigger.ASK, "unasked", sentence))
    return True


_RUN_CALLS = (turned_down, Guards(Place.ON_APPROVAL), dispatch)

ORDER: Mapping[Phase, tuple[Entry, ...]] = MappingProxyType(
    {
        Phase.REQUEST: (
            asked_to_stop,
            answered,
            unasked,
            TimeLimits(every=False),
            Limits("preflight", BEFORE + COUNTED),
            progress(before_history=True),
            history,
            progress(before_history=False),
            near_time,
            Guards(Place.BEFORE_REQUEST),
            Request(),
        ),
        Phase.AGAIN: (asked_to_stop, TimeLimits(), observed_history, request_again),
        Phase.RESPONSE: (
            asked_to_stop,
            graced,
            free_steps,
            overflow_stop,
            Limits("response", BUDGETS + OTHERS),
            Limits("response_deferred", BUDGETS + OTHERS),
            near_budget,
            Guards(Place.ON_RESPONSE),
            room,
        ),
        Phase.ANSWER: (
            not_offered,
            broken_calls,
            Guards(Place.ON_REPETITION),
            Guards(Place.ON_CALLS),
            Guards(Place.ON_BATCH),
            *_RUN_CALLS,
            WithoutCalls(deferred),
            WithoutCalls(Guards(Place.AFTER_TOOLS)),
            provider_refusal,
            silent_stream,
            FirstOf(truncation, Guards(Place.ON_FINISHED), empty, end_of_turn),
        ),
        Phase.APPROVAL: (asked_to_stop, answered, TimeLimits(), *_RUN_CALLS),
        Phase.RESULTS: (
            asked_to_stop,
            answered,
            TimeLimits(),
            SPENT,
            tools_done,
            Guards(Place.ON_RESULTS),
            deferred,
            Guards(Place.AFTER_TOOLS),
            Guards(Place.ON_NUDGE),
        ),
        Phase.FAILURE: (asked_to_stop, TimeLimits(), SPENT, overflow, broken_stream, retry, give_up),
        Phase.PARTIAL: (asked_to_stop, answered, TimeLimits(), dispatch_next, ask_about_doubts),
        Phase.DOUBT: (asked_to_stop, answered, TimeLimits(), ask_about_doubts),
        Phase.SUMMARY: (asked_to_stop, TimeLimits(), SPENT, summarised),
        Phase.ASIDE: (asked_to_stop, TimeLimits()),
    }
)

Look = Callable[[Entry, Flow], None]
"""Is shown each entry of the order that is asked, and the flow so far: its state, and what was said before.
"""


def decide(state: RunState, fact: ev.Fact, look: Look | None = None) -> list[tuple[ev.Decision, RunState]]:
    """What follows from `fact`, which `state` has been folded with: each decision, with the state after it.

    Each decision is folded before the next is derived. Ends when something in the world comes next, a person
    is asked, or the run has ended.
    """
    flow = Flow(state, fact)
    _derive(flow, look)
    state = flow.state
    if state.seq - state.digested >= DIGEST_EVERY and not state.ended:
        flow.say(state_digest(state))
    return flow.said


def _derive(flow: Flow, look: Look | None) -> None:
    phase = _entry(flow.state, flow.fact)
    while phase is not None:
        over = _OVER.get(phase, settled)
        done = over(flow.state)
        for entry, check in _bound(phase, flow.state) if look else _checks(phase, flow.state):
            if look is not None:
                look(entry, flow)
            if check is not None and check(flow):
                done = over(flow.state)
            if done:
                break
        if done and (not flow.state.overflowed or settled(flow.state)):
            return
        phase = _next(phase, flow.state)


Bound = tuple[tuple[Entry, Check | None], ...]


def _checks(phase: Phase, state: RunState) -> Bound:
    """What the policy has on of a phase, in order; bound once for a policy and the guards that it is run
    with.
    """
    # The memo hangs on the value that it follows from, so a run under another policy, or with other guards,
    # has its own.
    kept = state.setup.checks
    guards = [watch.guard for watch in state.guards] if state.guards else []
    found = kept.get(phase)
    if found is None or found[0] != guards:
        on = tuple([pair for pair in _bound(phase, state) if pair[1] is not None])
        found = kept[phase] = guards, on
    checks: Bound = found[1]
    return checks


def _bound(phase: Phase, state: RunState) -> Bound:
    guards = [watch.guard for watch in state.guards]
    return tuple([(entry, bound(entry, state.policy, guards)) for entry in ORDER[phase]])


def _ended(state: RunState) -> bool:
    return state.ended


_OVER: Mapping[Phase, Callable[[RunState], bool]] = MappingProxyType(
    {
        # Here something is mostly in flight: that must not hide a deadline that has passed.
        **dict.fromkeys((Phase.PARTIAL, Phase.DOUBT, Phase.ASIDE), _ended),
        # What follows an overflow is the next request, and no other recovery.
        Phase.FAILURE: lambda state: state.overflowed or settled(state),
    }
)
"""When a phase is over: once the run is settled, but for these."""


def _entry(state: RunState, fact: ev.Fact) -> Phase | None:
    entry = _ENTRY.get(type(fact))
    return entry if entry is None or isinstance(entry, Phase) else entry(state, fact)


def _after_a_wait(state: RunState) -> Phase:
    if state.agent_state.awaits_operator and state.asked_at is None:
        return Phase.APPROVAL
    if state.backoff is None or waits(state) or state.summary:
        return Phase.ASIDE
    return Phase.REQUEST if is_fresh(state.backoff) else Phase.AGAIN


def _next(phase: Phase, state: RunState) -> Phase | None:
    """After an answer whose calls were all refused the batch is complete; after a batch, and a turn to go on,
    ask.
    """
    if phase is Phase.RESPONSE and not state.overflowed:
        return Phase.ANSWER
    if phase in (Phase.ANSWER, Phase.APPROVAL) and state.answer is not None and state.answer.event.calls:
        return Phase.RESULTS
    goes_on = (Phase.RESPONSE, Phase.ANSWER, Phase.RESULTS, Phase.FAILURE, Phase.SUMMARY)
    return Phase.REQUEST if phase in goes_on else None


def _after_context(_: RunState, fact: ev.Fact) -> Phase:
    return Phase.REQUEST if isinstance(fact, ev.ContextObserved) and fact.goes_on else Phase.ASIDE


_ENTRY: Mapping[type[ev.Event], Phase | Callable[[RunState, ev.Fact], Phase | None]] = MappingProxyType(
    {
        ev.RunStarted: Phase.REQUEST,
        ev.RunForked: lambda state, _: Phase.DOUBT if doubted(state) else Phase.REQUEST,
        ev.InputReceived: Phase.REQUEST,
        ev.ApprovalAnswered: Phase.APPROVAL,
        ev.ModelResponded: Phase.RESPONSE,
        ev.ModelFailed: lambda state, _: Phase.SUMMARY if state.summary else Phase.FAILURE,
        ev.ToolReturned: lambda state, _: Phase.PARTIAL if state.batch else Phase.RESULTS,
        ev.SummaryReturned: Phase.SUMMARY,
        ev.ClockRead: lambda state, _: _after_a_wait(state),
        ev.CancelRequested: Phase.ASIDE,
        ev.ContextObserved: _after_context,
        **dict.fromkeys(
            (ev.RunResumed, ev.DoubtResolved, ev.PolicyAmended),
            lambda state, _: Phase.DOUBT if doubted(state) else None,
        ),
    }
)
"""The phase that a fact begins; of another fact nothing follows."""


class Decide(Protocol):
    """What follows from a fact: see `refold.reducers.rules.order.decide`."""

    def __call__(
        self, state: RunState, fact: ev.Fact, look: Look | None = None, /
    ) -> list[tuple[ev.Decision, RunState]]:
        """Each decision, with the state after it."""
        ...


VERSIONS: Mapping[int, Decide] = MappingProxyType({RULES: decide})


def rules_of(state: RunState) -> Decide:
    """The rules that a run is decided by. Raises `NewerLog` for rules that this version does not have."""
    found = VERSIONS.get(state.setup.rules)
    if found is None:
        raise NewerLog(state.setup.run, state.seq, f"decision rules version {state.setup.rules}")
    return found
