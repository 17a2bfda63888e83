"""Ways to end a run, what becomes of the calls that are still open then, and how the harness says something."""

from typing import Any, Literal

from refold.reducers.codec import digest_of
from refold.reducers.events import (
    CallRefused,
    MessageInjected,
    Said,
    StateChanged,
)
from refold.reducers.limits import ENDS, StepLimit, trips
from refold.reducers.machine import Trigger, target
from refold.reducers.measure import measured
from refold.reducers.messages import Size
from refold.reducers.meters import used
from refold.reducers.policy import text_of
from refold.reducers.rules.flow import Flow, busy
from refold.reducers.state import RunState, Stopping
from refold.reducers.texts import render
from refold.reducers.vocabulary import Cause, Refusal, Role

Values = dict[str, str | int]


def move(
    state: RunState,
    trigger: Trigger,
    code: str,
    reason: str,
    where: str | None = None,
    outcome: Literal["", "grace", "fallback"] = "",
) -> StateChanged:
    """The decision that the machine moves. Raises `IllegalMove` if it cannot."""
    return StateChanged(
        source=state.agent_state,
        target=target(state.agent_state, trigger, state.came_from),
        trigger=trigger,
        code=code,
        reason=reason,
        where=where,
        outcome=outcome or ("fallback" if _leaves_nothing(state, trigger) else ""),
    )


def _leaves_nothing(state: RunState, trigger: Trigger) -> bool:
    # What a model says beside its calls is no answer, once they have run.
    if state.policy.fallback is None or all(trigger is not end for end, _ in ENDS.values()):
        return False
    answer = state.answer
    return not state.parts and (answer is None or answer.blank or answer.ran)


def asked_to_stop(flow: Flow) -> bool:
    """First in every phase: a run that is to stop ends once nothing is in flight; open calls are refused."""
    stopping = flow.state.stopping
    if stopping is None or busy(flow.state):
        return False
    stopped_by(flow, stopping)
    return True


def stopped_by(flow: Flow, stopping: Stopping) -> None:
    """Refuse what was not started, and end as `stopping` says."""
    refuse_open(flow, "refused:stopped", Cause.STOPPED, stopping.code)
    flow.say(move(flow.state, stopping.trigger, stopping.code, stopping.reason, stopping.where))


def refuse_open(
    flow: Flow, text: str, cause: Cause, name: str = "", version: int = 1, values: Values | None = None
) -> None:
    """Refuse every call that was not started: each call has one result, whatever happens."""
    batch = flow.state.batch
    for call in batch.calls if batch else ():
        if call.result is None and not call.dispatched:
            flow.say(refused(flow.state, call.id, text, cause, name, version=version, values=values))


def refused(
    state: RunState,
    call: str,
    text: str,
    cause: Cause,
    name: str = "",
    *,
    version: int = 1,
    hidden: bool = False,
    values: Values | None = None,
) -> CallRefused:
    """The decision to skip a call, with what the model is told instead of a result."""
    said = _said(state, Role.TOOL, text, values or {})
    return CallRefused(
        call=call,
        why=Refusal.SKIPPED,
        cause=cause,
        name=name,
        version=version,
        text=text,
        hidden=hidden,
        **said,
    )


def injected(
    state: RunState,
    text: str,
    cause: Cause,
    name: str = "",
    values: Values | None = None,
    role: Role = Role.USER,
    *,
    stitches: bool = False,
) -> MessageInjected:
    """The decision to say something to the model, kept in the window."""
    said = _said(state, role, text, values or {})
    return MessageInjected(role=role, text=text, cause=cause, name=name, stitches=stitches, **said)


def _said(state: RunState, role: Role, text: str, values: Values) -> dict[str, Any]:
    content, size = said(state, role, text, values)
    return {"size": size, "content": content}


def said(state: RunState, role: Role, text: str, values: Values) -> tuple[Said, Size]:
    """The policy's text, filled, as the words of a message, and the size of it."""
    rendered = render(text_of(state.policy, text), values)
    content = Said(texts=(rendered,))
    return content, measured(state.policy, rendered, digest=digest_of(b"", content))


def may_inject(state: RunState) -> bool:
    """Whether somebody will read it: once a limit is reached no request follows, and nothing is injected."""
    if state.deferred is not None:
        return False
    limits = (limit for limit in state.policy.limits if isinstance(limit, StepLimit))
    return not any(trips(limit, used(limit, state)) for limit in limits)
