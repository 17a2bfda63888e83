"""How much of each limit a run has used, and when its time runs out."""

from refold.reducers.limits import (
    UNITS,
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
    threshold,
    type_of,
)
from refold.reducers.machine import AgentState
from refold.reducers.state import Mark, RunState


def used(limit: Limit, state: RunState) -> int:
    """What the limit counts, in its unit: steps, nanoseconds, messages, tokens or nano-dollars."""
    since = state.mark(limit.scope).spent
    match limit:
        case StepLimit():
            return state.spent.steps - since.steps
        case TimeLimit():
            return elapsed(limit, state)
        case MessageLimit():
            return state.window.count
        case TokenLimit(measure="estimate"):
            return state.window.tokens
        case TokenLimit():
            now, then = state.spent.usage, since.usage
            return now.input + now.output - then.input - then.output
        case CostLimit():
            return state.spent.cost_nanousd - since.cost_nanousd


def elapsed(limit: TimeLimit, state: RunState) -> int:
    """Nanoseconds since the scope began, less the time that is not the agent's."""
    mark = state.mark(limit.scope)
    return state.at - mark.at - _credited(limit, state, mark)


def deadline(state: RunState) -> int | None:
    """The first instant at which a time limit trips; None if none can while nothing else happens."""
    instants = [
        _trips_at(limit, state)
        for limit in state.policy.limits
        if isinstance(limit, TimeLimit) and limit.value is not None and not _clock_stands(limit, state)
    ]
    return min(instants, default=None)


def call_deadline(state: RunState) -> int | None:
    """Until when a model call or a batch started now may take: the time left, at least `call_timeout.min`."""
    instant = deadline(state)
    return None if instant is None else max(instant, state.at + state.policy.call_timeout.nanoseconds)


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
        unit=UNITS[type(limit)],
        value=value,
        used=amount,
        exceeded_by=amount - value,
        at=state.at,
        step=state.spent.steps,
        agent=state.setup.agent,
    )


def _trips_at(limit: TimeLimit, state: RunState) -> int:
    mark = state.mark(limit.scope)
    value = threshold(limit)
    assert value is not None
    return mark.at + _credited(limit, state, mark) + value + (limit.op == ">")


def _credited(limit: TimeLimit, state: RunState, mark: Mark) -> int:
    now, then = state.spent, mark.spent
    waiting = state.at - state.asked_at if state.asked_at is not None else 0
    person = now.person_wait + waiting - then.person_wait if limit.credit.person else 0
    down = now.downtime - then.downtime if limit.credit.downtime else 0
    return person + down


def _clock_stands(limit: TimeLimit, state: RunState) -> bool:
    return limit.credit.person and state.agent_state is AgentState.WAITING_FOR_INPUT
