"""Where a model is served, on which terms: what the command line says of an address that is not a vendor's."""

import msgspec

from refold.console import places
from refold.console.options import Means
from refold.engine import Model, resolve_model
from refold.reducers.errors import WrongUse


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The address, the price in dollars per million tokens read and written, and the seconds of silence; None: the usual."""

    base_url: str | None = None
    price: tuple[float, float] | None = None
    timeout: float | None = None

    def model(self, name: str) -> Model:
        """The model of this name. Raises as `resolve_model`."""
        return resolve_model(name, base_url=self.base_url, price=self.price, timeout=self.timeout)


def served(means: Means, model: str) -> Served:
    """What was typed of the model of this name, or is in the environment. Raises `WrongUse`."""
    return Served(
        base_url=places.base_url(means.base_url, model),
        price=None if means.price is None else _price(means.price),
        timeout=means.timeout,
    )


def typed(means: Means) -> tuple[str, ...]:
    """What of it no other record of a run says, to be recorded with it."""
    return () if means.price is None else (f"price: --price {means.price}",)


def _price(text: str) -> tuple[float, float]:
    read, _, written = text.partition("/")
    try:
        return float(read), float(written)
    except ValueError as error:
        raise WrongUse(
            f"--price {text!r}: expected IN/OUT, dollars per million tokens read and written, as in 0.5/1.5"
        ) from error
