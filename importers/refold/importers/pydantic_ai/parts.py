"""The messages of Pydantic AI and their parts, each for itself: what item it is, and what of it no item says."""

from collections.abc import Iterator, Mapping

from refold.importers.content import take_call
from refold.importers.fields import JSON, at, json_text, rows, table, text
from refold.importers.items import Item, Place
from refold.importers.leftovers import rest, take, take_cost, take_each, take_if, take_text, take_time
from refold.importers.usages import UsageNames
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role, ToolError

GIVEN = ("system-prompt", "user-prompt")
"""Kinds of parts that begin a run."""

TOKENS = UsageNames(
    input=("input_tokens", "request_tokens"),
    output=("output_tokens", "response_tokens"),
    cache_read=("cache_read_tokens",),
    cache_write=("cache_write_tokens",),
    reasoning=("output_reasoning_tokens", "details/reasoning_tokens"),
)
_TOLD = ("text", "thinking", "tool-call")
_OUTCOMES: Mapping[str, ToolError | bool] = {
    "": False,
    "success": False,
    "failed": True,
    "denied": ToolError.CANCELLED,
}
"""What outcomes say. A tool that asks to be called again (`retried`) may have done what it was called for, or not."""


def take_opening(row: JSON) -> Iterator[Message]:
    """What a request before the first answer gives the model."""
    if instructions := take_text(row, "instructions"):
        yield Message(role=Role.SYSTEM, text=instructions)
    for part in rows(row, "parts"):
        if (kind := text(part, "part_kind")) in GIVEN:
            yield Message(
                role=Role.SYSTEM if kind == "system-prompt" else Role.USER, text=_take_content(part)
            )


def asked_of(place: Place, part: JSON) -> Item:
    """A part of a request."""
    kind, failed, result = text(part, "part_kind"), failed_of(part), is_result(part)
    if not result and kind not in (*GIVEN, "retry-prompt"):
        return place.unread("no_part", f"part_kind {kind[:40]!r}", part)
    place = Place(place.position, take_time(part, "timestamp") or place.at, place.counts)
    said = _take_content(part)
    if result:
        name, call = take_text(part, "tool_name"), take_text(part, "tool_call_id")
        return place.returned(call, said, name=name, failed=failed, rest=left_of(part, kind))
    role = Role.SYSTEM if kind == "system-prompt" else Role.USER
    by = "user" if kind == "user-prompt" else "harness"
    return place.said(said, by, role=role, rest=left_of(part, kind))


def answered(place: Place, row: JSON) -> Item:
    """A response as the answer that it is."""
    said: dict[str, list[str]] = {"text": [], "thinking": []}
    calls: list[MessageCall] = []
    for part in take_each(row, "parts"):
        kind = text(part, "part_kind")
        if kind == "tool-call":
            calls.append(take_call(part))
        elif kind in said:
            said[kind].append(_take_content(part))
        if kind in _TOLD and not _beside(part).keys() - {"part_kind"}:
            table(part).clear()
    cost, used = take_cost(row, "usage", "cost"), TOKENS.take(row, "usage") if at(row, "usage") else None
    # Of a kind of tokens that was not used its item says nothing, nor does a count of none.
    if isinstance(row, dict) and not any(table(row, "usage").values()):
        take(row, "usage")
    return place.answered(
        Message(
            role=Role.ASSISTANT,
            text="\n".join(said["text"]),
            reasoning="\n".join(said["thinking"]),
            calls=tuple(calls),
        ),
        used,
        stop=take_text(row, "finish_reason"),
        cost=cost,
        model=take_text(row, "model_name"),
        response=take_text(row, "provider_response_id"),
        rest=left_of(row, "response"),
    )


def untold(row: JSON) -> list[JSON]:
    """The parts of a response of which its answer says nothing."""
    return [part for part in rows(row, "parts") if text(part, "part_kind") not in _TOLD]


def is_result(part: JSON) -> bool:
    """Whether a part answers a call."""
    kind = text(part, "part_kind")
    return kind == "tool-return" or (kind == "retry-prompt" and bool(text(part, "tool_name")))


def failed_of(part: JSON) -> ToolError | bool | None:
    """How the format marks a result: by its kind, or by its outcome; None: that tells neither.

    Before there were outcomes a result of the other kind did well.
    """
    retried = text(part, "part_kind") == "retry-prompt"
    failed = True if retried else _OUTCOMES.get(text(part, "outcome"))
    # The validator's list of complaints: the arguments did not fit.
    complaints = failed is True and isinstance(table(part).get("content"), list)
    return ToolError.BAD_ARGUMENTS if complaints else failed


def _take_content(part: JSON) -> str:
    content = at(part, "content")
    if isinstance(content, list) and text(part, "part_kind") == "user-prompt":
        said = [
            piece if isinstance(piece, str) else take_text(piece, "content") or f"[{text(piece, 'kind')}]"
            for piece in content
        ]
        content[:] = [piece for piece in content if not isinstance(piece, str)]
        return "\n".join(said)
    take(part, "content")
    return content if isinstance(content, str) else "" if content is None else json_text(content)


def left_of(value: JSON, *kinds: str) -> str:
    """JSON text of what is left of a message or a part of one of these kinds; nulls say nothing."""
    take_if(value, "kind", *kinds)
    take_if(value, "part_kind", *kinds)
    return rest(_beside(value))


def _beside(value: JSON) -> dict[str, JSON]:
    return {name: inner for name, inner in table(value).items() if inner is not None}
