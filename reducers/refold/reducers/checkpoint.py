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


# What is digested under version 1 of the rules: whatever a later decision may read, named one by one. The digests in a log are
# for ever: a field that a later version adds to the state must not change what an old log digests to. What the run was started
# with is not in it: it stands in the log as it is. Of the window there are totals and digests, so that the cost does not grow with it.
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
    return hashlib.sha256(encoded(value)).hexdigest()
