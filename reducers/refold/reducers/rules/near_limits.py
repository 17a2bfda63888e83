"""A limit is near: people are warned, once; the model is not told.

Source: the nearing threshold of inspect_agents (IA) for time, the reserves of aar (AAR) for tokens and money.
"""

from refold.reducers.events import LimitNeared
from refold.reducers.limits import CostLimit, Limit, TokenLimit, measure_of, threshold
from refold.reducers.meters import hit, smallest_time, used
from refold.reducers.numbers import share_of
from refold.reducers.policy import Near
from refold.reducers.rules.flow import Flow, switched_by
from refold.reducers.vocabulary import Cause


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
