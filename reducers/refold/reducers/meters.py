"""How much of each limit a run has used, and when its time runs out."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from types import MappingProxyType

from refold.reducers.doubts import doubted
from refold.reducers.limits import (
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
    threshold,
    type_of,
)
from refold.reducers.machine import AgentState
from refold.reducers.numbers import NANO
from refold.reducers.state import Mark, RunState, Spent
from refold.reducers.vocabulary import Cause

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


def _both(spent: Spent) -> int:
    return spent.usage.input + spent.usage.output


def elapsed(limit: TimeLimit, state: RunState) -> int:
    """Nanoseconds since the scope began, or its first response, less the time that is not the agent's."""
    mark = state.mark(limit.scope)
    start = _start(limit, mark)
    return 0 if start is None else max(0, state.fact_at - start - _credited(limit, state, mark))


def deadline(state: RunState) -> int | None:
    """The first instant at which a time limit trips; None if none can while nothing else happens."""
    running = _running(state)
    return min([trips_at(limit, state) for limit in running]) if running else None


def call_deadline(state: RunState, promised: int | None = None) -> int | None:
    """Until when a model call or a batch may take: the time left, at least `call_timeout.min` from its beginning.

    `promised` is what the first attempt, or the batch's first call, was given: it is not given again.
    """
    instants = [(trips_at(limit, state), limit.op == ">") for limit in _running(state)]
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
    """Until when what is under way, or tried again, may take, though a limit trips before: it has its minimum.

    What is begun again after a crash, or once a person said that it did not happen, is given as long as it had, and is
    not held to be promised so.
    """
    if state.spent.downtime != state.step.spent.downtime or doubted(state):
        return 0
    asked = state.request or (state.failure.asked if state.failure else None)
    waiting = asked or state.batch
    return (waiting.until if waiting else None) or 0


def next_deadline(state: RunState) -> int | None:
    """When the clock is to be read: a limit trips then, and nothing that was promised more time is under way."""
    instant = deadline(state)
    until = 0 if instant is None else promised(state)
    return instant if instant is None or until <= instant else until + 1


def smallest_time(state: RunState) -> TimeLimit | None:
    """The smallest time limit above 0."""
    timed = [limit for limit in state.setup.timed if threshold(limit)]
    return min(timed, key=lambda limit: threshold(limit) or 0, default=None)


def _running(state: RunState) -> Sequence[TimeLimit]:
    timed = state.setup.timed
    return [limit for limit in timed if not _clock_stands(limit, state)] if timed else ()


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
    mark = state.mark(limit.scope)
    value = threshold(limit)
    assert value is not None
    start = _start(limit, mark)
    if start is None:
        return state.at  # before its first response it trips at once, if it does at all
    return start + _credited(limit, state, mark) + value + (limit.op == ">")


def _start(limit: TimeLimit, mark: Mark) -> int | None:
    return mark.at if limit.clock == "start" else mark.first_response


def _credited(limit: TimeLimit, state: RunState, mark: Mark) -> int:
    now, then = state.spent, mark.spent
    waiting = state.fact_at - state.asked_at if state.asked_at is not None else 0
    person = now.person_wait + waiting - then.person_wait if limit.credit.person else 0
    down = now.downtime - then.downtime if limit.credit.downtime else 0
    return person + down + _waits(limit.credit.retry, now) - _waits(limit.credit.retry, then)


def _waits(credit: str, spent: Spent) -> int:
    if credit == "none":
        return 0
    if credit == "planned":
        return spent.planned_wait
    return spent.succeeded_wait if credit == "on_success" else spent.settled_wait


def _clock_stands(limit: TimeLimit, state: RunState) -> bool:
    if limit.clock == "first_response" and state.mark(limit.scope).first_response is None:
        return True
    return limit.credit.person and state.agent_state is AgentState.WAITING_FOR_INPUT
