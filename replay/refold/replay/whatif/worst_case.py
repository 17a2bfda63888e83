"""Two runs over facts with unknown data at its upper bound."""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.guards import Registry
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import StopReason, Unknown
from refold.replay.whatif.facts import Change
from refold.replay.whatif.mismatches import time_before
from refold.replay.whatif.pair import RunPair
from refold.replay.whatif.upper_bounds import (
    UNKNOWNS,
    Assumption,
    estimate_tools,
    lacks_time,
    more_tools,
    with_room,
    without_known_limits,
)


class WorstCase(RunPair):
    """Two runs with `unknown` data at its upper bound, starting at the position of `near`.

    `stop` is the stop reason of each response without one: our reason, and the provider's word.
    """

    def __init__(
        self,
        near: RunPair,
        change: Change,
        registry: Registry,
        *unknown: Unknown,
        stop: tuple[StopReason, str] = (StopReason.END_TURN, ""),
    ) -> None:
        super().__init__(near.run, lambda old: self._bound(change(old), old), registry)
        self.copy_position(near)
        self._near, self._other, self.unknown, self._stop = near, change, unknown, stop
        self._context: int | None = 1  # known lower bound in tokens; None: the length is recorded
        self._used: int | None = None  # tokens of the largest request
        self._plain = near.derived.state.policy
        if near.recorded.state.seq:
            self._set_policy(self._bound(self._plain, near.recorded.state.policy))

    def extend(self, kind: Unknown) -> "WorstCase":
        """Return another worst case at this position, with this kind at its upper bound as well."""
        other = WorstCase(self._near, self._other, self._registry, *self.unknown, kind)
        other.copy_position(self)
        other._context, other._used, other._plain = self._context, self._used, self._plain
        return other

    @property
    def settled(self) -> bool:
        """Whether the comparison at this position is final."""
        return True

    def raise_before(self, kind: Unknown) -> None:
        """Set this kind to its upper bound in the events before."""
        for side in (self.recorded, self.derived):
            side.state = UNKNOWNS[kind].raise_before(side.state)

    def take(self, seq: int, fact: ev.Fact, group: Sequence[ev.Decision]) -> None:
        """Take a fact at its upper bound, unless the result is already final."""
        if self._is_open(seq):
            super().take(seq, self._fill(fact), group)

    def pass_by(self, seq: int, event: ev.Event) -> None:
        """Take an event that only advances the position in the log. Raises as `take`."""
        if self._is_open(seq):
            super().pass_by(seq, event)

    def _is_open(self, seq: int) -> bool:
        near = self._near.found
        return self.found is None and (near is None or seq <= near.fact)

    def offer(self, tools: tuple[ev.Manifest, ...]) -> None:
        """Set the tools of both runs, with additional ones if the tools are unknown."""
        lacks = Unknown.TOOLS in self.unknown
        super().offer(more_tools(tools, self._plain, self._registry) if lacks else tools)
        self._set_policy(self._leave_room(self._plain))

    def _set_policy(self, policy: Policy) -> None:
        state = self.derived.state
        if policy != state.policy:
            self.derived.state = replace(state, setup=replace(state.setup, policy=policy))

    def _bound(self, policy: Policy, old: Policy) -> Policy:
        self._plain = policy
        return self._leave_room(without_known_limits(policy, self.unknown, old.limits))

    def _leave_room(self, policy: Policy) -> Policy:
        """Return the policy with the space that the tools are known to leave."""
        if Unknown.TOOLS not in self.unknown:
            return policy
        most = None if self._used is None else estimate_tools(policy, self._used)
        if most is not None and most < self._near.derived.state.setup.tools_tokens:
            most = None  # the source counts something other than the request's tokens
        return with_room(policy, most)

    def _fill(self, fact: ev.Fact) -> ev.Fact:
        if isinstance(fact, ev.RunStarted):
            self._change(fact.policy)
            self._context = None if fact.context is not None else 1
        elif isinstance(fact, ev.ModelResponded):
            self._update_bounds(fact)
        old = fact.policy if isinstance(fact, ev.RunStarted) else self.recorded.state.policy
        assumed = Assumption(old, self._plain, self._registry, self._stop)
        for kind in self.unknown:
            fact = UNKNOWNS[kind].fill(fact, assumed)
        return fact

    def _update_bounds(self, fact: ev.ModelResponded) -> None:
        """Update lower bounds from a response: its prompt fitted the context and contained the tools."""
        if Unknown.USAGE in fact.unknown or not fact.usage.input:
            return
        if Unknown.CONTEXT in self.unknown and fact.model == self._near.recorded.state.setup.model:
            self._update_context(fact.usage.input + fact.usage.output)
        if Unknown.TOOLS in self.unknown and fact.usage.input > (self._used or 0):
            self._used = fact.usage.input
            self._set_policy(self._leave_room(self._plain))

    def _update_context(self, used: int) -> None:
        if not self._context or used <= self._context:
            return
        self._context = used
        for side in (self.recorded, self.derived):
            side.state = replace(side.state, setup=replace(side.state.setup, context=used))


TimeOwner = Literal["agent", "person", "anybody"]
"""Who is charged with time that passed at unknown times; `anybody`: no limit distinguishes."""


class WorstCaseClock(WorstCase):
    """Two runs as late as possible: a fact without a time comes at the next known time, or never.

    Time in which the run waited for an operator counts as `whose`. `first`: maximize the time since the first
    response (minimize it for an operator), instead of the time since the start.
    """

    def __init__(
        self, near: RunPair, change: Change, registry: Registry, *, whose: TimeOwner, first: bool
    ) -> None:
        super().__init__(near, change, registry, Unknown.TIME)
        self._whose, self._first = whose, first
        self._deferred: list[tuple[int, ev.Fact | ev.Event, Sequence[ev.Decision]]] = []

    @property
    def settled(self) -> bool:
        """Whether all facts taken so far have a time."""
        return not self._deferred

    def raise_before(self, kind: Unknown) -> None:
        """Set the start of the run far back, unless an operator is charged with the time."""
        if self._whose != "person":
            super().raise_before(kind)

    def take(self, seq: int, fact: ev.Fact, group: Sequence[ev.Decision]) -> None:
        """Take a fact, or defer it until its latest time is known."""
        if lacks_time(fact):
            self._deferred.append((seq, fact, group))
        else:
            self.release(time_before(fact))
            super().take(seq, fact, group)

    def pass_by(self, seq: int, event: ev.Event) -> None:
        """Take an event that only advances the position, in log order."""
        if self._deferred:
            self._deferred.append((seq, event, ()))
        else:
            self._pass(seq, event)

    def _pass(self, seq: int, event: ev.Event) -> None:
        at = max(self.recorded.state.at, getattr(event, "at", 0))
        super().pass_by(seq, replace(event, at=at))

    def release(self, until: int) -> None:
        """Take the deferred events, which happened by `until` (ns)."""
        deferred, self._deferred = self._deferred, []
        late = False
        for seq, event, group in deferred:
            if not isinstance(event, ev.Fact):
                self._pass(seq, event)
                continue
            state = self.recorded.state
            first = self._first and _is_first_response(event, state)
            waited = state.asked_at is not None and self._whose != "anybody"
            late = late or waited or first or not state.seq
            passes = late if self._whose == "person" else bool(state.seq) and not (waited or first)
            at = max(state.at, until if passes else event.at)
            moved = [_postpone(decision, at - event.at) for decision in group]
            super().take(seq, replace(event, at=at), moved)


def _is_first_response(fact: ev.Fact, state: RunState) -> bool:
    return isinstance(fact, ev.ModelResponded) and bool(state.seq) and state.turn.first_response is None


def _postpone(decision: ev.Decision, by: int) -> ev.Decision:
    return (
        replace(decision, until=decision.until + by) if isinstance(decision, ev.RetryScheduled) else decision
    )
