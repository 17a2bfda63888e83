"""What an event means: state and event to state. Never consults the policy's rules.

An event that the state has no place for raises
`UnexpectedEvent`: a fact that nothing asked for, a decision after the end, a second result of a call.
"""

from msgspec.structs import replace

from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import (
    Annotation,
    Event,
    Fact,
    PolicyAmended,
    RunForked,
    RunStarted,
    kind_of,
)
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import shown, watches
from refold.reducers.machine import TERMINAL
from refold.reducers.meanings import MEANINGS
from refold.reducers.state import RunState

_OPENINGS: frozenset[type[Event]] = frozenset({RunStarted, RunForked})
_PUTS_ON_DUTY: frozenset[type[Event]] = _OPENINGS | {PolicyAmended}


def evolve(state: RunState, event: Event, registry: Registry = BUILTIN) -> RunState:
    """The state after `event`. Pure; `registry` names the guards that can be put on duty.

    Raises `UnexpectedEvent` or `IllegalMove` for an event that cannot stand here. An annotation moves the
    place in the log (`seq`, `at`) and nothing else.
    """
    kind = type(event)
    meaning = MEANINGS.get(kind)
    if state.seq == 0 and kind not in _OPENINGS:
        raise UnexpectedEvent(kind_of(event), "a log begins with run_started or run_forked")
    if meaning is None:
        return _annotated(state, event)
    if state.agent_state in TERMINAL:
        raise UnexpectedEvent(kind_of(event), f"the run has ended ({state.agent_state})")
    at = event.at if isinstance(event, Fact) else state.at
    if at < state.at:
        raise UnexpectedEvent(kind_of(event), f"its time is {state.at - at} ns before the last event's")
    after = meaning(replace(state, seq=state.seq + 1, at=at, fact_at=at), event)
    if kind in _PUTS_ON_DUTY:
        versions: dict[str, int] = getattr(event, "guards", {})
        after = replace(after, guards=watches(after.policy, registry, after.guards, versions))
    guards = after.guards
    seen = shown(guards, event) if guards else guards
    return after if seen is guards else replace(after, guards=seen)


def _annotated(state: RunState, event: Event) -> RunState:
    assert isinstance(event, Annotation)
    return replace(state, seq=state.seq + 1, at=max(state.at, event.at))
