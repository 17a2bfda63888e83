"""Meters: how much of each limit a run has used, and what is left for its children.

All of it is computed from the parent's state and the call, so a repeated call gets the same child.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Literal

from msgspec.structs import replace

from refold.reducers.limits import (
    Check,
    CostLimit,
    Limit,
    LimitHit,
    MessageLimit,
    Scope,
    StepLimit,
    TimeLimit,
    TokenLimit,
    check_of,
    measure_of,
    name_of,
    needs,
    refuses_unknown,
    threshold,
    trip_value,
    type_of,
)
from refold.reducers.pending import doubted
from refold.reducers.policy import Policy
from refold.reducers.state import RunState, Spent
from refold.reducers.vocabulary import NANO, Cause

Meter = Callable[[RunState], int]
"""What a limit counts, in its unit: steps, nanoseconds, messages, tokens or nano-dollars."""

_SINCE: Mapping[Scope, Callable[[RunState], Spent]] = MappingProxyType(
    {
        "turn": attrgetter("turn.spent"),
        "run": attrgetter("origin.spent"),
        "lineage": attrgetter("lineage.spent"),
    }
)


def used(limit: Limit, state: RunState) -> int:
    """Return what the limit counts, in its unit: see `meter`."""
    return meter(limit)(state)


def meter(limit: Limit) -> Meter:
    """Return the function that computes from a state what the limit counts."""
    since = _SINCE[limit.scope]
    match limit:
        case StepLimit(free_tools=()):
            return lambda state: state.spent.steps - since(state).steps
        case StepLimit():
            name = name_of(limit)
            return lambda state: (
                state.spent.steps - since(state).steps - state.count(Cause.FREE, limit.scope, name)
            )
        case TimeLimit():
            return partial(elapsed, limit)
        case MessageLimit():
            return attrgetter("window.count")
        case TokenLimit(measure="estimate"):
            return attrgetter("window.tokens")
        case TokenLimit():
            return lambda state: _both(state.spent) - _both(since(state))
        case CostLimit():
            return lambda state: state.spent.cost_nanousd - since(state).cost_nanousd


def lacking(limit: Limit, state: RunState) -> int:
    """Return the number of responses without the figure that this limit counts; use may be higher."""
    what = needs(limit)
    return 0 if what is None else state.count(Cause.UNKNOWN, limit.scope, what)


def _both(spent: Spent) -> int:
    return spent.usage.input + spent.usage.output


def elapsed(limit: TimeLimit, state: RunState) -> int:
    """Return nanoseconds since the scope began, or its first response, less credited time; at least 0."""
    since = _since(limit, state)
    return 0 if since is None else max(0, state.fact_at - since)


def deadline(state: RunState) -> int | None:
    """Return the first instant at which a time limit trips; None if none can without another fact."""
    instants = _instants(state)
    return min(instants)[0] if instants else None


def call_deadline(state: RunState, promised: int | None = None) -> int | None:
    """Return the deadline of a model call or batch: the time left, at least `call_timeout.min`.

    `promised` is the deadline given to the first attempt, or to the batch's first call. It is not extended.
    """
    instants = _instants(state)
    if not instants:
        return None
    # A limit with `>` trips one nanosecond late, which does not belong to the time left.
    instant, strict = min(instants)
    timeout = state.policy.call_timeout
    left = instant - state.at
    if timeout.whole_seconds:
        left = (left - strict) // NANO * NANO
    if promised is not None and promised >= state.at:
        return max(state.at + left, promised)
    return state.at + max(left, timeout.nanoseconds)


def promised(state: RunState) -> int:
    """Return until when the work in flight, or being retried, may take although a limit trips earlier.

    It has its minimum. Work begun again after a crash, or after an operator confirmed that it did not run,
    gets as long as before, but no such minimum.
    """
    if state.spent.downtime != state.step.spent.downtime or doubted(state):
        return 0
    asked = state.request or (state.failure.asked if state.failure else None)
    waiting = asked or state.batch
    return (waiting.until if waiting else None) or 0


def next_deadline(state: RunState) -> int | None:
    """Return when to read the clock: a limit trips then, and no work in flight has a later deadline."""
    instant = deadline(state)
    until = 0 if instant is None else promised(state)
    return instant if instant is None or until <= instant else until + 1


def smallest_time(state: RunState) -> TimeLimit | None:
    """Return the smallest time limit above 0."""
    timed = [limit for limit in state.setup.timed if threshold(limit)]
    return min(timed, key=lambda limit: threshold(limit) or 0, default=None)


def _instants(state: RunState) -> list[tuple[int, bool]]:
    """List when each time limit with a running clock trips, and whether one nanosecond after its value."""
    waiting = state.agent_state.awaits_operator
    found: list[tuple[int, bool]] = []
    for limit in state.setup.timed:
        since = None if waiting and limit.credit.person else _since(limit, state)
        if since is not None:
            found.append((_end(limit, since), limit.op == ">"))
    return found


def hit(limit: Limit, state: RunState) -> LimitHit:
    """Return the limit and its numbers as recorded when it trips."""
    value = threshold(limit)
    assert value is not None
    amount = used(limit, state)
    return LimitHit(
        name=name_of(limit),
        type=type_of(limit),
        measure=measure_of(limit),
        scope=limit.scope,
        check=check_of(limit),
        op=limit.op,
        unit=limit.unit,
        value=value,
        used=amount,
        exceeded_by=amount - value,
        at=state.at,
        step=state.spent.steps,
        agent=state.setup.agent,
    )


def trips_at(limit: TimeLimit, state: RunState) -> int:
    """Return the first instant at which a time limit trips without another fact."""
    since = _since(limit, state)
    # Before the first response it can only trip at once.
    return state.at if since is None else _end(limit, since)


def _end(limit: TimeLimit, since: int) -> int:
    least = trip_value(limit)
    assert least is not None
    return since + least


def _since(limit: TimeLimit, state: RunState) -> int | None:
    """Return the instant from which time counts, shifted by the credit; None before the first response."""
    mark, credit = state.mark(limit.scope), limit.credit
    since = mark.at if limit.clock == "start" else mark.first_response
    if since is None:
        return None
    now, then = state.spent, mark.spent
    if credit.person:
        since += now.person_wait - then.person_wait
        if state.asked_at is not None:
            since += state.fact_at - state.asked_at
    if credit.downtime:
        since += now.downtime - then.downtime
    if credit.retry == "none":
        return since
    return since + _waits(credit.retry, now) - _waits(credit.retry, then)


def _waits(credit: str, spent: Spent) -> int:
    if credit == "planned":
        return spent.planned_wait
    return spent.succeeded_wait if credit == "on_success" else spent.settled_wait


def child_run_id(run: str, call: str) -> str:
    """Return the id of the run that this call starts: 16 hex digits, the same for every attempt."""
    return _hash(f"{run}|{call}")[:16]


def child_seed(seed: int, call: str) -> int:
    """Return the child's seed, 63 bits, derived from the parent's."""
    return int(_hash(f"{seed}|{call}")[:16], 16) >> 1


def open_children(state: RunState) -> tuple[str, ...]:
    """Return the ids of child runs that calls in flight have started or will start."""
    starts = {tool.name for tool in state.setup.tools if tool.agent}
    calls = state.batch.calls if state.batch else ()
    going = (call for call in calls if call.dispatched and call.result is None and call.name in starts)
    return tuple(child_run_id(state.setup.run, call.id) for call in going)


def limit_child_policy(policy: Policy, parent: RunState) -> Policy:
    """Return the child's policy, limited to the parent's remaining time, tokens and money.

    Time is that of the open batch. Of several limits of a kind, the one with least left counts, wherever it
    is checked. If nothing is left, the child ends before its first request. Parallel children may each use
    all that is left; their use counts in the parent when they end.
    """
    limits: list[Limit] = []
    instant = parent.batch.until if parent.batch else None
    if instant is not None:
        limits.append(TimeLimit(name="parent:time", value=max(0, instant - parent.at) / NANO))
    tokens, cost = _remaining(TokenLimit, parent), _remaining(CostLimit, parent)
    if tokens is not None:
        uncounted = _on_unknown(TokenLimit, parent)
        limits.append(
            TokenLimit(name="parent:tokens", value=tokens, check=_check(tokens), uncounted=uncounted)
        )
    if cost is not None:
        unpriced = _on_unknown(CostLimit, parent)
        limits.append(CostLimit(name="parent:cost", value=cost / NANO, check=_check(cost), unpriced=unpriced))
    return replace(policy, limits=(*policy.limits, *limits)) if limits else policy


def _remaining(kind: type[Limit], parent: RunState) -> int | None:
    """Return the least that the parent's limits of this kind have left; None if none is set."""
    left: list[int] = []
    for limit in parent.policy.limits:
        value = threshold(limit)
        if isinstance(limit, kind) and measure_of(limit) == "usage" and value is not None:
            # `>` N trips where `>=` N + 1 does.
            left.append(max(0, value - used(limit, parent) + (limit.op == ">")))
    return min(left, default=None)


def _on_unknown(kind: type[Limit], parent: RunState) -> Literal["refuse", "ignore"]:
    """Return how the parent treats a response without the figure that this kind of limit counts."""
    limits = (each for each in parent.policy.limits if isinstance(each, kind) and each.value is not None)
    return "refuse" if any(map(refuses_unknown, limits)) else "ignore"


def _check(left: int) -> Check:
    return "response" if left else "preflight"


def _hash(text: str) -> str:
    return hashlib.sha256(f"child|{text}".encode()).hexdigest()
