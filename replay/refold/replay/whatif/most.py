"""Upper bounds of what a record does not say: prices, contexts, tools.

Unknown stays unknown: without a count of tokens, or with one that is surely only a part, there is no price. So it is for a
failed request, of which nobody knows what its provider charged, and for another run that a call started.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from refold.reducers.events import (
    ChildEnded,
    Event,
    Fact,
    Manifest,
    ModelFailed,
    ModelResponded,
    RunStarted,
    SummaryReturned,
)
from refold.reducers.guards.endings import Pivot
from refold.reducers.history import Pass
from refold.reducers.history.strategy import Share
from refold.reducers.history.windows import Room, TokenTail
from refold.reducers.limits import CostLimit, Limit, TimeLimit, TokenLimit, insists, needs
from refold.reducers.messages import Usage
from refold.reducers.named_tools import looks_into_fields
from refold.reducers.patterns import object_of
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


_MOST = 10_000
"""Fields that are remembered of a run: what has more has them by chance, as a map of names does."""


class Called:
    """Takes answers, and tells of the arguments of their calls what a JSON Schema would."""

    def __init__(self) -> None:
        self._schemas: dict[str, dict[str, Any]] = {}
        self._left = _MOST

    def take(self, event: Event, policy: Policy) -> None:
        """Take an event; of calls that no rule of the policy looked into, and of such as were erased, nothing is known."""
        if not isinstance(event, ModelResponded) or self._left < 0:
            return
        texts = event.content.arguments if event.content and looks_into_fields(policy) else ()
        for place, call in enumerate(event.calls):
            said = object_of(texts[place]) if place < len(texts) else None
            schema = self._schemas.setdefault(call.name, {"properties": {}})
            if said is None:
                schema.clear()
            elif schema:
                self._add(schema["properties"], said)

    @property
    def schemas(self) -> Mapping[str, Any]:
        """By the name of the tool; {} where it may have any field."""
        return {} if self._left < 0 else self._schemas

    def _add(self, listed: dict[str, Any], said: Mapping[str, Any]) -> None:
        for key, value in said.items():
            if key not in listed:
                self._left -= 1
                listed[key] = {"properties": {}}
            if self._left < 0:
                return
            if isinstance(value, dict):
                self._add(listed[key]["properties"], cast("Mapping[str, Any]", value))


_PER_TOKEN = 10
"""No token has more characters than that on average: where more was written than so many for each, not all were counted."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What a price hangs on: the model that answered, the address it was asked at ("" unknown), when, and its tokens.

    `at` is nanoseconds since the epoch, 0 where nobody says.
    """

    model: str
    address: str
    at: int
    usage: Usage


class Prices(msgspec.Struct, frozen=True):
    """A table of prices. `name` says which, and which version of it; `cost` is nano-dollars, None where it has no price."""

    name: str
    cost: Callable[[Answered], int | None]


def cost_of(fact: Fact, state: RunState, prices: Prices) -> int | None:
    """What an answer costs that has no price in the record; None for anything else, or if nobody knows.

    `state` is the run's before the fact.
    """
    if not isinstance(fact, ModelResponded | SummaryReturned) or fact.cost_nanousd is not None:
        return None
    asked = state.request.event.model if state.request is not None else ""
    answered = Answered(
        model=fact.model or asked or state.setup.model,
        address=state.setup.address,
        at=fact.at,
        usage=fact.usage,
    )
    return prices.cost(answered) if answered.model and _counted(fact) else None


def priced(fact: Fact, state: RunState, prices: Prices | None) -> Fact:
    """The fact with its price, if only the table has one. `state` is the run's before it."""
    cost = None if prices is None else cost_of(fact, state, prices)
    if cost is None or not isinstance(fact, ModelResponded | SummaryReturned):
        return fact
    part = (
        (Unknown.COST,) if Unknown.USAGE in fact.unknown else ()
    )  # a price of part of its tokens is a least
    left = tuple(what for what in fact.unknown if what is not Unknown.UNPRICED)
    return replace(fact, cost_nanousd=cost, unknown=(*left, *part))


def left_open(fact: Fact, state: RunState) -> Fact:
    """The fact, whose price is a gap of the record where no limit of the run asked after it: one that did could not begin without."""
    asked = any(isinstance(limit, CostLimit) and insists(limit) for limit in state.policy.limits)
    if fact.unknown != (Unknown.UNPRICED,) or asked:
        return fact
    return replace(fact, unknown=())


def _counted(fact: ModelResponded | SummaryReturned) -> bool:
    """Whether all tokens were counted, as far as anybody can tell."""
    usage = fact.usage
    if not usage.input or usage.cache_read + usage.cache_write > usage.input:
        return False
    size = fact.size
    written = size.chars + size.reasoning + size.arguments
    return usage.output * _PER_TOKEN >= written


class Contexts(msgspec.Struct, frozen=True):
    """A table of context lengths. `name` says which, and which version of it.

    `length` is tokens, of a model asked at an address (each "" if unknown), None where the table does not say.
    """

    name: str
    length: Callable[[str, str], int | None]


def with_context(fact: Fact, contexts: Contexts | None) -> Fact:
    """What a run was started with, with the length of its model's context if only the table says it.

    Where nobody knows which model it was, a rule that asks for its name is judged as before.
    """
    if contexts is None or not isinstance(fact, RunStarted) or Unknown.CONTEXT not in fact.unknown:
        return fact
    length = contexts.length(fact.model, fact.address)
    if length is None or fact.context is not None:
        return fact
    known = (Unknown.CONTEXT,) if fact.model else ()
    return replace(fact, context=length, unknown=tuple(kind for kind in fact.unknown if kind not in known))
