"""The other run at the far end of what a record does not say: unknown is never zero.

An engine counts what it uses, and offers what it has. A transcript of another agent may lack the tools, the tokens, the
prices, the context, or have them of some answers only; its facts hold the least: so many tokens were used, or more. So the
other run is derived from them as they stand, and once more with the most that there can be, and both are compared with the
record. Where they come to the same, so does all that lies between. Where they do not, nobody can say.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from refold.reducers.errors import RefoldError
from refold.reducers.events import (
    CallRefused,
    ChildEnded,
    Event,
    Fact,
    GuardTripped,
    HistoryPruned,
    Manifest,
    MessageTrimmed,
    ModelFailed,
    ModelResponded,
    PolicyAmended,
    RunForked,
    RunStarted,
    SummaryRequested,
    SummaryReturned,
)
from refold.reducers.folds import advance
from refold.reducers.guards import Registry
from refold.reducers.guards.pivot import Pivot
from refold.reducers.history import Pass
from refold.reducers.history.token_tail import Room, TokenTail
from refold.reducers.history.when import Share
from refold.reducers.knobs import Without
from refold.reducers.limits import CostLimit, Limit, TokenLimit, measure_of
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import Cause, Replay, Unknown
from refold.replay.whatif.shown import Apart, Side, Windows, apart
from refold.replay.whatif.verdict import UNCOUNTED, UNPRICED

Effect = Literal["stops", "asks", "rests"]
"""What may be otherwise: the run may have ended by then; or something else have been asked of the world; or else what was
derived rests on it, and is no proof of anything."""

_MOST = 2**60  # tokens, or nano-dollars: more than any limit
_SPENDING = (Unknown.USAGE, Unknown.COST)
_BUDGETS = (("token", "usage"), ("cost", "usage"))
_SETTING = ((Unknown.TOOLS,), (Unknown.CONTEXT,), (Unknown.TOOLS, Unknown.CONTEXT))
_SILENT = "an answer of nothing: the record does not say whether its stream broke"
_MISSING = {
    Unknown.TOOLS: "which tools there were, what they weighed, or which of them only read",
    Unknown.CONTEXT: "how large the model's context was",
}
_Charged = ModelResponded | SummaryReturned | ModelFailed | ChildEnded
_StartedT = TypeVar("_StartedT", bound=RunStarted)


class _Fact(NamedTuple):
    """A fact that both runs take: as the other has it, and the policies that it leaves them with."""

    fact: Fact
    recorded: Policy
    derived: Policy
    registry: Registry


class _FarEnd(Side):
    """The other run with the most of what is `unknown`; `events` are those that it took last, `setup_of` whose setup it has."""

    def __init__(self, near: Side, unknown: tuple[Unknown, ...]) -> None:
        super().__init__(near.state)
        self.harness = dict(near.harness)
        self.unknown = unknown
        self.windows = Windows()
        self.setup_of: RunStarted | None = None
        self.events: tuple[Event, ...] = ()


class Ends:
    """Derives the far ends beside the other run, each until it comes to something else than that.

    `doubt` is told why nobody can say more, and what may be otherwise.
    """

    def __init__(self, recorded: Side, near: Side, doubt: Callable[[str, Effect], None]) -> None:
        self._recorded, self._near, self._doubt = recorded, near, doubt
        self._ends: list[_FarEnd] = []
        self._met: set[Unknown] = set()
        self._tools: tuple[Manifest, ...] = ()
        self._listed = True
        self._context = 1  # tokens

    def take(self, fact: Fact, recorded: Fact, registry: Registry) -> None:
        """The other run is about to take a fact, of which this was `recorded`."""
        taken = _Fact(fact, *self._policies(fact, recorded), registry)
        if isinstance(fact, RunStarted):
            self._begin(fact, taken)
        elif isinstance(fact, RunForked):
            self._fork()
        elif isinstance(fact, ModelResponded) and Unknown.TOOLS in self._near.state.setup.unknown:
            self._call(fact)
        for kind in _SPENDING:
            if kind not in self._met and _lacks(fact, kind) and _reads(taken.derived, kind):
                self._met.add(kind)
                self._ends.append(_FarEnd(self._near, (kind,)))
        for end in list(self._ends):
            self._advance(end, taken)
        if isinstance(fact, ModelResponded):
            self._learn(fact)

    def pass_by(self, event: Event, registry: Registry) -> None:
        """An event that changes nothing but the place in the log."""
        for end in self._ends:
            end.fold(event, registry)

    def _policies(self, fact: Fact, recorded: Fact) -> tuple[Policy, Policy]:
        new, old = getattr(fact, "policy", None), getattr(recorded, "policy", None)
        return old or self._recorded.state.policy, new or self._near.state.policy

    def _begin(self, fact: RunStarted, taken: _Fact) -> None:
        self._tools, self._listed = fact.tools, bool(fact.tools)
        if taken.recorded != taken.derived:
            met = {kind for kind in fact.unknown if _reads(taken.derived, kind)}
            self._ends += [_FarEnd(self._near, kinds) for kinds in _SETTING if met.issuperset(kinds)]

    def _fork(self) -> None:
        """What follows is of an engine of ours: it says what it offers."""
        self._ends = [end for end in self._ends if end.unknown[0] in _SPENDING]
        if Unknown.TOOLS in self._near.state.setup.unknown:
            self._offer(self._tools)

    def _call(self, fact: ModelResponded) -> None:
        """A tool that was called existed, whether or not the source lists it: it is judged as one that was offered."""
        tools = self._near.state.setup.tools
        names = {tool.name for tool in tools}
        new = dict.fromkeys(call.name for call in fact.calls if call.name not in names)
        if new:
            self._listed = False
            self._offer((*tools, *(Manifest(name=name) for name in new)))

    def _offer(self, tools: tuple[Manifest, ...]) -> None:
        for side in (self._recorded, self._near):
            side.state = replace(side.state, setup=replace(side.state.setup, tools=tools))

    def _learn(self, fact: ModelResponded) -> None:
        """What the model answered to fits into its context."""
        used = fact.usage.input + fact.usage.output
        known = Unknown.USAGE not in fact.unknown and fact.model == self._near.state.setup.model
        if known and used > self._context:
            self._context = used
            for end in self._ends:
                end.setup_of = None

    def _advance(self, end: _FarEnd, taken: _Fact) -> None:
        fact, near, limits = taken.fact, self._near.state.setup, taken.recorded.limits
        if end.state.seq and end.setup_of is not near:
            setup = self._most_of(near, end.unknown, limits)
            end.state, end.setup_of = replace(end.state, setup=setup), near
        if isinstance(fact, RunStarted):
            fact = self._most_of(fact, end.unknown, limits)
        elif isinstance(fact, PolicyAmended | RunForked) and fact.policy is not None:
            fact = replace(fact, policy=_unlimited(fact.policy, end.unknown, limits))
        for kind in end.unknown:
            fact = _most(fact, kind) if _lacks(fact, kind) else fact
        try:
            state, end.events = advance(end.state, fact, taken.registry)
        except RefoldError:  # what it came to leaves no place for this
            self._ends.remove(end)
            self._doubt(self._why(end, ()), "rests")
        else:
            end.take(end.events, state)

    def judge(self, near: Apart | None, events: Sequence[Event]) -> None:
        """The other run has taken the fact too, with these events; `near` is in what it parts from the record."""
        if near is not None and near.parted.kind == "unknown":
            return
        if self._near.state.policy == self._recorded.state.policy:
            return  # what the record does not say was no other for it
        told: list[tuple[Effect, tuple[Unknown, ...]]] = []
        for end in list(self._ends):
            effect = self._effect(end, near)
            if effect is None:
                continue
            self._ends.remove(end)
            # Of two things that are unknown one may be enough.
            if not any(effect == other and set(part) < set(end.unknown) for other, part in told):
                self._doubt(self._why(end, events), effect)
            told.append((effect, end.unknown))

    def _effect(self, end: _FarEnd, near: Apart | None) -> Effect | None:
        one = self._recorded.state
        spending = one.limit is not None and (one.limit.type, one.limit.measure) in _BUDGETS
        if near is None and spending and end.unknown[0] in _SPENDING:
            # The record itself tells of the limits that were in force: the far end has none of them.
            if one.ended:
                self._ends.remove(end)
            return None if one.ended else "rests"
        return _effect(near, apart(self._seen_by(end), end, end.windows))

    def _seen_by(self, end: _FarEnd) -> Side:
        """The recorded run, as it was if its tools were the far end's."""
        if Unknown.TOOLS not in end.unknown:
            return self._recorded
        state, tools = self._recorded.state, end.state.setup.tools
        side = Side(replace(state, setup=replace(state.setup, tools=tools)))
        side.harness = self._recorded.harness
        return side

    def _most_of(self, run: _StartedT, unknown: Sequence[Unknown], in_force: Sequence[Limit]) -> _StartedT:
        """What a run was started with, with the most of what is unknown."""
        policy = run.policy
        if Unknown.CONTEXT in unknown:
            names = " ".join(name for step in policy.history for name in step.when.model)
            run = replace(run, context=run.context or self._context, model=run.model or names)
        if Unknown.TOOLS in unknown:
            run = replace(run, tools=_more_tools(run.tools, policy))
            # They may weigh as much as there is room for.
            policy = policy if self._listed else _roomless(policy)
        return replace(run, policy=_unlimited(policy, unknown, in_force))

    def _why(self, end: _FarEnd, events: Sequence[Event]) -> str:
        if end.unknown == (Unknown.COST,):
            return UNPRICED
        if end.unknown == (Unknown.USAGE,):
            answer = self._near.state.answer
            return _SILENT if answer is not None and answer.silent else UNCOUNTED
        missing = [_MISSING[kind] for kind in end.unknown]
        if Unknown.CONTEXT in end.unknown and not self._near.state.setup.model:
            missing.append("which model was asked")
        whose = [who for each in (end.events, events) for who in map(_speaker, each) if who]
        near = {who for who in map(_speaker, events) if who}
        who = next((who for who in whose if who not in near), whose[0] if whose else "")
        return f"{who}{': ' if who else ''}the record does not say {' or '.join(missing)}"


def _effect(near: Apart | None, far: Apart | None) -> Effect | None:
    """What may be otherwise where the ends come to this; None: they come to the same."""
    match near, far:
        case None, None:
            return None
        case None, Apart(stops=True):
            return "stops"
        case None, _:
            return "asks"
        case Apart(stops=True, code=one), Apart(stops=True, code=other):
            return None if one == other else "stops"
        case Apart(stops=False), Apart(stops=False):
            return None
        case _:
            return "rests"


def _lacks(fact: Fact, kind: Unknown) -> bool:
    """Whether it used more of this than it says, or may have."""
    if not isinstance(fact, _Charged) or kind not in _SPENDING:
        return False
    if kind is Unknown.USAGE or kind in fact.unknown:
        return kind in fact.unknown
    told = not isinstance(fact, ModelFailed) or fact.usage.input or fact.usage.output
    return fact.cost_nanousd is None and bool(told)


def _most(fact: Fact, kind: Unknown) -> Fact:
    assert isinstance(fact, _Charged)
    if kind is Unknown.COST:
        return replace(fact, cost_nanousd=_MOST)
    return replace(fact, usage=replace(fact.usage, input=_MOST))


def _reads(policy: Policy, kind: Unknown) -> bool:
    """Whether there is a rule that asks after it. To derive a run once more for nothing costs as much as for something."""
    match kind:
        case Unknown.USAGE:
            return policy.stream is not None or any(_counts(limit) is kind for limit in policy.limits)
        case Unknown.COST:
            return any(_counts(limit) is kind for limit in policy.limits)
        case Unknown.TOOLS:
            return bool(
                policy.guards or policy.premature_end or policy.pressure or _roomless(policy) != policy
            )
        case Unknown.CONTEXT:
            return any(isinstance(step.when.tokens, Share) or step.when.model for step in policy.history)
        case _:
            return False


def _counts(limit: Limit) -> Unknown | None:
    if limit.value is None:
        return None
    if isinstance(limit, CostLimit):
        return Unknown.COST if limit.unpriced == "refuse" else None
    return Unknown.USAGE if isinstance(limit, TokenLimit) and measure_of(limit) == "usage" else None


def _unlimited(policy: Policy, unknown: Sequence[Unknown], in_force: Sequence[Limit]) -> Policy:
    """The policy without the limits that go by what is known: the record tells of those that were `in_force`."""
    if unknown[0] not in _SPENDING:
        return policy
    limits = (
        replace(limit, value=None)
        if limit in in_force or (isinstance(limit, CostLimit) and limit.unpriced == "ignore")
        else limit
        for limit in policy.limits
    )
    return replace(policy, limits=tuple(limits))


def _more_tools(tools: Sequence[Manifest], policy: Policy) -> tuple[Manifest, ...]:
    """The tools, all of which only read, and others that the policy speaks of."""
    named = [str(config.get("to", Pivot.to)) for config in policy.guards if config.get("guard") == Pivot.kind]
    for tier in policy.pressure.tiers if policy.pressure else ():
        named += tier.tools.without if isinstance(tier.tools, Without) else ()
    there = {tool.name for tool in tools}
    more = [Manifest(name=name) for name in dict.fromkeys(named) if name not in there]
    return tuple(replace(tool, replay=Replay.READ_ONLY) for tool in (*tools, *more))


def _roomless(policy: Policy) -> Policy:
    """The policy where tools leave no room for anything beside them."""
    policy = replace(policy, history=tuple(map(_without_room, policy.history)))
    if policy.overflow is None or policy.overflow.do is None:
        return policy
    do = tuple(step if isinstance(step, str) else _without_room(step) for step in policy.overflow.do)
    return replace(policy, overflow=replace(policy.overflow, do=do))


def _without_room(step: Pass) -> Pass:
    if isinstance(step, TokenTail) and isinstance(step.budget, Room) and step.budget.minus_tools:
        return replace(step, budget=Room(context=0))
    return step


def _speaker(event: Event) -> str:
    match event:
        case GuardTripped(guard=name):
            return f"guard {name}"
        case HistoryPruned(name=name) | SummaryRequested(name=name):
            return f"pass {name}"
        case MessageTrimmed(name=name, cause=cause) | CallRefused(name=name, cause=cause):
            kind = {Cause.HISTORY: "pass", Cause.GUARD: "guard"}.get(cause, "")
            return f"{kind} {name}" if kind else ""
        case _:
            return ""
