"""Limits at work: which are looked at where, and how each ends the run, or grants one last request first."""

from typing import Literal

import msgspec

from refold.reducers.events import Fact, LimitReached, StateChanged, StepFreed
from refold.reducers.limits import (
    ENDS,
    CostLimit,
    Limit,
    LimitHit,
    MessageLimit,
    StepLimit,
    TimeLimit,
    TokenLimit,
    check_of,
    measure_of,
    name_of,
    trips,
)
from refold.reducers.rules.ends import asked_to_stop, move, refuse_open, stopped_by
from refold.reducers.rules.flow import Flow, one
from refold.reducers.rules.requests import granted_by, request_grace
from refold.reducers.state import RunState
from refold.reducers.usage import hit, promised, trips_at, used
from refold.reducers.vocabulary import Cause

BEFORE = ((StepLimit, "usage"), (MessageLimit, "usage"), (TokenLimit, "estimate"))
BUDGETS = ((TokenLimit, "usage"), (TokenLimit, "estimate"), (CostLimit, "usage"))
COUNTED = ((TokenLimit, "usage"), (CostLimit, "usage"))
OTHERS = ((TimeLimit, "usage"), (StepLimit, "usage"), (MessageLimit, "usage"))


class TimeLimits(msgspec.Struct, frozen=True):
    """A check of the time limits: one that trips lets the run settle, then end TIMED_OUT.

    P2 looks at those for before a request only; whenever the clock has moved, `every` one is a deadline.
    """

    every: bool = True

    def __call__(self, state: RunState, fact: Fact) -> Flow | None:
        """What this check decides, if anything."""
        for limit in self.among(state) if state.stopping is None else ():
            if trips(limit, used(limit, state)):
                until = promised(state) if self.every else 0
                if state.at > until or trips_at(limit, state) >= until:
                    return _timed_out(state, fact, limit)
        return asked_to_stop(state, fact)

    def among(self, state: RunState) -> list[TimeLimit]:
        """The policy's limits that are looked at here, in order."""
        return [
            limit
            for limit in state.policy.limits
            if isinstance(limit, TimeLimit) and (self.every or limit.check == "preflight")
        ]


def _timed_out(state: RunState, fact: Fact, limit: Limit) -> Flow:
    state = yield LimitReached(limit=hit(limit, state))
    stopped = asked_to_stop(state, fact)
    return state if stopped is None else (yield from stopped)


class Limits(msgspec.Struct, frozen=True):
    """A check of the limits looked at at `check`: those of the first kind first, then in the policy's order."""

    check: str
    kinds: tuple[tuple[type[Limit], str], ...]

    def __call__(self, state: RunState, fact: Fact) -> Flow | None:
        """What this check decides, if anything."""
        found = self.first(state)
        return None if found is None else _reached(state, found)

    def first(self, state: RunState) -> Limit | None:
        """The first of them that trips."""
        for limit in self.among(state):
            if trips(limit, used(limit, state)):
                return limit
        return None

    def among(self, state: RunState) -> list[Limit]:
        """The policy's limits that are looked at here, in order."""
        return [
            limit
            for kind, measure in self.kinds
            for limit in state.policy.limits
            if type(limit) is kind and check_of(limit) == self.check and measure_of(limit) == measure
        ]


SPENT = Limits("response", COUNTED)
"""What a failure, a summary or a child cost is looked at as soon as it is known."""


def _reached(state: RunState, limit: Limit) -> Flow | None:
    if check_of(limit) == "response_deferred":
        return one(LimitReached(limit=hit(limit, state), deferred=True)) if state.deferred is None else None
    return _ended(state, limit)


def _ended(state: RunState, limit: Limit) -> Flow:
    state = yield LimitReached(limit=hit(limit, state))
    if state.stopping is not None:
        return (yield from stopped_by(state, state.stopping))
    state = yield from refuse_open(state, "refused:limit", Cause.LIMIT, name_of(limit))
    grace = state.policy.grace
    if grace is not None and name_of(limit) in grace.on and check_of(limit) == "preflight":
        return (yield request_grace(state))
    return (yield limit_move(state))


def deferred(state: RunState, fact: Fact) -> Flow | None:
    """R12, T3: a limit that was judged on the response ends the run, now that its batch is done or it has none."""
    return None if state.deferred is None else _carried_out(state, state.deferred)


def _carried_out(state: RunState, found: LimitHit) -> Flow:
    state = yield LimitReached(limit=found)
    if state.stopping is not None:
        return (yield from stopped_by(state, state.stopping))
    return (yield limit_move(state))


def free_steps(state: RunState, fact: Fact) -> Flow | None:
    """R1: a step whose calls are all to a step limit's `free_tools` does not count there."""
    if state.batch is None:
        return None
    names = {call.name for call in state.batch.calls}
    free = [
        name_of(limit)
        for limit in state.policy.limits
        if isinstance(limit, StepLimit) and limit.free_tools and names <= set(limit.free_tools)
    ]
    return _freed(state, free) if free else None


def _freed(state: RunState, names: list[str]) -> Flow:
    for name in names:
        state = yield StepFreed(limit=name)
    return state


def limit_move(state: RunState, outcome: Literal["", "grace"] = "") -> StateChanged:
    """The decision to end by the limit that tripped."""
    found = granted_by(state)
    trigger, code = ENDS[found.type, found.measure]
    reason = (
        f"limit {found.name!r} was reached: {found.used} {found.unit} used, and {found.op} {found.value} ends"
    )
    return move(state, trigger, code, reason, outcome=outcome)
