"""The most that there can have been of what a record does not say, and which rules ask after it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from refold.reducers.events import ChildEnded, Fact, Manifest, ModelFailed, ModelResponded, SummaryReturned
from refold.reducers.guards.endings import Pivot
from refold.reducers.history import Pass
from refold.reducers.history.strategy import Share
from refold.reducers.history.windows import Room, TokenTail
from refold.reducers.limits import CostLimit, Limit, TimeLimit, TokenLimit, insists, needs
from refold.reducers.policy import Policy, Without, text_of
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Replay, StopReason, ToolError, Unknown

MOST = 2**60
"""Tokens or nano-dollars: more than any limit."""
FOREVER = 2**63 - 1
"""Nanoseconds: longer than any limit."""
SPENDING = (Unknown.USAGE, Unknown.COST)
GROWING = (*SPENDING, Unknown.TIME)
"""What grows with the run, and what limits count."""
_CHARS = 10
"""No token has more characters than that on average (`prices`), nor more bytes."""
_HEAVIEST: Mapping[str, float] = MappingProxyType(
    {
        "cjk": 20 + _CHARS / 1.5,
        "bytes4": 10 + _CHARS,
        "bpe:o200k_base": _CHARS,
        "bpe:cl100k_base": _CHARS,
    }  # so much for each tool, and each has one token at least; a tokenizer of bytes makes no more tokens than bytes
)
"""What estimators make of one token of a tool at most; the others count a quarter of its characters, rounded up."""
_Charged = ModelResponded | SummaryReturned | ModelFailed | ChildEnded


def lacks(fact: Fact, kind: Unknown) -> bool:
    """Whether it used more tokens, or money, than it says, or may have; or happened later."""
    if kind is Unknown.TIME:
        return kind in fact.unknown
    if not isinstance(fact, _Charged) or kind not in SPENDING:
        return False
    if kind is Unknown.USAGE or kind in fact.unknown:
        return kind in fact.unknown
    if Unknown.UNPRICED in fact.unknown:
        return False  # the engine itself did not know, and decided by that
    told = not isinstance(fact, ModelFailed) or fact.usage.input or fact.usage.output
    return fact.cost_nanousd is None and bool(told)


def most_used(fact: Fact, kind: Unknown) -> Fact:
    """The fact with the most tokens, or money, if it lacks them."""
    if not lacks(fact, kind):
        return fact
    assert isinstance(fact, _Charged)
    if kind is Unknown.COST:
        return replace(fact, cost_nanousd=MOST)
    return replace(fact, usage=replace(fact.usage, input=MOST))


def most_before(state: RunState, kind: Unknown) -> RunState:
    """The state with the most of what was lacking before it."""
    spent = state.spent
    match kind:
        case Unknown.TIME:
            since = {
                name: replace(getattr(state, name), at=-FOREVER) for name in ("lineage", "origin", "turn")
            }
            return replace(state, **since)
        case Unknown.COST:
            return replace(state, spent=replace(spent, cost_nanousd=MOST))
        case _:
            return replace(state, spent=replace(spent, usage=replace(spent.usage, input=MOST)))


def reads(policy: Policy, kind: Unknown) -> bool:
    """Whether there is a rule that asks after it. To derive a run once more for nothing costs as much as for something."""
    match kind:
        case Unknown.USAGE:
            return policy.stream is not None or any(_counts(limit) is kind for limit in policy.limits)
        case Unknown.COST | Unknown.TIME:
            return any(_counts(limit) is kind for limit in policy.limits)
        case Unknown.TOOLS:
            judges = policy.guards or policy.premature_end or policy.pressure
            return bool(judges) or with_room(policy, 0) != policy
        case Unknown.CONTEXT:
            return any(isinstance(step.when.tokens, Share) or step.when.model for step in policy.history)
        case Unknown.ERRORS:
            return bool(policy.guards or policy.premature_end)
        case _:
            return False


def _counts(limit: Limit) -> Unknown | None:
    if limit.value is None:
        return None
    match limit:
        case TimeLimit():
            return Unknown.TIME
        case CostLimit() | TokenLimit() if insists(limit):
            return Unknown.COST if isinstance(limit, CostLimit) else Unknown.USAGE
        case _:
            return None


def unlimited(policy: Policy, unknown: Sequence[Unknown], in_force: Sequence[Limit]) -> Policy:
    """The policy without the limits that go by what is known: the record tells of those that were `in_force`."""
    limits = (
        replace(limit, value=None)
        if (limit in in_force and _counts(limit) in unknown) or (needs(limit) and not insists(limit))
        else limit
        for limit in policy.limits
    )
    return replace(policy, limits=tuple(limits))


def failure_of(old: Policy, new: Policy) -> ToolError:
    """How a call may have failed, so that it makes the most difference between two policies."""
    return next((each for each in ToolError if text_of(old, each) != text_of(new, each)), ToolError.RAISED)


def stops_read(policy: Policy) -> tuple[tuple[StopReason, str], ...]:
    """Why an answer may have ended so that the policy makes a difference of it: our reason, and a provider's word or ""."""
    cut = policy.truncation is not None and policy.truncation.max > 0
    words = policy.overflow.stops if policy.overflow is not None else ()
    return (
        *([(StopReason.MAX_TOKENS, "")] if cut else []),
        *([(StopReason.CONTENT_FILTER, "")] if policy.refusal != "wait" else []),
        *([(StopReason.END_TURN, ""), (StopReason.OTHER, "")] if policy.premature_end is not None else []),
        *((StopReason.OTHER, word) for word in words),
    )


def more_tools(tools: Sequence[Manifest], policy: Policy) -> tuple[Manifest, ...]:
    """The tools, all of which only read, and others that the policy speaks of."""
    named = [str(config.get("to", Pivot.to)) for config in policy.guards if config.get("guard") == Pivot.kind]
    for tier in policy.pressure.tiers if policy.pressure else ():
        named += tier.tools.without if isinstance(tier.tools, Without) else ()
    there = {tool.name for tool in tools}
    more = [Manifest(name=name) for name in dict.fromkeys(named) if name not in there]
    return tuple(replace(tool, replay=Replay.READ_ONLY) for tool in (*tools, *more))


def heaviest(policy: Policy, used: int) -> int:
    """What tools weigh at most that were offered in a request of so many tokens."""
    return int(used * _HEAVIEST.get(policy.estimator, _CHARS / 4 + 1))


def with_room(policy: Policy, weight: int | None) -> Policy:
    """The policy where tools weigh so much; None: as much as there is room for."""
    policy = replace(policy, history=tuple(_with_room(step, weight) for step in policy.history))
    if policy.overflow is None or policy.overflow.do is None:
        return policy
    do = tuple(step if isinstance(step, str) else _with_room(step, weight) for step in policy.overflow.do)
    return replace(policy, overflow=replace(policy.overflow, do=do))


def _with_room(step: Pass, weight: int | None) -> Pass:
    if isinstance(step, TokenTail) and isinstance(step.budget, Room) and step.budget.minus_tools:
        room, minus = step.budget.context, step.budget.minus_output
        left = 0 if weight is None else max(0, room - weight)
        return replace(step, budget=Room(context=left, minus_output=minus))
    return step
