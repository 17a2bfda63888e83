"""Limits at work: which are looked at where, and how each ends the run."""

from collections.abc import Callable

from refold.reducers.events import Fact, GuardTripped
from refold.reducers.limits import Limit, TimeLimit, check_of, measure_of, name_of, trips
from refold.reducers.machine import Trigger
from refold.reducers.rules.ending import asked_to_stop, move, refuse_open
from refold.reducers.rules.flow import Check, Flow
from refold.reducers.state import RunState
from refold.reducers.usage import hit, used
from refold.reducers.vocabulary import Verdict

VERSION = 1


def time_limits(state: RunState, fact: Fact) -> Flow | None:
    """P2, and whenever the clock was read: a time limit that trips lets the run settle, then end TIMED_OUT."""
    if state.stopping is None:
        for limit in state.policy.limits:
            if isinstance(limit, TimeLimit) and trips(limit, used(limit, state)):
                return _timed_out(state, fact, limit)
    return asked_to_stop(state, fact)


def _timed_out(state: RunState, fact: Fact, limit: TimeLimit) -> Flow:
    state = yield _tripped(limit, state)
    stopped = asked_to_stop(state, fact)
    return state if stopped is None else (yield from stopped)


def limited(concerns: Callable[[Limit], bool], trigger: Trigger, code: str) -> Check:
    """A check of the limits that `concerns` picks, in the policy's order. The first that trips ends the run."""

    def check(state: RunState, fact: Fact) -> Flow | None:
        for limit in state.policy.limits:
            if concerns(limit) and trips(limit, used(limit, state)):
                return _ended(state, limit, trigger, code)
        return None

    return check


def _ended(state: RunState, limit: Limit, trigger: Trigger, code: str) -> Flow:
    state = yield _tripped(limit, state, code)
    state = yield from refuse_open(state, _guard(limit), "refused:limit", VERSION)
    return (yield move(state, trigger, code, _sentence(state)))


def at(kind: type[Limit], check: str, measure: str = "usage") -> Callable[[Limit], bool]:
    """Picks the limits of one type that are looked at in one place, of tokens those of one measure."""

    def concerns(limit: Limit) -> bool:
        return type(limit) is kind and check_of(limit) == check and measure_of(limit) == measure

    return concerns


def _tripped(limit: Limit, state: RunState, code: str = "time_limit") -> GuardTripped:
    return GuardTripped(
        guard=_guard(limit), version=VERSION, verdict=Verdict.STOP, code=code, limit=hit(limit, state)
    )


def _guard(limit: Limit) -> str:
    return f"limit:{name_of(limit)}"


def _sentence(state: RunState) -> str:
    found = state.limit
    assert found is not None
    return (
        f"limit {found.name!r} was reached: {found.used} {found.unit} used, and {found.op} {found.value} ends"
    )
