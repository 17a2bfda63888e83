"""Vendors' models, each behind one name (`openai:gpt-5-mini`), by pydantic-ai's direct request API.

The library speaks every vendor's dialect; this adapter keeps the promises of `Model`: one `Reply` at the
end of a stream or one `ModelError`, arguments as the vendor sent them, no retry that the log does not
know of. It adds no text of its own to what a model sees. pydantic-ai takes seconds to import and is an
extra, so nothing here imports it before a model is made.

Two things the library does on the way out, which the log does not show: a call's arguments are sent
back as compact JSON (malformed ones inside an object that says so), and for hosts of open-weight models
a chat template's control tokens inside a message are broken by a zero-width joiner, so that a file that
contains them cannot forge a turn.
"""

import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from refold.engine.models.prices import context_window, cost_nanousd, is_priced
from refold.engine.models.protocol import Delta, ModelError, ModelRequest, Reply
from refold.engine.models.vendor_failures import Circumstances, tells, translate
from refold.engine.models.vendor_messages import to_history
from refold.engine.models.vendor_stream import VendorAnswer
from refold.reducers.errors import WrongUse
from refold.reducers.fields import shared
from refold.reducers.vocabulary import FailureClass

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model as VendorModel
    from pydantic_ai.models import ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings

OTHER_KEY = "REFOLD_API_KEY"
"""The environment variable with the key for a `base_url`: a vendor's own key is never sent elsewhere."""

# Sampling settings that every vendor's dialect knows; a vendor's own begin with its name.
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


class PydanticAIModel:
    """A vendor's model. Implements `refold.engine.models.protocol.Model`, on asyncio and on trio.

    `name` is `vendor:model`. Without `base_url` the vendor's own address is asked, with the key of
    `api_key` or of the vendor's environment variable. With it, any server that speaks the dialect
    (`openai:` is then chat completions); its key is `api_key` or `REFOLD_API_KEY`, and may be missing.
    `timeout` is how many seconds the connection may stay silent. `http_client` is used as it is, with its
    own timeouts, and stays the caller's to close. `context` is the tokens that the model holds, by default what
    the price lists say.

    Raises `WrongUse` for a malformed name, an unknown vendor, a missing key, an address that is none or holds
    a password, or a missing extra.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 600.0,
        http_client: "httpx2.AsyncClient | None" = None,
        context: int | None = None,
    ) -> None:
        self.name, self._context = name, context
        self._vendor = _vendor(name)
        if base_url is not None:
            _check_address(name, base_url, "base_url", OTHER_KEY)
        self._variable, key = _key(self._vendor, name, base_url, api_key)
        self._secret = key or ""
        self._owns_client = http_client is None
        self._client = _client(self._vendor, key or "none", base_url, timeout, http_client)
        if base_url is None:  # the SDK may have found another address than its vendor's
            told = self._vendor.variable.replace("_API_KEY", "_BASE_URL")
            _check_address(name, self._address, told, self._variable)
        self._model = _model(self._vendor, name.partition(":")[2], self._client, base_url)
        self._strict = base_url is None or not self._vendor.lenient

    def __repr__(self) -> str:
        return f"PydanticAIModel({self.name!r})"

    @property
    def address(self) -> str:
        """Scheme and host of the server that is asked; "" for the vendor's own."""
        parts = urlsplit(self._address)
        if _is_of(self._vendor.domain, self._address):
            return ""
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def priced(self) -> bool:
        """Whether a list price is known for this model at this address."""
        return is_priced(self._model.model_name, self._address)

    @property
    def context(self) -> int | None:
        """The tokens that the model holds; None where that is unknown."""
        return self._context or context_window(self._model.model_name, self._address)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Ask the model once; see `Model.stream`."""
        answer = VendorAnswer()
        try:
            async with self._open(request) as response:
                answer.opened = True
                async with aclosing(cast("AsyncGenerator[Any]", aiter(response))) as events:
                    async for event in events:
                        for delta in answer.take(event):
                            yield delta
            for delta in answer.finish(response, strict=self._strict):
                yield delta
            reply = answer.reply(response, request.max_output, self._cost(response))
        except ModelError:
            raise
        # The library parses what a stranger sent, and not every surprise in it is one of its own errors.
        except Exception as error:
            failed = self._failed(error, answer)
            raise failed from (None if tells(error, self._secret) else error)
        yield reply

    async def aclose(self) -> None:
        """Close the connections, unless the HTTP client is the caller's. May be called twice."""
        if self._owns_client:
            await self._client.close()

    @property
    def _address(self) -> str:
        return str(self._client.base_url)

    def _open(self, request: ModelRequest) -> Any:
        from pydantic_ai.direct import model_request_stream

        late = bool(self._model.profile.get("supports_inline_system_prompts", False))
        return model_request_stream(
            self._model,
            to_history(request.messages, self._model.system, late_system=late),
            model_settings=self._settings(request),
            model_request_parameters=_parameters(request),
            instrument=False,
        )

    def _settings(self, request: ModelRequest) -> "ModelSettings":
        known = SETTINGS | {
            name
            for name in _load(self._vendor.settings).__annotations__
            if name.startswith(self._vendor.prefix) and name not in UNSEEN_SETTINGS
        }
        settings = {name: _setting(name, value, known) for name, value in request.settings.items()}
        if request.max_output is not None:
            settings["max_tokens"] = request.max_output
        return cast("ModelSettings", settings)

    def _cost(self, response: "StreamedResponse") -> int | None:
        usage, details = response.usage, response.provider_details
        if usage.unmeasured_requests:
            return None
        asked = self._model.model_name
        for model in dict.fromkeys((response.model_name, asked)):
            cost = cost_nanousd(usage, model, self._address, response.timestamp, details)
            if cost is not None:
                return cost
        return None

    def _failed(self, error: Exception, answer: VendorAnswer) -> ModelError:
        around = Circumstances(
            opened=answer.opened,
            partial=answer.text,
            variable=self._variable,
            secret=self._secret,
            now=time.time_ns(),
        )
        return translate(error, around)


def _vendor(name: str) -> Vendor:
    prefix, colon, model = name.partition(":")
    known = ", ".join(f"{vendor}:" for vendor in sorted(VENDORS))
    if not colon or not model.strip():
        raise WrongUse(f"model {name!r}: a vendor's model is named vendor:model; known vendors: {known}")
    if prefix not in VENDORS:
        raise WrongUse(
            f"model {name!r}: unknown vendor {prefix!r}; known: {known} "
            "(for another OpenAI-compatible server: openai:MODEL with its base URL)"
        )
    return VENDORS[prefix]


def _key(vendor: Vendor, name: str, base_url: str | None, api_key: str | None) -> tuple[str, str | None]:
    """The environment variable that a key comes from, and the key; None is none needed."""
    own = base_url is None or _is_of(vendor.domain, base_url)
    variable = vendor.variable if own else OTHER_KEY
    key = api_key or os.environ.get(variable) or None
    if own and key is None:
        raise WrongUse(f"model {name!r} needs a key: set {variable}, or give api_key")
    return variable, key


def _check_address(name: str, address: str, told: str, variable: str) -> None:
    """Refuse an address that is none or holds a secret; `told` is where it was given, `variable` is for a key."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        secret = "@" in parts.netloc
    except ValueError:
        usable, secret = False, False
    if secret:  # an address is recorded and shown
        raise WrongUse(f"model {name!r}: {told} must hold no user or password; set {variable} for the key")
    if not usable:
        raise WrongUse(f"model {name!r}: {told} must be an http(s) address, such as http://127.0.0.1:8080/v1")


def _is_of(domain: str, base_url: str) -> bool:
    parts = urlsplit(base_url)
    return parts.scheme == "https" and f".{parts.hostname}".endswith(f".{domain}")


def _client(
    vendor: Vendor, key: str, base_url: str | None, timeout: float, http_client: "httpx2.AsyncClient | None"
) -> Any:
    """The SDK's client. Its own retries are off: each attempt is an event in the log."""
    sdk = _load(vendor.client)
    extra: dict[str, Any] = {"http_client": http_client}
    if http_client is None:
        import httpx2

        extra = {"timeout": httpx2.Timeout(timeout, connect=min(timeout, 5.0))}
    return sdk(api_key=key, base_url=base_url, max_retries=0, **extra)


def _model(vendor: Vendor, model: str, client: Any, base_url: str | None) -> "VendorModel[Any]":
    if base_url is None or vendor.prefix != "openai_":
        provider = _load(vendor.provider)(**{vendor.argument: client})
    else:
        # Named by its host: reasoning that one server signed is not shown to another.
        host = urlsplit(base_url).netloc.rpartition("@")[2]
        compatible = _load("pydantic_ai.providers.openai_compatible:OpenAICompatibleProvider")
        provider = compatible(host, openai_client=client)
    made = _load(vendor.model if base_url is None else vendor.elsewhere)(model, provider=provider)
    return cast("VendorModel[Any]", made)


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise WrongUse("vendors' models need an extra: pip install 'refold[models]'") from error


def _setting(name: str, value: str, known: frozenset[str]) -> Any:
    if name not in known:
        raise ModelError(
            FailureClass.BAD_REQUEST, f"setting {name!r} is not known; known: {', '.join(sorted(known))}"
        )
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise ModelError(
            FailureClass.BAD_REQUEST, f"setting {name!r}: expected JSON, got {value!r}"
        ) from error


def _parameters(request: ModelRequest) -> "ModelRequestParameters":
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tools = [
        # strict=False: the schema goes out as it is recorded, not rewritten for constrained decoding.
        ToolDefinition(
            **shared(tool, "name", "description"),
            parameters_json_schema=msgspec.json.decode(tool.schema),
            strict=False,
        )
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools)
