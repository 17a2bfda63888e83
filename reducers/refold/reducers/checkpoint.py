"""Digests of a state, so that two logs are compared by bisection and pieces of one side by side."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from refold.reducers.errors import NewerLog
from refold.reducers.events import StateDigested
from refold.reducers.state import RunState
from refold.reducers.window import bound

_ENCODER = msgspec.json.Encoder(order="deterministic")


def encoded(value: Any) -> bytes:
    """The one JSON text of a state or a part of it: equal values, equal bytes, in every process."""
    return _ENCODER.encode(value)


def state_digest(state: RunState) -> StateDigested:
    """A digest of the state without its guards, and one for each guard: a missing guard spoils only its own.

    Raises `NewerLog` for a run under rules that this version does not have.
    """
    projection = _PROJECTIONS.get(state.setup.rules)
    if projection is None:
        raise NewerLog(state.setup.run, state.seq, f"decision rules version {state.setup.rules}")
    return StateDigested(
        state=_sha256(projection(state)),
        guards={watch.name: _sha256(watch.own) for watch in state.guards if not watch.blind},
    )


def _projection_1(state: RunState) -> dict[str, Any]:
    """What is digested under version 1 of the rules: whatever a later decision may read, named one by one.

    The digests in a log are for ever: a field that a later version adds to the state must not change what an old log
    digests to. The policy is not in it: it stands in the log as it is. The window stands in it by its totals and
    digests, so that the cost does not grow with the window.
    """
    window = state.window
    return {
        "place": (state.seq, state.at, state.fact_at, state.agent_state, state.came_from, state.asked_at),
        "window": (window.count, window.tokens, window.ranges, window.digest, bound(window), state.messages),
        "whole": (window.sum, window.whole, window.whole_count, window.estimator),
        "pinned": (window.system_pinned, window.task_pinned),
        "spent": (state.spent, state.failed_at),
        "marks": (state.lineage, state.origin, state.turn, state.step),
        "pending": (
            state.request,
            state.summary,
            state.summed_up,
            state.approval,
            state.backoff,
            state.stopping,
        ),
        "batch": state.batch,
        "last": (state.answer, state.failure, state.deferred, state.limit),
        "course": (
            state.model,
            state.parts,
            state.overflowed,
            state.eased,
            state.pruned_by,
            state.unattended,
        ),
        "source": (state.observed, state.unasked),
    }


_PROJECTIONS: Mapping[int, Callable[[RunState], dict[str, Any]]] = {1: _projection_1}


def _sha256(value: Any) -> str:
    return hashlib.sha256(encoded(value)).hexdigest()
