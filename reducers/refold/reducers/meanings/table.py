"""What each kind of event means: the one table."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from refold.reducers import events
from refold.reducers.events import Event
from refold.reducers.meanings import decisions, facts
from refold.reducers.meanings.common import context_observed
from refold.reducers.meanings.facts import run_forked
from refold.reducers.state import RunState

_Kind = TypeVar("_Kind", bound=Event)
Meaning = Callable[[RunState, Any], RunState]


def _of(kind: type[_Kind], meaning: Callable[[RunState, _Kind], RunState]) -> tuple[type[Event], Meaning]:
    return kind, meaning  # as a function, so that a line with another kind's meaning is an error of types


MEANINGS: Mapping[type[Event], Meaning] = MappingProxyType(
    dict(
        (
            _of(events.RunStarted, facts.run_started),
            _of(events.RunForked, run_forked),
            _of(events.ModelResponded, facts.model_responded),
            _of(events.ModelFailed, facts.model_failed),
            _of(events.ToolReturned, facts.tool_returned),
            _of(events.DoubtResolved, facts.doubt_resolved),
            _of(events.InputReceived, facts.input_received),
            _of(events.ApprovalAnswered, facts.approval_answered),
            _of(events.ContextObserved, context_observed),
            _of(events.SummaryReturned, facts.summary_returned),
            _of(events.ChildEnded, facts.child_ended),
            _of(events.CancelRequested, facts.cancel_requested),
            _of(events.ClockRead, facts.clock_read),
            _of(events.RunResumed, facts.run_resumed),
            _of(events.PolicyAmended, facts.policy_amended),
            _of(events.ModelRequested, decisions.model_requested),
            _of(events.ToolsDispatched, decisions.tools_dispatched),
            _of(events.CallRefused, decisions.call_refused),
            _of(events.ApprovalRequested, decisions.approval_requested),
            _of(events.SummaryRequested, decisions.summary_requested),
            _of(events.SummaryAbandoned, decisions.summary_abandoned),
            _of(events.HistoryPruned, decisions.history_pruned),
            _of(events.MessageTrimmed, decisions.message_trimmed),
            _of(events.MessageInjected, decisions.message_injected),
            _of(events.GuardTripped, decisions.guard_tripped),
            _of(events.LimitReached, decisions.limit_reached),
            _of(events.LimitNeared, decisions.limit_neared),
            _of(events.StepFreed, decisions.step_freed),
            _of(events.ContextOverflowed, decisions.context_overflowed),
            _of(events.AnswerDiscarded, decisions.answer_discarded),
            _of(events.RetryScheduled, decisions.retry_scheduled),
            _of(events.StateChanged, decisions.state_changed),
            _of(events.StateDigested, decisions.state_digested),
        )
    )
)
