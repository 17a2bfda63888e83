"""The order of checks: every phase with its checks, and every version of the rules.

A policy only switches checks on: each phase is bound to it once, and only enabled checks run. The first check
that stops the run wins; the others accumulate. Limits come before recoveries, recoveries before the end of a
turn. A new rule is a line here. A new guard needs no line: it names the place at which it runs.

A run keeps the rules that it was started under, whichever version of refold resumes or audits it.
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
    end_after_grace,
    end_of_turn,
    finish_batch,
    provider_refusal,
    refuse_not_offered,
    refuse_rejected,
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
    bind,
    is_settled,
    make_move,
    stop_if_requested,
)
from refold.reducers.rules.guards import Guards
from refold.reducers.rules.history import apply_summary, history, observed_history
from refold.reducers.rules.limits import (
    SPENT,
    Limits,
    TimeLimits,
    end_deferred,
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


def resume_after_wait(flow: Flow) -> bool:
    """Move the machine back to where it came from, after an answer or a time-out."""
    state = flow.state
    if not state.agent_state.awaits_operator or state.asked_at is not None:
        return False
    flow.say(make_move(state, Trigger.ANSWERED, *_explain_resumption(state, flow.fact)))
    return True


def _explain_resumption(state: RunState, fact: ev.Fact) -> tuple[str, str]:
    if isinstance(fact, ev.ClockRead):
        return "unanswered", "nobody answered in time: what the policy says of that counts"
    if isinstance(fact, ev.ContextObserved):
        return "went_on", "the model was asked again without a message"
    if isinstance(fact, ev.RunForked) and state.batch is None:
        return "went_on", "the fork goes on where the source ended"
    return "answered", "a person answered"


def stop_unrequested(flow: Flow) -> bool:
    """Before a request is judged: stop an imported run whose source records no further request."""
    if not flow.state.no_request:
        return False
    sentence = "the source shows no request after this"
    flow.say(make_move(flow.state, Trigger.ASK, "no_request", sentence))
    return True


_RUN_CALLS = (refuse_rejected, Guards(Place.ON_APPROVAL), dispatch)

ORDER: Mapping[Phase, tuple[Entry, ...]] = MappingProxyType(
    {
        Phase.REQUEST: (
            stop_if_requested,
            resume_after_wait,
            stop_unrequested,
            TimeLimits(every=False),
            Limits("preflight", BEFORE + COUNTED),
            progress(before_history=True),
            history,
            progress(before_history=False),
            near_time,
            Guards(Place.BEFORE_REQUEST),
            Request(),
        ),
        Phase.AGAIN: (stop_if_requested, TimeLimits(), observed_history, request_again),
        Phase.RESPONSE: (
            stop_if_requested,
            end_after_grace,
            free_steps,
            overflow_stop,
            Limits("response", BUDGETS + OTHERS),
            Limits("response_deferred", BUDGETS + OTHERS),
            near_budget,
            Guards(Place.ON_RESPONSE),
            room,
        ),
        Phase.ANSWER: (
            refuse_not_offered,
            broken_calls,
            Guards(Place.ON_REPETITION),
            Guards(Place.ON_CALLS),
            Guards(Place.ON_BATCH),
            *_RUN_CALLS,
            WithoutCalls(end_deferred),
            WithoutCalls(Guards(Place.AFTER_TOOLS)),
            provider_refusal,
            silent_stream,
            FirstOf(truncation, Guards(Place.ON_FINISHED), empty, end_of_turn),
        ),
        Phase.APPROVAL: (stop_if_requested, resume_after_wait, TimeLimits(), *_RUN_CALLS),
        Phase.RESULTS: (
            stop_if_requested,
            resume_after_wait,
            TimeLimits(),
            SPENT,
            finish_batch,
            Guards(Place.ON_RESULTS),
            end_deferred,
            Guards(Place.AFTER_TOOLS),
            Guards(Place.ON_NUDGE),
        ),
        Phase.FAILURE: (stop_if_requested, TimeLimits(), SPENT, overflow, broken_stream, retry, give_up),
        Phase.PARTIAL: (stop_if_requested, resume_after_wait, TimeLimits(), dispatch_next, ask_about_doubts),
        Phase.DOUBT: (stop_if_requested, resume_after_wait, TimeLimits(), ask_about_doubts),
        Phase.SUMMARY: (stop_if_requested, TimeLimits(), SPENT, apply_summary),
        Phase.ASIDE: (stop_if_requested, TimeLimits()),
    }
)

Look = Callable[[Entry, Flow], None]
"""A callback that gets each entry of the order that is checked, and the flow so far, with state and
decisions.
"""


def decide(state: RunState, fact: ev.Fact, look: Look | None = None) -> list[tuple[ev.Decision, RunState]]:
    """Return the decisions that follow from `fact`, each with the state after it.

    Each decision is folded before the next is derived. Ends when an effect comes next, the run waits for an
    operator, or it has ended.

    Args:
        state: The state after `fact`.
        fact: The fact that `state` was folded with.
        look: Called with each entry of the order before its check.
    """
    flow = Flow(state, fact)
    _derive(flow, look)
    state = flow.state
    if state.seq - state.digested >= DIGEST_EVERY and not state.ended:
        flow.say(state_digest(state))
    return flow.said


def _derive(flow: Flow, look: Look | None) -> None:
    phase = _first_phase(flow.state, flow.fact)
    while phase is not None:
        over = _OVER.get(phase, is_settled)
        done = over(flow.state)
        for entry, check in _bind_phase(phase, flow.state) if look else _enabled_checks(phase, flow.state):
            if look is not None:
                look(entry, flow)
            if check is not None and check(flow):
                done = over(flow.state)
            if done:
                break
        if done and (not flow.state.overflowed or is_settled(flow.state)):
            return
        phase = _next_phase(phase, flow.state)


Bound = tuple[tuple[Entry, Check | None], ...]


def _enabled_checks(phase: Phase, state: RunState) -> Bound:
    """Return the enabled checks of a phase, in order. They are bound once for a policy and its guards."""
    # Cached on the setup that they follow from, so a run with another policy or other guards has its own.
    kept = state.setup.checks
    guards = [watch.guard for watch in state.guards] if state.guards else []
    found = kept.get(phase)
    if found is None or found[0] != guards:
        on = tuple([pair for pair in _bind_phase(phase, state) if pair[1] is not None])
        found = kept[phase] = guards, on
    checks: Bound = found[1]
    return checks


def _bind_phase(phase: Phase, state: RunState) -> Bound:
    guards = [watch.guard for watch in state.guards]
    return tuple([(entry, bind(entry, state.policy, guards)) for entry in ORDER[phase]])


def _ended(state: RunState) -> bool:
    return state.ended


_OVER: Mapping[Phase, Callable[[RunState], bool]] = MappingProxyType(
    {
        # In these phases something is often in flight, which must not hide a passed deadline.
        **dict.fromkeys((Phase.PARTIAL, Phase.DOUBT, Phase.ASIDE), _ended),
        # After an overflow the next request follows, and no other recovery.
        Phase.FAILURE: lambda state: state.overflowed or is_settled(state),
    }
)
"""The test for the end of a phase where that is not `is_settled`."""


def _first_phase(state: RunState, fact: ev.Fact) -> Phase | None:
    entry = _ENTRY.get(type(fact))
    return entry if entry is None or isinstance(entry, Phase) else entry(state, fact)


def _phase_after_wait(state: RunState) -> Phase:
    if state.agent_state.awaits_operator and state.asked_at is None:
        return Phase.APPROVAL
    if state.backoff is None or waits(state) or state.summary:
        return Phase.ASIDE
    return Phase.REQUEST if is_fresh(state.backoff) else Phase.AGAIN


def _next_phase(phase: Phase, state: RunState) -> Phase | None:
    """Return the phase that follows. A response whose calls were all refused completes its batch at once."""
    if phase is Phase.RESPONSE and not state.overflowed:
        return Phase.ANSWER
    if phase in (Phase.ANSWER, Phase.APPROVAL) and state.answer is not None and state.answer.event.calls:
        return Phase.RESULTS
    continues = (Phase.RESPONSE, Phase.ANSWER, Phase.RESULTS, Phase.FAILURE, Phase.SUMMARY)
    return Phase.REQUEST if phase in continues else None


def _phase_after_context(_: RunState, fact: ev.Fact) -> Phase:
    return Phase.REQUEST if isinstance(fact, ev.ContextObserved) and fact.continues else Phase.ASIDE


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
        ev.ClockRead: lambda state, _: _phase_after_wait(state),
        ev.CancelRequested: Phase.ASIDE,
        ev.ContextObserved: _phase_after_context,
        **dict.fromkeys(
            (ev.RunResumed, ev.DoubtResolved, ev.PolicyAmended),
            lambda state, _: Phase.DOUBT if doubted(state) else None,
        ),
    }
)
"""The phase that a fact begins; other facts have no consequences."""


class Decide(Protocol):
    """A function that derives decisions from a fact: see `refold.reducers.rules.order.decide`."""

    def __call__(
        self, state: RunState, fact: ev.Fact, look: Look | None = None, /
    ) -> list[tuple[ev.Decision, RunState]]:
        """Return each decision with the state after it."""
        ...


VERSIONS: Mapping[int, Decide] = MappingProxyType({RULES: decide})


def rules_of(state: RunState) -> Decide:
    """Return the rules of a run.

    Raises:
        NewerLog: The run uses rules that this version does not have.
    """
    found = VERSIONS.get(state.setup.rules)
    if found is None:
        raise NewerLog(state.setup.run, state.seq, f"decision rules version {state.setup.rules}")
    return found
