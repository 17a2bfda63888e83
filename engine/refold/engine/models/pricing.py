"""What a model's answer cost: list prices by `genai-prices`, in integer nano-dollars; and how much it reads at once.

The address decides whose prices hold, never the model's name alone: `gpt-5-mini` behind an address of
your own costs whatever you pay for it, which nobody but you knows. The price lists are those of the
installed `genai-prices`; nothing is downloaded.
"""

from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

from refold.reducers.numbers import NANO

if TYPE_CHECKING:
    from genai_prices.types import AbstractUsage, PriceCalculation


def is_priced(model: str, address: str) -> bool:
    """Whether a price is known for `model` at the API's base URL."""
    from genai_prices.types import Usage

    return cost_nanousd(Usage(input_tokens=1, output_tokens=1), model, address) is not None


def cost_nanousd(
    usage: "AbstractUsage",
    model: str,
    address: str,
    at: datetime | None = None,
    context: dict[str, Any] | None = None,
) -> int | None:
    """The cost of one answer in nano-dollars, half up; None if no price is known.

    `address` is the API's base URL. `at` is when it was asked (some prices depend on the hour; None is
    now). `context` is what else a price may hang on, such as the service tier that answered.
    """
    price = _price(usage, model, address, at, context)
    return None if price is None else _nano(price.total_price)


def context_window(model: str, address: str) -> int | None:
    """The tokens that `model` at the API's base URL holds, as the price lists say; None if they don't."""
    from genai_prices.types import Usage

    price = _price(Usage(), model, address)
    return None if price is None else price.model.context_window


def _price(
    usage: "AbstractUsage",
    model: str,
    address: str,
    at: datetime | None = None,
    context: dict[str, Any] | None = None,
) -> "PriceCalculation | None":
    from genai_prices import calc_price

    try:
        return calc_price(
            usage, model, provider_api_url=address, genai_request_timestamp=at, price_context=context
        )
    except (LookupError, ValueError):  # unknown model or address; counts that contradict each other
        return None


def _nano(dollars: Decimal) -> int:
    return int((dollars * NANO).to_integral_value(ROUND_HALF_UP))
