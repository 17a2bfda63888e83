"""Vendors whose models are asked with a client of ours: whose key it is, which address, and which class of the library.

pydantic-ai takes seconds to import and is an extra, so nothing here imports it before a model is made.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from refold.engine.models.endpoint import SETTINGS, Endpoint, check_address, is_of
from refold.engine.models.whole_answers import reading_whole_answers
from refold.reducers.errors import WrongUse

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model as VendorModel

OTHER_KEY = "REFOLD_API_KEY"
"""The environment variable with the key for a `base_url`. A vendor's own key is sent only to the vendor, and to the address
that stands beside it in the vendor's own variable, `OPENAI_BASE_URL`."""

# Vendors' settings that put part of the conversation, or of the work, where the log cannot see it.
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
    """One dialect: the SDK's client, pydantic-ai's model class and provider for it, and whose key it wants.

    Classes are named as `module:class`. `elsewhere` is the model class for a `base_url`. `lenient` says
    whether servers that call themselves compatible may leave out why an answer stopped.
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
    # What calls itself OpenAI-compatible is compatible with chat completions.
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
    """Where a model of one of `VENDORS` is asked. Raises `WrongUse` as `PydanticAIModel`."""
    prefix, _, model = name.partition(":")
    vendor = VENDORS[prefix]
    load(vendor.client)  # names the extra where it is missing: before a key is asked for
    if base_url is not None:
        check_address(name, base_url, "base_url", OTHER_KEY)
        variable, key = _key(vendor, name, base_url, api_key)
    else:
        base_url = _address_beside_the_key(vendor, name)
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


def _address_beside_the_key(vendor: Vendor, name: str) -> str | None:
    """The address of another server in the vendor's own variable; None where it is one of the vendor's, or none is there.

    Raises `WrongUse` for one that is none, and for a variable of an older time that the vendor's library does not read.
    """
    variable = vendor.variable.replace("_API_KEY", "_BASE_URL")
    address, older = os.environ.get(variable), vendor.variable.replace("_API_KEY", "_API_BASE")
    if address is not None:
        check_address(name, address, variable, vendor.variable)
    elif os.environ.get(older):
        raise WrongUse(
            f"model {name!r}: {older} is set, and is not read; give the address by base_url (--base-url), "
            f"REFOLD_BASE_URL or {variable}"
        )
    return None if address is None or is_of(vendor.domain, address) else address


def _own_settings(vendor: Vendor) -> set[str]:
    names = load(vendor.settings).__annotations__
    return {name for name in names if name.startswith(vendor.prefix) and name not in UNSEEN_SETTINGS}


def _key(vendor: Vendor, name: str, base_url: str | None, api_key: str | None) -> tuple[str, str | None]:
    """The environment variable that a key comes from, and the key; None is none needed."""
    own = base_url is None or is_of(vendor.domain, base_url)
    variable = vendor.variable if own else OTHER_KEY
    key = api_key or os.environ.get(variable) or None
    if own and key is None:
        raise WrongUse(f"model {name!r} needs a key: set {variable}, or give api_key")
    return variable, key


def _client(
    vendor: Vendor, key: str, base_url: str | None, timeout: float, http_client: "httpx2.AsyncClient | None"
) -> Any:
    """The SDK's client. Its own retries are off: each attempt is an event in the log."""
    sdk = load(vendor.client)
    extra: dict[str, Any] = {"http_client": http_client}
    if http_client is None:
        import httpx2

        made = reading_whole_answers(load(f"{vendor.client.partition(':')[0]}:DefaultAsyncHttpxClient"))
        extra = {"http_client": made(timeout=httpx2.Timeout(timeout, connect=min(timeout, 5.0)))}
    return sdk(api_key=key, base_url=base_url, max_retries=0, **extra)


def _model(vendor: Vendor, model: str, client: Any, base_url: str | None) -> "VendorModel[Any]":
    if base_url is None or vendor.prefix != "openai_":
        provider = load(vendor.provider)(**{vendor.argument: client})
    else:
        # Named by its host: reasoning that one server signed is not shown to another.
        host = urlsplit(base_url).netloc.rpartition("@")[2]
        compatible = load("pydantic_ai.providers.openai_compatible:OpenAICompatibleProvider")
        provider = compatible(host, openai_client=client)
    made = load(vendor.model if base_url is None else vendor.elsewhere)(model, provider=provider)
    return cast("VendorModel[Any]", made)


def load(path: str) -> Any:
    """What `module:name` names. Raises `WrongUse` that names the extra where its package is missing."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise WrongUse("vendors' models need an extra: pip install 'refold[models]'") from error
