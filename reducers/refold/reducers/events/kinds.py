"""Every kind of event, and the word by which the log knows it."""

from refold.reducers.events.annotations import (
    ContentErased,
    Diagnosed,
    LateResult,
    NoteAdded,
    Sealed,
    SourceRecorded,
)
from refold.reducers.events.base import Annotation, Decision, Event, Fact
from refold.reducers.events.decisions import (
    AnswerDiscarded,
    ApprovalRequested,
    CallRefused,
    ContextOverflowed,
    GuardTripped,
    HistoryPruned,
    LimitNeared,
    LimitReached,
    MessageInjected,
    MessageTrimmed,
    ModelRequested,
    RetryScheduled,
    StateChanged,
    StateDigested,
    StepFreed,
    SummaryAbandoned,
    SummaryRequested,
    ToolsDispatched,
)
from refold.reducers.events.facts import (
    ApprovalAnswered,
    CancelRequested,
    ChildEnded,
    ClockRead,
    ContextObserved,
    DoubtResolved,
    InputReceived,
    ModelFailed,
    ModelResponded,
    PolicyAmended,
    RunForked,
    RunResumed,
    RunStarted,
    SummaryReturned,
    ToolReturned,
)

FACTS: tuple[type[Fact], ...] = (
    RunStarted,
    RunForked,
    ModelResponded,
    ModelFailed,
    ToolReturned,
    DoubtResolved,
    InputReceived,
    ApprovalAnswered,
    ContextObserved,
    SummaryReturned,
    ChildEnded,
    CancelRequested,
    ClockRead,
    RunResumed,
    PolicyAmended,
)
DECISIONS: tuple[type[Decision], ...] = (
    ModelRequested,
    ToolsDispatched,
    CallRefused,
    ApprovalRequested,
    SummaryRequested,
    SummaryAbandoned,
    HistoryPruned,
    MessageTrimmed,
    MessageInjected,
    GuardTripped,
    LimitReached,
    LimitNeared,
    StepFreed,
    ContextOverflowed,
    AnswerDiscarded,
    RetryScheduled,
    StateChanged,
    StateDigested,
)
ANNOTATIONS: tuple[type[Annotation], ...] = (
    LateResult,
    NoteAdded,
    ContentErased,
    Sealed,
    Diagnosed,
    SourceRecorded,
)


def kind_of(event: Event | type[Event]) -> str:
    """The snake_case word by which the log knows an event."""
    return str(event.__struct_config__.tag)


KINDS: dict[str, type[Event]] = {kind_of(event): event for event in (*FACTS, *DECISIONS, *ANNOTATIONS)}
