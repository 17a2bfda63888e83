"""What one request says besides the window, and never again: request-only by law, so that no warning poisons a history.

Source: the pressure tiers of Utah and Hermes; that kept ones made models stop using tools is Hermes' own finding.
"""

from msgspec.structs import replace

from refold.reducers.events import Fact, MessageInjected, RequestText
from refold.reducers.guards.duty import judged
from refold.reducers.guards.protocol import Place, Remind
from refold.reducers.knobs import Pressure, Progress, Tier, Without
from refold.reducers.limits import UNITS, Limit, StepLimit, TimeLimit, name_of, threshold
from refold.reducers.rules.ends import Values, injected
from refold.reducers.rules.flow import Check, Flow, one
from refold.reducers.state import RunState
from refold.reducers.text import hours_minutes_seconds
from refold.reducers.usage import elapsed, smallest_time, used
from refold.reducers.vocabulary import Cause, Role


def progress(*, before_history: bool) -> Check:
    """P6 or P8: every so many steps, how much time was used. Once a step, also where a summary came between."""

    def check(state: RunState, fact: Fact) -> Flow | None:
        knob = state.policy.progress
        if knob is None or not knob.kept or knob.before_history is not before_history:
            return None
        if not _due(knob, state):
            return None
        said: MessageInjected = injected(state, "progress", Cause.PROGRESS, values=_elapsed(knob, state))
        return one(said)

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


def reminders(state: RunState) -> tuple[RequestText, ...]:
    """P9, in this order: progress, the hint after an overflow, what guards say, the nudge, pressure."""
    policy = state.policy
    texts: list[RequestText] = []
    if policy.progress is not None and not policy.progress.kept and _due(policy.progress, state):
        texts.append(_text("progress", Cause.PROGRESS, values=_elapsed(policy.progress, state)))
    if state.overflowed and policy.overflow is not None and policy.overflow.hint:
        texts.append(_text("overflow", Cause.OVERFLOW))
    for watch in state.guards:
        said = judged(watch, state, Place.BEFORE_REQUEST)
        texts += (
            _text(one.text, Cause.GUARD, watch.name, one.values) for one in said if isinstance(one, Remind)
        )
    if policy.nudge:
        texts.append(_text("nudge", Cause.NUDGE))
    return (*texts, *_pressure(state, policy.pressure))


def _text(text: str, cause: Cause, name: str = "", values: Values | None = None) -> RequestText:
    return RequestText(role=Role.USER, text=text, values=values or {}, cause=cause, name=name)


def _pressure(state: RunState, knob: Pressure | None) -> tuple[RequestText, ...]:
    limit = _limit_of(state, knob)
    most = threshold(limit) if limit is not None else None
    if knob is None or limit is None or not most:
        return ()
    count = used(limit, state) + (isinstance(limit, StepLimit) and knob.counts == "next")
    holding = [tier for tier in knob.tiers if _holds(tier, count, most)]
    if not holding:
        return ()
    escalated = knob.acknowledge == "escalate" and state.answer is not None and state.answer.ignored
    tier = holding[-1]
    shown = replace(knob.tiers[-1], place="user") if escalated else tier
    if tier.repeat == "once" and state.count(Cause.PRESSURE, "turn", tier.name):
        return ()
    last = _last_role(state)
    if shown.place == "tool_result" and last is not Role.TOOL:
        return ()
    values: dict[str, str | int] = {"n": count, "max": most, "remaining": max(0, most - count)}
    values["unit"] = str(UNITS[type(limit)])
    text = _text(f"pressure:{shown.name}", Cause.PRESSURE, values=values)
    role = Role.SYSTEM if shown.place == "system" else Role.USER
    return (replace(text, role=role, place=shown.place, tier=tier.name, escalated=escalated),)


def _limit_of(state: RunState, knob: Pressure | None) -> Limit | None:
    if knob is None:
        return None
    return next((limit for limit in state.policy.limits if name_of(limit) == knob.of), None)


def _holds(tier: Tier, count: int, most: int) -> bool:
    at = tier.at
    if at.fraction is not None and count / most >= at.fraction:
        return True
    return at.remaining is not None and most - count <= at.remaining


def _last_role(state: RunState) -> Role | None:
    return state.window.chunks[-1][-1].role if state.window.count else None


def offered(state: RunState, texts: tuple[RequestText, ...]) -> tuple[str, ...] | None:
    """The names of the tools that a request with these texts offers; None: all that there are."""
    knob = state.policy.pressure
    shown = {text.tier for text in texts if text.tier}
    tier = next((tier for tier in knob.tiers if tier.name in shown), None) if knob else None
    if tier is None or tier.tools == "all":
        return None
    hidden = set(tier.tools.without) if isinstance(tier.tools, Without) else None
    return tuple(t.name for t in state.setup.tools if hidden is not None and t.name not in hidden)
