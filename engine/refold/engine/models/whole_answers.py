"""Servers that do not stream: an answer that comes as one JSON document is read as a stream of one piece.

Simple gateways ignore `stream: true`. The vendor's library finds no event in what they send, and would call a whole, paid
answer a broken stream. Chat completions are the dialect of such servers; of another dialect the failure says what happened.
"""

from typing import Any, cast

import msgspec

from refold.engine.models.protocol import ModelError
from refold.reducers.vocabulary import FailureClass

_OF_THE_BODY = frozenset({"content-encoding", "content-length", "content-type", "transfer-encoding"})


def reading_whole_answers(client: type[Any]) -> type[Any]:
    """A class of HTTP clients, made from `client` of httpx, that gives an answer in one document as a stream."""

    class Client(client):  # type: ignore[misc]
        async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            sent: Any = super()  # what it is made from is known only when it is there
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
    """The events of a stream that says what a chat completion says. Raises `ModelError` for what is none."""
    try:
        whole: object = msgspec.json.decode(content)
    except msgspec.DecodeError:
        whole = None
    found = cast("dict[str, Any]", whole) if isinstance(whole, dict) else {}
    if "error" in found:  # the library knows it as an event, too
        return _event(found)
    pieces = _pieces(found.get("choices"))
    if pieces is None:
        raise ModelError(
            FailureClass.BAD_REQUEST,
            "the server did not stream: it answered application/json, which is no chat completion",
        )
    about = {**found, "object": "chat.completion.chunk", "usage": None}
    counted: dict[str, Any] = {**about, "choices": [], "usage": found.get("usage")}
    return _event({**about, "choices": pieces}) + _event(counted) + b"data: [DONE]\n\n"


def failed_here(error: BaseException) -> ModelError | None:
    """The failure of ours that a library's error came from."""
    link: BaseException | None = error
    for _ in range(10):
        if link is None or isinstance(link, ModelError):
            return link
        link = link.__cause__ or link.__context__
    return None


def _pieces(choices: Any) -> list[dict[str, Any]] | None:
    """The choices of a chat completion as those of a stream; None where it is none."""
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
