"""What one request says besides the window, and never again: request-only by law, so that no warning poisons a history.

Source: the pressure tiers of Utah and Hermes; that kept ones made models stop using tools is Hermes' own finding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from refold.reducers.events import RequestText
from refold.reducers.guards.duty import judged, speaking
from refold.reducers.guards.protocol import Place, Remind
from refold.reducers.limits import StepLimit, TimeLimit, name_of, threshold
from refold.reducers.meters import elapsed, smallest_time, used
from refold.reducers.policy import Policy, Pressure, Progress, Tier, Without
from refold.reducers.rules.ends import Values, injected
from refold.reducers.rules.flow import Flow, Switched, switched_by
from refold.reducers.state import RunState
from refold.reducers.text import hours_minutes_seconds
from refold.reducers.vocabulary import Cause, Role


def progress(*, before_history: bool) -> Switched[Progress]:
    """P6 or P8: every so many steps, how much time was used. Once a step, also where a summary came between."""

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
    """P9, those that are on, in this order: progress, the hint after an overflow, what guards say, the nudge, pressure."""
    found: list[Reminder] = []
    if policy.progress is not None and not policy.progress.kept:
        found.append(partial(_progress, policy.progress))
    if policy.overflow is not None and policy.overflow.hint:
        found.append(_hint)
    here = speaking(guards, Place.BEFORE_REQUEST)
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
        for said in judged(watch, state, Place.BEFORE_REQUEST):
            if isinstance(said, Remind):
                yield _text(said.text, Cause.GUARD, watch.name, said.values)


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
    if tier is None:
        return
    escalated = knob.acknowledge == "escalate" and state.answer is not None and state.answer.ignored
    shown = replace(knob.tiers[-1], place="user") if escalated else tier
    if tier.repeat == "once" and state.count(Cause.PRESSURE, "turn", tier.name):
        return
    if shown.place == "tool_result" and _last_role(state) is not Role.TOOL:
        return
    values: Values = {"n": count, "max": most, "remaining": max(0, most - count)}
    values["unit"] = str(limit.unit)
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
    shown = {text.tier for text in texts if text.tier}
    tier = next((tier for tier in knob.tiers if tier.name in shown), None) if knob else None
    if tier is None or tier.tools == "all":
        return None
    hidden = set(tier.tools.without) if isinstance(tier.tools, Without) else None
    return tuple(t.name for t in state.setup.tools if hidden is not None and t.name not in hidden)
