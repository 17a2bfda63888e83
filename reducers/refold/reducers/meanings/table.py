"""What each kind of event means: the one table."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from refold.reducers.events import (
    AnswerDiscarded,
    ApprovalAnswered,
    ApprovalRequested,
    CallRefused,
    CancelRequested,
    ChildEnded,
    ClockRead,
    ContextObserved,
    ContextOverflowed,
    DoubtResolved,
    Event,
    GuardTripped,
    HistoryPruned,
    InputReceived,
    LimitNeared,
    LimitReached,
    MessageInjected,
    MessageTrimmed,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    PolicyAmended,
    RetryScheduled,
    RunForked,
    RunResumed,
    RunStarted,
    StateChanged,
    StateDigested,
    StepFreed,
    SummaryAbandoned,
    SummaryRequested,
    SummaryReturned,
    ToolReturned,
    ToolsDispatched,
)
from refold.reducers.meanings import decisions, facts
from refold.reducers.meanings.forks import run_forked
from refold.reducers.meanings.observations import context_observed
from refold.reducers.state import RunState

_Kind = TypeVar("_Kind", bound=Event)
Meaning = Callable[[RunState, Any], RunState]


def _of(kind: type[_Kind], meaning: Callable[[RunState, _Kind], RunState]) -> tuple[type[Event], Meaning]:
    return kind, meaning  # as a function, so that a line with another kind's meaning is an error of types


MEANINGS: Mapping[type[Event], Meaning] = MappingProxyType(
    dict(
        (
            _of(RunStarted, facts.run_started),
            _of(RunForked, run_forked),
            _of(ModelResponded, facts.model_responded),
            _of(ModelFailed, facts.model_failed),
            _of(ToolReturned, facts.tool_returned),
            _of(DoubtResolved, facts.doubt_resolved),
            _of(InputReceived, facts.input_received),
            _of(ApprovalAnswered, facts.approval_answered),
            _of(ContextObserved, context_observed),
            _of(SummaryReturned, facts.summary_returned),
            _of(ChildEnded, facts.child_ended),
            _of(CancelRequested, facts.cancel_requested),
            _of(ClockRead, facts.clock_read),
            _of(RunResumed, facts.run_resumed),
            _of(PolicyAmended, facts.policy_amended),
            _of(ModelRequested, decisions.model_requested),
            _of(ToolsDispatched, decisions.tools_dispatched),
            _of(CallRefused, decisions.call_refused),
            _of(ApprovalRequested, decisions.approval_requested),
            _of(SummaryRequested, decisions.summary_requested),
            _of(SummaryAbandoned, decisions.summary_abandoned),
            _of(HistoryPruned, decisions.history_pruned),
            _of(MessageTrimmed, decisions.message_trimmed),
            _of(MessageInjected, decisions.message_injected),
            _of(GuardTripped, decisions.guard_tripped),
            _of(LimitReached, decisions.limit_reached),
            _of(LimitNeared, decisions.limit_neared),
            _of(StepFreed, decisions.step_freed),
            _of(ContextOverflowed, decisions.context_overflowed),
            _of(AnswerDiscarded, decisions.answer_discarded),
            _of(RetryScheduled, decisions.retry_scheduled),
            _of(StateChanged, decisions.state_changed),
            _of(StateDigested, decisions.state_digested),
        )
    )
)
