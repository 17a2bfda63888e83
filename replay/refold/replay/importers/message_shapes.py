"""Messages as frameworks write them, read into ours: one reader for the field's shapes.

OpenAI chat and Responses, Anthropic blocks, GenAI parts, the AI SDK, Gemini contents and LangChain are told apart part by
part, never by a name of the framework: the shapes mix in practice (a gateway logs Anthropic blocks in OpenAI messages). A
message of theirs may be several of ours, since each result is one; what no rule reads is kept in `left`, as it stood.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role
from refold.replay.importers.content import call_of, calls_of, plain, unwrapped
from refold.replay.importers.fields import JSON, rows, table, text

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

_CALLS = ("tool_call", "tool_use", "tool-call", "function_call", "server_tool_use", "mcp_call")
_RESULTS = ("tool_call_response", "tool_result", "tool-result", "function_call_output", "tool_response")
_THOUGHTS = ("reasoning", "thinking", "redacted_thinking")
_LISTS = ("messages", "contents", "input", "output", "choices")
_DEPTH = 6


class Read(msgspec.Struct, frozen=True):
    """The messages of a value, in order, why the answer in it stopped, and what of it no rule could read."""

    messages: tuple[Message, ...] = ()
    stop: str = ""
    left: tuple[JSON, ...] = ()


def read(value: JSON, role: Role = Role.USER) -> Read:
    """The messages of any value; a bare text is one of `role`. Total: what is no message comes back as `left`."""
    reader = _Reader(role)
    reader.value(unwrapped(value))
    return Read(tuple(reader.messages), reader.stop, tuple(reader.left))


def instructed(instructions: JSON, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages of a request whose system instructions stand beside them.

    Recorders that put the system prompt into the messages often say it beside them, too.
    """
    if instructions is None or (messages and messages[0].role is Role.SYSTEM):
        return messages
    given = read(instructions, Role.SYSTEM).messages
    return (*(msgspec.structs.replace(piece, role=Role.SYSTEM) for piece in given), *messages)


class _Draft:
    """One message of theirs, while its parts are read."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[MessageCall] = []
        self.results: list[Message] = []

    def messages(self, *, result: Message | None) -> Iterator[Message]:
        said = "\n".join(self.texts)
        if result is not None:
            yield msgspec.structs.replace(result, text=said)
        elif said or self.reasoning or self.calls or not self.results:
            role = Role.ASSISTANT if self.calls else self.role
            reasoning = "\n".join(self.reasoning)
            yield Message(role=role, text=said, reasoning=reasoning, calls=tuple(self.calls))
        yield from self.results


class _Reader:
    """A walk over a value of messages. Depth is bounded: nobody nests conversations."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.messages: list[Message] = []
        self.left: list[JSON] = []
        self.stop = ""

    def value(self, value: JSON, depth: int = 0) -> None:
        match value:
            case str():
                self.messages.append(Message(role=self.role, text=value))
            case list() if depth < _DEPTH:
                for row in value:
                    self.value(unwrapped(row) if isinstance(row, str) else row, depth + 1)
            case dict() if depth < _DEPTH:
                self._object(value, depth)
            case None:
                pass
            case _:
                self.left.append(value)

    def _object(self, row: dict[str, JSON], depth: int) -> None:
        self.stop = _stop(row) or self.stop
        if isinstance(row.get("kwargs"), dict) and isinstance(row.get("id"), list):
            # LangChain's own serialisation: the class as a path, the message as its arguments.
            name = text(row, "id", -1).lower()
            kind = next((kind for kind in ("human", "ai", "system", "tool") if name.startswith(kind)), "")
            self._object({"type": kind, **table(row, "kwargs")}, depth + 1)
        elif _definition(row):
            self.left.append(row)
        elif _is_part(row):
            self._message(
                {"role": "assistant" if text(row, "type") not in _RESULTS else "tool", "content": [row]}
            )
        elif "role" in row or text(row, "type") in ROLES or isinstance(row.get("parts"), list):
            self._message(row)
        else:
            self._wrapper(row, depth)

    def _wrapper(self, row: dict[str, JSON], depth: int) -> None:
        """An object around messages: a request with its instructions, a response with its output."""
        inner = next((name for name in _LISTS if isinstance(row.get(name), list)), None)
        for instructions in (
            row.get("system"),
            row.get("system_instruction"),
            table(row, "config").get("system_instruction"),
        ):
            if instructions:
                self.messages.append(Message(role=Role.SYSTEM, text=_instructions(instructions)))
        if inner is None and isinstance(row.get("instructions"), str) and "input" in row:
            self.messages.append(Message(role=Role.SYSTEM, text=text(row, "instructions")))
        if inner is not None:
            self.value(row[inner], depth + 1)
        elif isinstance(message := unwrapped(row.get("message")), dict):
            self.value(message, depth + 1)
        elif isinstance(row.get("content"), dict):
            self.value(row["content"], depth + 1)
        elif isinstance(row.get("prompt"), str):
            self.messages.append(Message(role=Role.USER, text=text(row, "prompt")))
        else:
            self.left.append(row)

    def _message(self, row: dict[str, JSON]) -> None:
        role = ROLES.get(text(row, "role").lower() or text(row, "type").lower(), self.role)
        role = Role.TOOL if self._is_result(row) else role
        draft = _Draft(role)
        reasoning = text(row, "reasoning_content") or text(row, "reasoning")
        draft.reasoning += [reasoning] if reasoning else []
        content = row.get("parts") if isinstance(row.get("parts"), list) else row.get("content")
        content = _written_calls(content) if role is Role.ASSISTANT else content
        result = role is Role.TOOL and not _holds_results(content)
        for part in content if isinstance(content, list) else [content]:
            self._part(part, draft)
        if refusal := text(row, "refusal"):
            draft.texts.append(refusal)
        if not draft.calls:
            draft.calls += _called(row)
        if result:
            call = text(row, "tool_call_id") or text(row, "call_id")
            tool = text(row, "name") or ("" if text(row, "role").lower() in ROLES else text(row, "role"))
            piece = Message(role=Role.TOOL, call=call, name=tool or None)
            self.messages += draft.messages(result=piece)
        else:
            self.messages += draft.messages(result=None)

    def _is_result(self, row: dict[str, JSON]) -> bool:
        """Whether the role of a message is the name of a tool that was called before it: then it is what came back."""
        name = text(row, "role")
        called = (call.name for message in self.messages for call in message.calls)
        return bool(name) and name.lower() not in ROLES and name in called

    def _part(self, part: JSON, draft: _Draft) -> None:
        kind = text(part, "type")
        if isinstance(part, str):
            draft.texts.append(part)
        elif part is None:
            return
        elif _definition(part):
            self.left.append(part)
        elif kind in _THOUGHTS or table(part).get("thought") is True:
            draft.reasoning.append(_thought(part))
        elif (
            kind in _CALLS
            or "functionCall" in table(part)
            or isinstance(table(part).get("function_call"), dict)
        ):
            draft.calls.append(call_of(part))
        elif kind in _RESULTS or "functionResponse" in table(part) or "function_response" in table(part):
            draft.results.append(_result(part))
        elif isinstance(said := table(part).get("text", table(part).get("content")), str):
            draft.texts.append(said)
        else:
            # An image, a file: the model saw it, and its place in the message is worth a word.
            draft.texts.append(f"[{kind or 'part'}]")
            self.left.append(part)


def _stop(row: dict[str, JSON]) -> str:
    return text(row, "finish_reason") or text(row, "finishReason") or text(row, "stop_reason")


def _definition(row: JSON) -> bool:
    """Whether it is a tool's definition: LangChain's tracer writes those into the prompt, as messages of tools."""
    inner = table(row, "content") if isinstance(table(row).get("content"), dict) else table(row)
    return inner.get("type") == "function" and "parameters" in table(inner, "function")


def _is_part(row: dict[str, JSON]) -> bool:
    """Whether it is an item of the Responses API, or a part that stands alone."""
    return "role" not in row and text(row, "type") in (*_CALLS, *_RESULTS, *_THOUGHTS, "text", "output_text")


def _written_calls(content: JSON) -> JSON:
    """The parts of an answer that a recorder wrote as JSON text, if there is a call among them; else the content itself."""
    listed = unwrapped(content) if isinstance(content, str) else None
    parts = rows(listed)
    known = (*_CALLS, *_THOUGHTS, "text")
    if any(text(part, "type") in _CALLS for part in parts) and all(text(p, "type") in known for p in parts):
        return listed
    return content


def _holds_results(content: JSON) -> bool:
    return any(
        text(part, "type") in _RESULTS
        or "functionResponse" in table(part)
        or "function_response" in table(part)
        for part in rows(content)
    )


def _thought(part: JSON) -> str:
    said = text(part, "thinking") or text(part, "text") or text(part, "content")
    return said or "\n".join(text(piece, "text") for piece in rows(part, "summary"))


def _instructions(value: JSON) -> str:
    parts = rows(value, "parts")
    return "\n".join(text(part, "text") for part in parts) if parts else plain(value)


def _called(row: dict[str, JSON]) -> tuple[MessageCall, ...]:
    """Calls beside the content: OpenAI's `tool_calls`, LangChain's copy of them, the old `function_call`."""
    inner = table(row, "function_call")
    found = calls_of(row) or calls_of(row.get("additional_kwargs"))
    return found or ((call_of({"function_call": inner}),) if inner else ())


def _result(part: JSON) -> Message:
    inner = table(part, "functionResponse") or table(part, "function_response") or table(part)
    ids = (text(inner, key) for key in ("tool_use_id", "tool_call_id", "call_id", "toolCallId", "id"))
    names = ("response", "result", "output", "content")
    output = next((inner[key] for key in names if key in inner), None)
    if isinstance(output, dict) and set(output) == {"type", "value"}:
        output = output["value"]  # the AI SDK's tagged output
    return Message(
        role=Role.TOOL,
        text=plain(output),
        call=next(filter(None, ids), ""),
        name=text(inner, "name") or text(inner, "toolName") or None,
    )
