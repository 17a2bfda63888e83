"""How decisions are derived: checks say them to a flow, which folds each at once, so that the next sees them.

What stands in the order of checks is either a check itself, a step of the machine that every run has, or a rule: bound to
a policy it is a check, or nothing where the policy has it off. So no check asks whether it is on.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from refold.reducers.events import Decision, Fact
from refold.reducers.evolution import evolve
from refold.reducers.machine import TERMINAL, AgentState
from refold.reducers.pending import waits
from refold.reducers.policy import Policy
from refold.reducers.state import RunState


class Flow:
    """What follows from `fact`: the decisions that were `said`, each with the state after it, and the latest `state`."""

    __slots__ = ("fact", "said", "state")

    def __init__(self, state: RunState, fact: Fact) -> None:
        self.state, self.fact = state, fact
        self.said: list[tuple[Decision, RunState]] = []

    def say(self, decision: Decision) -> None:
        """Decide this. Raises as `evolve` does."""
        self.state = evolve(self.state, decision)
        self.said.append((decision, self.state))


Check = Callable[[Flow], bool]
"""One check of a phase: says decisions, and returns whether it has spoken for its place, as one does too that has nothing
to say and leaves none after it anything to decide. What it decides may settle the run, which ends the phase."""


class Rule:
    """What stands in the order of checks for a policy to switch on: bound to the policy it is a check."""

    __slots__ = ()

    def bound(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """The check under this policy, with these guards on duty (None for one that is not there); None: it is off."""
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
    """Make a function a rule: it is asked under the policies for which `knob` has a value, with that value."""
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
    """Whether there is nothing left to decide now: the run has ended, or something in the world comes next."""
    return state.agent_state in TERMINAL or state.asked_at is not None or busy(state) or waits(state)


def busy(state: RunState) -> bool:
    """Whether something is under way that must report: a request, a summary, a call."""
    if state.request is not None or (state.summary is not None and state.summed_up is None):
        return True
    return state.batch is not None and in_flight(state)


def in_flight(state: RunState) -> bool:
    """Whether a result is still to come: of a call that was dispatched, or, with its batch, of one that was refused in its source."""
    begun = state.agent_state is AgentState.WAITING_FOR_TOOL
    # A plain loop: this is asked after every check that decides.
    for call in state.batch.calls if state.batch else ():
        if (call.dispatched or (begun and call.refused)) and call.result is None:
            return True
    return False
