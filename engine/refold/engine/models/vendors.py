"""Vendors: model names, addresses and keys.

pydantic-ai takes seconds to import and is an extra, so it is imported only when a model is created.

Except for `VENDORS`, providers, their addresses and the sources of their keys come from pydantic-ai. Those
providers support only the common sampling settings. Retries inside clients are disabled where possible,
because the log must show every attempt.
"""

import difflib
import inspect
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import urlsplit

import msgspec

from refold.engine.models.protocol import ModelUnavailable
from refold.engine.models.vendor_failures import streaming_client_class
from refold.reducers.errors import WrongUse, brief

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model as VendorModel


SETTINGS = frozenset(
    {
        "cache",
        "frequency_penalty",
        "logit_bias",
        "max_tokens",
        "parallel_tool_calls",
        "presence_penalty",
        "seed",
        "service_tier",
        "stop_sequences",
        "temperature",
        "thinking",
        "top_k",
        "top_p",
    }
)
"""Sampling settings that every vendor's dialect supports; a vendor's own begin with its name."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The model, server and key behind a model's name.

    `address` is the API's base URL, `domain` the domain of the vendor's own servers ("" if unknown). `key`
    describes the source of the key, `secret` is the key, "" if it is not known here. `strict`: a response
    without a stop reason is broken. `settings` are the names of the supported sampling settings. `close`
    closes the connections, None if the caller owns them. `timeout` is in seconds and sent with each request;
    None: the client has its own.
    """

    model: "VendorModel[Any]"
    address: str
    domain: str
    key: str
    secret: str
    strict: bool
    settings: frozenset[str]
    close: Callable[[], Awaitable[None]] | None
    timeout: float | None = None

    @property
    def elsewhere(self) -> str:
        """Scheme and host of the server; "" for the vendor's own, or if unknown."""
        return "" if self.domain and is_of(self.domain, self.address) else self.host

    @property
    def host(self) -> str:
        """Scheme and host of the server; "" if unknown."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if self.address else ""


def check_address(name: str, address: object, told: str, variable: str) -> None:
    """Raise `WrongUse` for an invalid address or one that contains a secret.

    For the message, `told` is where the address was given, and `variable` the one to set for a key.
    """
    example = "such as http://127.0.0.1:8080/v1"
    if not isinstance(address, str):
        raise WrongUse(f"model {name!r}: {told} must be a string, {example}; got {_display(address)}")
    usable, secret = _judge_address(address)
    if secret:  # an address is recorded and shown
        raise WrongUse(
            f"model {name!r}: {told} must not contain a user or password; set {variable} for the key"
        )
    if strange := next((each for each in address if each.isspace() or not each.isprintable()), None):
        raise WrongUse(
            f"model {name!r}: {told} must not contain blanks, line ends or control characters; got {_display(address)}, "
            f"which contains {strange!a}: remove it"
        )
    if not usable:
        raise WrongUse(
            f"model {name!r}: {told} must be an http(s) address, {example}; got {_display(address)}"
        )
    if "?" in address or "#" in address:  # often a key: not shown
        raise WrongUse(
            f"model {name!r}: {told} must end with its path, {example}; it contains '?' or '#': "
            f"remove that and the rest, and set {variable} for a key"
        )


def _judge_address(address: str) -> tuple[bool, bool]:
    """Return whether it is an http(s) address, and whether it holds a user or password."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False, "@" in address
    return usable, "@" in parts.netloc


def _display(address: object) -> str:
    """Return an invalid address escaped, or only its type if it may contain a password or key."""
    text = ascii(address)
    return f"a {type(address).__name__}" if any(each in text for each in "@?#") else brief(text)


def is_of(domain: str, base_url: str) -> bool:
    """Return whether an address is a server of this domain."""
    parts = urlsplit(base_url)
    return parts.scheme == "https" and f".{parts.hostname}".endswith(f".{domain}")


OTHER_KEY = "REFOLD_API_KEY"
"""The environment variable with the key for a `base_url`. A vendor's own key is sent only to the vendor, and
to the address in the vendor's own variable, such as `OPENAI_BASE_URL`.
"""

# Vendors' settings that move part of the conversation, or of the work, out of the log.
UNSEEN_SETTINGS = frozenset(
    {
        "openai_background",
        "openai_conversation_id",
        "openai_native_tools",
        "openai_previous_response_id",
        "openai_transport",
        "anthropic_container",
    }
)


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """One dialect: the SDK's client, pydantic-ai's model class and provider for it, and its key's variable.

    Classes are named as `module:class`. `elsewhere` is the model class for a `base_url`. `lenient`:
    compatible servers may omit the stop reason.
    """

    variable: str
    domain: str
    client: str
    provider: str
    argument: str
    model: str
    elsewhere: str
    settings: str
    prefix: str
    lenient: bool = False


_OPENAI = Vendor(
    variable="OPENAI_API_KEY",
    domain="openai.com",
    client="openai:AsyncOpenAI",
    provider="pydantic_ai.providers.openai:OpenAIProvider",
    argument="openai_client",
    model="pydantic_ai.models.openai:OpenAIResponsesModel",
    # OpenAI-compatible servers support chat completions.
    elsewhere="pydantic_ai.models.openai:OpenAIChatModel",
    settings="pydantic_ai.models.openai:OpenAIResponsesModelSettings",
    prefix="openai_",
    lenient=True,
)

VENDORS: Mapping[str, Vendor] = MappingProxyType(
    {
        "anthropic": Vendor(
            variable="ANTHROPIC_API_KEY",
            domain="anthropic.com",
            client="anthropic:AsyncAnthropic",
            provider="pydantic_ai.providers.anthropic:AnthropicProvider",
            argument="anthropic_client",
            model="pydantic_ai.models.anthropic:AnthropicModel",
            elsewhere="pydantic_ai.models.anthropic:AnthropicModel",
            settings="pydantic_ai.models.anthropic:AnthropicModelSettings",
            prefix="anthropic_",
        ),
        "openai": _OPENAI,
        "openai-chat": msgspec.structs.replace(
            _OPENAI,
            model=_OPENAI.elsewhere,
            settings="pydantic_ai.models.openai:OpenAIChatModelSettings",
        ),
        "openai-responses": msgspec.structs.replace(_OPENAI, elsewhere=_OPENAI.model, lenient=False),
    }
)
"""The known prefixes of a model's name. Another vendor's dialect is one more row."""


def vendor_endpoint(
    name: str,
    base_url: str | None,
    api_key: str | None,
    timeout: float,
    http_client: "httpx2.AsyncClient | None",
) -> Endpoint:
    """Return the endpoint of a model of one of `VENDORS`. Raises `WrongUse` as `PydanticAIModel`."""
    prefix, _, model = name.partition(":")
    vendor = VENDORS[prefix]
    load(vendor.client)  # raises for a missing extra, before the key is checked
    if base_url is not None:
        check_address(name, base_url, "base_url", OTHER_KEY)
        variable, key = _key(vendor, name, base_url, api_key)
    else:
        base_url = _variable_address(vendor, name)
        paired = (vendor.variable, api_key or os.environ.get(vendor.variable) or os.environ.get(OTHER_KEY))
        variable, key = paired if base_url else _key(vendor, name, base_url, api_key)
    client = _client(vendor, key or "none", base_url, timeout, http_client)
    address = str(client.base_url)
    return Endpoint(
        model=_model(vendor, model, client, base_url),
        address=address,
        domain=vendor.domain,
        key=variable,
        secret=key or "",
        strict=base_url is None or not vendor.lenient,
        settings=SETTINGS | _own_settings(vendor),
        close=None if http_client is not None else client.close,
    )


def _variable_address(vendor: Vendor, name: str) -> str | None:
    """Return the address in the vendor's own variable; None if it is unset or one of the vendor's servers.

    Raises `WrongUse` for an invalid address, and if only an obsolete variable is set that the vendor's
    library does not read.
    """
    variable = vendor.variable.replace("_API_KEY", "_BASE_URL")
    address, older = os.environ.get(variable), vendor.variable.replace("_API_KEY", "_API_BASE")
    if address is not None:
        check_address(name, address, variable, vendor.variable)
    elif os.environ.get(older):
        raise WrongUse(
            f"model {name!r}: {older} is set, but it is not read; give the address by base_url (--base-url), "
            f"REFOLD_BASE_URL or {variable}"
        )
    return None if address is None or is_of(vendor.domain, address) else address


def _own_settings(vendor: Vendor) -> set[str]:
    names = load(vendor.settings).__annotations__
    return {name for name in names if name.startswith(vendor.prefix) and name not in UNSEEN_SETTINGS}


def _key(vendor: Vendor, name: str, base_url: str | None, api_key: str | None) -> tuple[str, str | None]:
    """Return the environment variable for the key, and the key; None if none is needed."""
    own = base_url is None or is_of(vendor.domain, base_url)
    variable = vendor.variable if own else OTHER_KEY
    key = api_key or os.environ.get(variable) or None
    if own and key is None:
        raise ModelUnavailable(f"model {name!r} needs a key: set {variable}, or give api_key")
    return variable, key


def _client(
    vendor: Vendor, key: str, base_url: str | None, timeout: float, http_client: "httpx2.AsyncClient | None"
) -> Any:
    """Create the SDK's client, without its own retries: each attempt must be an event in the log."""
    sdk = load(vendor.client)
    extra: dict[str, Any] = {"http_client": http_client}
    if http_client is None:
        import httpx2

        made = streaming_client_class(load(f"{vendor.client.partition(':')[0]}:DefaultAsyncHttpxClient"))
        extra = {"http_client": made(timeout=httpx2.Timeout(timeout, connect=min(timeout, 5.0)))}
    return sdk(api_key=key, base_url=base_url, max_retries=0, **extra)


def _model(vendor: Vendor, model: str, client: Any, base_url: str | None) -> "VendorModel[Any]":
    if base_url is None or vendor.prefix != "openai_":
        provider = load(vendor.provider)(**{vendor.argument: client})
    else:
        # Named by its host, so that reasoning signed by one server is not sent to another.
        host = urlsplit(base_url).netloc.rpartition("@")[2]
        compatible = load("pydantic_ai.providers.openai_compatible:OpenAICompatibleProvider")
        provider = compatible(host, openai_client=client)
    made = load(vendor.model if base_url is None else vendor.elsewhere)(model, provider=provider)
    return cast("VendorModel[Any]", made)


def load(path: str) -> Any:
    """Import `module:name`. Raises `WrongUse` with the extra to install if the package is missing."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise ModelUnavailable("vendors' models need an extra: pip install 'refold[models]'") from error


_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_SET = "set the environment variable"
_EXAMPLES = {"ollama": "http://localhost:11434/v1"}
OTHERS = "an OpenAI-compatible server of yours is openai:MODEL with its base URL"
"""Advice for users without a matching provider."""


def provider_endpoint(name: str, timeout: float, http_client: "httpx2.AsyncClient | None") -> Endpoint:
    """Return the endpoint of a model of one of pydantic-ai's providers.

    Raises `WrongUse` for an unknown name, a missing key or package, or an `http_client` that the provider
    does not accept.
    """
    prefix = name.partition(":")[0]
    client = http_client or _new_client(timeout)
    taken: list[bool] = []
    try:
        model = _infer_model(name, client, taken)
    except Exception as error:  # many libraries, each with its own error for a missing key
        advice = _advise(error, prefix)
        kind = ModelUnavailable if advice.startswith(_SET) else WrongUse
        raise kind(f"model {name!r}: {advice}") from error
    if http_client is not None and not any(taken):
        raise WrongUse(f"model {name!r}: the provider {prefix} does not accept an http_client")
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


def _advise(error: Exception, prefix: str) -> str:
    """Return what to do if the library finds no model. Its own messages name classes instead of variables."""
    said = " ".join(str(error).split())
    if said.startswith("Unknown"):
        near = difflib.get_close_matches(prefix, _listed_providers(), 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        return f"{said}{meant}; {OTHERS}"
    variables = sorted(set(_VARIABLE.findall(said)))
    if len(variables) != 1:
        return said
    example = _EXAMPLES.get(prefix, "...")
    return f"{_SET} {variables[0]}, as in: export {variables[0]}={example}"


def _listed_providers() -> set[str]:
    """Return the providers in the library's list of models, which is not complete."""
    listed = load("pydantic_ai.models:KnownModelName").__value__
    return {"ollama", *(str(each).partition(":")[0] for each in get_args(listed))}


def _new_client(timeout: float) -> "httpx2.AsyncClient":
    load("pydantic_ai.models:Model")  # raises for a missing extra
    import httpx2

    return httpx2.AsyncClient(timeout=httpx2.Timeout(timeout, connect=min(timeout, 5.0)))


def _infer_model(name: str, client: "httpx2.AsyncClient", taken: list[bool]) -> Any:
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class

    def provider(prefix: str) -> Any:
        kind: Any = infer_provider_class(prefix)
        taken.append("http_client" in inspect.signature(kind).parameters)
        return kind(http_client=client) if taken[-1] else kind()

    return infer_model(name, provider)


def _refuse_unstreamed(name: str, model: Any) -> None:
    # The base class's method raises.
    if model.__class__.request_stream is load("pydantic_ai.models:Model").request_stream:
        raise WrongUse(
            f"model {name!r}: pydantic-ai does not stream its responses, and refold needs streaming"
        )
