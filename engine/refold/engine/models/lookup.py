"""A model by the name that a person types."""

import os

from refold.engine.models.protocol import Model
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean

LOCAL = "local"
IN_PROCESS = frozenset({LOCAL})
"""Providers whose models run in this process: without an address, a price and a connection."""

BASE_URL = "REFOLD_BASE_URL"
"""The environment variable with the address of a run's model, where no `base_url` is given."""


def resolve_model(
    name: str,
    *,
    base_url: str | None = None,
    price: tuple[float, float] | None = None,
    timeout: float | None = None,
) -> Model:
    """The model that `provider:model` names: `local:smollm2-135m`, `local:./file.gguf`, `openai:gpt-5-mini`.

    `base_url` is the address of an OpenAI-compatible server, by default that in `REFOLD_BASE_URL`, else the
    vendor's; `price` is what you pay there, in dollars per million tokens read and written, `timeout` for how
    many seconds its connection may stay silent. Raises `WrongUse` for a name that is none, a missing key (it
    says which variable) or a missing extra (it says which).
    """
    return model_at(name, base_url=base_url_of(name, base_url), price=price, timeout=timeout)


def base_url_of(name: str, asked: str | None) -> str | None:
    """The address of the model of this name: what was asked for, else `REFOLD_BASE_URL`; None: the usual one.

    A model that runs in this process is at no address: for it the variable, which may be there for others, is
    not read.
    """
    if asked or name.partition(":")[0] in IN_PROCESS:
        return asked
    value = os.environ.get(BASE_URL, "")
    if clean(value) != value:
        raise WrongUse(f"{BASE_URL} {value!a}: is not UTF-8")
    return value or asked


def base_url_from(model: object, asked: str | None) -> tuple[str, ...]:
    """What is recorded of an address that the environment chose for a model by its name: `base_url:
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
    """As `resolve_model`, at its vendor's address where no other is given, as a model is that a policy falls
    back to.
    """
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
