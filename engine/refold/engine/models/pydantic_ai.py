"""Models of vendors, each by one name (`openai:gpt-5-mini`), through pydantic-ai's direct request API.

The library implements every vendor's dialect. This adapter implements the contract of `Model`: one `Reply` at
the end of a stream or one `ModelError`, arguments as the vendor sent them, and no retries outside the log. It
adds no text to the prompt. pydantic-ai takes seconds to import and is an extra, so it is imported only when a
model is created.

The library makes two changes to outgoing requests that the log does not show. A call's arguments are sent
back as compact JSON (malformed ones inside an object that marks them). For hosts of open-weight models, a
zero-width joiner breaks a chat template's control tokens inside a message, so that a file that contains them
cannot forge a turn.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec

from refold.engine.arguments import seconds
from refold.engine.models.prices import context_window, cost_nanousd, is_priced, price_of
from refold.engine.models.protocol import Delta, ModelError, ModelRequest, Reply
from refold.engine.models.vendor_failures import Circumstances, exposes, find_model_error, translate
from refold.engine.models.vendor_stream import VendorAnswer, is_uncounted, to_history
from refold.engine.models.vendors import OTHERS, VENDORS, Endpoint, provider_endpoint, vendor_endpoint
from refold.reducers.errors import WrongUse
from refold.reducers.vocabulary import FailureClass

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings

IDLE = 120.0
"""Default maximum silence of a connection in seconds."""


class PydanticAIModel:
    """A vendor's model. Implements `refold.engine.models.protocol.Model`, on asyncio and on trio.

    `name` is `vendor:model`. `openai:` and `anthropic:` without `base_url` use the vendor's own address, with
    `api_key` or the key in the vendor's environment variable. With `base_url`, they use any server of the
    same dialect (for `openai:` chat completions), with `api_key` or `REFOLD_API_KEY`, or without a key. Any
    other vendor is a provider of pydantic-ai, which finds its address and key.

    `timeout` is the maximum silence of the connection in seconds. `http_client` is used unchanged, with its
    own timeouts, and the caller closes it. `context` is the context window in tokens, by default from the
    price lists. `price` overrides the lists, in dollars per million tokens read and written.

    Raises `WrongUse` for a malformed name, an unknown vendor, a missing key, an invalid address or one with a
    password, or a missing extra.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = IDLE,
        http_client: "httpx2.AsyncClient | None" = None,
        context: int | None = None,
        price: tuple[float, float] | None = None,
    ) -> None:
        self.name, self._context = name, context
        self._price = None if price is None else price_of(price)
        seconds(timeout, "timeout")
        self._idle = timeout if http_client is None else 0
        self._endpoint = _endpoint(name, base_url, api_key, timeout, http_client)
        self._model = self._endpoint.model

    def __repr__(self) -> str:
        return f"PydanticAIModel({self.name!r})"

    @property
    def address(self) -> str:
        """Scheme and host of the server that is asked; "" for the vendor's own."""
        return self._endpoint.elsewhere

    @property
    def price(self) -> str:
        """The price that was given, as `0.5/1.5`; "" where none was."""
        return "" if self._price is None else str(self._price)

    @property
    def priced(self) -> bool:
        """Whether a price was given, or the lists have one for this model at this address."""
        return self._price is not None or is_priced(self._model.model_name, self._endpoint.address)

    @property
    def context(self) -> int | None:
        """The context window in tokens; None if unknown."""
        return self._context or context_window(self._model.model_name, self._endpoint.address)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """Send one request; see `Model.stream`."""
        answer = VendorAnswer()
        try:
            async with self._open(request) as response:
                answer.opened = True
                async with aclosing(cast("AsyncGenerator[Any]", aiter(response))) as events:
                    async for event in events:
                        for delta in answer.take(event):
                            yield delta
            for delta in answer.finish(response, strict=self._endpoint.strict):
                yield delta
            reply = answer.reply(response, request.max_output, self._cost(response))
        except ModelError:
            raise
        # The library parses untrusted data and does not raise its own errors for everything unexpected.
        except Exception as error:
            failed = find_model_error(error) or self._convert_failure(error, answer)
            raise failed from (None if exposes(error, self._endpoint.secret) else error)
        yield reply

    async def aclose(self) -> None:
        """Close the connections, unless the caller owns the HTTP client. May be called twice."""
        if self._endpoint.close is not None:
            await self._endpoint.close()

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
        settings = {
            name: _setting(name, value, self._endpoint.settings) for name, value in request.settings.items()
        }
        if self._endpoint.timeout is not None:
            settings["timeout"] = self._endpoint.timeout
        if request.max_output is not None:
            settings["max_tokens"] = request.max_output
        return cast("ModelSettings", settings)

    def _cost(self, response: "StreamedResponse") -> int | None:
        usage, details = response.usage, response.provider_details
        if self._price is not None:
            return self._price.cost_nanousd(usage.input_tokens, usage.output_tokens)
        if is_uncounted(usage):
            return None
        asked = self._model.model_name
        for model in dict.fromkeys((response.model_name, asked)):
            cost = cost_nanousd(usage, model, self._endpoint.address, response.timestamp, details)
            if cost is not None:
                return cost
        return None

    def _convert_failure(self, error: Exception, answer: VendorAnswer) -> ModelError:
        around = Circumstances(
            opened=answer.opened,
            partial=answer.text,
            key=self._endpoint.key,
            secret=self._endpoint.secret,
            address=self._endpoint.host,
            now=time.time_ns(),
            idle=self._idle,
        )
        return translate(error, around)


def _endpoint(
    name: str,
    base_url: str | None,
    api_key: str | None,
    timeout: float,
    http_client: "httpx2.AsyncClient | None",
) -> Endpoint:
    prefix, colon, model = name.partition(":")
    own = ", ".join(f"{vendor}:" for vendor in sorted(VENDORS))
    if not colon or not prefix or not model.strip():
        raise WrongUse(
            f"model {name!r}: expected provider:model; known are {own} and all providers of pydantic-ai"
        )
    if prefix in VENDORS:
        return vendor_endpoint(name, base_url, api_key, timeout, http_client)
    if base_url is not None or api_key is not None:
        given = "base_url" if base_url is not None else "api_key"
        raise WrongUse(f"model {name!r}: {given} is only for {own}; {prefix} finds its own; {OTHERS}")
    return provider_endpoint(name, timeout, http_client)


def _setting(name: str, value: str, known: frozenset[str]) -> Any:
    if name not in known:
        raise ModelError(
            FailureClass.BAD_REQUEST, f"unknown setting {name!r}; known: {', '.join(sorted(known))}"
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
        # strict=False: the schema is sent as recorded, not rewritten for constrained decoding.
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=msgspec.json.decode(tool.schema),
            strict=False,
        )
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools)
