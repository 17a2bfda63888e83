"""Where a model is served, on which terms: what the command line says of an address that is not a vendor's."""

import msgspec

from refold.console.options import Means
from refold.engine import Model
from refold.engine.models.lookup import base_url_of, model_at
from refold.engine.models.prices import price_in


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The address, the price in dollars per million tokens read and written, and the seconds of silence; None: the usual."""

    base_url: str | None = None
    price: tuple[float, float] | None = None
    timeout: float | None = None

    def model(self, name: str) -> Model:
        """The model of this name. Raises as `resolve_model`."""
        return model_at(name, base_url=self.base_url, price=self.price, timeout=self.timeout)


def served(means: Means, model: str, price: str = "") -> Served:
    """What was typed of the model of this name, or is in the environment; else a run's own recorded `price`. Raises `WrongUse`."""
    said = price or None if means.price is None else means.price
    return Served(
        base_url=base_url_of(model, means.base_url),
        price=None if said is None else price_in(said),
        timeout=means.timeout,
    )


def recorded(price: str) -> Served:
    """Where its name says, for a run's own recorded `price`."""
    return Served(price=price_in(price) if price else None)
