"""How decisions are derived: generators that yield a decision and are sent the state folded with it."""

from collections.abc import Callable, Generator

from refold.reducers.events import Decision, Fact
from refold.reducers.state import RunState

Flow = Generator[Decision, RunState, RunState]
"""Yields decisions, is sent the state after each, and returns the last state."""

Check = Callable[[RunState, Fact], Flow]
"""One check of a phase. It may decide nothing; what it decides may settle the run, which ends the phase."""


def settled(state: RunState) -> bool:
    """Whether there is nothing left to decide now: the run has ended, or something in the world comes next."""
    if state.ended or state.request is not None or state.asked_at is not None:
        return True
    return in_flight(state) or (state.backoff is not None and not state.backoff.passed)


def in_flight(state: RunState) -> bool:
    """Whether a call was dispatched and has no result yet."""
    batch = state.batch
    return batch is not None and any(call.dispatched and call.result is None for call in batch.calls)
