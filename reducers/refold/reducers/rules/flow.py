"""How decisions are derived: generators that yield a decision and are sent the state folded with it."""

from collections.abc import Callable, Generator

from refold.reducers.events import Decision, Fact
from refold.reducers.state import RunState

Flow = Generator[Decision, RunState, RunState]
"""Yields decisions, is sent the state after each, and returns the last state."""

Check = Callable[[RunState, Fact], Flow | None]
"""One check of a phase. None: it decides nothing, as most checks do most of the time (and to start a generator
that has nothing to say costs more than the check). What it decides may settle the run, which ends the phase."""


def one(decision: Decision) -> Flow:
    """The flow of a single decision."""
    return (yield decision)


def settled(state: RunState) -> bool:
    """Whether there is nothing left to decide now: the run has ended, or something in the world comes next."""
    if state.ended or state.request is not None or state.asked_at is not None:
        return True
    return in_flight(state) or (state.backoff is not None and not state.backoff.passed)


def in_flight(state: RunState) -> bool:
    """Whether a call was dispatched and has no result yet."""
    if state.batch is None:
        return False
    return any(call.dispatched and call.result is None for call in state.batch.calls)
