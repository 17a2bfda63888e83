"""Meters: how much of each limit a run has used, and what is left for its children.

All of it follows from the parent's state and the call, so that whoever runs the call again finds the same
child.
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
    insists,
    least_of,
    measure_of,
    name_of,
    needs,
    threshold,
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
    """What the limit counts, in its unit: see `meter`."""
    return meter(limit)(state)


def meter(limit: Limit) -> Meter:
    """How what the limit counts is read off a state."""
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
    """Of how many answers nobody knows what this limit counts: what is used may be more."""
    what = needs(limit)
    return 0 if what is None else state.count(Cause.UNKNOWN, limit.scope, what)


def _both(spent: Spent) -> int:
    return spent.usage.input + spent.usage.output


def elapsed(limit: TimeLimit, state: RunState) -> int:
    """Nanoseconds since the scope began, or its first response, less the time that is not the agent's."""
    since = _since(limit, state)
    return 0 if since is None else max(0, state.fact_at - since)


def deadline(state: RunState) -> int | None:
    """The first instant at which a time limit trips; None if none can while nothing else happens."""
    instants = _instants(state)
    return min(instants)[0] if instants else None


def call_deadline(state: RunState, promised: int | None = None) -> int | None:
    """Until when a model call or a batch may take: the time left, at least `call_timeout.min` from its
    beginning.

    `promised` is what the first attempt, or the batch's first call, was given: it is not given again.
    """
    instants = _instants(state)
    if not instants:
        return None
    # What is left is less by the one nanosecond that a limit with `>` needs to trip.
    instant, strict = min(instants)
    timeout = state.policy.call_timeout
    left = instant - state.at
    if timeout.whole_seconds:
        left = (left - strict) // NANO * NANO
    if promised is not None and promised >= state.at:
        return max(state.at + left, promised)
    return state.at + max(left, timeout.nanoseconds)


def promised(state: RunState) -> int:
    """Until when what is under way, or tried again, may take, though a limit trips before: it has its
    minimum.

    What is begun again after a crash, or once a person said that it did not happen, is given as long as it
    had, and is not held to be promised so.
    """
    if state.spent.downtime != state.step.spent.downtime or doubted(state):
        return 0
    asked = state.request or (state.failure.asked if state.failure else None)
    waiting = asked or state.batch
    return (waiting.until if waiting else None) or 0


def next_deadline(state: RunState) -> int | None:
    """When the clock is to be read: a limit trips then, and nothing that was promised more time is under
    way.
    """
    instant = deadline(state)
    until = 0 if instant is None else promised(state)
    return instant if instant is None or until <= instant else until + 1


def smallest_time(state: RunState) -> TimeLimit | None:
    """The smallest time limit above 0."""
    timed = [limit for limit in state.setup.timed if threshold(limit)]
    return min(timed, key=lambda limit: threshold(limit) or 0, default=None)


def _instants(state: RunState) -> list[tuple[int, bool]]:
    """When each time limit trips whose clock does not stand, and whether one nanosecond later than its value
    says.
    """
    asked = state.agent_state.awaits_operator
    found: list[tuple[int, bool]] = []
    for limit in state.setup.timed:
        since = None if asked and limit.credit.person else _since(limit, state)
        if since is not None:
            found.append((_end(limit, since), limit.op == ">"))
    return found


def hit(limit: Limit, state: RunState) -> LimitHit:
    """The limit and its numbers, as they are recorded when it trips."""
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
    """The first instant at which a time limit trips, if nothing else happens."""
    since = _since(limit, state)
    # Before its first response it trips at once, if it does at all.
    return state.at if since is None else _end(limit, since)


def _end(limit: TimeLimit, since: int) -> int:
    least = least_of(limit)
    assert least is not None
    return since + least


def _since(limit: TimeLimit, state: RunState) -> int | None:
    """The instant from which its time counts, moved on by what is not the agent's; None before its first
    response.
    """
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
    """The id of the run that this call of `run` starts: 16 hex digits, the same for every attempt at the
    call.
    """
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

    Time is that of the open batch. Of several limits of a kind the one counts that has least left, wherever
    it is checked. Where nothing is left, the child ends before its first request. Children that run side by
    side have all that is left each: what they spend counts in the parent when they end.
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
