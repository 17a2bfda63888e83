"""The parts of a Gemini CLI message: texts, calls and results, in a content or beside it in `toolCalls`.

A call and its result may stand in both: in `toolCalls` of the model's message, and since 0.50 or so as `functionCall` and
`functionResponse` parts of the messages that went over the wire. The ids are the same in a file.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from refold.importers.content import read_call, take_call, unread, unwrapped
from refold.importers.fields import JSON, at, json_text, rows, table, text
from refold.importers.leftovers import (
    take,
    take_each,
    take_if,
    take_part,
    take_text,
    take_words,
    word_of,
)
from refold.importers.shells import TOOL, shell_failed
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Refuser, Role, ToolError

INJECTED = ("<session_context>", "<state_snapshot>")
"""How messages begin that the CLI puts there in the user's place."""

_BESIDE = (
    "args", "result", "resultDisplay", "timestamp", "agentId", "displayName", "description",
    "renderOutputAsMarkdown",
)  # fmt: skip
"""Keys of a call in `toolCalls` that hold no arguments, once those were taken."""
_RESPONSE = "functionResponse"
_FAILED: dict[str, ToolError | bool] = {"success": False, "error": True, "cancelled": ToolError.CANCELLED}
# The CLI's own words at the beginning of an error: the first that fits holds. Output of a tool never stands there alone.
_WORDS: tuple[tuple[re.Pattern[str], ToolError | Refuser], ...] = (
    (re.compile(r"Tool execution blocked: "), Refuser.HOOK),
    (re.compile(r"Tool execution (?:for \".{1,200}\" )?denied by policy\."), Refuser.RULE),
    (re.compile(r"Tool execution for \".{1,200}\" requires user confirmation"), Refuser.RULE),
    (re.compile(r"\[Operation Cancelled\] Reason: User denied execution\."), Refuser.USER),
    (re.compile(r"Tool \".{1,200}\" not found\b"), ToolError.UNKNOWN_TOOL),
    (re.compile(r"params (?:must|/)"), ToolError.BAD_ARGUMENTS),
)


def is_context(message: JSON) -> bool:
    """Whether a message is what the CLI puts before a chat."""
    return any(word_of(part).startswith(INJECTED[0]) for part in _parts(message))


def take_said(message: JSON) -> str:
    """The text of a content: text, a part, or parts; a part that is no text is named where it stood."""
    if part := table(message, "content"):
        table(message)["content"] = [part]
    return take_words(message, "content")


def is_answered(call: JSON) -> bool:
    """Whether a call of `toolCalls` has its result: it lies inside it."""
    result = at(call, "result")
    return bool(result) if isinstance(result, list | str) else isinstance(result, dict)


def holds_responses(message: JSON) -> bool:
    """Whether parts of a content are results."""
    return any(table(part, _RESPONSE) for part in _parts(message))


def _parts(message: JSON) -> Sequence[JSON]:
    content = at(message, "content")
    return [content] if isinstance(content, dict) else rows(message, "content")


def _take_parts(message: JSON, name: str) -> list[JSON]:
    """The parts of a content that have this key, taken out of it."""
    parts = _parts(message)
    found = [part for part in parts if table(part, name)]
    if found:
        take(message, "content")
        put_back(message, [part for part in parts if not table(part, name)])
    return found


def put_back(message: JSON, parts: Sequence[JSON]) -> None:
    """Put what is left of parts behind the content that they were taken from."""
    if left := [part for part in parts if part]:
        content = at(message, "content")
        table(message)["content"] = [*(content if isinstance(content, list) else []), *left]


def take_answer(message: JSON) -> Message:
    """What the model said, thought and asked for; of the calls in `toolCalls` their arguments are taken."""
    wire = _take_parts(message, "functionCall")
    said, thought = take_said(message), _take_thoughts(message)
    listed = [
        read_call(text(call, "id"), text(call, "name"), take(call, "args"), call, beside=_BESIDE)
        for call in rows(message, "toolCalls")
    ]
    places = {call.id: place for place, call in enumerate(listed)}
    asked = [take_call(part) for part in wire]
    put_back(message, wire)
    for call in asked:
        if call.id not in places:
            listed.append(call)
        elif not _is_same(call, listed[places[call.id]]):
            listed[places[call.id]] = unread(listed[places[call.id]])
    return Message(role=Role.ASSISTANT, text=said, reasoning=thought, calls=tuple(listed))


def _is_same(one: MessageCall, other: MessageCall) -> bool:
    return one.name == other.name and unwrapped(one.arguments) == unwrapped(other.arguments)


def _take_thoughts(message: JSON) -> str:
    found = [
        (take_text(thought, "subject"), take_text(thought, "description"))
        for thought in take_each(message, "thoughts")
    ]
    return "\n".join(": ".join(filter(None, pair)) for pair in found)


def take_result(call: JSON) -> Message:
    """What the model was shown of a result in `toolCalls`, which is taken out of the call with its name and its id."""
    id_, name = take_text(call, "id"), take_text(call, "name")
    result = at(call, "result")
    parts = take_each(call, "result") if isinstance(result, list) else [result]
    said = "\n".join([_take_response(part, id_, name) for part in parts])
    take_if(call, "result", {}, said)
    return Message(role=Role.TOOL, text=said, call=id_, name=name)


class Response(NamedTuple):
    """A result as it was sent: `failed` by its own key, None where that does not say."""

    call: str
    name: str
    text: str
    failed: ToolError | bool | None


def take_responses(message: JSON) -> list[Response]:
    """The results among the parts of a content, taken out of it."""
    parts, found = _take_parts(message, _RESPONSE), list[Response]()
    for part in parts:
        id_, name = text(part, _RESPONSE, "id"), text(part, _RESPONSE, "name")
        failed = True if "error" in table(part, _RESPONSE, "response") else None
        said = _take_response(part, id_, name)
        found.append(Response(id_, name, said, failed or (shell_failed(said) if name == TOOL else None)))
    put_back(message, parts)
    return found


def _take_response(part: JSON, call: str, name: str) -> str:
    around = table(part, "functionResponse")
    if at(around, "response") is None:
        return take_part(part)
    said = take_text(around, "response", "output") or take_text(around, "response", "error")
    said = said or json_text(take(around, "response"))
    take_if(around, "id", call)
    take_if(around, "name", name)
    take_if(around, "response", {})
    take_if(part, "functionResponse", {})
    return said


def failed_of(status: str, result: Message) -> ToolError | Refuser | bool | None:
    """Whether a call failed, or how, or who refused it; None: nothing says so. A command that fails has the status `success`."""
    failed = _FAILED.get(status)
    if failed is False and result.name == TOOL:
        return shell_failed(result.text)
    if failed:
        return next((word for words, word in _WORDS if words.match(result.text)), failed)
    return failed
