"""A model by the name that a person types."""

from refold.engine.models.protocol import Model
from refold.reducers.errors import WrongUse

LOCAL = "local"


def resolve_model(
    name: str,
    *,
    base_url: str | None = None,
    price: tuple[float, float] | None = None,
    timeout: float | None = None,
) -> Model:
    """The model that `provider:model` names: `local:smollm2-135m`, `local:./file.gguf`, `openai:gpt-5-mini`.

    `base_url` is the address of an OpenAI-compatible server, `price` what you pay there, in dollars per million tokens read and
    written, `timeout` for how many seconds its connection may stay silent. Raises `WrongUse` for a name that is none, a
    missing key (it says which variable) or a missing extra (it says which).
    """
    provider, colon, model = name.partition(":")
    if not colon or not model:
        raise WrongUse(
            f"model {name!r}: expected provider:model, as in openai:gpt-5-mini or local:smollm2-135m"
        )
    if provider == LOCAL:
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
