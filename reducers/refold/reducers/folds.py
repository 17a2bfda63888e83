"""The log as the truth: fold it to a state, and advance it by a fact."""

from collections.abc import Iterable

from msgspec.structs import replace

from refold.reducers.events import (
    RESULTS,
    Event,
    Fact,
    LateResult,
    ModelResponded,
    Result,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.pending import bare
from refold.reducers.rules import rules_of
from refold.reducers.state import NEW, RunState


def fold(events: Iterable[Event], state: RunState = NEW, registry: Registry = BUILTIN) -> RunState:
    """The state after these events. Folding a prefix and then the rest is folding the whole."""
    for event in events:
        state = evolve(state, event, registry)
    return state


def advance(
    state: RunState,
    fact: Fact,
    registry: Registry = BUILTIN,
) -> tuple[RunState, tuple[Event, ...]]:
    """The state after a fact and all that follows from it, and those events: the fact, then its decisions.

    A result that nothing waits for any more becomes one `late_result`, which changes nothing. Any other fact
    that has no place here raises `UnexpectedEvent`.
    """
    if isinstance(fact, RESULTS) and not awaited(state, fact):
        late = late_result(replace(fact, at=max(state.at, fact.at)))
        return evolve(state, late, registry), (late,)
    state = evolve(state, fact, registry)
    events: list[Event] = [fact]
    for decision, after in rules_of(state)(state, fact):
        events.append(decision)
        state = after
    return state, tuple(events)


def awaited(state: RunState, fact: Result) -> bool:
    """Whether the state waits for this very result."""
    if state.ended or state.seq == 0:
        return False
    if isinstance(fact, ToolReturned):
        batch = state.batch
        call = batch.open_call(fact.call) if batch else None
        return call is not None and (call.dispatched > 0 or call.refused)
    asked = None if isinstance(fact, SummaryReturned) else state.request
    summary = None if isinstance(fact, ModelResponded) else state.summary
    return fact.request in (asked and asked.seq, summary and summary.seq)


def late_result(fact: Result) -> LateResult:
    """The annotation that keeps a result for which nothing waits any more."""
    return LateResult(at=fact.at, fact=bare(fact), content=fact.content)
