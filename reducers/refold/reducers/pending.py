"""What waits for its fact, and what is known of it: read off the state."""

from typing import TypeVar

from msgspec.structs import replace

from refold.reducers.events import (
    Decision,
    Event,
    Fact,
    ModelRequested,
    RetryScheduled,
    SummaryRequested,
)
from refold.reducers.state import Pending, Remembered, RunState
from refold.reducers.vocabulary import Cause

DecisionT = TypeVar("DecisionT", bound=Decision)
EventT = TypeVar("EventT", bound=Event)
FactT = TypeVar("FactT", bound=Fact)


def bare(event: EventT) -> EventT:
    """The event without its content: a state holds no text that was said."""
    return event if getattr(event, "content", None) is None else replace(event, content=None)


def pending(state: RunState, event: DecisionT, until: int | None) -> Pending[DecisionT]:
    """The decision at which the state stands, as one that waits."""
    return Pending(seq=state.seq, at=state.at, until=until, event=bare(event))


def remembered(state: RunState, event: FactT) -> Remembered[FactT]:
    """The fact at which the state stands, as one that a later decision goes by."""
    return Remembered(seq=state.seq, event=bare(event))


def asked_of(state: RunState, seq: int) -> Pending[ModelRequested] | Pending[SummaryRequested]:
    """What the model is asked, as decided at event `seq`. Raises `LookupError` if that does not wait any more."""
    for asks in (state.request, state.summary):
        if asks is not None and asks.seq == seq:
            return asks
    raise LookupError(f"event {seq} asks no model, or has its answer")


def is_fresh(backoff: Pending[RetryScheduled]) -> bool:
    """Whether a new step follows the wait, and not another attempt at the same."""
    return backoff.event.cause is Cause.STREAM


def waits(state: RunState) -> bool:
    """Whether the run waits before another try, and its time is not over."""
    return state.backoff is not None and state.backoff.until is not None


def summary_done(state: RunState) -> RunState:
    """The state after the pass that asked for a summary has it in its place, or does without."""
    assert state.summary is not None
    return replace(state, summary=None, summed_up=None, pruned_by=state.summary.event.name)
