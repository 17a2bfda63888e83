"""One reader for messages in the formats of many providers and frameworks.

It reads OpenAI chat and Responses, Anthropic blocks, GenAI parts, the AI SDK, Gemini contents and LangChain.
Each part is recognized by its shape, never by the framework's name, because shapes mix in practice (a gateway
logs Anthropic blocks in OpenAI messages). One message may become several, since each result is a message.
Values that were read are taken, the rest is left.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from refold.importers.content import CALLS, TEXTS, decode_nested_json, take_call, take_calls, take_plain
from refold.importers.fields import (
    JSON,
    at,
    drop_empty,
    json_text,
    rows,
    table,
    take,
    take_first,
    take_flag,
    take_if,
    take_text,
    text,
)
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role

ROLES: Mapping[str, Role] = MappingProxyType(
    {
        "system": Role.SYSTEM,
        "developer": Role.SYSTEM,
        "user": Role.USER,
        "human": Role.USER,
        "assistant": Role.ASSISTANT,
        "ai": Role.ASSISTANT,
        "model": Role.ASSISTANT,
        "tool": Role.TOOL,
        "function": Role.TOOL,
    }
)

_RESULTS = ("tool_call_response", "tool_result", "tool-result", "function_call_output", "tool_response")
_THOUGHTS = ("reasoning", "thinking", "redacted_thinking")
_LISTS = ("messages", "contents", "input", "output", "choices")
_RESPONSES = ("functionResponse", "function_response")
_CLASSES = ("human", "ai", "system", "tool")
_STOPS = ("finish_reason", "finishReason", "stop_reason")
_DEPTH = 6


class Read(msgspec.Struct, frozen=True):
    """The messages of a value in order, and the stop reason of the response in it.

    `left` is the rest of the value, None for nothing. `unknown` are parts and objects that no rule reads.
    """

    messages: tuple[Message, ...] = ()
    stop: str = ""
    left: JSON = None
    unknown: tuple[JSON, ...] = ()


def take_messages(
    value: JSON, *path: str, role: Role = Role.USER, known_rests: set[str] | None = None
) -> Read:
    """Return the messages in the value at this path, which may be JSON text, and leave the rest there.

    A plain string is a message of `role`. Anything that is not a message is left, without an error. Prompts
    repeat their messages, so remaining fields of a message that are already in `known_rests` are taken, too.
    """
    reader = _ShapeReader(role, known_rests)
    left = reader.value(decode_nested_json(at(value, *path)))
    if path:
        _put(at(value, *path[:-1]), path[-1], left)
    return Read(tuple(reader.messages), reader.stop, left, tuple(reader.unknown))


def _put(row: JSON, name: str, left: JSON) -> None:
    """Store the rest under a key; remove the key for None."""
    if isinstance(row, dict):
        row[name] = left
        take_if(row, name, None)


def add_instructions(around: JSON, name: str, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Prepend system instructions that are stored beside the messages of a request, and take them.

    Recorders often store the system prompt both in the messages and beside them. Instructions that differ
    from it are left.
    """
    read = take_messages(deepcopy(at(around, name)), role=Role.SYSTEM)
    first = messages[0] if messages and messages[0].role is Role.SYSTEM else None
    if first is None or first.text == "\n".join(piece.text for piece in read.messages):
        _put(around, name, read.left)
    given = () if first else read.messages
    return (*(replace(piece, role=Role.SYSTEM) for piece in given), *messages)


class _Draft:
    """A source message while its parts are read."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[MessageCall] = []
        self.results: list[Message] = []

    def messages(self, *, result: Message | None) -> Iterator[Message]:
        said = "\n".join(self.texts)
        if result is not None:
            yield replace(result, text=said)
        elif said or self.reasoning or self.calls or not self.results:
            role = Role.ASSISTANT if self.calls else self.role
            reasoning = "\n".join(self.reasoning)
            yield Message(role=role, text=said, reasoning=reasoning, calls=tuple(self.calls))
        yield from self.results


class _ShapeReader:
    """Reads a value of messages recursively. Depth is bounded, since conversations are not nested."""

    def __init__(self, role: Role, known_rests: set[str] | None) -> None:
        self.role = role
        self.known_rests = known_rests
        self.messages: list[Message] = []
        self.unknown: list[JSON] = []
        self.stop = ""

    def value(self, value: JSON, depth: int = 0) -> JSON:
        """Read a value and return its rest, None for nothing."""
        match value:
            case str():
                self.messages.append(Message(role=self.role, text=value))
                return None
            case list() if depth < _DEPTH:
                read = (
                    self.value(decode_nested_json(row) if isinstance(row, str) else row, depth + 1)
                    for row in value
                )
                value[:] = [left for left in read if left is not None]
                return value or None
            case dict() if depth < _DEPTH:
                return self._object(value, depth)
            case None:
                return None
            case _:
                return self._unknown(value)

    def _unknown(self, value: JSON) -> JSON:
        self.unknown.append(value)
        return value

    def _object(self, row: dict[str, JSON], depth: int) -> JSON:
        self._note_stop(row)
        kwargs, path = row.get("kwargs"), row.get("id")
        if isinstance(kwargs, dict) and isinstance(path, list):
            _put(row, "kwargs", self._read_serialized(kwargs, text(path, -1).lower(), depth))
        elif _is_definition(row):
            self._unknown(row)
        elif _is_part(row):
            role = "assistant" if text(row, "type") not in _RESULTS else "tool"
            self._message({"role": role, "content": [row]})
        elif "role" in row or text(row, "type") in ROLES or isinstance(row.get("parts"), list):
            self._message(row)
        else:
            return self._wrapper(row, depth)
        return self._deduplicate(row)

    def _note_stop(self, row: dict[str, JSON]) -> None:
        stopped = next((name for name in _STOPS if text(row, name)), "")
        if stopped and not self.stop:
            self.stop = take_text(row, stopped) if self.role is Role.ASSISTANT else text(row, stopped)

    def _read_serialized(self, kwargs: dict[str, JSON], name: str, depth: int) -> JSON:
        """Read LangChain's serialization: `name` ends the class path, `kwargs` are the fields."""
        kwargs.setdefault("type", next((kind for kind in _CLASSES if name.startswith(kind)), ""))
        left = self._object(kwargs, depth + 1)
        take_if(kwargs, "type", "")
        return left or None

    def _deduplicate(self, row: dict[str, JSON]) -> JSON:
        """Return the rest of a message, or None if an earlier message had the same rest."""
        if row and self.known_rests is not None:
            left = json_text(row)
            if left in self.known_rests:
                return None
            self.known_rests.add(left)
        return row or None

    def _wrapper(self, row: dict[str, JSON], depth: int) -> JSON:
        """Read an object around messages: a request with its instructions, or a response with its output."""
        inner = next((name for name in _LISTS if isinstance(row.get(name), list)), None)
        self._instructions(row, listed=inner is not None)
        if inner is not None:
            _put(row, inner, self.value(row[inner], depth + 1))
        elif isinstance(message := decode_nested_json(row.get("message")), dict):
            _put(row, "message", self.value(message, depth + 1))
        elif isinstance(row.get("content"), dict):
            _put(row, "content", self.value(row["content"], depth + 1))
        elif isinstance(row.get("prompt"), str):
            self.messages.append(Message(role=Role.USER, text=take_text(row, "prompt")))
        else:
            self._unknown(row)
        return row or None

    def _instructions(self, row: dict[str, JSON], *, listed: bool) -> None:
        for path in (("system",), ("system_instruction",), ("config", "system_instruction")):
            if at(row, *path):
                self.messages.append(Message(role=Role.SYSTEM, text=_take_instructions(row, *path)))
        if not listed and isinstance(row.get("instructions"), str) and "input" in row:
            self.messages.append(Message(role=Role.SYSTEM, text=take_text(row, "instructions")))

    def _message(self, row: dict[str, JSON]) -> None:
        named = text(row, "role")
        role = ROLES.get(named.lower() or text(row, "type").lower(), self.role)
        role = Role.TOOL if self._is_result(named) else role
        draft = _Draft(role)
        holds_results = self._fill(draft, row)
        alone = role is Role.TOOL and not (holds_results or draft.calls or draft.reasoning)
        self.messages += draft.messages(result=_take_result_source(row, named) if alone else None)
        kind = text(row, "type").lower()
        if named.lower() in ROLES:
            take(row, "role")
        if kind == "message" or ROLES.get(kind) is role:
            take(row, "type")
        drop_empty(row)

    def _fill(self, draft: _Draft, row: dict[str, JSON]) -> bool:
        """Read a message's content into its draft. Return whether its parts include results."""
        name = "parts" if isinstance(row.get("parts"), list) else "content"
        content = _decode_calls(row.get(name)) if draft.role is Role.ASSISTANT else row.get(name)
        tool = draft.role is Role.TOOL
        if not tool and (reasoning := take_first(row, "reasoning_content", "reasoning")):
            draft.reasoning.append(reasoning)
        holds_results = _holds_results(content)
        _put(row, name, self._parts(content, draft))
        if refusal := take_text(row, "refusal"):
            draft.texts.append(refusal)
        if not tool and not draft.calls:
            draft.calls += _take_calls_beside(row)
        return holds_results

    def _is_result(self, name: str) -> bool:
        """Return whether a message's role is the name of a tool called before: then it is a result."""
        called = (call.name for message in self.messages for call in message.calls)
        return bool(name) and name.lower() not in ROLES and name in called

    def _parts(self, content: JSON, draft: _Draft) -> JSON:
        if not isinstance(content, list):
            return self._part(content, draft)
        content[:] = [left for part in content if (left := self._part(part, draft)) is not None]
        return content or None

    def _part(self, part: JSON, draft: _Draft) -> JSON:
        """Read a part of a message and return its rest, None for nothing."""
        kind, row = text(part, "type"), table(part)
        if isinstance(part, str):
            draft.texts.append(part)
            return None
        if part is None:
            return None
        if _is_definition(part):
            return self._unknown(part)
        match _holds(row):
            case "thought":
                draft.reasoning.append(_take_thought(row))
            case "call":
                draft.calls.append(take_call(row))
            case "result":
                draft.results.append(_take_result(row))
                if _may_hold_text(row, draft.results[-1]):
                    return self._unknown({"type": kind or "tool_result", **row})
            case "text" | "content" as name:
                draft.texts.append(take_text(row, name))
                take_if(row, "type", *TEXTS)
            case _:
                # An image or a file: the model received it, so it gets a placeholder in the text.
                draft.texts.append(f"[{kind or 'part'}]")
                return self._unknown(part)
        drop_empty(row)
        return row or None


def _holds(row: dict[str, JSON]) -> Literal["thought", "call", "result", "text", "content", ""]:
    """Return what a part of a message holds; for text, the key of the text."""
    kind = text(row, "type")
    if kind in _THOUGHTS or row.get("thought") is True:
        return "thought"
    if kind in CALLS or "functionCall" in row or isinstance(row.get("function_call"), dict):
        return "call"
    if kind in _RESULTS or not row.keys().isdisjoint(_RESPONSES):
        return "result"
    name: Literal["text", "content"] = "text" if "text" in row else "content"
    return name if isinstance(row.get(name), str) else ""


def _take_result_source(row: dict[str, JSON], role: str) -> Message:
    """Return an empty result with the call id and the tool name, which some formats use as the role."""
    call = take_first(row, "tool_call_id", "call_id")
    tool = take_text(row, "name") or ("" if role.lower() in ROLES else take_text(row, "role"))
    return Message(role=Role.TOOL, call=call, name=tool or None)


def _is_definition(row: JSON) -> bool:
    """Return whether it is a tool definition, which LangChain's tracer writes into prompts as messages."""
    inner = table(row, "content") if isinstance(table(row).get("content"), dict) else table(row)
    return inner.get("type") == "function" and "parameters" in table(inner, "function")


def _is_part(row: dict[str, JSON]) -> bool:
    """Return whether it is an item of the Responses API, or a separate part."""
    return "role" not in row and text(row, "type") in (*CALLS, *_RESULTS, *_THOUGHTS, "text", "output_text")


def _decode_calls(content: JSON) -> JSON:
    """Return the parts of a response that a recorder wrote as JSON text, if they include a call.

    Otherwise return the content unchanged.
    """
    listed = decode_nested_json(content) if isinstance(content, str) else None
    parts = rows(listed)
    known = (*CALLS, *_THOUGHTS, "text")
    if any(text(part, "type") in CALLS for part in parts) and all(text(p, "type") in known for p in parts):
        return listed
    return content


def _holds_results(content: JSON) -> bool:
    return any(
        text(part, "type") in _RESULTS or any(name in table(part) for name in _RESPONSES)
        for part in rows(content)
    )


def _take_thought(part: dict[str, JSON]) -> str:
    said = take_first(part, "thinking", "text", "content")
    if not said and rows(part, "summary"):
        said = take_plain(part, "summary")
    take_flag(part, "thought")
    if said:
        take_if(part, "type", *_THOUGHTS)
    return said


def _take_instructions(row: dict[str, JSON], *path: str) -> str:
    return take_plain(row, *path, "parts") if rows(row, *path, "parts") else take_plain(row, *path)


def _take_calls_beside(row: dict[str, JSON]) -> tuple[MessageCall, ...]:
    """Take calls beside the content: `tool_calls`, LangChain's copy of them, or the old `function_call`."""
    found = take_calls(row) or take_calls(row.get("additional_kwargs"))
    if found or not table(row, "function_call"):
        return found
    return (take_call({"function_call": row["function_call"]}),)


def _may_hold_text(left: dict[str, JSON], result: Message) -> bool:
    """Return whether a result was read as empty although the rest of its part may hold its text."""
    return not result.text and any(
        isinstance(value, dict | list) and value for name, value in left.items() if name != "cache_control"
    )


def _take_result(part: dict[str, JSON]) -> Message:
    around = next((name for name in _RESPONSES if table(part, name)), "")
    inner = table(part, around) if around else part
    call = take_first(inner, "tool_use_id", "tool_call_id", "call_id", "toolCallId", "id")
    name = next((name for name in ("response", "result", "output", "content") if name in inner), "")
    output = inner.get(name)
    if isinstance(output, dict) and set(output) == {"type", "value"}:  # tagged output of the AI SDK
        said = take_plain(output, "value")
        take_if(output, "type", "text", "json")
        take_if(inner, name, {})
    else:
        said = take_plain(inner, name)
    tool = take_first(inner, "name", "toolName")
    take_if(part, around, {})
    take_if(part, "type", *_RESULTS)
    return Message(role=Role.TOOL, text=said, call=call, name=tool or None)
