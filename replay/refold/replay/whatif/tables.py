"""What a caller knows that a record does not say, prices and context lengths, and the fields that recorded
calls show.

Unknown stays unknown: without a count of tokens, or with one that is surely only a part, there is no price.
So it is for a failed request, of which nobody knows what its provider charged, and for another run that a
call started.
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
"""No token has more characters than that on average: where more was written than so many for each, not all
were counted.
"""


class PriceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a price hangs on: the model that answered, the address it was asked at ("" unknown), when, and its
    tokens.

    `at` is nanoseconds since the epoch, 0 where nobody says.
    """

    model: str
    address: str
    at: int
    usage: Usage


class Prices(msgspec.Struct, frozen=True):
    """A table of prices.

    `name` says which, and which version of it; `cost` is nano-dollars, None where it has no price.
    """

    name: str
    cost: Callable[[PriceQuery], int | None]


def price_of(fact: Fact, state: RunState, prices: Prices) -> int | None:
    """What an answer costs that has no price in the record; None for anything else, or if nobody knows.

    `state` is the run's before the fact.
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
    """The fact with its price, if only the table has one. `state` is the run's before it."""
    cost = None if prices is None else price_of(fact, state, prices)
    if cost is None or not isinstance(fact, ModelResponded | SummaryReturned):
        return fact
    part = (
        (Unknown.COST,) if Unknown.USAGE in fact.unknown else ()
    )  # a price of part of its tokens is a least
    left = tuple(what for what in fact.unknown if what is not Unknown.UNPRICED)
    return replace(fact, cost_nanousd=cost, unknown=(*left, *part))


def close_price(fact: Fact, state: RunState) -> Fact:
    """The fact, whose price is a gap of the record where no limit of the run asked after it: one that did
    could not begin without.
    """
    asked = any(isinstance(limit, CostLimit) and refuses_unknown(limit) for limit in state.policy.limits)
    if fact.unknown != (Unknown.UNPRICED,) or asked:
        return fact
    return replace(fact, unknown=())


def _is_counted(fact: ModelResponded | SummaryReturned) -> bool:
    """Whether all tokens were counted, as far as anybody can tell."""
    usage = fact.usage
    if not usage.input or usage.cache_read + usage.cache_write > usage.input:
        return False
    size = fact.size
    written = size.chars + size.reasoning + size.arguments
    return usage.output * _PER_TOKEN >= written


class Contexts(msgspec.Struct, frozen=True):
    """A table of context lengths. `name` says which, and which version of it.

    `length` is tokens, of a model asked at an address (each "" if unknown), None where the table does not
    say.
    """

    name: str
    length: Callable[[str, str], int | None]


def add_context(fact: Fact, contexts: Contexts | None) -> Fact:
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


_MOST_FIELDS = 10_000
"""Fields that are remembered of a run: what has more has them by chance, as a map of names does."""


class ArgumentSchemas:
    """Takes answers, and tells of the arguments of their calls what a JSON Schema would."""

    def __init__(self) -> None:
        self._schemas: dict[str, dict[str, Any]] = {}
        self._left = _MOST_FIELDS

    def take(self, event: Event, policy: Policy) -> None:
        """Take an event; of calls that no rule of the policy looked into, and of such as were erased, nothing
        is known.
        """
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
