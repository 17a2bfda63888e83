"""What a model's answer cost: list prices by `genai-prices`, in integer nano-dollars; and how much it reads
at once.

The address decides whose prices hold, never the model's name alone: `gpt-5-mini` behind an address of
your own costs whatever you pay for it, which only you know. The price lists are those of the
installed `genai-prices`; nothing is downloaded. Of what was recorded without an address the lists are asked
by name, where somebody wants to know what it would have cost.
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
    """What somebody pays at an address of their own, in dollars per million tokens; read from a cache or not
    costs the same.
    """

    input: float
    output: float

    def __str__(self) -> str:
        """As it is typed, and recorded: `0.5/1.5`."""
        return "/".join(f"{Decimal(str(each)).normalize():f}" for each in self)

    def cost_nanousd(self, read: int, written: int) -> int | None:
        """What an answer of so many tokens cost, in nano-dollars, half up; None where nobody counted them."""
        if not read and not written and any(self):
            return None  # nobody counted; for nothing is for nothing, however many
        millions = Decimal(str(self.input)) * read + Decimal(str(self.output)) * written
        return _nano(millions / 1_000_000)


def price_of(given: object) -> Price:
    """A price from a pair of numbers. Raises `WrongUse` for anything else."""
    match given:
        case (int() | float() as read, int() | float() as written) if (
            0 <= read < math.inf and 0 <= written < math.inf
        ):
            return Price(read, written)
        case _:
            raise wrong_value("price", "dollars per million tokens read and written, as in (0.5, 1.5)", given)


def price_in(text: str) -> Price:
    """A price as it is typed, `0.5/1.5`. Raises `WrongUse` for anything else."""
    read, _, written = text.partition("/")
    try:
        return price_of((float(read), float(written)))
    except ValueError as error:
        raise WrongUse(
            f"--price {text!r}: expected IN/OUT, dollars per million tokens read and written, as in 0.5/1.5"
        ) from error


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
    price = _price(usage, model, {"provider_api_url": address}, at, context)
    return None if price is None else _nano(price.total_price)


def list_name() -> str:
    """Which price lists are installed, with their version. Raises `WrongUse` where none are."""
    if importlib.util.find_spec("genai_prices") is None:
        raise WrongUse("price lists need the package genai-prices: pip install 'refold[models]'")
    return f"genai-prices {importlib.metadata.version('genai-prices')}"


def listed_nanousd(counted: Counted, model: str, address: str, at: int) -> int | None:
    """What an answer of so many tokens costs by the lists, in nano-dollars, half up; None if they don't say.

    `address` is the API's base URL. Where it is unknown ("") the name decides, `vendor:model` and
    `vendor/model` by that vendor's prices. `at` is when it was asked, nanoseconds since the epoch, 0 for now.
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
    """The tokens that a model holds by the lists, which are asked as for a price; None if they don't say."""
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
    """The tokens that `model` at the API's base URL holds, as the price lists say; None if they don't."""
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
    except (LookupError, ValueError):  # unknown model or address; counts that contradict each other
        return None


def _nano(dollars: Decimal) -> int:
    return int((dollars * NANO).to_integral_value(ROUND_HALF_UP))
