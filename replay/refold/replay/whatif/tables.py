"""Prices and context lengths given by the caller, and argument fields observed in recorded calls.

Without a complete token count there is no price: unknown stays unknown. The same holds for a failed request,
whose charge is not recorded, and for a subagent run.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from refold.reducers.events import Event, Fact, ModelResponded, RunStarted, SummaryReturned
from refold.reducers.limits import CostLimit, refuses_unknown
from refold.reducers.messages import Usage
from refold.reducers.named_tools import has_field_rules
from refold.reducers.patterns import object_of
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Unknown

_PER_TOKEN = 10
"""Upper bound on average characters per token: longer text means that not all tokens were counted."""


class PriceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of a price: the model, its address ("" if unknown), the time and the tokens.

    `at` is nanoseconds since the epoch, 0 if unknown.
    """

    model: str
    address: str
    at: int
    usage: Usage


class Prices(msgspec.Struct, frozen=True):
    """A price table. `name` includes its version; `cost` returns nano-dollars, None if it has no price."""

    name: str
    cost: Callable[[PriceQuery], int | None]


def price_of(fact: Fact, state: RunState, prices: Prices) -> int | None:
    """Return the table price of a response without a recorded price; None for other facts or if unknown.

    `state` precedes the fact.
    """
    if not isinstance(fact, ModelResponded | SummaryReturned) or fact.cost_nanousd is not None:
        return None
    asked = state.request.event.model if state.request is not None else ""
    answered = PriceQuery(
        model=fact.model or asked or state.setup.model,
        address=state.setup.address,
        at=fact.at,
        usage=fact.usage,
    )
    return prices.cost(answered) if answered.model and _is_counted(fact) else None


def add_price(fact: Fact, state: RunState, prices: Prices | None) -> Fact:
    """Return the fact with its price if only the table has one. `state` precedes it."""
    cost = None if prices is None else price_of(fact, state, prices)
    if cost is None or not isinstance(fact, ModelResponded | SummaryReturned):
        return fact
    part = (
        (Unknown.COST,) if Unknown.USAGE in fact.unknown else ()
    )  # the price of part of its tokens is a lower bound
    left = tuple(what for what in fact.unknown if what is not Unknown.UNPRICED)
    return replace(fact, cost_nanousd=cost, unknown=(*left, *part))


def close_price(fact: Fact, state: RunState) -> Fact:
    """Mark the price as unknown if no limit of the run needed it; a cost limit requires prices."""
    asked = any(isinstance(limit, CostLimit) and refuses_unknown(limit) for limit in state.policy.limits)
    if fact.unknown != (Unknown.UNPRICED,) or asked:
        return fact
    return replace(fact, unknown=())


def _is_counted(fact: ModelResponded | SummaryReturned) -> bool:
    """Return whether all tokens were counted, judged by the text length."""
    usage = fact.usage
    if not usage.input or usage.cache_read + usage.cache_write > usage.input:
        return False
    size = fact.size
    written = size.chars + size.reasoning + size.arguments
    return usage.output * _PER_TOKEN >= written


class Contexts(msgspec.Struct, frozen=True):
    """A table of context lengths. `name` includes its version.

    `length` returns tokens for a model at an address (each "" if unknown), None if the table has no entry.
    """

    name: str
    length: Callable[[str, str], int | None]


def add_context(fact: Fact, contexts: Contexts | None) -> Fact:
    """Add the context length to the start of a run if only the table has it.

    If the model is unknown, a rule that needs its name is evaluated as before.
    """
    if contexts is None or not isinstance(fact, RunStarted) or Unknown.CONTEXT not in fact.unknown:
        return fact
    length = contexts.length(fact.model, fact.address)
    if length is None or fact.context is not None:
        return fact
    known = (Unknown.CONTEXT,) if fact.model else ()
    return replace(fact, context=length, unknown=tuple(kind for kind in fact.unknown if kind not in known))


_MOST_FIELDS = 10_000
"""Fields remembered per object; an object with more is a map with arbitrary keys."""


class ArgumentSchemas:
    """Infers JSON Schemas of tool arguments from recorded responses."""

    def __init__(self) -> None:
        self._schemas: dict[str, dict[str, Any]] = {}
        self._left = _MOST_FIELDS

    def take(self, event: Event, policy: Policy) -> None:
        """Take an event; erased calls, and calls that no rule reads, are skipped."""
        if not isinstance(event, ModelResponded) or self._left < 0:
            return
        texts = event.content.arguments if event.content and has_field_rules(policy) else ()
        for place, call in enumerate(event.calls):
            said = object_of(texts[place]) if place < len(texts) else None
            schema = self._schemas.setdefault(call.name, {"properties": {}})
            if said is None:
                schema.clear()
            elif schema:
                self._add(schema["properties"], said)

    @property
    def schemas(self) -> Mapping[str, Any]:
        """Return the schemas by tool name; {} if any field is possible."""
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
