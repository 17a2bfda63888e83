"""The order of checks: every phase and its checks, in one place, the same for every policy.

A policy only switches checks on. The first check that stops the run wins; what does not stop accumulates.
Limits win over recoveries, recoveries over the end of a turn. A new rule is a line here, a new guard is not
even that: it names the place where it speaks.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType

from refold.reducers.checkpoint import state_digest
from refold.reducers.events import (
    CancelRequested,
    ClockRead,
    Decision,
    Event,
    Fact,
    InputReceived,
    ModelFailed,
    ModelResponded,
    RunForked,
    RunStarted,
    ToolReturned,
)
from refold.reducers.evolution import evolve
from refold.reducers.guards.protocol import Place
from refold.reducers.limits import CostLimit, MessageLimit, StepLimit, TokenLimit
from refold.reducers.machine import AgentState, Trigger
from refold.reducers.rules.answering import dispatch, dispatch_next, end_of_turn, provider_refusal, tools_done
from refold.reducers.rules.ending import asked_to_stop, move
from refold.reducers.rules.failing import give_up, retry
from refold.reducers.rules.flow import Check, Flow, one, settled
from refold.reducers.rules.guarding import guards
from refold.reducers.rules.limiting import at, limited, time_limits
from refold.reducers.rules.requesting import history, request, request_again
from refold.reducers.state import RunState

RULES = 1
"""The version of the decision rules in this file, recorded in `run_started.rules`."""

DIGEST_EVERY = 256


class Phase(Enum):
    """A moment at which decisions are made."""

    REQUEST = "before a request"
    AGAIN = "before another attempt"
    RESPONSE = "on a response"
    RESULTS = "when a batch is complete"
    FAILURE = "on a failure"
    PARTIAL = "when part of a batch is back"
    ASIDE = "when a clock was read, or a cancellation came"


def answered(state: RunState, fact: Fact) -> Flow | None:
    """A person's answer moves the machine back to where it came from."""
    if state.agent_state is not AgentState.WAITING_FOR_INPUT or state.asked_at is not None:
        return None
    return one(move(state, Trigger.ANSWERED, "answered", "a person answered"))


def without_calls(check: Check) -> Check:
    """R12: the check, on an answer without calls: what is asked when a batch is done is asked there too."""

    def checked(state: RunState, fact: Fact) -> Flow | None:
        return None if state.answer is None or state.answer.calls else check(state, fact)

    return checked


_STEPS = limited(at(StepLimit, "preflight"), Trigger.EXHAUST_STEPS, "step_limit")
_MESSAGES = limited(at(MessageLimit, "preflight"), Trigger.EXCEED_BUDGET, "message_limit")
_ESTIMATE = limited(at(TokenLimit, "preflight", "estimate"), Trigger.EXCEED_BUDGET, "token_estimate")
_TOKENS_BEFORE = limited(at(TokenLimit, "preflight"), Trigger.EXCEED_BUDGET, "token_budget")
_COST_BEFORE = limited(at(CostLimit, "preflight"), Trigger.EXCEED_BUDGET, "cost_limit")
_TOKENS = limited(at(TokenLimit, "response"), Trigger.EXCEED_BUDGET, "token_budget")
_ESTIMATE_AFTER = limited(at(TokenLimit, "response", "estimate"), Trigger.EXCEED_BUDGET, "token_estimate")
_COST = limited(at(CostLimit, "response"), Trigger.EXCEED_BUDGET, "cost_limit")

ORDER: Mapping[Phase, tuple[Check, ...]] = MappingProxyType(
    {
        Phase.REQUEST: (
            asked_to_stop,
            answered,
            time_limits,
            _STEPS,
            _MESSAGES,
            _ESTIMATE,
            _TOKENS_BEFORE,
            _COST_BEFORE,
            history,
            guards(Place.BEFORE_REQUEST),
            request,
        ),
        Phase.AGAIN: (asked_to_stop, time_limits, request_again),
        Phase.RESPONSE: (
            asked_to_stop,
            _TOKENS,
            _ESTIMATE_AFTER,
            _COST,
            guards(Place.ON_RESPONSE),
            guards(Place.ON_REPETITION),
            guards(Place.ON_CALLS),
            guards(Place.ON_BATCH),
            dispatch,
            without_calls(guards(Place.AFTER_TOOLS)),
            provider_refusal,
            end_of_turn,
        ),
        Phase.RESULTS: (
            asked_to_stop,
            time_limits,
            tools_done,
            guards(Place.ON_RESULTS),
            guards(Place.AFTER_TOOLS),
            guards(Place.ON_NUDGE),
        ),
        Phase.FAILURE: (asked_to_stop, time_limits, retry, give_up),
        Phase.PARTIAL: (asked_to_stop, time_limits, dispatch_next),
        Phase.ASIDE: (asked_to_stop, time_limits),
    }
)

_ENTRY: Mapping[type[Event], Phase] = MappingProxyType(
    {
        RunStarted: Phase.REQUEST,
        RunForked: Phase.REQUEST,
        InputReceived: Phase.REQUEST,
        ModelResponded: Phase.RESPONSE,
        ModelFailed: Phase.FAILURE,
        CancelRequested: Phase.ASIDE,
    }
)


def decide(state: RunState, fact: Fact) -> Iterator[tuple[Decision, RunState]]:
    """What follows from `fact`, which `state` has been folded with: each decision, with the state after it.

    Each decision is folded before the next is derived. Ends when something in the world comes next, a person
    is asked, or the run has ended.
    """
    flow = _flow(state, fact)
    try:
        decision = next(flow)
        while True:
            state = evolve(state, decision)
            yield decision, state
            decision = flow.send(state)
    except StopIteration:
        pass
    if state.seq - state.digested >= DIGEST_EVERY and not state.ended:
        decision = state_digest(state)
        yield decision, evolve(state, decision)


def _flow(state: RunState, fact: Fact) -> Flow:
    phase = _entry(state, fact)
    while phase is not None:
        done = _over(phase, state)
        for check in ORDER[phase]:
            flow = check(state, fact)
            if flow is not None:
                state = yield from flow
                done = _over(phase, state)
            if done:
                return state
        phase = _next(phase, state)
    return state


def _over(phase: Phase, state: RunState) -> bool:
    # Here something is mostly in flight: that must not hide a deadline that has passed.
    return state.ended if phase in (Phase.PARTIAL, Phase.ASIDE) else settled(state)


def _entry(state: RunState, fact: Fact) -> Phase | None:
    match fact:
        case ToolReturned():
            return Phase.PARTIAL if state.batch else Phase.RESULTS
        case ClockRead():
            return Phase.AGAIN if state.backoff and state.backoff.passed else Phase.ASIDE
        case _:
            return _ENTRY.get(type(fact))


def _next(phase: Phase, state: RunState) -> Phase | None:
    """After an answer whose calls were all refused the batch is complete; after a batch, and a turn to go on, ask."""
    if phase is Phase.RESPONSE and state.answer is not None and state.answer.calls:
        return Phase.RESULTS
    return Phase.REQUEST if phase in (Phase.RESPONSE, Phase.RESULTS) else None
