"""Ways to end a run, and what becomes of the calls that are still open then."""

from typing import Any

from refold.reducers.checkpoint import encoded
from refold.reducers.codec import digest
from refold.reducers.events import CallRefused, Fact, MessageInjected, Said, StateChanged
from refold.reducers.limits import StepLimit, trips
from refold.reducers.machine import Trigger, target
from refold.reducers.measure import measured
from refold.reducers.messages import Message
from refold.reducers.policy import text_of
from refold.reducers.rules.flow import Flow, in_flight
from refold.reducers.state import RunState, Stopping
from refold.reducers.texts import render
from refold.reducers.usage import used
from refold.reducers.vocabulary import Refusal, Role


def move(state: RunState, trigger: Trigger, code: str, reason: str, where: str | None = None) -> StateChanged:
    """The decision that the machine moves. Raises `IllegalMove` if it cannot."""
    return StateChanged(
        source=state.agent_state,
        target=target(state.agent_state, trigger, state.came_from),
        trigger=trigger,
        code=code,
        reason=reason,
        where=where,
    )


def asked_to_stop(state: RunState, fact: Fact) -> Flow | None:
    """First in every phase: a run that is to stop ends once nothing is in flight; open calls are refused."""
    if state.stopping is None or state.request is not None or in_flight(state):
        return None
    return _stopped(state, state.stopping)


def _stopped(state: RunState, stopping: Stopping) -> Flow:
    state = yield from refuse_open(state, stopping.code, "refused:stopped")
    return (yield move(state, stopping.trigger, stopping.code, stopping.reason, stopping.where))


def refuse_open(state: RunState, guard: str, text: str, version: int = 1) -> Flow:
    """Refuse every call that was not started: each call has one result, whatever happens."""
    for call in state.batch.calls if state.batch else ():
        if call.result is None and not call.dispatched:
            state = yield refused(state, call.id, guard, text, version=version)
    return state


def refused(state: RunState, call: str, guard: str, text: str, *, version: int = 1) -> CallRefused:
    """The decision to skip a call, with what the model is told instead of a result."""
    said = _said(state, Role.TOOL, text, {})
    return CallRefused(call=call, why=Refusal.SKIPPED, guard=guard, version=version, text=text, **said)


def injected(
    state: RunState, text: str, cause: str, values: dict[str, str | int] | None = None, role: Role = Role.USER
) -> MessageInjected:
    """The decision to say something to the model, kept in the window."""
    said = _said(state, role, text, values or {})
    return MessageInjected(role=role, text=text, values=values or {}, cause=cause, **said)


def _said(state: RunState, role: Role, text: str, values: dict[str, str | int]) -> dict[str, Any]:
    rendered = render(text_of(state.policy, text), values)
    chars, tokens = measured(state.policy.estimator, Message(role=role, text=rendered))
    content = Said(texts=(rendered,))
    return {"chars": chars, "tokens": tokens, "digest": digest(b"", encoded(content)), "content": content}


def may_inject(state: RunState) -> bool:
    """Whether somebody will read it: once the step limit is reached no request follows, and nothing is injected."""
    limits = (limit for limit in state.policy.limits if isinstance(limit, StepLimit))
    return not any(trips(limit, used(limit, state)) for limit in limits)
