"""What a child run gets from its parent: its id, its chance, and bounds that it cannot spend beyond.

All of it follows from the parent's state and the call, so that whoever runs the call again finds the same child.
"""

import hashlib
from typing import Literal

from msgspec.structs import replace

from refold.reducers.limits import (
    Check,
    CostLimit,
    Limit,
    TimeLimit,
    TokenLimit,
    insists,
    measure_of,
    threshold,
)
from refold.reducers.meters import used
from refold.reducers.numbers import NANO
from refold.reducers.policy import Policy
from refold.reducers.state import RunState


def child_run_id(run: str, call: str) -> str:
    """The id of the run that this call of `run` starts: 16 hex digits, the same for every attempt at the call."""
    return _hash(f"{run}|{call}")[:16]


def child_seed(seed: int, call: str) -> int:
    """The child's seed, 63 bits, from the parent's."""
    return int(_hash(f"{seed}|{call}")[:16], 16) >> 1


def open_children(state: RunState) -> tuple[str, ...]:
    """The ids of the child runs that calls in flight have started, or are about to."""
    starts = {tool.name for tool in state.setup.tools if tool.agent}
    calls = state.batch.calls if state.batch else ()
    going = (call for call in calls if call.dispatched and call.result is None and call.name in starts)
    return tuple(child_run_id(state.setup.run, call.id) for call in going)


def bounded(policy: Policy, parent: RunState) -> Policy:
    """The child's policy, and as further limits what is left to the parent: of time, of tokens, of money.

    Time is that of the open batch. Of several limits of a kind the one counts that has least left, wherever it is
    checked. Where nothing is left, the child ends before its first request. Children that run side by side have
    all that is left each: what they spend counts in the parent when they end.
    """
    limits: list[Limit] = []
    instant = parent.batch.until if parent.batch else None
    if instant is not None:
        limits.append(TimeLimit(name="parent:time", value=max(0, instant - parent.at) / NANO))
    tokens, cost = _left(TokenLimit, parent), _left(CostLimit, parent)
    if tokens is not None:
        uncounted = _unknown(TokenLimit, parent)
        limits.append(
            TokenLimit(name="parent:tokens", value=tokens, check=_check(tokens), uncounted=uncounted)
        )
    if cost is not None:
        unpriced = _unknown(CostLimit, parent)
        limits.append(CostLimit(name="parent:cost", value=cost / NANO, check=_check(cost), unpriced=unpriced))
    return replace(policy, limits=(*policy.limits, *limits)) if limits else policy


def _left(kind: type[Limit], parent: RunState) -> int | None:
    """The least that a parent's limit of this kind has left, of what was spent; None if none is set."""
    left: list[int] = []
    for limit in parent.policy.limits:
        value = threshold(limit)
        if isinstance(limit, kind) and measure_of(limit) == "usage" and value is not None:
            # `>` N trips where `>=` N + 1 does.
            left.append(max(0, value - used(limit, parent) + (limit.op == ">")))
    return min(left, default=None)


def _unknown(kind: type[Limit], parent: RunState) -> Literal["refuse", "ignore"]:
    """What is done about an answer of which nobody knows what this kind of limit counts."""
    limits = (each for each in parent.policy.limits if isinstance(each, kind) and each.value is not None)
    return "refuse" if any(map(insists, limits)) else "ignore"


def _check(left: int) -> Check:
    return "response" if left else "preflight"


def _hash(text: str) -> str:
    return hashlib.sha256(f"child|{text}".encode()).hexdigest()
