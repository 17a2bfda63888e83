"""Data that a record may lack, with the upper bound of each kind: the table of unknowns, `UNKNOWNS`.

The recorded values are the lower bound. A verdict holds for an incomplete record if it is the same at both
bounds. Data without a bound is in `losses`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.guards import Registry
from refold.reducers.guards.protocol import reading_of
from refold.reducers.limits import Limit, needs, refuses_unknown
from refold.reducers.policy import Policy, Without, text_of
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Replay, StopReason, ToolError, Unknown
from refold.replay import known

UNTIMED = "time limits: not all times are recorded"
UNPRICED = "cost limits: some responses have no recorded price"
UNCOUNTED = "token limits: some responses have no recorded token count"
_SILENT = "empty response: the record does not say whether its stream broke"

MOST = 2**60
"""Tokens or nano-dollars: more than any limit."""
FOREVER = 2**63 - 1
"""Nanoseconds: longer than any limit."""
GROWING = (Unknown.USAGE, Unknown.COST, Unknown.TIME)
"""Quantities that grow with the run, and that limits count."""
_CHARS = 10
"""Upper bound on average characters, and on bytes, per token (`prices`)."""
_HEAVIEST: Mapping[str, float] = MappingProxyType(
    {
        "cjk": 20 + _CHARS / 1.5,
        "bytes4": 10 + _CHARS,
        "bpe:o200k_base": _CHARS,
        "bpe:cl100k_base": _CHARS,
    }  # per tool with at least one token each; a byte tokenizer returns at most one token per byte
)
"""Maximum estimate for one real token of a tool, by estimator.

The others count a quarter of its characters, rounded up.
"""
_Charged = ev.ModelResponded | ev.SummaryReturned | ev.ModelFailed | ev.ChildEnded


class Assumption(msgspec.Struct, frozen=True):
    """Inputs of a bound: the two policies, the guards, and the stop reason of responses without one."""

    recorded: Policy
    other: Policy
    registry: Registry
    stop: tuple[StopReason, str] = (StopReason.END_TURN, "")


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of data that a record may lack: how to detect it, who reads it, and its upper bound.

    `is_lost`: whether a fact lacks it. `is_read`: whether the second policy uses it, over a run under the
    first, with these guards installed. `fill` returns the fact at the upper bound, `raise_before` the state
    at the upper bound of what came before. `limit` is the type and the measure of the limits that count it.
    `words` describes the missing data in a state: a sentence if limits count it, else the object of "the
    record does not say".
    """

    is_lost: Callable[[ev.Fact], bool]
    is_read: Callable[[Policy, Policy, Registry], bool]
    fill: Callable[[ev.Fact, Assumption], ev.Fact]
    words: Callable[[RunState], str]
    raise_before: Callable[[RunState], RunState] = lambda state: state
    limit: tuple[str, str] | None = None


def lacks_usage(fact: ev.Fact) -> bool:
    """Return whether the fact may have used more tokens than it records."""
    return isinstance(fact, _Charged) and Unknown.USAGE in fact.unknown


def lacks_price(fact: ev.Fact) -> bool:
    """Return whether the fact may have cost more than it records.

    A price that the engine did not know either is not lacking: its decisions took that into account.
    """
    if not isinstance(fact, _Charged) or Unknown.COST in fact.unknown:
        return isinstance(fact, _Charged)
    charged = not isinstance(fact, ev.ModelFailed) or fact.usage.input or fact.usage.output
    return fact.cost_nanousd is None and bool(charged) and Unknown.UNPRICED not in fact.unknown


def lacks_time(fact: ev.Fact) -> bool:
    """Return whether the fact may have happened later than it records.

    Its time is unknown, but events before it in the log happened before it.
    """
    return Unknown.TIME in fact.unknown or (isinstance(fact, ev.RunStarted) and not fact.at)


def counts(policy: Policy, kind: Unknown) -> bool:
    """Return whether a limit of the policy counts this kind of data."""
    return any(limit.reads is kind for limit in policy.limits)


def _reads_tools(_: Policy, policy: Policy, registry: Registry) -> bool:
    do = policy.overflow.do or () if policy.overflow is not None else ()
    steps = (*policy.history, *(step for step in do if not isinstance(step, str)))
    kinds = (registry.get(str(config.get("guard"))) for config in policy.guards)
    judges = policy.premature_end or policy.pressure or any(reading_of(kind).manifest for kind in kinds)
    return bool(judges) or any(Unknown.TOOLS in step.reads for step in steps)


def _spend_most(fact: ev.Fact, _: Assumption) -> ev.Fact:
    if not isinstance(fact, _Charged) or not lacks_usage(fact):
        return fact
    return replace(fact, usage=replace(fact.usage, input=MOST))


def _cost_most(fact: ev.Fact, _: Assumption) -> ev.Fact:
    if not isinstance(fact, _Charged) or not lacks_price(fact):
        return fact
    return replace(fact, cost_nanousd=MOST)


def _fail(fact: ev.Fact, assumed: Assumption) -> ev.Fact:
    """Let a call of unknown status fail, with the error that differs most between the two policies."""
    if not isinstance(fact, ev.ToolReturned) or known.failed(fact) is not None:
        return _stop(fact, assumed)  # failures only affect a response that ended its turn
    old, new = assumed.recorded, assumed.other
    differing = (each for each in ToolError if text_of(old, each) != text_of(new, each))
    return replace(fact, error=next(differing, ToolError.RAISED))


def _stop(fact: ev.Fact, assumed: Assumption) -> ev.Fact:
    if not isinstance(fact, ev.ModelResponded) or Unknown.STOP not in fact.unknown:
        return fact
    reason, word = assumed.stop
    return replace(fact, stop=reason, stop_raw=fact.stop_raw or word)


def _shrink_context(fact: ev.Fact, assumed: Assumption) -> ev.Fact:
    """Set an unknown context to one token, and an unknown model to the names that steps require."""
    if not isinstance(fact, ev.RunStarted):
        return fact
    names = " ".join(name for step in assumed.other.history for name in step.when.model)
    return replace(fact, context=fact.context or 1, model=fact.model or names)


def _add_tools(fact: ev.Fact, assumed: Assumption) -> ev.Fact:
    if not isinstance(fact, ev.RunStarted):
        return fact
    return replace(fact, tools=more_tools(fact.tools, assumed.other, assumed.registry))


def _spend_before(state: RunState) -> RunState:
    spent = state.spent
    return replace(state, spent=replace(spent, usage=replace(spent.usage, input=MOST)))


def _begin_long_ago(state: RunState) -> RunState:
    marks = {name: replace(getattr(state, name), at=-FOREVER) for name in ("lineage", "origin", "turn")}
    return replace(state, **marks)


def _name_context(state: RunState) -> str:
    return f"how long the model's context was{'' if state.setup.model else ' or which model was used'}"


def _name_stop(state: RunState) -> str:
    raw = state.answer.event.stop_raw if state.answer is not None else ""
    return f"why a response stopped{f' or what {raw[:40]!r} means' if raw else ''}"


UNKNOWNS: Mapping[Unknown, Bound] = MappingProxyType(
    {
        Unknown.TOOLS: Bound(
            is_lost=lambda fact: isinstance(fact, ev.RunStarted) and Unknown.TOOLS in fact.unknown,
            is_read=_reads_tools,
            fill=_add_tools,
            words=lambda _: "which tools there were, how many tokens they took, or which are read-only",
        ),
        Unknown.CONTEXT: Bound(
            is_lost=lambda fact: isinstance(fact, ev.RunStarted) and Unknown.CONTEXT in fact.unknown,
            is_read=lambda _, policy, __: any(Unknown.CONTEXT in step.reads for step in policy.history),
            fill=_shrink_context,
            words=_name_context,
        ),
        Unknown.ERRORS: Bound(
            is_lost=lambda fact: isinstance(fact, ev.ToolReturned) and Unknown.ERRORS in fact.unknown,
            is_read=lambda old, new, _: bool(new.guards or new.premature_end or new.texts != old.texts),
            fill=_fail,
            words=lambda _: "which calls failed",
        ),
        Unknown.STOP: Bound(
            is_lost=lambda fact: isinstance(fact, ev.ModelResponded) and Unknown.STOP in fact.unknown,
            is_read=lambda _, policy, __: bool(stops_read(policy)),
            fill=_stop,
            words=_name_stop,
        ),
        Unknown.USAGE: Bound(
            is_lost=lacks_usage,
            is_read=lambda _, policy, __: policy.stream is not None or counts(policy, Unknown.USAGE),
            fill=_spend_most,
            raise_before=_spend_before,
            words=lambda state: _SILENT if state.answer is not None and state.answer.silent else UNCOUNTED,
            limit=("token", "usage"),
        ),
        Unknown.COST: Bound(
            is_lost=lacks_price,
            is_read=lambda _, policy, __: counts(policy, Unknown.COST),
            fill=_cost_most,
            raise_before=lambda state: replace(state, spent=replace(state.spent, cost_nanousd=MOST)),
            words=lambda _: UNPRICED,
            limit=("cost", "usage"),
        ),
        Unknown.TIME: Bound(
            is_lost=lacks_time,
            is_read=lambda _, policy, __: counts(policy, Unknown.TIME),
            fill=lambda fact, _: fact,  # `WorstCaseClock` moves facts
            raise_before=_begin_long_ago,
            words=lambda _: UNTIMED,
            limit=("time", "usage"),
        ),
    }
)
"""Kinds of data that are judged at two bounds. The bounds are followed in this order.

A missing result has no bound.
"""


def without_known_limits(policy: Policy, unknown: Collection[Unknown], in_force: Sequence[Limit]) -> Policy:
    """Return the policy without the limits that unknown data cannot affect.

    These are limits `in_force` in the record on `unknown` data, whose effect the record shows, and limits
    that count known data only.
    """
    limits = (
        replace(limit, value=None)
        if (limit in in_force and limit.reads in unknown) or (needs(limit) and not refuses_unknown(limit))
        else limit
        for limit in policy.limits
    )
    return replace(policy, limits=tuple(limits))


def stops_read(policy: Policy) -> tuple[tuple[StopReason, str], ...]:
    """Return the stop reasons on which the policy acts: reason, and the provider's own word or ""."""
    cut = policy.truncation is not None and policy.truncation.max > 0
    words = policy.overflow.stops if policy.overflow is not None else ()
    return (
        *([(StopReason.MAX_TOKENS, "")] if cut else []),
        *([(StopReason.CONTENT_FILTER, "")] if policy.refusal != "wait" else []),
        *([(StopReason.END_TURN, ""), (StopReason.OTHER, "")] if policy.premature_end is not None else []),
        *((StopReason.OTHER, word) for word in words),
    )


def more_tools(tools: Sequence[ev.Manifest], policy: Policy, registry: Registry) -> tuple[ev.Manifest, ...]:
    """Return the tools as read-only, and tools with the other names that the policy contains."""
    targets = (
        config.get(reading_of(registry.get(str(config.get("guard")))).target) for config in policy.guards
    )
    named = [str(target) for target in targets if target]
    for tier in policy.pressure.tiers if policy.pressure else ():
        named += tier.tools.without if isinstance(tier.tools, Without) else ()
    return tuple(replace(tool, replay=Replay.READ_ONLY) for tool in add_tools(tools, named))


def add_tools(tools: Sequence[ev.Manifest], names: Iterable[str]) -> tuple[ev.Manifest, ...]:
    """Return the tools, and one for each name that is not among them."""
    there = {tool.name for tool in tools}
    new = [name for name in dict.fromkeys(names) if name not in there]
    return (*tools, *(ev.Manifest(name=name) for name in new)) if new else tuple(tools)


def estimate_tools(policy: Policy, used: int) -> int:
    """Return the maximum estimate of the tools in a request of `used` tokens."""
    return int(used * _HEAVIEST.get(policy.estimator, _CHARS / 4 + 1))


def with_room(policy: Policy, weight: int | None) -> Policy:
    """Return the policy with this estimate of the tools; None: as much as there is room for."""
    policy = replace(policy, history=tuple(step.beside(weight) for step in policy.history))
    if policy.overflow is None or policy.overflow.do is None:
        return policy
    do = tuple(step if isinstance(step, str) else step.beside(weight) for step in policy.overflow.do)
    return replace(policy, overflow=replace(policy.overflow, do=do))
