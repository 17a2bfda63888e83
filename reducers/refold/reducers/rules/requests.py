"""The request, and its reminders.

Source: the pressure tiers of Utah and Hermes; that kept ones made models stop using tools is Hermes' own
finding.
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
from refold.reducers.rules.flow import Check, Flow, Rule, Switched, Values, injected, said, switched_by
from refold.reducers.state import RunState, offer_digest
from refold.reducers.text import hours_minutes_seconds
from refold.reducers.vocabulary import Cause, Role


def progress(*, before_history: bool) -> Switched[Progress]:
    """P6 or P8: every so many steps, how much time was used. Once a step, also where a summary came
    between.
    """

    def knob(policy: Policy) -> Progress | None:
        found = policy.progress
        return found if found and found.kept and found.before_history is before_history else None

    @switched_by(knob)
    def check(knob: Progress, flow: Flow) -> bool:
        if not _due(knob, flow.state):
            return False
        values = _elapsed(knob, flow.state)
        flow.say(injected(flow.state, "progress", Cause.PROGRESS, values=values))
        return True

    return check


def _due(knob: Progress, state: RunState) -> bool:
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
"""What the next request of a state says besides its window."""


def reminders(policy: Policy, guards: Sequence[Any]) -> tuple[Reminder, ...]:
    """P9, those that are on, in this order: progress, the hint after an overflow, what guards say, the nudge,
    pressure.
    """
    found: list[Reminder] = []
    if policy.progress is not None and not policy.progress.kept:
        found.append(partial(_progress, policy.progress))
    if policy.overflow is not None and policy.overflow.hint:
        found.append(_hint)
    here = list_judging_guards(guards, Place.BEFORE_REQUEST)
    if here:
        found.append(partial(_of_guards, here))
    if policy.nudge:
        found.append(_nudge)
    if policy.pressure is not None:
        found.append(partial(_pressure, policy.pressure))
    return tuple(found)


def _progress(knob: Progress, state: RunState) -> Iterator[RequestText]:
    if _due(knob, state):
        yield _text("progress", Cause.PROGRESS, values=_elapsed(knob, state))


def _hint(state: RunState) -> Iterator[RequestText]:
    if state.overflowed:
        yield _text("overflow", Cause.OVERFLOW)


def _of_guards(here: Sequence[int], state: RunState) -> Iterator[RequestText]:
    for at in here:
        watch = state.guards[at]
        for reminder in judged(watch, state, Place.BEFORE_REQUEST):
            if isinstance(reminder, Remind):
                yield _text(reminder.text, Cause.GUARD, watch.name, reminder.values)


def _nudge(_: RunState) -> Iterator[RequestText]:
    yield _text("nudge", Cause.NUDGE)


def _text(text: str, cause: Cause, name: str = "", values: Values | None = None) -> RequestText:
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
    text = _text(f"pressure:{shown.name}", Cause.PRESSURE, values=values)
    role = Role.SYSTEM if shown.place == "system" else Role.USER
    yield replace(text, role=role, place=shown.place, tier=tier.name, escalated=escalated)


def _holds(tier: Tier, count: int, most: int) -> bool:
    at = tier.at
    if at.fraction is not None and count / most >= at.fraction:
        return True
    return at.remaining is not None and most - count <= at.remaining


def _last_role(state: RunState) -> Role | None:
    return state.window.chunks[-1].refs[-1].role if state.window.count else None


def offered(state: RunState, texts: tuple[RequestText, ...]) -> tuple[str, ...] | None:
    """The names of the tools that a request with these texts offers; None: all that there are."""
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

    def bound(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """The check with what a request of this policy may say besides its window."""
        return partial(_request, reminders(policy, guards))


def _request(said: Sequence[Reminder], flow: Flow) -> bool:
    state = flow.state
    texts = tuple([text for reminder in said for text in reminder(state)])
    step = state.spent.steps + 1
    flow.say(_requested(state, step, 1, texts, tools=offered(state, texts), model=model_next(state)))
    return True


def request_again(flow: Flow) -> bool:
    """After a back-off: the next attempt at the same step, or at the same grace request, shown the same
    texts.

    Each in the words of the policy in force; but for those of a guard that an amendment took out, and its
    words with it.
    """
    state = flow.state
    assert state.backoff is not None
    step, attempt, model = state.spent.steps, state.backoff.event.attempt, state.model
    if state.failure is None:
        flow.say(_requested(state, step, attempt, (), tools=None, model=model))
        return True
    before, asked = state.failure.asked, state.failure.asked.event
    again = _requested(
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


def request_grace(state: RunState) -> ModelRequested:
    """At a limit: one more request, without tools, in which the model says what was done."""
    found = granted_by(state)
    values: Values = {"limit": found.name, "max": found.value}
    text = RequestText(role=Role.USER, text="grace", cause=Cause.GRACE, values=values)
    return _requested(
        state, state.spent.steps, 1, (text,), tools=(), model=model_next(state), purpose="grace"
    )


def model_next(state: RunState) -> str:
    """The model of the next request, "" for the run's own: a success returns to that one, unless the policy
    stays.
    """
    fallback, answer = state.policy.retry.fallback, state.answer
    failed = state.failure is not None or (answer is not None and answer.silent)
    return state.model if failed or (fallback is not None and fallback.sticky) else ""


def granted_by(state: RunState) -> LimitHit:
    """The limit that ends the run, after one last request if it granted it."""
    if state.limit is None:
        raise UnexpectedEvent("model_requested", "no limit tripped that could grant a last request")
    return state.limit


def _requested(
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
    words = [said(state, text.role, text.text, text.values) for text in texts]
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
    """A digest of all that the next request shows: the window, the tools offered, the model and its settings.

    It leaves out the clock, the run's id and the provider's ids; the words are in it by their digests, which
    are salted where they are not the harness's own: views compare within a lineage, and in replays.
    """
    setup, seen = state.setup, state.window.digest
    offer = setup.offer
    if model or tools is not None:
        shown = setup.tools if tools is None else tuple(tool for tool in setup.tools if tool.name in tools)
        offer = offer_digest(model or setup.model, setup.settings, shown)
    if texts:
        seen += encode_value([(text.role, text.place, text.size.digest) for text in texts])
    return hashlib.sha256(seen + offer.encode()).hexdigest()
