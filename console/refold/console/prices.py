"""`--prices`: what answers cost of which the record has no price, by a file of yours or by installed price lists.

A file has a model's name a line, with US dollars for a million tokens: `gpt-5-mini: {input: 0.25, output: 2}`. It is read as
policy files are. Which table it was is told by its digest: with that file the same can be asked again.
"""

import hashlib
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta

from refold.engine.policies.files import data_of, wrong_in
from refold.reducers.errors import PolicyError, refusal, shown
from refold.reducers.vocabulary import NANO
from refold.replay.whatif.prices import Answered, Prices

LISTS = "genai-prices"
_MILLION = 1_000_000
LineT = TypeVar("LineT")

Dollars = Annotated[int, Meta(ge=0, le=_MILLION)] | Annotated[float, Meta(ge=0, le=_MILLION)]


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for a million tokens. Of tokens read from or written to a cache without such a price the cost is not known."""

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None


def chosen_prices(chosen: Path | None) -> Prices | None:
    """The prices that were asked for: a file, or the installed lists by their name.

    Raises `PolicyFileError` for a file that cannot be read or has no prices, `WrongUse` where no lists are installed.
    """
    if chosen is None:
        return None
    if str(chosen) == LISTS and not chosen.is_file():
        return _listed()
    return _of_file(chosen)


def _listed() -> Prices:
    from refold.engine.models.prices import list_name, listed_nanousd

    def cost(answered: Answered) -> int | None:
        return listed_nanousd(answered.usage, answered.model, answered.address, answered.at)

    return Prices(list_name(), cost)


def _of_file(path: Path) -> Prices:
    name, table = read_table(path, "a table of prices", "gpt-5-mini: {input: 0.25, output: 2}", _price)

    def cost(answered: Answered) -> int | None:
        price = table.get(answered.model)
        return None if price is None else _cost(price, answered)

    return Prices(name, cost)


def read_table(
    path: Path, what: str, line: str, read: Callable[[str, Any], LineT]
) -> tuple[str, Mapping[str, LineT]]:
    """A file with a `line` for each model, and its name with its digest.

    Raises `PolicyFileError` for one that cannot be read or has no line.
    """
    with wrong_in(path, what):
        told, data = data_of(path, LISTS)
        if not isinstance(told, Mapping) or not told:
            raise PolicyError("", f"expected a line for each model, as in `{line}`, got {shown(told)}")
        lines = cast("Mapping[object, object]", told).items()
        table = {str(model): read(str(model), said) for model, said in lines}
    return f"{path} sha256:{hashlib.sha256(data).hexdigest()}", table


def _price(model: str, data: Any) -> Price:
    if not isinstance(data, Mapping):
        raise PolicyError(
            model, f"expected dollars for a million tokens as {{input: …, output: …}}, got {shown(data)}"
        )
    try:
        return msgspec.convert(data, Price)
    except msgspec.ValidationError as error:
        raise refusal(error, data, Price, model) from error


def _cost(price: Price, answered: Answered) -> int | None:
    usage = answered.usage
    charged = (
        (price.input, usage.input - usage.cache_read - usage.cache_write),
        (price.cache_read, usage.cache_read),
        (price.cache_write, usage.cache_write),
        (price.output, usage.output),
    )
    cost = Decimal(0)
    for dollars, tokens in charged:
        if dollars is None and tokens:
            return None
        cost += Decimal(str(dollars or 0)) * tokens
    return int((cost * NANO / _MILLION).to_integral_value(ROUND_HALF_UP))
