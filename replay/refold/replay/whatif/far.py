"""Two runs over facts that hold the most of what a record does not say."""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from refold.reducers.events import (
    Decision,
    Event,
    Fact,
    Manifest,
    ModelResponded,
    RetryScheduled,
    RunStarted,
    ToolReturned,
)
from refold.reducers.guards import Registry
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import StopReason, Unknown
from refold.replay import known
from refold.replay.whatif.facts import Change
from refold.replay.whatif.most import (
    SPENDING,
    failure_of,
    heaviest,
    more_tools,
    most_before,
    most_used,
    unlimited,
    with_room,
)
from refold.replay.whatif.pair import Pair
from refold.replay.whatif.shown import reached


class Far(Pair):
    """The two runs with the most of what is `unknown`, from where `near` stands."""

    def __init__(self, near: Pair, change: Change, registry: Registry, *unknown: Unknown) -> None:
        super().__init__(near.run, lambda old: self._most(change(old), old), registry)
        self.take_over(near)
        self._near, self._other, self.unknown = near, change, unknown
        self._context: int | None = 1  # tokens that it surely has; None: it is known
        self._used: int | None = None  # tokens of the largest request
        self.stop: tuple[StopReason, str] = StopReason.END_TURN, ""
        """Why each answer ended of which nobody knows it: only what ended its turn is held up by failures."""
        self._plain = near.derived.state.policy
        if near.recorded.state.seq:
            self._go_by(self._most(self._plain, near.recorded.state.policy))

    def also(self, kind: Unknown) -> "Far":
        """Another far end, from where this one stands: with the most of this kind besides."""
        far = Far(self._near, self._other, self._registry, *self.unknown, kind)
        far.take_over(self)
        far._context, far._used, far._plain = self._context, self._used, self._plain
        return far

    @property
    def settled(self) -> bool:
        """Whether it is known how the two stand here."""
        return True

    def begin_with_most(self, kind: Unknown) -> None:
        """There was the most of it before, too."""
        for side in (self.recorded, self.derived):
            side.state = most_before(side.state, kind)

    def take(self, seq: int, fact: Fact, group: Sequence[Decision]) -> None:
        """Take a fact as the far end has it, unless what comes of it is nothing any more."""
        if self._matters(seq):
            super().take(seq, self._filled(fact), group)

    def pass_by(self, seq: int, event: Event) -> None:
        """Take an event that changes nothing; raises as `take`."""
        if self._matters(seq):
            super().pass_by(seq, event)

    def _matters(self, seq: int) -> bool:
        near = self._near.found
        return self.found is None and (near is None or seq <= near.fact)

    def offer(self, tools: tuple[Manifest, ...]) -> None:
        """Both runs have these tools, and more."""
        super().offer(more_tools(tools, self._plain) if Unknown.TOOLS in self.unknown else tools)
        self._go_by(self._roomed(self._plain))

    def _go_by(self, policy: Policy) -> None:
        state = self.derived.state
        if policy != state.policy:
            self.derived.state = replace(state, setup=replace(state.setup, policy=policy))

    def _most(self, policy: Policy, old: Policy) -> Policy:
        self._plain = policy
        return self._roomed(unlimited(policy, self.unknown, old.limits))

    def _roomed(self, policy: Policy) -> Policy:
        """The policy with the room that the tools surely leave."""
        if Unknown.TOOLS not in self.unknown:
            return policy
        most = None if self._used is None else heaviest(policy, self._used)
        if most is not None and most < self._near.derived.state.setup.tools_tokens:
            most = None  # the source counts something else than what a request weighs
        return with_room(policy, most)

    def _filled(self, fact: Fact) -> Fact:
        if isinstance(fact, RunStarted):
            return self._started(fact)
        if isinstance(fact, ModelResponded):
            self._learn(fact)
            fact = self._stopped(fact)
        elif isinstance(fact, ToolReturned) and Unknown.ERRORS in self.unknown and known.failed(fact) is None:
            fact = replace(fact, error=failure_of(self.recorded.state.policy, self._plain))
        for kind in self.unknown:
            fact = most_used(fact, kind) if kind in SPENDING else fact
        return fact

    def _stopped(self, fact: ModelResponded) -> ModelResponded:
        stop, word = self.stop
        asked = {Unknown.STOP, Unknown.ERRORS}.intersection(self.unknown)
        if not asked or Unknown.STOP not in fact.unknown:
            return fact
        return replace(fact, stop=stop, stop_raw=fact.stop_raw or word)

    def _started(self, run: RunStarted) -> RunStarted:
        self._change(run.policy)
        if Unknown.CONTEXT in self.unknown:
            names = " ".join(name for step in self._plain.history for name in step.when.model)
            self._context = 1 if run.context is None else None
            run = replace(run, context=run.context or self._context, model=run.model or names)
        if Unknown.TOOLS in self.unknown:
            run = replace(run, tools=more_tools(run.tools, self._plain))
        return run

    def _learn(self, fact: ModelResponded) -> None:
        """What the model answered to fits into its context, and held its tools."""
        if Unknown.USAGE in fact.unknown or not fact.usage.input:
            return
        used, model = fact.usage.input + fact.usage.output, self._near.recorded.state.setup.model
        if Unknown.CONTEXT in self.unknown and self._context and fact.model == model and used > self._context:
            self._context = used
            for side in (self.recorded, self.derived):
                side.state = replace(side.state, setup=replace(side.state.setup, context=used))
        if Unknown.TOOLS in self.unknown and fact.usage.input > (self._used or 0):
            self._used = fact.usage.input
            self._go_by(self._roomed(self._plain))


Whose = Literal["agent", "person", "anybody"]
"""Whose time it was that passed at no known instant; `anybody`: no limit asks."""


class Late(Far):
    """The two runs as late as may be: a fact that has no time comes at the next instant that is known, or never.

    What passed was `whose` time, as far as a person was waited for. `first`: so that the time since a first response is the
    longest, or the shortest for a person; else since the beginning.
    """

    def __init__(self, near: Pair, change: Change, registry: Registry, *, whose: Whose, first: bool) -> None:
        super().__init__(near, change, registry, Unknown.TIME)
        self._whose, self._first = whose, first
        self._held: list[tuple[int, Fact | Event, Sequence[Decision]]] = []

    @property
    def settled(self) -> bool:
        """Whether it is known when all of it happened."""
        return not self._held

    def begin_with_most(self, kind: Unknown) -> None:
        """The run began long before, unless a person was waited for."""
        if self._whose != "person":
            super().begin_with_most(kind)

    def take(self, seq: int, fact: Fact, group: Sequence[Decision]) -> None:
        """Take a fact, or keep it until it is known how late it can have been."""
        if untimed(fact):
            self._held.append((seq, fact, group))
        else:
            self.release(reached(fact))
            super().take(seq, fact, group)

    def pass_by(self, seq: int, event: Event) -> None:
        """Take an event that changes nothing, in its turn."""
        if self._held:
            self._held.append((seq, event, ()))
        else:
            self._pass(seq, event)

    def _pass(self, seq: int, event: Event) -> None:
        at = max(self.recorded.state.at, getattr(event, "at", 0))
        super().pass_by(seq, replace(event, at=at))

    def release(self, until: int) -> None:
        """Take what was kept: it happened by then."""
        held, self._held = self._held, []
        late = False
        for seq, event, group in held:
            if not isinstance(event, Fact):
                self._pass(seq, event)
                continue
            state = self.recorded.state
            first = self._first and _responds_first(event, state)
            waited = state.asked_at is not None and self._whose != "anybody"
            late = late or waited or first or not state.seq
            passes = late if self._whose == "person" else bool(state.seq) and not (waited or first)
            at = max(state.at, until if passes else event.at)
            moved = [_later(decision, at - event.at) for decision in group]
            super().take(seq, replace(event, at=at), moved)


def untimed(fact: Fact) -> bool:
    """Whether nobody knows when it happened, but that what stands before it was before."""
    return Unknown.TIME in fact.unknown or (isinstance(fact, RunStarted) and not fact.at)


def _responds_first(fact: Fact, state: RunState) -> bool:
    return isinstance(fact, ModelResponded) and bool(state.seq) and state.turn.first_response is None


def _later(decision: Decision, by: int) -> Decision:
    return replace(decision, until=decision.until + by) if isinstance(decision, RetryScheduled) else decision
