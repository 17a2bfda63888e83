"""Rules for limits.

Source: the nearing threshold of inspect_agents (IA) for time, the reserves of aar (AAR) for tokens and money.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from refold.reducers.events import LimitNeared, LimitReached, StateChanged, StepExempted
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
    end_stopped,
    make_move,
    refuse_open,
    stop_if_requested,
    switched_by,
)
from refold.reducers.rules.requests import granting_limit, make_grace_request
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause, share_of


class TimeLimits(Rule):
    """A check of the time limits. If one trips, the run settles and then ends TIMED_OUT.

    P2 checks only limits with `check: preflight`; whenever the clock has moved, `every` limit is a deadline.
    """

    __slots__ = ("every",)

    def __init__(self, *, every: bool = True) -> None:
        self.every = every

    def bind(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """Return the check of the limited ones; without any, the check whether the run is to stop."""
        rows = _make_rows(self.among(policy))
        return partial(self._look, rows) if rows else stop_if_requested

    def _look(self, rows: Sequence["_LimitRow"], flow: Flow) -> bool:
        state = flow.state
        for limit, measured, least, _ in rows if state.stopping is None else ():
            if measured(state) >= least:
                until = promised(state) if self.every else 0
                if state.at > until or trips_at(limit, state) >= until:
                    flow.say(LimitReached(limit=hit(limit, state)))
                    stop_if_requested(flow)
                    return True
        return stop_if_requested(flow)

    def among(self, policy: Policy) -> list[TimeLimit]:
        """Return the policy's limits that are checked here, in order."""
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


def _make_rows(limits: Sequence[Limit]) -> list[_LimitRow]:
    leasts = [(limit, trip_value(limit)) for limit in limits]
    return [
        _LimitRow(limit, meter(limit), least, refuses_unknown(limit))
        for limit, least in leasts
        if least is not None
    ]


class Limits(Rule):
    """A check of the limits with this `check`, by kind first, then in the policy's order."""

    __slots__ = ("check", "kinds")

    def __init__(self, check: str, kinds: tuple[tuple[type[Limit], str], ...]) -> None:
        self.check, self.kinds = check, kinds

    def bind(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """Return the check of the limits that have a value."""
        rows = _make_rows(self.among(policy))
        return partial(_look, rows) if rows else None

    def first(self, state: RunState) -> Limit | None:
        """Return the first limit that trips."""
        return _first_tripped(_make_rows(self.among(state.policy)), state)

    def among(self, policy: Policy) -> list[Limit]:
        """Return the policy's limits that are checked here, in order."""
        return [
            limit
            for kind, measure in self.kinds
            for limit in policy.limits
            if type(limit) is kind and check_of(limit) == self.check and measure_of(limit) == measure
        ]


SPENT = Limits("response", COUNTED)
"""The check that counts the cost of a failure, a summary or a child when it arrives."""


def _first_tripped(rows: Sequence[_LimitRow], state: RunState) -> Limit | None:
    for limit, measured, least, known in rows:
        if measured(state) >= least or (known and lacking(limit, state)):
            found: Limit = limit
            return found
    return None


def _look(rows: Sequence[_LimitRow], flow: Flow) -> bool:
    limit = _first_tripped(rows, flow.state)
    if limit is None:
        return False
    if check_of(limit) != "response_deferred":
        _end_by_limit(flow, limit)
        return True
    if flow.state.deferred is None:
        flow.say(LimitReached(limit=hit(limit, flow.state), deferred=True))
    return True


def _end_by_limit(flow: Flow, limit: Limit) -> None:
    found = hit(limit, flow.state)
    flow.say(LimitReached(limit=found))
    if flow.state.stopping is not None:
        end_stopped(flow, flow.state.stopping)
        return
    refuse_open(flow, "refused:limit", Cause.LIMIT, name_of(limit))
    grace = flow.state.policy.grace
    granted = grace is not None and name_of(limit) in grace.on and is_reached(found)
    if granted and check_of(limit) == "preflight":
        flow.say(make_grace_request(flow.state))
    else:
        flow.say(make_limit_move(flow.state))


def end_deferred(flow: Flow) -> bool:
    """R12, T3: end the run by a limit that tripped on the response, after its batch or without calls."""
    found = flow.state.deferred
    if found is None:
        return False
    flow.say(LimitReached(limit=found))
    if flow.state.stopping is not None:
        end_stopped(flow, flow.state.stopping)
    else:
        flow.say(make_limit_move(flow.state))
    return True


def _limits_with_free_tools(policy: Policy) -> list[StepLimit] | None:
    return [limit for limit in policy.limits if isinstance(limit, StepLimit) and limit.free_tools] or None


@switched_by(_limits_with_free_tools)
def free_steps(limits: list[StepLimit], flow: Flow) -> bool:
    """R1: exempt a step from a step limit if all its calls are to the limit's `free_tools`."""
    batch = flow.state.batch
    if batch is None:
        return False
    names = {call.name for call in batch.calls}
    for limit in limits:
        if names <= set(limit.free_tools):
            flow.say(StepExempted(limit=name_of(limit)))
    return True


_WHY = {
    "token": "nobody counted the tokens of an answer; take the limit out, or write in it uncounted",
    "cost": "nobody knows what an answer cost; take the limit out, or write in it unpriced",
}


def make_limit_move(state: RunState, outcome: Literal["", "grace"] = "") -> StateChanged:
    """Return the decision to end the run by the limit that tripped."""
    found = granting_limit(state)
    end = end_of(found)
    assert end is not None
    trigger, code = end
    if is_reached(found):
        used, value = amount(found.used, found.unit), amount(found.value, found.unit)
        least = value.removesuffix(f" {found.unit}")
        reason = f"limit {found.name!r} was reached: {used} used, and {found.op} {least} ends"
    else:
        reason = f"limit {found.name!r} cannot be kept: {_WHY[found.type]}: ignore"
    return make_move(state, trigger, code, reason, outcome=outcome)


@switched_by(lambda policy: None if policy.near is None else policy.near.fraction)
def near_time(fraction: float, flow: Flow) -> bool:
    """P9: warn once a run, when the given fraction of the smallest time limit has elapsed."""
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
    """R4: warn once a scope, when at most the reserve of a token or cost budget remains."""
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
