"""Two runs in one state: as long as both policies decide the same, each fact is derived once for both.

The state follows from the events, so two runs with the same events differ only in their policies and guards.
A few keys of a policy are read outside the rules: time limits, because they set deadlines, the limits that a
call's child run would get, and what becomes of unknown outcomes. Runs under policies that differ in these are
derived apart.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.errors import RefoldError
from refold.reducers.estimate import MissingTokenizer
from refold.reducers.folds import advance
from refold.reducers.guards import Registry
from refold.reducers.guards.duty import FAILED
from refold.reducers.limits import TimeLimit
from refold.reducers.policy import Policy
from refold.reducers.state import RunState, Watch

FOUNDING = (ev.RunStarted, ev.RunForked, ev.PolicyAmended)
"""Facts that set a policy. Both runs take them apart."""


def is_alike(recorded: RunState, derived: RunState) -> bool:
    """Return whether two runs have the same state, and go on the same while they decide the same."""
    one, other = recorded.setup, derived.setup
    setup = replace(one, policy=other.policy, guards=other.guards, environment=other.environment)
    starts_runs = any(tool.agent for tool in other.tools)
    return (
        _is_read_alike(one.policy, other.policy)
        and (not starts_runs or one.policy.limits == other.policy.limits)
        and setup == other
        and not _are_blind(derived.guards)
        and replace(recorded, setup=other, guards=derived.guards) == derived
    )


def _is_read_alike(one: Policy, other: Policy) -> bool:
    """Return whether the keys are equal that are read outside the rules."""
    names = ("call_timeout", "fallback", "doubt", "estimator", "token_caps")
    return _timed(one) == _timed(other) and all(getattr(one, name) == getattr(other, name) for name in names)


def _timed(policy: Policy) -> list[TimeLimit]:
    return [limit for limit in policy.limits if isinstance(limit, TimeLimit)]


def _are_blind(guards: Sequence[Watch]) -> bool:
    """Return whether the verdicts of a guard are unknown."""
    return any(watch.blind not in ("", FAILED) for watch in guards)


def decide_alike(
    state: RunState, fact: ev.Fact, group: Sequence[ev.Decision], registry: Registry
) -> tuple[RunState, Sequence[ev.Event]] | None:
    """Return the state after a fact, and the fact with its decisions, if they are these; else None."""
    try:
        after, events = advance(state, fact, registry)
    except MissingTokenizer:
        raise
    except RefoldError:
        return None
    if events[0] is not fact or len(events) != len(group) + 1:
        return None
    if not all(map(_is_same, events[1:], group)):
        return None
    return None if _are_blind(after.guards) else (after, events)


def _is_same(derived: ev.Event, recorded: ev.Decision) -> bool:
    """Return whether two decisions are the same, apart from digests.

    The digest of a request includes tools that the source does not list, and a state's digest that one.
    """
    if derived == recorded:
        return True
    if isinstance(derived, ev.ModelRequested) and isinstance(recorded, ev.ModelRequested):
        return replace(derived, view=recorded.view) == recorded
    return isinstance(derived, ev.StateDigested) and isinstance(recorded, ev.StateDigested)
