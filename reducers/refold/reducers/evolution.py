"""Evolution: how an event changes a state, the setup that a run started with, and digests of a state.

An event that does not fit the state raises `UnexpectedEvent`: a fact that nothing waits for, a decision after
the end, a second result of a call.

The setup determines the run's limits, so it is read from the log each time, never from a cache.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.errors import NewerLog, UnexpectedEvent
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import shown, watches
from refold.reducers.meanings import MEANINGS
from refold.reducers.meanings.facts import amended_setup, forked_setup, started_setup
from refold.reducers.state import NEW, Mark, RunState, Setup, Spent, Watch
from refold.reducers.window import digest_references

_OPENINGS: frozenset[type[ev.Event]] = frozenset({ev.RunStarted, ev.RunForked})
_SETS_GUARDS: frozenset[type[ev.Event]] = _OPENINGS | {ev.PolicyAmended}


def evolve(state: RunState, event: ev.Event, registry: Registry = BUILTIN) -> RunState:
    """Return the state after `event`. Pure.

    An annotation changes only `seq` and `at`. Guards may also observe records of an imported run's source,
    which can state the permission mode.

    Args:
        state: The state before the event.
        event: The next event of the log.
        registry: The installed guards.

    Raises:
        UnexpectedEvent: The event does not fit the state.
        IllegalMove: The machine has no such move.
    """
    kind = type(event)
    meaning = MEANINGS.get(kind)
    if state.seq == 0 and kind not in _OPENINGS:
        raise UnexpectedEvent(ev.kind_of(event), "a log begins with run_started or run_forked")
    if meaning is None:
        return _add_annotation(state, event)
    if state.agent_state.terminal:
        raise UnexpectedEvent(ev.kind_of(event), f"the run has ended ({state.agent_state})")
    at = event.at if isinstance(event, ev.Fact) else state.at
    if at < state.at:
        raise UnexpectedEvent(ev.kind_of(event), f"its time is {state.at - at} ns before the last event's")
    after = meaning(replace(state, seq=state.seq + 1, at=at, fact_at=at), event)
    if kind in _SETS_GUARDS:
        versions: dict[str, int] = getattr(event, "guards", {})
        after = replace(after, guards=watches(after.policy, registry, after.guards, versions))
    guards = after.guards
    seen = shown(guards, event) if guards else guards
    return after if seen is guards else replace(after, guards=seen)


def _add_annotation(state: RunState, event: ev.Event) -> RunState:
    assert isinstance(event, ev.Annotation)
    guards = state.guards
    if guards and isinstance(event, ev.SourceRecorded):
        guards = shown(guards, event)
    return replace(state, seq=state.seq + 1, at=max(state.at, event.at), guards=guards)


_ENCODER = msgspec.json.Encoder(order="deterministic")


def encode_value(value: Any) -> bytes:
    """Return the JSON text of a state or a part of it: equal values give equal bytes in every process."""
    return _ENCODER.encode(value)


def state_digest(state: RunState) -> ev.StateDigested:
    """Return a digest of the state without its guards, and one for each guard.

    A missing guard affects only its own digest.

    Raises:
        NewerLog: The run uses decision rules that this version does not have.
    """
    projection = _PROJECTIONS.get(state.setup.rules)
    if projection is None:
        raise NewerLog(state.setup.run, state.seq, f"decision rules version {state.setup.rules}")
    return ev.StateDigested(
        state=_sha256(projection(state)),
        guards={watch.name: _sha256(watch.own) for watch in state.guards if not watch.blind},
    )


# The fields digested under version 1 of the rules: everything that a later decision may read, by name. A
# digest in a log must not change when a later version adds fields to the state. The setup is not included,
# because the log has it as events. Of the window, totals and digests are included, so the cost does not grow
# with it.
_FIELDS_1 = (
    "seq", "at", "fact_at", "agent_state", "came_from", "messages", "spent", "lineage", "origin", "turn", "step", "model",
    "parts", "failed_at", "overflowed", "eased", "pruned_by", "deferred", "summary", "summed_up", "approval", "observed",
    "request", "batch", "backoff", "asked_at", "stopping", "answer", "failure", "limit", "unattended", "no_request",
)  # fmt: skip
_OF_SPENT_1 = (
    "steps", "requests", "calls", "usage", "cost_nanousd", "unpriced", "retry_wait", "person_wait", "downtime", "tally",
    "planned_wait", "succeeded_wait", "settled_wait",
)  # fmt: skip
_OF_THE_WINDOW_1 = (
    "count", "tokens", "ranges", "digest", "system_pinned", "task_pinned", "estimator", "sum", "whole", "whole_count",
)  # fmt: skip


def _projection_1(state: RunState) -> list[Any]:
    window = [getattr(state.window, name) for name in _OF_THE_WINDOW_1]
    fields = (_fixed_1(getattr(state, name)) for name in _FIELDS_1)
    return [*fields, *window, digest_references(state.window)]


def _fixed_1(value: Any) -> Any:
    """Return what is counted during a run by its fields of version 1: a later version may count more."""
    if isinstance(value, Spent):
        return [getattr(value, name) for name in _OF_SPENT_1]
    return [value.at, _fixed_1(value.spent), value.first_response] if isinstance(value, Mark) else value


_PROJECTIONS: Mapping[int, Callable[[RunState], list[Any]]] = {1: _projection_1}


def _sha256(value: Any) -> str:
    return hashlib.sha256(encode_value(value)).hexdigest()


FOUNDING = frozenset(ev.kind_of(event) for event in (ev.RunStarted, ev.RunForked, ev.PolicyAmended))
"""The kinds of events that change a `Setup`."""


def replay_setup(events: Iterable[ev.Event], registry: Registry = BUILTIN) -> tuple[Setup, tuple[Watch, ...]]:
    """Return the setup after these events of a log, and its guards before they saw any event."""
    setup, guards = NEW.setup, tuple[Watch, ...]()
    for event in events:
        match event:
            case ev.RunStarted():
                setup = started_setup(event)
            case ev.RunForked():
                setup = forked_setup(setup, event)
            case ev.PolicyAmended():
                setup = amended_setup(setup, event)
            case _:
                continue
        guards = watches(setup.policy, registry, guards, event.guards)
    return setup, guards
