"""Digests of a state, so that two logs are compared by bisection and pieces of one side by side."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from refold.reducers.errors import NewerLog
from refold.reducers.events import Manifest, StateDigested
from refold.reducers.state import RunState

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
    """What is digested under version 1 of the rules: named one by one, for the digests in old logs are for ever.

    A field that a later version adds to the state must not change what an old log digests to. The policy is not
    in it: it stands in the log as it is. The window stands in it by its own digest and totals, so that the cost
    does not grow with the window.
    """
    spent, usage, window = state.spent, state.spent.usage, state.window
    request, batch, backoff, stopping = state.request, state.batch, state.backoff, state.stopping
    answer, failure = state.answer, state.failure
    return {
        "place": (state.seq, state.at, state.agent_state, state.came_from, state.asked_at),
        "window": (window.count, window.tokens, window.ranges, window.digest, state.messages),
        "counts": (spent.steps, spent.requests, spent.calls, spent.cost_nanousd, spent.unpriced),
        "usage": (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning),
        "waits": (spent.retry_wait, spent.person_wait, spent.downtime),
        "request": request and (request.seq, request.step, request.attempt, request.deadline),
        "batch": batch
        and [
            (call.id, call.name, call.dispatched, call.in_doubt, call.result is None) for call in batch.calls
        ],
        "backoff": backoff and (backoff.until, backoff.attempt, backoff.passed),
        "stopping": stopping and (stopping.trigger, stopping.code),
        "answer": answer and (answer.seq, answer.step, answer.stop, answer.calls),
        "failure": failure and (failure.seq, failure.attempt, failure.failure),
    }


def _projection_2(state: RunState) -> dict[str, Any]:
    """Under version 2, what its rules remember besides."""
    spent, summary, approval, request = state.spent, state.summary, state.approval, state.request
    return {
        **_projection_1(state),
        "tally": spent.tally,
        "credit": (spent.planned_wait, spent.succeeded_wait, spent.settled_wait, state.failed_at),
        "asked": request and (request.purpose, request.model, request.tools, request.texts),
        "summary": summary and (summary.seq, summary.name, summary.messages),
        "approval": approval and (approval.seq, approval.calls, approval.deadline),
        "edited": state.batch and [(call.edited, call.hidden) for call in state.batch.calls],
        "course": (state.parts, state.overflowed, state.pruned_by, state.deferred and state.deferred.name),
        "limit": state.limit and state.limit.name,
    }


def _projection_3(state: RunState) -> dict[str, Any]:
    """Under version 3, whatever a later decision may read; values as they are, for their defaults are left out."""
    batch = state.batch
    marks = (state.lineage, state.origin, state.turn, state.step)
    calls = batch and [
        (call.doubt, call.reconciled, call.error, call.refused, call.rejected, call.complete)
        for call in batch.calls
    ]
    return {
        **_projection_2(state),
        "calls": batch and (batch.deadline, calls),
        "marks": [(mark.at, mark.first_response, mark.spent) for mark in marks],
        "pending": (state.request, state.summary, state.approval, state.backoff, state.stopping),
        "last": (state.answer, state.failure, state.deferred),
        "pinned": (state.window.system_pinned, state.window.task_pinned),
        "others": (state.model, state.eased, state.unattended),
        # Of imported runs only: no log that was written before there were any digests otherwise.
        **({} if state.observed is None else {"observed": state.observed}),
        **({"unasked": True} if state.unasked else {}),
    }


_PROJECTIONS: Mapping[int, Callable[[RunState], dict[str, Any]]] = {
    1: _projection_1,
    2: _projection_2,
    3: _projection_3,
}


def offer_digest(model: str, settings: dict[str, str], tools: tuple[Manifest, ...]) -> str:
    """Hex SHA-256 of what stands beside the messages of a request: the model, its settings, the tools."""
    return _sha256((model, settings, tools))


def _sha256(value: Any) -> str:
    return hashlib.sha256(encoded(value)).hexdigest()
