"""Translation of vendors' failures to `ModelError`, and support for servers that do not stream.

A status or error event from the provider is classified by its content, a failed connection by where it
failed. After the response has begun, every other failure is a broken stream, because the partial text can be
continued.

Simple gateways ignore `stream: true`. The vendor's library finds no event in their response and would report
a complete, paid response as a broken stream. Such a response is converted if it is a chat completion; else
the failure reports what happened.
"""

import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, cast

import msgspec

from refold.engine.models.protocol import ModelError
from refold.reducers.failures import classify
from refold.reducers.text import clean
from refold.reducers.vocabulary import NANO, FailureClass

# Failure classes by exception class names, looked up along an exception's bases. Names do not require
# importing the library, and openai, anthropic and pydantic-ai share the names of httpx.
BY_EXCEPTION: Mapping[str, FailureClass] = MappingProxyType(
    {
        "ConnectTimeout": FailureClass.NETWORK,  # nothing was sent: like any failed connection
        "PoolTimeout": FailureClass.NETWORK,
        "ModelRequestTimeout": FailureClass.TIMEOUT,
        "ModelTimeoutError": FailureClass.TIMEOUT,
        "APITimeoutError": FailureClass.TIMEOUT,
        "TimeoutException": FailureClass.TIMEOUT,
        "TimeoutError": FailureClass.TIMEOUT,
        "ModelConnectionError": FailureClass.NETWORK,
        "APIConnectionError": FailureClass.NETWORK,
        "TransportError": FailureClass.NETWORK,
        "StreamError": FailureClass.NETWORK,
        "OSError": FailureClass.NETWORK,
        "UserError": FailureClass.BAD_REQUEST,
        # A 200 without a readable response: an empty stream.
        "UnexpectedModelBehavior": FailureClass.STREAM_BROKEN,
        "JSONDecodeError": FailureClass.STREAM_BROKEN,
    }
)

# Upper bound for a provider's requested wait. A malicious one could request an integer too large for a log.
LONGEST_WAIT = 7 * 24 * 3600 * NANO

_LONGEST_MESSAGE = 2_000  # characters: enough for every error seen, too few to fill a log with a page of HTML


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What the exception does not contain about the failed request.

    `opened`: the response had begun. `partial` is its text so far, `key` describes the source of the key,
    `secret` is the key, "" if there is none, `address` the server, "" if unknown, `now` the wall clock in
    nanoseconds since the Unix epoch, for dates in `retry-after`. `idle` is the maximum silence in seconds, 0
    if the caller's client decides.
    """

    opened: bool
    partial: str
    key: str
    secret: str
    address: str
    now: int
    idle: float = 0


def translate(error: Exception, around: Circumstances) -> ModelError:
    """Convert `error` to a `ModelError`. Pure; never raises, and the secret is never in the message."""
    status = _status(error)
    text = _mask(around.secret, _message_of(error))
    failure = _class(error, status, text, opened=around.opened)
    if failure in (FailureClass.AUTH, FailureClass.QUOTA):
        check = "the key in" if failure is FailureClass.AUTH else "the account of the key in"
        text = f"{text}; check {check} {around.key}"
    if failure is FailureClass.TIMEOUT and status is None and around.idle:
        text = f"{text.rstrip('.')}: silent for {around.idle:g} s (--timeout, or timeout= of the model)"
    if (
        failure in (FailureClass.NETWORK, FailureClass.TIMEOUT)
        and around.address
        and around.address not in text
    ):
        text = f"{text.rstrip('.')} (address: {around.address})"
    return ModelError(
        failure,
        text,
        status=status,
        retry_after=retry_after(getattr(error, "headers", None) or {}, around.now),
        partial_text=around.partial,
    )


def exposes(error: BaseException, secret: str) -> bool:
    """Return whether an exception, or one in its chain, would print the secret."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while secret and link is not None and link not in seen:
        if secret in str(link) or secret in repr(link):
            return True
        seen.append(link)
        link = link.__cause__ or link.__context__
    return False


def retry_after(headers: Mapping[str, str], now: int) -> int | None:
    """Return the wait that the provider requests, in nanoseconds; None without a readable header.

    `headers` have lower-case names, `now` is nanoseconds since the Unix epoch. `retry-after-ms` has
    precedence because it is more precise; `retry-after` is in seconds or an HTTP date (RFC 9110, 10.2.3),
    where a past date means 0.
    """
    wait = _scale(headers.get("retry-after-ms"), NANO // 1000)
    if wait is None:
        wait = _scale(headers.get("retry-after"), NANO)
    if wait is None:
        wait = _wait_until(headers.get("retry-after"), now)
    return None if wait is None else min(max(wait, 0), LONGEST_WAIT)


def _scale(value: str | None, unit: int) -> int | None:
    try:
        number = Decimal((value or "").strip())
    except InvalidOperation:
        return None
    if not number.is_finite() or number < 0:
        return None
    return LONGEST_WAIT if number > LONGEST_WAIT else int(number * unit)


def _wait_until(value: str | None, now: int) -> int | None:
    try:
        return int(parsedate_to_datetime(value or "").timestamp()) * NANO - now
    except (ValueError, TypeError, OverflowError, OSError):
        return None


def _class(error: Exception, status: int | None, text: str, *, opened: bool) -> FailureClass:
    if status is not None or getattr(error, "in_stream", False):
        return classify(status, text)
    if opened:
        return FailureClass.STREAM_BROKEN
    if getattr(error, "phase", None) in ("connect", "pool"):
        return FailureClass.NETWORK
    for kind in type(error).__mro__:
        if kind.__name__ in BY_EXCEPTION:
            return BY_EXCEPTION[kind.__name__]
    return classify(None, text)


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _message_of(error: Exception) -> str:
    """Return the provider's message after its code, or the library's message."""
    body = getattr(error, "body", None)
    inner = _inner(body)
    said = inner.get("message") or (body if isinstance(body, str) else "") or _dump(inner) or str(error)
    code = getattr(error, "provider_error_code", None) or getattr(error, "provider_error_type", None)
    whole = f"{code}: {said}" if code and code != str(_status(error)) else str(said)
    return clean(whole.strip() or type(error).__name__)[:_LONGEST_MESSAGE]


def _inner(body: object) -> dict[str, Any]:
    """Return the object that describes the failure, which some providers wrap in `error`."""
    if not isinstance(body, dict):
        return {}
    outer = cast("dict[str, Any]", body)
    inner = outer.get("error")
    if isinstance(inner, str):
        return {"message": inner}
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else outer


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, default=str) if value else ""


def _mask(secret: str, text: str) -> str:
    return text.replace(secret, "[key]") if secret else text


_OF_THE_BODY = frozenset({"content-encoding", "content-length", "content-type", "transfer-encoding"})


def streaming_client_class(client: type[Any]) -> type[Any]:
    """Return a subclass of an httpx client class that converts a response in one document to a stream."""

    class Client(client):  # type: ignore[misc]
        async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            sent: Any = super()  # the base class is known only at run time
            response: Any = await sent.send(request, stream=stream, **options)
            kind = response.headers.get("content-type", "").strip().lower()
            if not stream or response.status_code != 200 or not kind.startswith("application/json"):
                return response
            content = as_stream(await response.aread())
            await response.aclose()
            entries: list[tuple[str, str]] = response.headers.multi_items()
            headers = [(name, value) for name, value in entries if name not in _OF_THE_BODY]
            headers.append(("content-type", "text/event-stream"))
            return type(response)(200, headers=headers, content=content, request=request)

    return Client


def as_stream(content: bytes) -> bytes:
    """Convert a chat completion to the events of a stream. Raises `ModelError` if it is not one."""
    try:
        whole: object = msgspec.json.decode(content)
    except msgspec.DecodeError:
        whole = None
    found = cast("dict[str, Any]", whole) if isinstance(whole, dict) else {}
    if "error" in found:  # the library also understands it as an event
        return _event(found)
    pieces = _pieces(found.get("choices"))
    if pieces is None:
        raise ModelError(
            FailureClass.BAD_REQUEST,
            "the server did not stream: its response is application/json, but not a chat completion",
        )
    about = {**found, "object": "chat.completion.chunk", "usage": None}
    counted: dict[str, Any] = {**about, "choices": [], "usage": found.get("usage")}
    return _event({**about, "choices": pieces}) + _event(counted) + b"data: [DONE]\n\n"


def find_model_error(error: BaseException) -> ModelError | None:
    """Return the `ModelError` in the chain of a library's error; None without one."""
    link: BaseException | None = error
    for _ in range(10):
        if link is None or isinstance(link, ModelError):
            return link
        link = link.__cause__ or link.__context__
    return None


def _pieces(choices: Any) -> list[dict[str, Any]] | None:
    """Convert the choices of a chat completion to those of a stream; None if it is not one."""
    try:
        return [_piece(each["message"], {**each}) for each in choices]
    except (TypeError, KeyError):
        return None


def _piece(message: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    made: list[dict[str, Any]] = ({**message}).get("tool_calls") or []
    calls = [{**call, "index": place} for place, call in enumerate(made)]
    del choice["message"]
    return {**choice, "delta": {**message, "tool_calls": calls or None}}


def _event(data: object) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
