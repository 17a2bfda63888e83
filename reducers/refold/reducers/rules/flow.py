"""How decisions are derived, and the ways to end a run.

An entry in the order of checks is either a check, which every run has, or a rule. A rule bound to a policy is
a check, or None if the policy has it off. So no check tests whether it is enabled.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from refold.reducers import events as ev
from refold.reducers.codec import digest_of
from refold.reducers.evolution import evolve
from refold.reducers.limits import ENDS, StepLimit, trips
from refold.reducers.machine import Trigger, target
from refold.reducers.messages import Size
from refold.reducers.meters import used
from refold.reducers.pending import underway, unknown_calls, waits
from refold.reducers.policy import Policy, text_of
from refold.reducers.sizes import measured
from refold.reducers.state import RunState, Stopping
from refold.reducers.text import render
from refold.reducers.vocabulary import Cause, Refusal, Role


class Flow:
    """The decisions that follow from `fact`, each with the state after it, and the latest `state`."""

    __slots__ = ("fact", "said", "state")

    def __init__(self, state: RunState, fact: ev.Fact) -> None:
        self.state, self.fact = state, fact
        self.said: list[tuple[ev.Decision, RunState]] = []

    def say(self, decision: ev.Decision) -> None:
        """Add a decision and fold it. Raises as `evolve` does."""
        self.state = evolve(self.state, decision)
        self.said.append((decision, self.state))


Check = Callable[[Flow], bool]
"""A check of a phase. It adds decisions and returns whether it settles its place in the order.

It may return True without a decision if later checks of its place have nothing to decide. If its decisions
settle the run, the phase ends.
"""


class Rule:
    """An entry of the order that a policy switches on: bound to a policy it is a check."""

    __slots__ = ()

    def bind(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """Return the check under this policy, or None if it is off.

        `guards` are the active guards, with None for a guard that is not installed.
        """
        raise NotImplementedError


Entry = Check | Rule


def bind(entry: Entry, policy: Policy, guards: Sequence[Any]) -> Check | None:
    """Bind an entry of the order to a policy."""
    return entry.bind(policy, guards) if isinstance(entry, Rule) else entry


KnobT = TypeVar("KnobT")


class Switched(Rule, Generic[KnobT]):
    """A rule of one policy key: its check gets the key's value, and is off if that is None."""

    def __init__(self, knob: Callable[[Policy], KnobT | None], check: Callable[[KnobT, Flow], bool]) -> None:
        self._knob, self._check = knob, check

    def bind(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """Return the check with the value of its key."""
        knob = self._knob(policy)
        return None if knob is None else partial(self._check, knob)


def switched_by(
    knob: Callable[[Policy], KnobT | None],
) -> Callable[[Callable[[KnobT, Flow], bool]], Switched[KnobT]]:
    """Turn a function into a rule that is on, and gets the value, where `knob` returns one."""
    return lambda check: Switched(knob, check)


class FirstOf(Rule):
    """A rule that stops at the first of its entries that returns True."""

    __slots__ = ("entries",)

    def __init__(self, *entries: Entry) -> None:
        self.entries = entries

    def bind(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """Return one check of the enabled entries."""
        found = (bind(entry, policy, guards) for entry in self.entries)
        checks = [check for check in found if check is not None]

        def first(flow: Flow) -> bool:
            for check in checks:  # noqa: SIM110
                if check(flow):
                    return True
            return False

        return first if checks else None


class WithoutCalls(Rule):
    """R12: an entry for responses without calls, which is also checked after a batch."""

    __slots__ = ("entries",)

    def __init__(self, entry: Entry) -> None:
        self.entries = (entry,)

    def bind(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """Return the check, limited to responses without calls."""
        inner = bind(self.entries[0], policy, guards)
        if inner is None:
            return None

        def check(flow: Flow) -> bool:
            answer = flow.state.answer
            return (answer is None or not answer.event.calls) and inner(flow)

        return check


def is_settled(state: RunState) -> bool:
    """Return whether nothing is left to decide: the run has ended, or an effect or an operator comes next."""
    return state.agent_state.terminal or state.asked_at is not None or is_busy(state) or waits(state)


def is_busy(state: RunState) -> bool:
    """Return whether something in progress must report: a request, a summary or a call."""
    if state.request is not None or (state.summary is not None and state.summed_up is None):
        return True
    return state.batch is not None and has_calls_in_flight(state)


def has_calls_in_flight(state: RunState) -> bool:
    """Return whether the result of a call is still to come.

    The call was dispatched, or it belongs to a running batch and its source's harness refused it.
    """
    begun = state.agent_state.awaits_tools
    # A plain loop: this runs after every check that decides.
    for call in state.batch.calls if state.batch else ():
        if (call.dispatched or (begun and call.refused)) and call.result is None:
            return True
    return False


Values = dict[str, str | int]


def make_move(
    state: RunState,
    trigger: Trigger,
    code: str,
    reason: str,
    where: str | None = None,
    outcome: Literal["", "grace", "fallback"] = "",
) -> ev.StateChanged:
    """Return the decision that moves the machine. Raises `IllegalMove` if it has no such move."""
    return ev.StateChanged(
        source=state.agent_state,
        target=target(state.agent_state, trigger, state.came_from),
        trigger=trigger,
        code=code,
        reason=reason,
        where=where,
        outcome=outcome or ("fallback" if _leaves_nothing(state, trigger) else ""),
    )


def _leaves_nothing(state: RunState, trigger: Trigger) -> bool:
    # Text beside calls is not an answer once the calls have run.
    if state.policy.fallback is None or all(trigger is not end for end, _ in ENDS.values()):
        return False
    answer = state.answer
    return not state.parts and (answer is None or answer.blank or answer.ran)


def stop_if_requested(flow: Flow) -> bool:
    """End a run that is to stop, once nothing is in flight. First in every phase."""
    stopping = flow.state.stopping
    if stopping is None or is_busy(flow.state):
        return False
    end_stopped(flow, stopping)
    return True


def end_stopped(flow: Flow, stopping: Stopping) -> None:
    """Refuse calls that have not started, and end the run as `stopping` says."""
    refuse_open(flow, "refused:stopped", Cause.STOPPED, stopping.code)
    flow.say(make_move(flow.state, stopping.trigger, stopping.code, stopping.reason, stopping.where))


def refuse_open(
    flow: Flow, text: str, cause: Cause, name: str = "", version: int = 1, values: Values | None = None
) -> None:
    """Refuse every call that has not started, so that each call has one result."""
    batch = flow.state.batch
    for call in batch.calls if batch else ():
        if call.result is None and not call.dispatched:
            flow.say(make_refusal(flow.state, call.id, text, cause, name, version=version, values=values))


def make_refusal(
    state: RunState,
    call: str,
    text: str,
    cause: Cause,
    name: str = "",
    *,
    version: int = 1,
    hidden: bool = False,
    values: Values | None = None,
) -> ev.CallRefused:
    """Return the decision to skip a call, with the text that the model gets as its result."""
    said = _render_fields(state, Role.TOOL, text, values or {})
    return ev.CallRefused(
        call=call,
        why=Refusal.SKIPPED,
        cause=cause,
        name=name,
        version=version,
        text=text,
        hidden=hidden,
        **said,
    )


def make_injection(
    state: RunState,
    text: str,
    cause: Cause,
    name: str = "",
    values: Values | None = None,
    role: Role = Role.USER,
    *,
    continues_response: bool = False,
) -> ev.MessageInjected:
    """Return the decision to add a text of the policy to the window."""
    said = _render_fields(state, role, text, values or {})
    return ev.MessageInjected(
        role=role, text=text, cause=cause, name=name, continues_response=continues_response, **said
    )


def _render_fields(state: RunState, role: Role, text: str, values: Values) -> dict[str, Any]:
    content, size = render_message(state, role, text, values)
    return {"size": size, "content": content}


def render_message(state: RunState, role: Role, text: str, values: Values) -> tuple[ev.Said, Size]:
    """Render a text of the policy as a message; return its content and size."""
    rendered = render(text_of(state.policy, text), values)
    content = ev.Said(texts=(rendered,))
    return content, measured(state.policy, rendered, digest=digest_of(b"", content))


def may_inject(state: RunState) -> bool:
    """Return whether an injected message will be sent: once a limit is reached, no request follows."""
    if state.deferred is not None:
        return False
    limits = (limit for limit in state.policy.limits if isinstance(limit, StepLimit))
    return not any(trips(limit, used(limit, state)) for limit in limits)


def ask_about_doubts(flow: Flow) -> bool:
    """Ask an operator for the outcome of calls, once only such calls are left."""
    state = flow.state
    if state.stopping is not None or state.asked_at is not None:
        return False
    calls = unknown_calls(state)
    if not calls or len(calls) < sum(1 for _ in underway(state)):
        return False
    sentence = f"nobody saw how {len(calls)} calls ended: a person finds out"
    flow.say(make_move(state, Trigger.ASK, "in_doubt", sentence))
    return True
