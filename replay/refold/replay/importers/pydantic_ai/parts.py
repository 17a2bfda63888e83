"""The messages of Pydantic AI and their parts, each for itself: what item it is, and what of it no item says."""

from collections.abc import Iterator, Sequence

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role, ToolError
from refold.replay.importers.content import call_of
from refold.replay.importers.fields import JSON, at, instant, json_text, nano_usd, rows, table, text
from refold.replay.importers.items import Item, Place
from refold.replay.importers.usages import UsageNames

PART = ("part_kind", "content", "tool_name", "tool_call_id", "args", "timestamp")
TOKENS = UsageNames(
    input=("input_tokens", "request_tokens"),
    output=("output_tokens", "response_tokens"),
    cache_read=("cache_read_tokens",),
    cache_write=("cache_write_tokens",),
    reasoning=("output_reasoning_tokens", "details/reasoning_tokens"),
)
_TOLD = ("text", "thinking", "tool-call")
REQUEST = ("kind", "parts", "timestamp")
_RESPONSE = (*REQUEST, "usage", "model_name", "provider_response_id", "finish_reason")


def opening(row: JSON) -> Iterator[Message]:
    """What a request before the first answer gives the model."""
    if instructions := text(row, "instructions"):
        yield Message(role=Role.SYSTEM, text=instructions)
    for part in rows(row, "parts"):
        if text(part, "part_kind") == "system-prompt":
            yield Message(role=Role.SYSTEM, text=_content(part))
        elif text(part, "part_kind") == "user-prompt":
            yield Message(role=Role.USER, text=_content(part))


def asked_of(place: Place, part: JSON) -> Item:
    """A part of a request."""
    place = Place(place.position, instant(at(part, "timestamp")) or place.at, place.counts)
    rest, kind, said = untold_of(part, PART), text(part, "part_kind"), _content(part)
    if is_result(part):
        name, call = text(part, "tool_name"), text(part, "tool_call_id")
        return place.returned(call, said, name=name, error=_error(part), rest=rest)
    if kind in ("system-prompt", "user-prompt", "retry-prompt"):
        role = Role.SYSTEM if kind == "system-prompt" else Role.USER
        by = "user" if kind == "user-prompt" else "harness"
        return place.said(said, by, role=role, rest=rest)
    return place.unread("no_part", f"part_kind {kind[:40]!r}", part)


def answered(place: Place, row: JSON) -> Item:
    """A response as the answer that it is."""
    parts = rows(row, "parts")
    said, thought, _ = ([part for part in parts if text(part, "part_kind") == kind] for kind in _TOLD)
    calls = tuple(call_of(part) for part in parts if text(part, "part_kind") == "tool-call")
    rest = _beside(row, _RESPONSE)
    unsaid: list[JSON] = [kept for part in parts if (kept := _unsaid(part)) is not None]
    rest |= {"parts": unsaid} if unsaid else {}
    used = at(row, "usage")
    return place.answered(
        Message(
            role=Role.ASSISTANT,
            text="\n".join(map(_content, said)),
            reasoning="\n".join(map(_content, thought)),
            calls=calls,
        ),
        TOKENS.of(used) if used else None,
        stop=text(row, "finish_reason"),
        cost=nano_usd(at(used, "cost")),
        model=text(row, "model_name"),
        response=text(row, "provider_response_id"),
        rest=json_text(rest) if rest else "",
    )


def untold(row: JSON) -> list[JSON]:
    """The parts of a response of which its answer says nothing."""
    return [part for part in rows(row, "parts") if text(part, "part_kind") not in _TOLD]


def _unsaid(part: JSON) -> JSON:
    """What an answer does not say of one of its parts: signatures and ids of those it tells, others whole."""
    if text(part, "part_kind") not in _TOLD:
        return part
    beside = _beside(part, PART)
    return {"part_kind": text(part, "part_kind"), **beside} if beside else None


def is_result(part: JSON) -> bool:
    """Whether a part answers a call."""
    kind = text(part, "part_kind")
    return kind == "tool-return" or (kind == "retry-prompt" and bool(text(part, "tool_name")))


def failed(part: JSON) -> bool:
    """What the format marks as failed: a retry of a tool's call, or an outcome that says so."""
    return is_result(part) and (
        text(part, "part_kind") == "retry-prompt" or text(part, "outcome") == "failed"
    )


def _error(part: JSON) -> ToolError | None:
    if not failed(part):
        return None
    # The validator's list of complaints: the arguments did not fit.
    return ToolError.BAD_ARGUMENTS if isinstance(table(part).get("content"), list) else ToolError.RAISED


def _content(part: JSON) -> str:
    content = table(part).get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list) and text(part, "part_kind") == "user-prompt":
        said = [
            piece if isinstance(piece, str) else text(piece, "content") or f"[{text(piece, 'kind')}]"
            for piece in content
        ]
        return "\n".join(said)
    return "" if content is None else json_text(content)


def _beside(row: JSON, used: Sequence[str]) -> dict[str, JSON]:
    return {name: value for name, value in table(row).items() if name not in used and value is not None}


def untold_of(row: JSON, used: Sequence[str]) -> str:
    """JSON text of what is said beside these keys; nulls say nothing. A list of a prompt's parts stays whole."""
    beside = _beside(row, used)
    if isinstance(table(row).get("content"), list):
        beside["content"] = table(row)["content"]
    return json_text(beside) if beside else ""
