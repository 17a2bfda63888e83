"""A vendor's messages and streams.

The text that a vendor must see again unchanged (signed reasoning above all) is in our messages already.
`provider_data` holds only the rest: signatures and ids, with the lengths that divide our one text again
into the vendor's parts, and a digest of that text. If the text is no longer what the model wrote
(redacted, trimmed) or the message comes from another vendor, the signatures would be refused: then the
message goes out as plain text and calls, without its reasoning.
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
    """One part of an answer, in its order: `size` characters of the text or the reasoning, or the next
    call.
    """

    kind: Literal["text", "thinking", "call"]
    size: int = 0
    id: str | None = None
    signature: str | None = None
    details: dict[str, Any] | None = None


class ProviderData(msgspec.Struct, frozen=True, kw_only=True):
    """What `Message.provider_data` holds: who answered, a digest of what was said, and its pieces."""

    system: str
    digest: str
    pieces: tuple[AnswerPiece, ...]


def provider_data(response: "ModelResponse") -> str:
    """What this answer's vendor must get back with it, as JSON text; "" if the plain message says it all."""
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
    """The conversation as pydantic-ai's messages, in order; neighbours that are not the model's are one
    request.

    `system` is the vendor that will read it. `late_system` says whether it takes system messages after the
    conversation has begun; if not, those go out in the user's place.
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

    data = _readable(message, system)
    if data is not None:
        return ModelResponse(parts=list(_restored(message, data)), provider_name=system)
    parts: list[ModelResponsePart] = [TextPart(message.text)] if message.text else []
    return ModelResponse(parts=[*parts, *(_call_part(call) for call in message.calls)])


def _readable(message: Message, system: str) -> ProviderData | None:
    """The message's provider data, if it is this vendor's and still fits what the message says."""
    if not message.provider_data:
        return None
    try:
        data = msgspec.json.decode(message.provider_data, type=ProviderData)
    except msgspec.MsgspecError:  # another adapter's: opaque to us, as ours is to it
        return None
    calls = sum(piece.kind == "call" for piece in data.pieces)
    same = data.digest == _digest(message.text, message.reasoning) and calls == len(message.calls)
    return data if same and data.system == system else None


def _restored(message: Message, data: ProviderData) -> Iterator["ModelResponsePart"]:
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
    """A call's id as every vendor accepts it: itself if it can be, else a hash of it."""
    if _SAFE_ID.fullmatch(call):
        return call
    return "call_" + hashlib.sha256(call.encode(errors="replace")).hexdigest()[:32]


def _pieces(parts: Iterable["ModelResponsePart"]) -> Iterator[tuple[AnswerPiece, str]]:
    """The parts that are kept, each with what it says; not files and the vendor's own tools, which are never
    asked for.
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
    """Of both texts, cleaned as events are: what was a lone surrogate there and here is the same."""
    return hashlib.sha256(msgspec.json.encode([clean(text), clean(reasoning)])).hexdigest()[:16]


ADAPTER = "pydantic-ai"
_DISTRIBUTION = "pydantic-ai-slim"
_MADE_UP_ID = "pyd_ai_"  # how the library's own call ids begin, where the vendor gave none

# The vendor's own word first, where ours is finer than the library's, then the library's.
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
    """What has arrived of one answer. Fed with the library's events in order; gives deltas, then the reply.

    The texts of all deltas, joined, are the reply's text and reasoning. `opened` is set by its owner once
    the vendor has begun to answer.
    """

    def __init__(self) -> None:
        self.opened = False
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: dict[int, int] = {}  # the library's part number to our call number

    @property
    def text(self) -> str:
        """The answer's text so far."""
        return "".join(self._texts)

    def take(self, event: object) -> Iterator[Delta]:
        """The deltas in one event; most of the library's events hold one, its summaries none."""
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
            case _:  # an empty start, a signature, a summary, or a part that we never ask for
                return

    def finish(self, response: "StreamedResponse", *, strict: bool) -> Iterator[Delta]:
        """Check that the stream came to its end; the last delta is a refusal's text, if that is the answer.

        A server proves the end by a stop reason or, unless `strict`, by a count of tokens: a connection
        that is closed politely in mid-answer looks like an end too. Raises `ModelError` otherwise.
        """
        ended = _raw_stop(response) or response.finish_reason == "content_filter"
        cut = (
            response.state == "incomplete"
        )  # what the library says of OpenAI's responses without a last word
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
        """The whole answer. `max_output` is the most tokens that were asked for."""
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


def uncounted(usage: "RequestUsage") -> bool:
    """Whether the server counted no tokens.

    Some say 0 of what they do not count: no request is as short as that.
    """
    return bool(usage.unmeasured_requests) or not (usage.input_tokens or usage.output_tokens)


def _call(part: "ToolCallPart") -> ReplyCall:
    made_up = part.tool_call_id.startswith(_MADE_UP_ID)
    return ReplyCall(
        provider_id="" if made_up else clean(part.tool_call_id),
        name=clean(part.tool_name),
        arguments=_arguments(part.args),
    )


def _arguments(args: str | Mapping[str, Any] | None) -> str:
    """The arguments as they came; only what came as an object and not as text is written out."""
    if args is None or isinstance(args, str):
        return clean(args or "")
    return clean(msgspec.json.encode(args).decode())


def _raw_stop(response: "StreamedResponse") -> str:
    details = response.provider_details or {}
    raw = details.get("finish_reason") or ("refusal" if details.get("refusal") else "")
    return clean(str(raw))


def _stop(response: "StreamedResponse", calls: bool, *, capped: bool) -> StopReason:  # noqa: FBT001
    """The stop reason; inferred as the policy language says where the vendor gave none."""
    raw = _raw_stop(response)
    stop = STOPS.get(raw) or STOPS.get(response.finish_reason or "", StopReason.OTHER)
    if stop is StopReason.END_TURN and calls:  # some servers say `stop` to everything
        return StopReason.TOOL_USE
    if not raw and stop is StopReason.END_TURN and capped:
        return StopReason.MAX_TOKENS
    return stop


def _usage(usage: "RequestUsage") -> Usage | None:
    if uncounted(usage):
        return None
    thought = getattr(usage, "output_reasoning_tokens", None) or usage.details.get("reasoning_tokens", 0)
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        reasoning=thought,
    )
