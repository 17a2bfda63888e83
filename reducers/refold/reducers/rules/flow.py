"""How decisions are derived: generators that yield a decision and are sent the state folded with it."""

from collections.abc import Callable, Generator

import msgspec

from refold.reducers.events import Decision, Fact
from refold.reducers.pending import waits
from refold.reducers.state import RunState

Flow = Generator[Decision, RunState, RunState]
"""Yields decisions, is sent the state after each, and returns the last state."""

Check = Callable[[RunState, Fact], Flow | None]
"""One check of a phase. None: it decides nothing, as most checks do most of the time (and to start a generator
that has nothing to say costs more than the check). What it decides may settle the run, which ends the phase."""


def one(decision: Decision) -> Flow:
    """The flow of a single decision."""
    return (yield decision)


class FirstOf(msgspec.Struct, frozen=True):
    """A check that is the first of these that has an opinion: those after it are not looked at."""

    checks: tuple[Check, ...]

    def __call__(self, state: RunState, fact: Fact) -> Flow | None:
        """What this check decides, if anything."""
        flows = (found for check in self.checks if (found := check(state, fact)) is not None)
        return next(flows, None)


class WithoutCalls(msgspec.Struct, frozen=True):
    """R12: the check, on an answer without calls: what is asked when a batch is done is asked there too."""

    checks: tuple[Check]

    def __call__(self, state: RunState, fact: Fact) -> Flow | None:
        """What this check decides, if anything."""
        return None if state.answer is None or state.answer.event.calls else self.checks[0](state, fact)


def settled(state: RunState) -> bool:
    """Whether there is nothing left to decide now: the run has ended, or something in the world comes next."""
    if state.ended or state.asked_at is not None:
        return True
    return busy(state) or waits(state)


def busy(state: RunState) -> bool:
    """Whether something is under way that must report: a request, a summary, a call."""
    summing_up = state.summary is not None and state.summed_up is None
    return state.request is not None or summing_up or in_flight(state)


def in_flight(state: RunState) -> bool:
    """Whether a call was dispatched and has no result yet."""
    # A plain loop: this is asked after every check that decides.
    for call in state.batch.calls if state.batch else ():  # noqa: SIM110
        if call.dispatched and call.result is None:
            return True
    return False
