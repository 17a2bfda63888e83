"""How decisions are derived, and the ways to end a run.

What stands in the order of checks is either a check itself, a step of the machine that every run has, or a
rule: bound to a policy it is a check, or nothing where the policy has it off. So no check asks whether it is
on.
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
    """What follows from `fact`: the decisions that were `said`, each with the state after it, and the latest
    `state`.
    """

    __slots__ = ("fact", "said", "state")

    def __init__(self, state: RunState, fact: ev.Fact) -> None:
        self.state, self.fact = state, fact
        self.said: list[tuple[ev.Decision, RunState]] = []

    def say(self, decision: ev.Decision) -> None:
        """Decide this. Raises as `evolve` does."""
        self.state = evolve(self.state, decision)
        self.said.append((decision, self.state))


Check = Callable[[Flow], bool]
"""One check of a phase: says decisions, and returns whether it has spoken for its place, as one does too that
has nothing to say and leaves none after it anything to decide. What it decides may settle the run, which ends
the phase.
"""


class Rule:
    """What stands in the order of checks for a policy to switch on: bound to the policy it is a check."""

    __slots__ = ()

    def bound(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """The check under this policy, with these guards on duty (None for one that is not there); None: it
        is off.
        """
        raise NotImplementedError


Entry = Check | Rule


def bound(entry: Entry, policy: Policy, guards: Sequence[Any]) -> Check | None:
    """What stands in the order, as the check that it is under this policy."""
    return entry.bound(policy, guards) if isinstance(entry, Rule) else entry


KnobT = TypeVar("KnobT")


class Switched(Rule, Generic[KnobT]):
    """The rule of one knob: asked with what the policy has there, and off where that is None."""

    def __init__(self, knob: Callable[[Policy], KnobT | None], check: Callable[[KnobT, Flow], bool]) -> None:
        self._knob, self._check = knob, check

    def bound(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """The check with its knob."""
        knob = self._knob(policy)
        return None if knob is None else partial(self._check, knob)


def switched_by(
    knob: Callable[[Policy], KnobT | None],
) -> Callable[[Callable[[KnobT, Flow], bool]], Switched[KnobT]]:
    """Make a function a rule: it is asked under the policies for which `knob` has a value, with that
    value.
    """
    return lambda check: Switched(knob, check)


class FirstOf(Rule):
    """The first of these that has an opinion speaks: those after it are not looked at."""

    __slots__ = ("entries",)

    def __init__(self, *entries: Entry) -> None:
        self.entries = entries

    def bound(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """One check of those that are on."""
        found = (bound(entry, policy, guards) for entry in self.entries)
        checks = [check for check in found if check is not None]

        def first(flow: Flow) -> bool:
            for check in checks:  # noqa: SIM110
                if check(flow):
                    return True
            return False

        return first if checks else None


class WithoutCalls(Rule):
    """R12: the entry, on an answer without calls: what is asked when a batch is done is asked there too."""

    __slots__ = ("entries",)

    def __init__(self, entry: Entry) -> None:
        self.entries = (entry,)

    def bound(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """The check, on an answer without calls."""
        inner = bound(self.entries[0], policy, guards)
        if inner is None:
            return None

        def check(flow: Flow) -> bool:
            answer = flow.state.answer
            return (answer is None or not answer.event.calls) and inner(flow)

        return check


def settled(state: RunState) -> bool:
    """Whether there is nothing left to decide now: the run has ended, or something in the world comes
    next.
    """
    return state.agent_state.terminal or state.asked_at is not None or busy(state) or waits(state)


def busy(state: RunState) -> bool:
    """Whether something is under way that must report: a request, a summary, a call."""
    if state.request is not None or (state.summary is not None and state.summed_up is None):
        return True
    return state.batch is not None and in_flight(state)


def in_flight(state: RunState) -> bool:
    """Whether a result is still to come: of a call that was dispatched, or, with its batch, of one that was
    refused in its source.
    """
    begun = state.agent_state.awaits_tools
    # A plain loop: this is asked after every check that decides.
    for call in state.batch.calls if state.batch else ():
        if (call.dispatched or (begun and call.refused)) and call.result is None:
            return True
    return False


Values = dict[str, str | int]


def move(
    state: RunState,
    trigger: Trigger,
    code: str,
    reason: str,
    where: str | None = None,
    outcome: Literal["", "grace", "fallback"] = "",
) -> ev.StateChanged:
    """The decision that the machine moves. Raises `IllegalMove` if it cannot."""
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
) -> ev.CallRefused:
    """The decision to skip a call, with what the model is told instead of a result."""
    said = _said(state, Role.TOOL, text, values or {})
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


def injected(
    state: RunState,
    text: str,
    cause: Cause,
    name: str = "",
    values: Values | None = None,
    role: Role = Role.USER,
    *,
    stitches: bool = False,
) -> ev.MessageInjected:
    """The decision to say something to the model, kept in the window."""
    said = _said(state, role, text, values or {})
    return ev.MessageInjected(role=role, text=text, cause=cause, name=name, stitches=stitches, **said)


def _said(state: RunState, role: Role, text: str, values: Values) -> dict[str, Any]:
    content, size = said(state, role, text, values)
    return {"size": size, "content": content}


def said(state: RunState, role: Role, text: str, values: Values) -> tuple[ev.Said, Size]:
    """The policy's text, filled, as the words of a message, and the size of it."""
    rendered = render(text_of(state.policy, text), values)
    content = ev.Said(texts=(rendered,))
    return content, measured(state.policy, rendered, digest=digest_of(b"", content))


def may_inject(state: RunState) -> bool:
    """Whether somebody will read it: once a limit is reached no request follows, and nothing is injected."""
    if state.deferred is not None:
        return False
    limits = (limit for limit in state.policy.limits if isinstance(limit, StepLimit))
    return not any(trips(limit, used(limit, state)) for limit in limits)


def ask_about_doubts(flow: Flow) -> bool:
    """A person is asked how calls ended that nothing but a person can tell, once they are all that is
    left.
    """
    state = flow.state
    if state.stopping is not None or state.asked_at is not None:
        return False
    calls = unknown_calls(state)
    if not calls or len(calls) < sum(1 for _ in underway(state)):
        return False
    sentence = f"nobody saw how {len(calls)} calls ended: a person finds out"
    flow.say(move(state, Trigger.ASK, "in_doubt", sentence))
    return True
