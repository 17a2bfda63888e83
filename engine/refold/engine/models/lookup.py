"""Lookup of a model by the name that the user types."""

import os
from collections.abc import AsyncGenerator

from refold.engine.models.protocol import Delta, Model, ModelRequest, ModelUnavailable, Reply
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean

LOCAL = "local"
IN_PROCESS = frozenset({LOCAL})
"""Providers whose models run in this process: without an address, a price and a connection."""

OFFLINE = "REFOLD_OFFLINE"
"""If this environment variable is set, a model that is unavailable here can be named; its first request
fails.
"""

BASE_URL = "REFOLD_BASE_URL"
"""The environment variable with the model's address if no `base_url` is given."""


def resolve_model(
    name: str,
    *,
    base_url: str | None = None,
    price: tuple[float, float] | None = None,
    timeout: float | None = None,
) -> Model:
    """Return the model of a name: `local:smollm2-135m`, `local:./file.gguf`, `openai:gpt-5-mini`.

    `base_url` is the address of an OpenAI-compatible server, by default `REFOLD_BASE_URL`, else the vendor's.
    `price` is its price in dollars per million tokens read and written. `timeout` is the maximum silence of
    the connection in seconds. Raises `WrongUse` for an invalid name, a missing key or a missing extra; the
    message names the variable or the extra.
    """
    return model_at(name, base_url=base_url_of(name, base_url), price=price, timeout=timeout)


def base_url_of(name: str, asked: str | None) -> str | None:
    """Return the model's address: `asked`, else `REFOLD_BASE_URL`; None: the vendor's own address.

    For a model that runs in this process, the variable is not read.
    """
    if asked or name.partition(":")[0] in IN_PROCESS:
        return asked
    value = os.environ.get(BASE_URL, "")
    if clean(value) != value:
        raise WrongUse(f"{BASE_URL} {value!a}: is not UTF-8")
    return value or asked


def base_url_from(model: object, asked: str | None) -> tuple[str, ...]:
    """Return what to record if the environment sets the address of a named model: `base_url:
    REFOLD_BASE_URL`.
    """
    chosen = isinstance(model, str) and not asked and base_url_of(model, None)
    return (f"base_url: {BASE_URL}",) if chosen else ()


def model_at(
    name: str,
    *,
    base_url: str | None = None,
    price: tuple[float, float] | None = None,
    timeout: float | None = None,
) -> Model:
    """Return a model as `resolve_model` does, without reading `REFOLD_BASE_URL`. For a policy's fallbacks."""
    try:
        return _model_at(name, base_url=base_url, price=price, timeout=timeout)
    except ModelUnavailable as error:
        if not os.environ.get(OFFLINE):
            raise
        return UnavailableModel(name, error)


class UnavailableModel:
    """The name of a model that cannot be asked here: for replays, which ask no model. A request raises
    `error`.

    Its context is taken to be large; a replay uses the recorded one.
    """

    priced = True
    context = 1 << 20

    def __init__(self, name: str, error: ModelUnavailable) -> None:
        self.name, self.error = name, error

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:  # noqa: ARG002
        """Raise the error."""
        nothing: tuple[Delta, ...] = ()
        for item in nothing:  # an async generator, as every stream
            yield item
        raise self.error

    async def aclose(self) -> None:
        """Do nothing."""


def _model_at(
    name: str, *, base_url: str | None, price: tuple[float, float] | None, timeout: float | None
) -> Model:
    provider, colon, model = name.partition(":")
    if not colon or not model:
        raise WrongUse(
            f"model {name!r}: expected provider:model, as in openai:gpt-5-mini or local:smollm2-135m"
        )
    if provider in IN_PROCESS:
        for what, given in {"base_url": base_url, "price": price, "timeout": timeout}.items():
            if given is not None:
                raise WrongUse(
                    f"model {name!r} runs in this process, and {what} is for a server; give another model too"
                )
        from refold.engine.models.local import LocalModel

        return LocalModel(model)
    from refold.engine.models.pydantic_ai import IDLE, PydanticAIModel

    idle = IDLE if timeout is None else timeout
    return PydanticAIModel(name, base_url=base_url, price=price, timeout=idle)
