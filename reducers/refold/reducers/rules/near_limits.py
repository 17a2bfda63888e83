"""A limit is near: people are warned, once; the model is not told.

Source: the nearing threshold of inspect_agents (IA) for time, the reserves of aar (AAR) for tokens and money.
"""

from refold.reducers.events import Fact, LimitNeared
from refold.reducers.knobs import Near
from refold.reducers.limits import CostLimit, Limit, TokenLimit, measure_of, threshold
from refold.reducers.numbers import share_of
from refold.reducers.rules.flow import Flow, one
from refold.reducers.state import RunState
from refold.reducers.usage import hit, smallest_time, used
from refold.reducers.vocabulary import Cause


def near_time(state: RunState, fact: Fact) -> Flow | None:
    """P9: once a run, when so much of the smallest time limit has elapsed."""
    knob = state.policy.near
    limit = smallest_time(state) if knob is not None and knob.fraction is not None else None
    if limit is None or knob is None or knob.fraction is None or state.count(Cause.NEAR, "run", "time"):
        return None
    most = share_of(threshold(limit) or 0, knob.fraction)
    if used(limit, state) < most:
        return None
    return one(LimitNeared(of="time", limit=hit(limit, state), threshold=most))


def near_budget(state: RunState, fact: Fact) -> Flow | None:
    """R4: once a scope, when no more than a reserve is left of a budget of tokens, or of money."""
    knob = state.policy.near
    if knob is None or state.count(Cause.NEAR, knob.scope, "budget"):
        return None
    for limit in state.policy.limits:
        most, reserve = threshold(limit), _reserve(knob, limit)
        if most and reserve is not None and most - used(limit, state) <= reserve:
            return one(LimitNeared(of="budget", limit=hit(limit, state), threshold=most - reserve))
    return None


def _reserve(knob: Near, limit: Limit) -> int | None:
    if isinstance(limit, TokenLimit) and measure_of(limit) == "usage":
        return knob.reserve_tokens
    if isinstance(limit, CostLimit) and knob.reserve_cost_fraction is not None:
        return share_of(threshold(limit) or 0, knob.reserve_cost_fraction)
    return None
