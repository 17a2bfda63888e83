"""The request, and its reminders.

Source: the pressure tiers of Utah and Hermes. Hermes found that reminders kept in the history make models
stop using tools.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import ModelRequested, Purpose, RequestText, Said
from refold.reducers.evolution import encode_value
from refold.reducers.guards.duty import judged, list_judging_guards
from refold.reducers.guards.protocol import Place, Remind
from refold.reducers.limits import LimitHit, StepLimit, TimeLimit, name_of, threshold
from refold.reducers.meters import call_deadline, elapsed, smallest_time, used
from refold.reducers.policy import Policy, Pressure, Progress, Tier, has_text
from refold.reducers.rules.flow import (
    Check,
    Flow,
    Rule,
    Switched,
    Values,
    make_injection,
    render_message,
    switched_by,
)
from refold.reducers.state import RunState, offer_digest
from refold.reducers.text import hours_minutes_seconds
from refold.reducers.vocabulary import Cause, Role


def progress(*, before_history: bool) -> Switched[Progress]:
    """P6 or P8: report the time used every `every` steps, once a step, even if a summary comes between."""

    def knob(policy: Policy) -> Progress | None:
        found = policy.progress
        return found if found and found.kept and found.before_history is before_history else None

    @switched_by(knob)
    def check(knob: Progress, flow: Flow) -> bool:
        if not _is_due(knob, flow.state):
            return False
        values = _elapsed(knob, flow.state)
        flow.say(make_injection(flow.state, "progress", Cause.PROGRESS, values=values))
        return True

    return check


def _is_due(knob: Progress, state: RunState) -> bool:
    if (state.spent.steps + 1) % knob.every:
        return False
    return state.spent.count(Cause.PROGRESS) == state.step.spent.count(Cause.PROGRESS)


def _elapsed(knob: Progress, state: RunState) -> dict[str, str | int]:
    limit = smallest_time(state)
    productive = knob.clock == "productive" and limit is not None
    counted = limit if productive and limit is not None else TimeLimit(value=None)
    values: dict[str, str | int] = {"elapsed": hours_minutes_seconds(elapsed(counted, state)), "of": ""}
    if knob.show_limit:
        most = threshold(limit) if limit is not None else None
        told = "-" if most is None else hours_minutes_seconds(most)
        values |= {"limit": told, "of": "" if most is None else f" of {told}"}
    return values


Reminder = Callable[[RunState], Iterable[RequestText]]
"""A function that yields the texts that a state's next request has besides its window."""


def reminders(policy: Policy, guards: Sequence[Any]) -> tuple[Reminder, ...]:
    """P9: return the enabled reminders in order: progress, overflow hint, guards, nudge, pressure."""
    found: list[Reminder] = []
    if policy.progress is not None and not policy.progress.kept:
        found.append(partial(_progress, policy.progress))
    if policy.overflow is not None and policy.overflow.hint:
        found.append(_hint)
    here = list_judging_guards(guards, Place.BEFORE_REQUEST)
    if here:
        found.append(partial(_guard_reminders, here))
    if policy.nudge:
        found.append(_nudge)
    if policy.pressure is not None:
        found.append(partial(_pressure, policy.pressure))
    return tuple(found)


def _progress(knob: Progress, state: RunState) -> Iterator[RequestText]:
    if _is_due(knob, state):
        yield _make_text("progress", Cause.PROGRESS, values=_elapsed(knob, state))


def _hint(state: RunState) -> Iterator[RequestText]:
    if state.overflowed:
        yield _make_text("overflow", Cause.OVERFLOW)


def _guard_reminders(here: Sequence[int], state: RunState) -> Iterator[RequestText]:
    for at in here:
        watch = state.guards[at]
        for reminder in judged(watch, state, Place.BEFORE_REQUEST):
            if isinstance(reminder, Remind):
                yield _make_text(reminder.text, Cause.GUARD, watch.name, reminder.values)


def _nudge(_: RunState) -> Iterator[RequestText]:
    yield _make_text("nudge", Cause.NUDGE)


def _make_text(text: str, cause: Cause, name: str = "", values: Values | None = None) -> RequestText:
    return RequestText(role=Role.USER, text=text, values=values or {}, cause=cause, name=name)


def _pressure(knob: Pressure, state: RunState) -> Iterator[RequestText]:
    limit = next((limit for limit in state.policy.limits if name_of(limit) == knob.of), None)
    most = threshold(limit) if limit is not None else None
    if limit is None or not most:
        return
    count = used(limit, state) + (isinstance(limit, StepLimit) and knob.counts == "next")
    tier = next((tier for tier in reversed(knob.tiers) if _holds(tier, count, most)), None)
    if tier is not None:
        values: Values = {"n": count, "max": most, "remaining": max(0, most - count), "unit": str(limit.unit)}
        yield from _tier_text(knob, tier, state, values)


def _tier_text(knob: Pressure, tier: Tier, state: RunState, values: Values) -> Iterator[RequestText]:
    escalated = knob.acknowledge == "escalate" and state.answer is not None and state.answer.ignored
    shown = replace(knob.tiers[-1], place="user") if escalated else tier
    if tier.repeat == "once" and state.count(Cause.PRESSURE, "turn", tier.name):
        return
    if shown.place == "tool_result" and _last_role(state) is not Role.TOOL:
        return
    text = _make_text(f"pressure:{shown.name}", Cause.PRESSURE, values=values)
    role = Role.SYSTEM if shown.place == "system" else Role.USER
    yield replace(text, role=role, place=shown.place, tier=tier.name, escalated=escalated)


def _holds(tier: Tier, count: int, most: int) -> bool:
    at = tier.at
    if at.fraction is not None and count / most >= at.fraction:
        return True
    return at.remaining is not None and most - count <= at.remaining


def _last_role(state: RunState) -> Role | None:
    return state.window.chunks[-1].refs[-1].role if state.window.count else None


def offered_tools(state: RunState, texts: tuple[RequestText, ...]) -> tuple[str, ...] | None:
    """Return the names of the tools that a request with these texts offers; None for all."""
    knob = state.policy.pressure
    shown = {text.tier for text in texts}
    tier = next((tier for tier in knob.tiers if tier.name in shown), None) if knob else None
    if tier is None or tier.tools == "all":
        return None
    if tier.tools == "none":
        return ()
    return tuple(tool.name for tool in state.setup.tools if tool.name not in tier.tools.without)


class Request(Rule):
    """P10: ask the model, as the next step."""

    __slots__ = ()

    def bind(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """Return the check with the reminders of this policy."""
        return partial(_ask_model, reminders(policy, guards))


def _ask_model(said: Sequence[Reminder], flow: Flow) -> bool:
    state = flow.state
    texts = tuple([text for reminder in said for text in reminder(state)])
    step = state.spent.steps + 1
    flow.say(_make_request(state, step, 1, texts, tools=offered_tools(state, texts), model=next_model(state)))
    return True


def request_again(flow: Flow) -> bool:
    """Repeat the request after a back-off: the next attempt at the same step or grace request.

    It has the same reminders, rendered with the policy in force. Those of a guard that an amendment removed
    are left out, because their texts are gone.
    """
    state = flow.state
    assert state.backoff is not None
    step, attempt, model = state.spent.steps, state.backoff.event.attempt, state.model
    if state.failure is None:
        flow.say(_make_request(state, step, attempt, (), tools=None, model=model))
        return True
    before, asked = state.failure.asked, state.failure.asked.event
    again = _make_request(
        state,
        step,
        attempt,
        tuple([text for text in asked.request_only if has_text(state.policy, text.text)]),
        tools=asked.tools,
        model=model,
        purpose=asked.purpose,
        promised=before.until,
    )
    flow.say(again)
    return True


def make_grace_request(state: RunState) -> ModelRequested:
    """Return the one more request that a limit grants, without tools: the model reports what was done."""
    found = granting_limit(state)
    values: Values = {"limit": found.name, "max": found.value}
    text = RequestText(role=Role.USER, text="grace", cause=Cause.GRACE, values=values)
    return _make_request(
        state, state.spent.steps, 1, (text,), tools=(), model=next_model(state), purpose="grace"
    )


def next_model(state: RunState) -> str:
    """Return the model of the next request, "" for the run's own.

    After a success the run's own model is used again, unless the policy's fallback is `sticky`.
    """
    fallback, answer = state.policy.retry.fallback, state.answer
    failed = state.failure is not None or (answer is not None and answer.silent)
    return state.model if failed or (fallback is not None and fallback.sticky) else ""


def granting_limit(state: RunState) -> LimitHit:
    """Return the limit that ends the run, and that may have granted one last request."""
    if state.limit is None:
        raise UnexpectedEvent("model_requested", "no limit tripped that could grant a last request")
    return state.limit


def _make_request(
    state: RunState,
    step: int,
    attempt: int,
    texts: tuple[RequestText, ...],
    *,
    tools: tuple[str, ...] | None,
    model: str,
    purpose: Purpose = "step",
    promised: int | None = None,
) -> ModelRequested:
    words = [render_message(state, text.role, text.text, text.values) for text in texts]
    texts = tuple([replace(text, size=size) for text, (_, size) in zip(texts, words, strict=True)])
    return ModelRequested(
        step=step,
        attempt=attempt,
        view=view_digest(state, texts, tools, model),
        messages=state.window.ranges,
        input_tokens=state.window.tokens + sum([text.size.tokens for text in texts]),
        deadline=call_deadline(state, promised),
        tools=tools,
        request_only=texts,
        purpose=purpose,
        model=model,
        content=Said(texts=tuple([each.texts[0] for each, _ in words])) if words else None,
    )


def view_digest(
    state: RunState,
    texts: tuple[RequestText, ...] = (),
    tools: tuple[str, ...] | None = None,
    model: str = "",
) -> str:
    """Return a digest of the next prompt: the window, the tools offered, the model and its settings.

    It excludes the clock, the run's id and the provider's ids. It includes texts by their digests, which are
    salted unless the text is the harness's own. So digests compare only within a lineage, and in replays.
    """
    setup, seen = state.setup, state.window.digest
    offer = setup.offer
    if model or tools is not None:
        shown = setup.tools if tools is None else tuple(tool for tool in setup.tools if tool.name in tools)
        offer = offer_digest(model or setup.model, setup.settings, shown)
    if texts:
        seen += encode_value([(text.role, text.place, text.size.digest) for text in texts])
    return hashlib.sha256(seen + offer.encode()).hexdigest()
