"""Attributes of spans: all versions of the GenAI semantic conventions, and the names of the AI SDK.

Attributes were often renamed: `gen_ai.system` to `gen_ai.provider.name`, `prompt_tokens` to `input_tokens`.
Messages were in numbered attributes, then in one event each, and are now in one JSON text. OpenInference and
OpenLLMetry have other names. The names of each meaning are listed with the newest first; the first name with
a value applies.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from refold.importers.content import arguments, calls_of, decode_nested_json, plain
from refold.importers.fields import JSON, at, nano_usd, number, rows, table, text
from refold.importers.formats.otel.spans import Attributes, Span
from refold.importers.message_shapes import Read, add_instructions, take_messages
from refold.importers.usage import UsageNames
from refold.reducers.messages import Message, Usage
from refold.reducers.vocabulary import Role

Operation = Literal["agent", "chat", "tool", "hook", ""]

TOKENS = UsageNames(
    input=("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    output=("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    cache_read=(
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    cache_write=(
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    reasoning=(
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    ),
)
MODEL = ("gen_ai.request.model", "gen_ai.response.model", "ai.model.id", "llm.model_name")
SYSTEM = "gen_ai.system_instructions"
TOOLS = "gen_ai.tool.definitions"
BEFORE = "refold.input.before"  # in exports of refold: number of messages of the previous prompt that precede these
PROMPTS = ("gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages", "input.value")
ANSWERS = ("gen_ai.output.messages", "gen_ai.completion", "output.value")
CALL_ID = ("gen_ai.tool.call.id", "ai.toolCall.id")
CALL_NAME = ("gen_ai.tool.name", "ai.toolCall.name", "tool.name")
CALL_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool_arguments", "ai.toolCall.args", "input.value")
CALL_RESULT = ("gen_ai.tool.call.result", "tool_response", "ai.toolCall.result", "output.value")

_OPERATIONS: dict[str, Operation] = {
    "chat": "chat",
    "text_completion": "chat",
    "generate_content": "chat",
    "invoke_agent": "agent",
    "execute_tool": "tool",
    "execute_hook": "hook",
}
# The operation in attributes of OpenInference and OpenLLMetry.
_KINDS: dict[tuple[str, str], Operation] = {
    ("openinference.span.kind", "AGENT"): "agent",
    ("openinference.span.kind", "LLM"): "chat",
    ("openinference.span.kind", "TOOL"): "tool",
    ("traceloop.span.kind", "agent"): "agent",
    ("traceloop.span.kind", "tool"): "tool",
    ("llm.request.type", "chat"): "chat",
    ("llm.request.type", "completion"): "chat",
}
_OUTER = re.compile(r"ai\.(generate|stream)(Text|Object)$")
_INNER = re.compile(r"ai\.(generate|stream)(Text|Object)\.do(Generate|Stream)$")
_NUMBERED = re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(.+)")
_TOOL = re.compile(r"(?i)tool.?(name|call|input|arg|param|id\b)")
_CALL = re.compile(r"tool_calls\.(\d+)\.(\w+)$")
_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message$")


def operation(span: Span) -> Operation:
    """Return the operation of a span; "" for an unknown one.

    An agent's run and the AI SDK's outer spans are `agent`; a request to a model is `chat`.
    """
    named = _OPERATIONS.get(text(span.attributes, "gen_ai.operation.name"))
    if named:
        return named
    for (name, value), meant in _KINDS.items():
        if text(span.attributes, name) == value:
            return meant
    kind = text(span.attributes, "ai.operationId") or span.name
    if _OUTER.match(kind):
        return "agent"
    if _INNER.match(kind):
        return "chat"
    if kind == "ai.toolCall":
        return "tool"
    return "agent" if "agent_name" in span.attributes and "final_result" in span.attributes else ""


def names_tool(span: Span) -> bool:
    """Return whether attributes of a span refer to a tool, so it may be a call of an unknown kind."""
    return any(_TOOL.search(name) for name in (*span.attributes, *table(span.left)))


def is_outer(span: Span, inner: Span) -> bool:
    """Return whether an inner span of the AI SDK can belong to an outer one, by its name and its times."""
    names = (
        text(span.attributes, "ai.operationId") or span.name,
        text(inner.attributes, "ai.operationId") or inner.name,
    )
    if not (_OUTER.match(names[0]) and names[1].startswith(names[0] + ".do")):
        return False
    times = (span.start, inner.start, inner.end, span.end)
    known = [time for time in times if time is not None]
    return len(known) == len(times) and known == sorted(known)


def first_of(attributes: Attributes, names: Iterable[str]) -> str:
    """Return the first of these names that has a value, "" for none."""
    return next((name for name in names if attributes.get(name) is not None), "")


def first(attributes: Attributes, names: Iterable[str]) -> JSON:
    """Return the value of the first of these names that has one, None for none."""
    return attributes.get(first_of(attributes, names))


def parse_counts(span: Span) -> dict[str, JSON]:
    """Return the attributes of a span with numeric text as integers; some stores write counts as text."""
    return {name: _number(value) for name, value in span.attributes.items()}


def _number(value: JSON) -> JSON:
    plain_ = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19
    return int(value) if isinstance(value, str) and plain_ else value


def count_before(span: Span) -> int:
    """Return the number of messages of the previous prompt that precede those of this span."""
    return number(parse_counts(span), BEFORE) or 0


def usage(span: Span) -> Usage | None:
    """Return the tokens of one request, including the AI SDK's own name for cached ones."""
    own = parse_counts(span)
    return TOKENS.of({"gen_ai.usage.cache_read.input_tokens": own.get("ai.usage.cachedInputTokens"), **own})


def take_prompt(span: Span, known_rests: set[str]) -> tuple[Message, ...]:
    """Return the messages of the request, system instructions first; none if not captured."""
    own = span.attributes
    name = first_of(own, PROMPTS)
    listed = (
        take_messages(own, name, known_rests=known_rests).messages
        if name
        else _read_numbered(own, "prompt") or _read_events(span)
    )
    return add_instructions(own, SYSTEM, listed)


def take_answer(span: Span) -> Read | None:
    """Return the response and its stop reason; None if not captured."""
    own = span.attributes
    if name := first_of(own, ANSWERS):
        return take_messages(own, name, role=Role.ASSISTANT)
    if any(name.startswith("ai.response.") for name in own):
        return _of_ai_sdk(own)
    listed = _read_numbered(own, "completion")
    if listed:
        return Read(listed, stop(own))
    chosen = [event for event in _events(span) if event[0] == "gen_ai.choice"]
    return take_messages([table(event[1]) for event in chosen], role=Role.ASSISTANT) if chosen else None


def stop(own: Attributes) -> str:
    """Return the provider's stop reason, "" for none."""
    reasons = decode_nested_json(own.get("gen_ai.response.finish_reasons"))
    return text(reasons, 0) or text(own, "ai.response.finishReason") or text(reasons)


def _of_ai_sdk(own: Attributes) -> Read:
    content = text(own, "ai.response.text") or plain(own.get("ai.response.object"))
    calls = calls_of({"calls": decode_nested_json(own.get("ai.response.toolCalls"))}, "calls")
    thought = text(own, "ai.response.reasoning") or text(own, "ai.response.reasoningText")
    return Read((Message(role=Role.ASSISTANT, text=content, reasoning=thought, calls=calls),), stop(own))


def _read_numbered(own: Attributes, which: str) -> tuple[Message, ...]:
    """Return messages from attributes `gen_ai.prompt.N.role`, `.content`, `.tool_calls.M.name` and so on."""
    made, calls = _by_number(own, which)
    listed: list[JSON] = []
    for index in sorted({*made, *calls}):
        listed_calls: list[JSON] = [
            {"function": call, "id": call.get("id")} for _, call in sorted(calls[index].items())
        ]
        role = "assistant" if which == "completion" else "user"
        listed.append({"role": role, **made[index], **({"tool_calls": listed_calls} if listed_calls else {})})
    return take_messages(listed).messages if listed else ()


_ByNumber = dict[int, dict[str, JSON]]


def _by_number(own: Attributes, which: str) -> tuple[_ByNumber, dict[int, _ByNumber]]:
    """Return the fields of each message, and of each of its calls, by their numbers."""
    made: _ByNumber = defaultdict(dict)
    calls: dict[int, _ByNumber] = defaultdict(lambda: defaultdict(dict))
    for name, value in own.items():
        found = _NUMBERED.match(name)
        if not found or found[1] != which or len(found[2]) > 6:
            continue
        if call := _CALL.match(found[3]):
            calls[int(found[2])][int(call[1][:6])][call[2]] = value
        else:
            made[int(found[2])][found[3]] = decode_nested_json(value) if found[3] == "content" else value
    return made, calls


def _read_events(span: Span) -> tuple[Message, ...]:
    """Return messages from events, one each: `gen_ai.user.message` with its body."""
    listed: list[JSON] = []
    for name, body in _events(span):
        if kind := _EVENT.match(name):
            listed.append({"role": kind[1], **table(body)})
    return take_messages(listed).messages if listed else ()


def _events(span: Span) -> list[tuple[str, JSON]]:
    """Return the span's events, and those that older instrumentations wrote to an attribute `events`."""
    own: list[tuple[str, JSON]] = [(event.name, {**event.attributes}) for event in span.events]
    listed = rows(decode_nested_json(span.attributes.get("events")))
    return own + [
        (text(event, "event.name"), event) for event in listed if at(event, "event.name") is not None
    ]


def call_text(span: Span, names: Iterable[str]) -> str:
    """Return a tool span's arguments or result as text, "" if not captured."""
    value = first(span.attributes, names)
    return "" if value is None else arguments(value)


def cost(span: Span) -> int | None:
    """Return the cost of a request in nano-dollars, None if the instrumentation did not record it."""
    return nano_usd(first(span.attributes, ("gen_ai.usage.cost", "operation.cost")))
