"""Limits at work.

Source: the nearing threshold of inspect_agents (IA) for time, the reserves of aar (AAR) for tokens and money.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from refold.reducers.events import LimitNeared, LimitReached, StateChanged, StepFreed
from refold.reducers.limits import (
    COUNTED,
    CostLimit,
    Limit,
    StepLimit,
    TimeLimit,
    TokenLimit,
    amount,
    check_of,
    end_of,
    is_reached,
    measure_of,
    name_of,
    refuses_unknown,
    threshold,
    trip_value,
)
from refold.reducers.meters import Meter, hit, lacking, meter, promised, smallest_time, trips_at, used
from refold.reducers.policy import Near, Policy
from refold.reducers.rules.flow import (
    Check,
    Flow,
    Rule,
    asked_to_stop,
    move,
    refuse_open,
    stopped_by,
    switched_by,
)
from refold.reducers.rules.requests import granted_by, request_grace
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause, share_of


class TimeLimits(Rule):
    """A check of the time limits: one that trips lets the run settle, then end TIMED_OUT.

    P2 looks at those for before a request only; whenever the clock has moved, `every` one is a deadline.
    """

    __slots__ = ("every",)

    def __init__(self, *, every: bool = True) -> None:
        self.every = every

    def bound(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """The check of those that are limited; where there is none, whether the run was asked to stop."""
        rows = _rows(self.among(policy))
        return partial(self._look, rows) if rows else asked_to_stop

    def _look(self, rows: Sequence["_LimitRow"], flow: Flow) -> bool:
        state = flow.state
        for limit, measured, least, _ in rows if state.stopping is None else ():
            if measured(state) >= least:
                until = promised(state) if self.every else 0
                if state.at > until or trips_at(limit, state) >= until:
                    flow.say(LimitReached(limit=hit(limit, state)))
                    asked_to_stop(flow)
                    return True
        return asked_to_stop(flow)

    def among(self, policy: Policy) -> list[TimeLimit]:
        """The policy's limits that are looked at here, in order."""
        return [
            limit
            for limit in policy.limits
            if isinstance(limit, TimeLimit) and (self.every or limit.check == "preflight")
        ]


class _LimitRow(NamedTuple):
    limit: Any
    measured: Meter
    least: int
    insists: bool


def _rows(limits: Sequence[Limit]) -> list[_LimitRow]:
    leasts = [(limit, trip_value(limit)) for limit in limits]
    return [
        _LimitRow(limit, meter(limit), least, refuses_unknown(limit))
        for limit, least in leasts
        if least is not None
    ]


class Limits(Rule):
    """A check of the limits looked at at `check`: those of the first kind first, then in the policy's
    order.
    """

    __slots__ = ("check", "kinds")

    def __init__(self, check: str, kinds: tuple[tuple[type[Limit], str], ...]) -> None:
        self.check, self.kinds = check, kinds

    def bound(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """The check of those that are limited."""
        rows = _rows(self.among(policy))
        return partial(_look, rows) if rows else None

    def first(self, state: RunState) -> Limit | None:
        """The first of them that trips."""
        return _first(_rows(self.among(state.policy)), state)

    def among(self, policy: Policy) -> list[Limit]:
        """The policy's limits that are looked at here, in order."""
        return [
            limit
            for kind, measure in self.kinds
            for limit in policy.limits
            if type(limit) is kind and check_of(limit) == self.check and measure_of(limit) == measure
        ]


SPENT = Limits("response", COUNTED)
"""What a failure, a summary or a child cost is looked at as soon as it is known."""


def _first(rows: Sequence[_LimitRow], state: RunState) -> Limit | None:
    for limit, measured, least, known in rows:
        if measured(state) >= least or (known and lacking(limit, state)):
            found: Limit = limit
            return found
    return None


def _look(rows: Sequence[_LimitRow], flow: Flow) -> bool:
    limit = _first(rows, flow.state)
    if limit is None:
        return False
    if check_of(limit) != "response_deferred":
        _reached(flow, limit)
        return True
    if flow.state.deferred is None:
        flow.say(LimitReached(limit=hit(limit, flow.state), deferred=True))
    return True


def _reached(flow: Flow, limit: Limit) -> None:
    found = hit(limit, flow.state)
    flow.say(LimitReached(limit=found))
    if flow.state.stopping is not None:
        stopped_by(flow, flow.state.stopping)
        return
    refuse_open(flow, "refused:limit", Cause.LIMIT, name_of(limit))
    grace = flow.state.policy.grace
    granted = grace is not None and name_of(limit) in grace.on and is_reached(found)
    if granted and check_of(limit) == "preflight":
        flow.say(request_grace(flow.state))
    else:
        flow.say(limit_move(flow.state))


def deferred(flow: Flow) -> bool:
    """R12, T3: a limit that was judged on the response ends the run, now that its batch is done or it has
    none.
    """
    found = flow.state.deferred
    if found is None:
        return False
    flow.say(LimitReached(limit=found))
    if flow.state.stopping is not None:
        stopped_by(flow, flow.state.stopping)
    else:
        flow.say(limit_move(flow.state))
    return True


def _freeing(policy: Policy) -> list[StepLimit] | None:
    return [limit for limit in policy.limits if isinstance(limit, StepLimit) and limit.free_tools] or None


@switched_by(_freeing)
def free_steps(limits: list[StepLimit], flow: Flow) -> bool:
    """R1: a step whose calls are all to a step limit's `free_tools` does not count there."""
    batch = flow.state.batch
    if batch is None:
        return False
    names = {call.name for call in batch.calls}
    for limit in limits:
        if names <= set(limit.free_tools):
            flow.say(StepFreed(limit=name_of(limit)))
    return True


_WHY = {
    "token": "nobody counted the tokens of an answer; take the limit out, or write in it uncounted",
    "cost": "nobody knows what an answer cost; take the limit out, or write in it unpriced",
}


def limit_move(state: RunState, outcome: Literal["", "grace"] = "") -> StateChanged:
    """The decision to end by the limit that tripped."""
    found = granted_by(state)
    end = end_of(found)
    assert end is not None
    trigger, code = end
    if is_reached(found):
        used, value = amount(found.used, found.unit), amount(found.value, found.unit)
        least = value.removesuffix(f" {found.unit}")
        reason = f"limit {found.name!r} was reached: {used} used, and {found.op} {least} ends"
    else:
        reason = f"limit {found.name!r} cannot be kept: {_WHY[found.type]}: ignore"
    return move(state, trigger, code, reason, outcome=outcome)


@switched_by(lambda policy: None if policy.near is None else policy.near.fraction)
def near_time(fraction: float, flow: Flow) -> bool:
    """P9: once a run, when so much of the smallest time limit has elapsed."""
    state, limit = flow.state, smallest_time(flow.state)
    if limit is None or state.count(Cause.NEAR, "run", "time"):
        return False
    most = share_of(threshold(limit) or 0, fraction)
    if used(limit, state) < most:
        return False
    flow.say(LimitNeared(of="time", limit=hit(limit, state), threshold=most))
    return True


@switched_by(lambda policy: policy.near)
def near_budget(knob: Near, flow: Flow) -> bool:
    """R4: once a scope, when no more than a reserve is left of a budget of tokens, or of money."""
    state = flow.state
    if state.count(Cause.NEAR, knob.scope, "budget"):
        return False
    for limit in state.policy.limits:
        most, reserve = threshold(limit), _reserve(knob, limit)
        if most and reserve is not None and most - used(limit, state) <= reserve:
            flow.say(LimitNeared(of="budget", limit=hit(limit, state), threshold=most - reserve))
            return True
    return False


def _reserve(knob: Near, limit: Limit) -> int | None:
    if isinstance(limit, TokenLimit) and measure_of(limit) == "usage":
        return knob.reserve_tokens
    if isinstance(limit, CostLimit) and knob.reserve_cost_fraction is not None:
        return share_of(threshold(limit) or 0, knob.reserve_cost_fraction)
    return None
