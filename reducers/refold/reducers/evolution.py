"""Evolution: what an event does to a state, what a run was started with, and digests of a state.

An event that the state has no place for raises
`UnexpectedEvent`: a fact that nothing asked for, a decision after the end, a second result of a call.

It decides what limits a run, so it is read from the log each time, and never from a cache beside it.
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
from refold.reducers.state import NEW, RunState, Setup, Watch
from refold.reducers.window import bound

_OPENINGS: frozenset[type[ev.Event]] = frozenset({ev.RunStarted, ev.RunForked})
_PUTS_ON_DUTY: frozenset[type[ev.Event]] = _OPENINGS | {ev.PolicyAmended}


def evolve(state: RunState, event: ev.Event, registry: Registry = BUILTIN) -> RunState:
    """The state after `event`. Pure; `registry` names the guards that can be put on duty.

    Raises `UnexpectedEvent` or `IllegalMove` for an event that cannot stand here. An annotation moves the
    place in the log (`seq`, `at`) and nothing else.
    """
    kind = type(event)
    meaning = MEANINGS.get(kind)
    if state.seq == 0 and kind not in _OPENINGS:
        raise UnexpectedEvent(ev.kind_of(event), "a log begins with run_started or run_forked")
    if meaning is None:
        return _annotated(state, event)
    if state.agent_state.terminal:
        raise UnexpectedEvent(ev.kind_of(event), f"the run has ended ({state.agent_state})")
    at = event.at if isinstance(event, ev.Fact) else state.at
    if at < state.at:
        raise UnexpectedEvent(ev.kind_of(event), f"its time is {state.at - at} ns before the last event's")
    after = meaning(replace(state, seq=state.seq + 1, at=at, fact_at=at), event)
    if kind in _PUTS_ON_DUTY:
        versions: dict[str, int] = getattr(event, "guards", {})
        after = replace(after, guards=watches(after.policy, registry, after.guards, versions))
    guards = after.guards
    seen = shown(guards, event) if guards else guards
    return after if seen is guards else replace(after, guards=seen)


def _annotated(state: RunState, event: ev.Event) -> RunState:
    assert isinstance(event, ev.Annotation)
    return replace(state, seq=state.seq + 1, at=max(state.at, event.at))


_ENCODER = msgspec.json.Encoder(order="deterministic")


def encode_value(value: Any) -> bytes:
    """The one JSON text of a state or a part of it: equal values, equal bytes, in every process."""
    return _ENCODER.encode(value)


def state_digest(state: RunState) -> ev.StateDigested:
    """A digest of the state without its guards, and one for each guard: a missing guard spoils only its own.

    Raises `NewerLog` for a run under rules that this version does not have.
    """
    projection = _PROJECTIONS.get(state.setup.rules)
    if projection is None:
        raise NewerLog(state.setup.run, state.seq, f"decision rules version {state.setup.rules}")
    return ev.StateDigested(
        state=_sha256(projection(state)),
        guards={watch.name: _sha256(watch.own) for watch in state.guards if not watch.blind},
    )


# What is digested under version 1 of the rules: whatever a later decision may read, named one by one. The
# digests in a log are for ever: a field that a later version adds to the state must not change what an old
# log digests to. What the run was started with is not in it: it stands in the log as it is. Of the window
# there are totals and digests, so that the cost does not grow with it.
_FIELDS_1 = (
    "seq", "at", "fact_at", "agent_state", "came_from", "messages", "spent", "lineage", "origin", "turn", "step", "model",
    "parts", "failed_at", "overflowed", "eased", "pruned_by", "deferred", "summary", "summed_up", "approval", "observed",
    "request", "batch", "backoff", "asked_at", "stopping", "answer", "failure", "limit", "unattended", "unasked",
)  # fmt: skip
_OF_THE_WINDOW_1 = (
    "count", "tokens", "ranges", "digest", "system_pinned", "task_pinned", "estimator", "sum", "whole", "whole_count",
)  # fmt: skip


def _projection_1(state: RunState) -> list[Any]:
    window = [getattr(state.window, name) for name in _OF_THE_WINDOW_1]
    return [*(getattr(state, name) for name in _FIELDS_1), *window, bound(state.window)]


_PROJECTIONS: Mapping[int, Callable[[RunState], list[Any]]] = {1: _projection_1}


def _sha256(value: Any) -> str:
    return hashlib.sha256(encode_value(value)).hexdigest()


FOUNDING = frozenset(ev.kind_of(event) for event in (ev.RunStarted, ev.RunForked, ev.PolicyAmended))
"""The kinds of these events: nothing else changes a `Setup`."""


def founded(events: Iterable[ev.Event], registry: Registry = BUILTIN) -> tuple[Setup, tuple[Watch, ...]]:
    """The setup after these events of a log, in order, and its guards as they would be before they saw
    anything.
    """
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
