"""Costs of model responses in integer nano-dollars, from `genai-prices`, and sizes of context windows.

The address selects the price list, never the model's name alone: the price of `gpt-5-mini` behind your own
address is known only to you. The price lists are those of the installed `genai-prices`; nothing is
downloaded. Estimates for responses recorded without an address look up the price by name.
"""

import importlib.metadata
import importlib.util
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from refold.engine.arguments import wrong_value
from refold.reducers.errors import WrongUse
from refold.reducers.messages import Usage as Counted
from refold.reducers.vocabulary import NANO

if TYPE_CHECKING:
    from genai_prices.types import AbstractUsage, PriceCalculation


class Price(NamedTuple):
    """A user's price at a custom address, in dollars per million tokens, the same for cached tokens."""

    input: float
    output: float

    def __str__(self) -> str:
        """Format the price as it is typed and recorded: `0.5/1.5`."""
        return "/".join(f"{Decimal(str(each)).normalize():f}" for each in self)

    def cost_nanousd(self, read: int, written: int) -> int | None:
        """Compute the cost of a response in nano-dollars, rounded half up; None without token counts."""
        if not read and not written and any(self):
            return None  # no token counts; a price of zero needs none
        millions = Decimal(str(self.input)) * read + Decimal(str(self.output)) * written
        return _nano(millions / 1_000_000)


def price_of(given: object) -> Price:
    """Return a price from a pair of numbers. Raises `WrongUse` for anything else."""
    match given:
        case (int() | float() as read, int() | float() as written) if (
            0 <= read < math.inf and 0 <= written < math.inf
        ):
            return Price(read, written)
        case _:
            raise wrong_value("price", "dollars per million tokens read and written, as in (0.5, 1.5)", given)


def price_in(text: str) -> Price:
    """Parse a price such as `0.5/1.5`. Raises `WrongUse` for anything else."""
    read, _, written = text.partition("/")
    try:
        return price_of((float(read), float(written)))
    except ValueError as error:
        raise WrongUse(
            f"--price {text!r}: expected IN/OUT, dollars per million tokens read and written, as in 0.5/1.5"
        ) from error


def is_priced(model: str, address: str) -> bool:
    """Return whether a price is known for `model` at the API's base URL."""
    from genai_prices.types import Usage

    return cost_nanousd(Usage(input_tokens=1, output_tokens=1), model, address) is not None


def cost_nanousd(
    usage: "AbstractUsage",
    model: str,
    address: str,
    at: datetime | None = None,
    context: dict[str, Any] | None = None,
) -> int | None:
    """Compute the cost of one response in nano-dollars, rounded half up; None if no price is known.

    `address` is the API's base URL. `at` is the time of the request (some prices depend on the hour; None is
    now). `context` holds other inputs of a price, such as the service tier of the response.
    """
    price = _price(usage, model, {"provider_api_url": address}, at, context)
    return None if price is None else _nano(price.total_price)


def list_name() -> str:
    """Return the name and version of the installed price lists. Raises `WrongUse` without any."""
    if importlib.util.find_spec("genai_prices") is None:
        raise WrongUse("price lists need the package genai-prices: pip install 'refold[models]'")
    return f"genai-prices {importlib.metadata.version('genai-prices')}"


def listed_nanousd(counted: Counted, model: str, address: str, at: int) -> int | None:
    """Compute a response's list price in nano-dollars, rounded half up; None if the lists have none.

    `address` is the API's base URL. If it is unknown (""), the price is looked up by name; `vendor:model` and
    `vendor/model` use that vendor's prices. `at` is the time of the request in nanoseconds since the epoch,
    0 for now.
    """
    from genai_prices.types import Usage

    usage = Usage(
        input_tokens=counted.input,
        output_tokens=counted.output,
        cache_read_tokens=counted.cache_read,
        cache_write_tokens=counted.cache_write,
    )
    price = _by_the_lists(usage, model, address, datetime.fromtimestamp(at / NANO, UTC) if at else None)
    return None if price is None else _nano(price.total_price)


def listed_context(model: str, address: str) -> int | None:
    """Return the listed context window in tokens, looked up like `listed_nanousd`; None if unknown."""
    from genai_prices.types import Usage

    price = _by_the_lists(Usage(), model, address, None)
    return None if price is None else price.model.context_window


def _by_the_lists(
    usage: "AbstractUsage", model: str, address: str, at: datetime | None
) -> "PriceCalculation | None":
    if address:
        names = dict.fromkeys((model, model.partition(":")[2] or model))
        asked = [(name, {"provider_api_url": address}) for name in names]
    else:
        vendor, _, name = model.replace(":", "/", 1).rpartition("/")
        asked = [(name, {"provider_id": vendor} if vendor else {})]
    found = (_price(usage, name, whose, at) for name, whose in asked)
    return next((price for price in found if price is not None), None)


def context_window(model: str, address: str) -> int | None:
    """Return the context window of `model` at the API's base URL in tokens; None if unlisted."""
    from genai_prices.types import Usage

    price = _price(Usage(), model, {"provider_api_url": address})
    return None if price is None else price.model.context_window


def _price(
    usage: "AbstractUsage",
    model: str,
    whose: Mapping[str, Any],
    at: datetime | None = None,
    context: dict[str, Any] | None = None,
) -> "PriceCalculation | None":
    from genai_prices import calc_price

    try:
        return calc_price(usage, model, **whose, genai_request_timestamp=at, price_context=context)
    except (LookupError, ValueError):  # unknown model or address, or contradictory counts
        return None


def _nano(dollars: Decimal) -> int:
    return int((dollars * NANO).to_integral_value(ROUND_HALF_UP))
