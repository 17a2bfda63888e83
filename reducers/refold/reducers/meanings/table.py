"""The one table of functions that apply events to the state, by kind."""

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


def _pair(kind: type[_Kind], meaning: Callable[[RunState, _Kind], RunState]) -> tuple[type[Event], Meaning]:
    return kind, meaning  # a function, so that the type checker refuses a line with another kind's function


MEANINGS: Mapping[type[Event], Meaning] = MappingProxyType(
    dict(
        (
            _pair(events.RunStarted, facts.run_started),
            _pair(events.RunForked, run_forked),
            _pair(events.ModelResponded, facts.model_responded),
            _pair(events.ModelFailed, facts.model_failed),
            _pair(events.ToolReturned, facts.tool_returned),
            _pair(events.DoubtResolved, facts.doubt_resolved),
            _pair(events.InputReceived, facts.input_received),
            _pair(events.ApprovalAnswered, facts.approval_answered),
            _pair(events.ContextObserved, context_observed),
            _pair(events.SummaryReturned, facts.summary_returned),
            _pair(events.ChildEnded, facts.child_ended),
            _pair(events.CancelRequested, facts.cancel_requested),
            _pair(events.ClockRead, facts.clock_read),
            _pair(events.RunResumed, facts.run_resumed),
            _pair(events.PolicyAmended, facts.policy_amended),
            _pair(events.ModelRequested, decisions.model_requested),
            _pair(events.ToolsDispatched, decisions.tools_dispatched),
            _pair(events.CallRefused, decisions.call_refused),
            _pair(events.ApprovalRequested, decisions.approval_requested),
            _pair(events.SummaryRequested, decisions.summary_requested),
            _pair(events.SummaryAbandoned, decisions.summary_abandoned),
            _pair(events.HistoryPruned, decisions.history_pruned),
            _pair(events.MessageTrimmed, decisions.message_trimmed),
            _pair(events.MessageInjected, decisions.message_injected),
            _pair(events.GuardTripped, decisions.guard_tripped),
            _pair(events.LimitReached, decisions.limit_reached),
            _pair(events.LimitNeared, decisions.limit_neared),
            _pair(events.StepExempted, decisions.step_exempted),
            _pair(events.ContextOverflowed, decisions.context_overflowed),
            _pair(events.ResponseDiscarded, decisions.response_discarded),
            _pair(events.RetryScheduled, decisions.retry_scheduled),
            _pair(events.StateChanged, decisions.state_changed),
            _pair(events.StateDigested, decisions.state_digested),
        )
    )
)
