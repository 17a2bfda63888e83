"""Conversion of messages to a vendor's request, and of its stream to a reply.

Text that a vendor must get back unchanged, mainly signed reasoning, is in our messages already.
`provider_data` has only the rest: signatures and ids, the lengths that split our text into the vendor's parts
again, and a digest of that text. If the text changed since (redacted, trimmed) or the message comes from
another vendor, the signatures would be refused: then the message is sent as plain text and calls, without its
reasoning.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from refold.engine.models.protocol import (
    CallDelta,
    Delta,
    ModelError,
    ReasoningDelta,
    Reply,
    TextDelta,
)
from refold.reducers.messages import Message, MessageCall, ReplyCall, Usage
from refold.reducers.text import clean
from refold.reducers.vocabulary import FailureClass, Role, StopReason

if TYPE_CHECKING:
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequestPart,
        ModelResponse,
        ModelResponsePart,
        ToolCallPart,
    )
    from pydantic_ai.models import StreamedResponse
    from pydantic_ai.usage import RequestUsage


_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")  # what every vendor accepts as a call's id


class AnswerPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part of a response, in order: `size` characters of the text or the reasoning, or the next call."""

    kind: Literal["text", "thinking", "call"]
    size: int = 0
    id: str | None = None
    signature: str | None = None
    details: dict[str, Any] | None = None


class ProviderData(msgspec.Struct, frozen=True, kw_only=True):
    """The data in `Message.provider_data`: the vendor, a digest of text and reasoning, and the pieces."""

    system: str
    digest: str
    pieces: tuple[AnswerPiece, ...]


def provider_data(response: "ModelResponse") -> str:
    """Return the data that the vendor must get back, as JSON text; "" if the plain message is enough."""
    parts = list(_pieces(response.parts))
    pieces = tuple([piece for piece, _ in parts])
    if not any(piece.id or piece.signature or piece.details for piece in pieces):
        return ""
    said, thought = (
        "".join([text for piece, text in parts if piece.kind == kind]) for kind in ("text", "thinking")
    )
    data = ProviderData(system=response.provider_name or "", digest=_digest(said, thought), pieces=pieces)
    return msgspec.json.encode(data, enc_hook=str).decode()


def to_history(messages: Sequence[Message], system: str, *, late_system: bool) -> list["ModelMessage"]:
    """Convert the conversation to pydantic-ai's messages; adjacent messages that are not the model's form one
    request.

    `system` is the receiving vendor. `late_system`: it accepts system messages in the middle of a
    conversation; else they are sent as the user's.
    """
    from pydantic_ai.messages import ModelRequest

    history: list[ModelMessage] = []
    for own, group in groupby(messages, key=lambda message: message.role is Role.ASSISTANT):
        if own:
            history.extend(_response(message, system) for message in group)
        else:
            history.append(
                ModelRequest(parts=_request_parts(group, begun=bool(history), late_system=late_system))
            )
    return history


def _request_parts(
    messages: Iterable[Message], *, begun: bool, late_system: bool
) -> list["ModelRequestPart"]:
    from pydantic_ai.messages import SystemPromptPart, ToolReturnPart, UserPromptPart

    parts: list[ModelRequestPart] = []
    for message in messages:
        if message.role is Role.SYSTEM and (late_system or not begun):
            parts.append(SystemPromptPart(message.text))
            continue
        begun = True
        if message.role is Role.TOOL and message.call is not None:
            parts.append(ToolReturnPart(message.name or "tool", message.text, _vendor_id(message.call)))
        else:
            parts.append(UserPromptPart(message.text))
    return parts


def _response(message: Message, system: str) -> "ModelResponse":
    from pydantic_ai.messages import ModelResponse, TextPart

    data = _matching_data(message, system)
    if data is not None:
        return ModelResponse(parts=list(_restore(message, data)), provider_name=system)
    parts: list[ModelResponsePart] = [TextPart(message.text)] if message.text else []
    return ModelResponse(parts=[*parts, *(_call_part(call) for call in message.calls)])


def _matching_data(message: Message, system: str) -> ProviderData | None:
    """Return the message's provider data if it is this vendor's and still fits the message's text."""
    if not message.provider_data:
        return None
    try:
        data = msgspec.json.decode(message.provider_data, type=ProviderData)
    except msgspec.MsgspecError:  # another adapter's, and opaque to us
        return None
    calls = sum(piece.kind == "call" for piece in data.pieces)
    same = data.digest == _digest(message.text, message.reasoning) and calls == len(message.calls)
    return data if same and data.system == system else None


def _restore(message: Message, data: ProviderData) -> Iterator["ModelResponsePart"]:
    from pydantic_ai.messages import TextPart, ThinkingPart

    text, thought, calls = message.text, message.reasoning, iter(message.calls)
    for piece in data.pieces:
        extra: dict[str, Any] = {"id": piece.id, "provider_details": piece.details}
        extra["provider_name"] = data.system if piece.id or piece.signature or piece.details else None
        if piece.kind == "text":
            yield TextPart(text[: piece.size], **extra)
            text = text[piece.size :]
        elif piece.kind == "thinking":
            yield ThinkingPart(thought[: piece.size], signature=piece.signature, **extra)
            thought = thought[piece.size :]
        else:
            yield _call_part(next(calls), **extra)


def _call_part(call: MessageCall, **extra: Any) -> "ModelResponsePart":
    from pydantic_ai.messages import ToolCallPart

    return ToolCallPart(call.name, call.arguments, _vendor_id(call.id), **extra)


def _vendor_id(call: str) -> str:
    """Return the call's id if every vendor accepts it, else a hash of it."""
    if _SAFE_ID.fullmatch(call):
        return call
    return "call_" + hashlib.sha256(call.encode(errors="replace")).hexdigest()[:32]


def _pieces(parts: Iterable["ModelResponsePart"]) -> Iterator[tuple[AnswerPiece, str]]:
    """Yield the parts to store, each with its text. Files and calls of the vendor's own tools are skipped:
    we never request them.
    """
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    for part in parts:
        kind: Literal["text", "thinking", "call"] = "text"
        signature: str | None = None
        match part:
            case TextPart():
                said = part.content
            case ThinkingPart():
                kind, said, signature = "thinking", part.content, part.signature
            case ToolCallPart():
                kind, said = "call", ""
            case _:
                continue
        details = part.provider_details
        yield AnswerPiece(kind=kind, size=len(said), id=part.id, signature=signature, details=details), said


def _digest(text: str, reasoning: str) -> str:
    """Return the digest of both texts, cleaned like events, so that lone surrogates do not matter."""
    return hashlib.sha256(msgspec.json.encode([clean(text), clean(reasoning)])).hexdigest()[:16]


ADAPTER = "pydantic-ai"
_DISTRIBUTION = "pydantic-ai-slim"
_MADE_UP_ID = "pyd_ai_"  # prefix of the library's own call ids, used if the vendor sent none

# Stop reasons by the vendor's name if ours are finer than the library's, else by the library's name.
STOPS: Mapping[str, StopReason] = MappingProxyType(
    {
        "stop_sequence": StopReason.STOP_SEQUENCE,
        "pause_turn": StopReason.OTHER,
        "stop": StopReason.END_TURN,
        "length": StopReason.MAX_TOKENS,
        "content_filter": StopReason.CONTENT_FILTER,
        "tool_call": StopReason.TOOL_USE,
    }
)


class VendorAnswer:
    """Accumulator of one response. Takes the library's events in order; returns deltas, then the reply.

    The joined texts of all deltas are the reply's text and reasoning. The owner sets `opened` when the
    response begins.
    """

    def __init__(self) -> None:
        self.opened = False
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: dict[int, int] = {}  # the library's part number to our call number

    @property
    def text(self) -> str:
        """The response's text so far."""
        return "".join(self._texts)

    def take(self, event: object) -> Iterator[Delta]:
        """Yield the deltas of one event: one for most events, none for summaries."""
        from pydantic_ai.messages import (
            PartDeltaEvent,
            PartStartEvent,
            TextPart,
            TextPartDelta,
            ThinkingPart,
            ThinkingPartDelta,
            ToolCallPart,
            ToolCallPartDelta,
        )

        match event:
            case (
                PartStartEvent(part=TextPart(content=text))
                | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
            ) if text:
                yield self._text(text)
            case (
                PartStartEvent(part=ThinkingPart(content=thought))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=thought))
            ) if thought:
                yield self._thought(thought)
            case PartStartEvent(index=index, part=ToolCallPart() as part):
                number = self._calls.setdefault(index, len(self._calls))
                yield CallDelta(number, clean(part.tool_name), _arguments(part.args))
            case PartDeltaEvent(
                index=index, delta=ToolCallPartDelta(tool_name_delta=name, args_delta=args)
            ) if name or args:
                yield CallDelta(self._calls[index], clean(name or ""), _arguments(args))
            case _:  # an empty start, a signature, a summary, or a part that we never request
                return

    def finish(self, response: "StreamedResponse", *, strict: bool) -> Iterator[Delta]:
        """Check that the stream is complete. Yields a last delta if the response is a refusal.

        A stop reason proves the end or, unless `strict`, a token count: a connection that is closed cleanly
        in the middle of a response looks like an end too. Raises `ModelError` otherwise.
        """
        ended = _raw_stop(response) or response.finish_reason == "content_filter"
        cut = response.state == "incomplete"  # the library's state of OpenAI responses without a final event
        if cut or (not ended and (strict or response.usage.unmeasured_requests)):
            raise ModelError(
                FailureClass.STREAM_BROKEN,
                "the stream ended without a stop reason",
                partial_text=self.text,
            )
        refusal = (response.provider_details or {}).get("refusal")
        if isinstance(refusal, str) and refusal and not self._texts:
            yield self._text(refusal)

    def reply(self, response: "StreamedResponse", max_output: int | None, cost: int | None) -> Reply:
        """Return the complete reply. `max_output` is the requested maximum of tokens."""
        whole = response.get()
        calls = tuple(_call(part) for part in whole.tool_calls)
        usage = _usage(response.usage)
        return Reply(
            text=self.text,
            reasoning="".join(self._thoughts),
            calls=calls,
            stop=_stop(response, bool(calls), capped=usage is not None and usage.output == max_output),
            stop_raw=_raw_stop(response),
            usage=usage,
            cost_nanousd=cost,
            model=clean(response.model_name),
            adapter=ADAPTER,
            adapter_version=version(_DISTRIBUTION),
            response_id=clean(response.provider_response_id or ""),
            provider_data=provider_data(whole),
        )

    def _text(self, content: str) -> TextDelta:
        self._texts.append(clean(content))
        return TextDelta(self._texts[-1])

    def _thought(self, content: str) -> ReasoningDelta:
        self._thoughts.append(clean(content))
        return ReasoningDelta(self._thoughts[-1])


def is_uncounted(usage: "RequestUsage") -> bool:
    """Return whether the server sent no token counts. Some send 0 instead, which no real request has."""
    return bool(usage.unmeasured_requests) or not (usage.input_tokens or usage.output_tokens)


def _call(part: "ToolCallPart") -> ReplyCall:
    made_up = part.tool_call_id.startswith(_MADE_UP_ID)
    return ReplyCall(
        provider_id="" if made_up else clean(part.tool_call_id),
        name=clean(part.tool_name),
        arguments=_arguments(part.args),
    )


def _arguments(args: str | Mapping[str, Any] | None) -> str:
    """Return the arguments as received; an object is encoded as JSON."""
    if args is None or isinstance(args, str):
        return clean(args or "")
    return clean(msgspec.json.encode(args).decode())


def _raw_stop(response: "StreamedResponse") -> str:
    details = response.provider_details or {}
    raw = details.get("finish_reason") or ("refusal" if details.get("refusal") else "")
    return clean(str(raw))


def _stop(response: "StreamedResponse", calls: bool, *, capped: bool) -> StopReason:  # noqa: FBT001
    """Return the stop reason; if the vendor sent none, it is inferred as docs/reference/policy.md defines."""
    raw = _raw_stop(response)
    stop = STOPS.get(raw) or STOPS.get(response.finish_reason or "", StopReason.OTHER)
    if stop is StopReason.END_TURN and calls:  # some servers always send `stop`
        return StopReason.TOOL_USE
    if not raw and stop is StopReason.END_TURN and capped:
        return StopReason.MAX_TOKENS
    return stop


def _usage(usage: "RequestUsage") -> Usage | None:
    if is_uncounted(usage):
        return None
    thought = getattr(usage, "output_reasoning_tokens", None) or usage.details.get("reasoning_tokens", 0)
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        reasoning=thought,
    )
