"""Models by the names of pydantic-ai's providers: `google:`, `ollama:`, `deepseek:`, and all others that it knows.

Nothing is listed here: which there are, where they are asked and where their keys come from is the library's to say. Their
sampling settings are those that every vendor knows. Retries inside a client are off wherever it lets us: what the log does not
show must not happen.
"""

import difflib
import inspect
import re
from typing import TYPE_CHECKING, Any, get_args

from refold.engine.models.endpoint import SETTINGS, Endpoint, check_address
from refold.engine.models.vendors import load
from refold.reducers.errors import WrongUse

if TYPE_CHECKING:
    import httpx2

_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_EXAMPLES = {"ollama": "http://localhost:11434/v1"}
OTHERS = "an OpenAI-compatible server of yours is openai:MODEL with its base URL"
"""The way out for whom no provider serves."""


def provider_endpoint(name: str, timeout: float, http_client: "httpx2.AsyncClient | None") -> Endpoint:
    """Where the model of this name is asked. Raises `WrongUse` for a name that the library does not know, a missing key or package.

    With a client of the caller's that its provider does not take, too.
    """
    prefix = name.partition(":")[0]
    client = http_client or _new_client(timeout)
    taken: list[bool] = []
    try:
        model = _inferred(name, client, taken)
    except Exception as error:  # of many libraries, each with its own for a missing key
        raise WrongUse(f"model {name!r}: {_said(error, prefix)}") from error
    if http_client is not None and not any(taken):
        raise WrongUse(f"model {name!r}: the provider {prefix} takes no http_client")
    address = str(model.base_url or "")
    if address:
        check_address(name, address, f"the address of {prefix}", "its variable")
    _refuse_unstreamed(name, model)
    its_own: Any = getattr(model, "client", None)
    if hasattr(its_own, "max_retries"):
        its_own.max_retries = 0
    return Endpoint(
        model=model,
        address=address,
        domain="",
        key=f"the environment, where pydantic-ai's provider {prefix} looks for it",
        secret=str(getattr(its_own, "api_key", "") or ""),
        strict=False,
        settings=SETTINGS,
        timeout=None if any(taken) else timeout,
        close=None if http_client is not None else client.aclose,
    )


def _said(error: Exception, prefix: str) -> str:
    """What to do where the library finds no model: it tells of classes of its own where a variable is missing."""
    said = " ".join(str(error).split())
    if said.startswith("Unknown"):
        near = difflib.get_close_matches(prefix, _listed(), 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        return f"{said}{meant}; {OTHERS}"
    variables = sorted(set(_VARIABLE.findall(said)))
    if len(variables) != 1:
        return said
    example = _EXAMPLES.get(prefix, "...")
    return f"set the environment variable {variables[0]}, as in: export {variables[0]}={example}"


def _listed() -> set[str]:
    """The providers of which the library lists models: not all that it has."""
    listed = load("pydantic_ai.models:KnownModelName").__value__
    return {"ollama", *(str(each).partition(":")[0] for each in get_args(listed))}


def _new_client(timeout: float) -> "httpx2.AsyncClient":
    load("pydantic_ai.models:Model")  # names the extra where it is missing
    import httpx2

    return httpx2.AsyncClient(timeout=httpx2.Timeout(timeout, connect=min(timeout, 5.0)))


def _inferred(name: str, client: "httpx2.AsyncClient", taken: list[bool]) -> Any:
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class

    def provider(prefix: str) -> Any:
        kind: Any = infer_provider_class(prefix)
        taken.append("http_client" in inspect.signature(kind).parameters)
        return kind(http_client=client) if taken[-1] else kind()

    return infer_model(name, provider)


def _refuse_unstreamed(name: str, model: Any) -> None:
    # As the base class has it: it raises.
    if model.__class__.request_stream is load("pydantic_ai.models:Model").request_stream:
        raise WrongUse(f"model {name!r}: pydantic-ai does not stream its answers, and refold takes no others")
