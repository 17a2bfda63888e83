"""A model by the name that a person types."""

from refold.engine.models.protocol import Model
from refold.reducers.errors import WrongUse

LOCAL = "local"


def resolve_model(name: str, *, base_url: str | None = None) -> Model:
    """The model that `provider:model` names: `local:smollm2-135m`, `local:./file.gguf`, `openai:gpt-5-mini`.

    `base_url` is the address of an OpenAI-compatible server. Raises `WrongUse` for a name that is none, a
    missing key (it says which variable) or a missing extra (it says which).
    """
    provider, colon, model = name.partition(":")
    if not colon or not model:
        raise WrongUse(
            f"model {name!r}: expected provider:model, as in openai:gpt-5-mini or local:smollm2-135m"
        )
    if provider == LOCAL:
        if base_url is not None:
            raise WrongUse(
                f"model {name!r} runs in this process, and base_url is for a server; give another model too"
            )
        from refold.engine.models.local import LocalModel

        return LocalModel(model)
    from refold.engine.models.pydantic_ai import PydanticAIModel

    return PydanticAIModel(name, base_url=base_url)
