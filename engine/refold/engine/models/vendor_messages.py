"""Our messages as pydantic-ai's, and what a vendor wants back with them.

The text that a vendor must see again unchanged (signed reasoning above all) is in our messages already.
`provider_data` holds only the rest: signatures and ids, with the lengths that divide our one text again
into the vendor's parts, and a digest of that text. If the text is no longer what the model wrote
(redacted, trimmed) or the message comes from another vendor, the signatures would be refused: then the
message goes out as plain text and calls, without its reasoning.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from refold.reducers.messages import Message, MessageCall
from refold.reducers.text import clean
from refold.reducers.vocabulary import Role

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse, ModelResponsePart

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")  # what every vendor accepts as a call's id


class AnswerPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part of an answer, in its order: `size` characters of the text or the reasoning, or the next call."""

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
    said = "".join([text for piece, text in parts if piece.kind == "text"])
    thought = "".join([text for piece, text in parts if piece.kind == "thinking"])
    data = ProviderData(system=response.provider_name or "", digest=_digest(said, thought), pieces=pieces)
    return msgspec.json.encode(data, enc_hook=str).decode()


def to_history(messages: Sequence[Message], system: str, *, late_system: bool) -> list["ModelMessage"]:
    """The conversation as pydantic-ai's messages, in order; neighbours that are not the model's are one request.

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
    """The parts that are kept, each with what it says; not files and the vendor's own tools, which are never asked for."""
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
