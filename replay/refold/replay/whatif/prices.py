"""Prices at the time of asking: what an answer cost of which the record has no price. Never a fact, and never written.

Unknown stays unknown: without a count of tokens, or with one that is surely only a part, there is no price. So it is for a
failed request, of which nobody knows what its provider charged, and for another run that a call started.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from refold.reducers.events import Fact, ModelResponded, SummaryReturned
from refold.reducers.limits import CostLimit, insists
from refold.reducers.messages import Usage
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Unknown

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
