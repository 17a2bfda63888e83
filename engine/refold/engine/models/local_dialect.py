"""Prompts of small models with tools: a plain transcript, and responses constrained by a JSON schema.

A small model's chat template does not support tools. So the tools are described in the system text, the
sampler is constrained to one of a few JSON shapes, and the finished JSON is translated to an ordinary call or
text:

    {"tool": "read_file", "arguments": {"path": "index.md"}}    one such shape for each tool
    {"answer": "…"}                                             the final text

Five rules come from experiments with SmolLM2-135M, which otherwise repeats its own calls endlessly:

1. Results come *before* the user's text that caused them, in one message, so that the model reads that text
   last.
2. Optional arguments are not offered: the model fills each with a guess.
3. If `path` is a tool's only required argument, it must be a path that occurred in a result or in the user's
   text. Paths in results that the user named come first.
4. A tool that could only be repeated is withheld until the model answers the user: it takes no arguments, its
   last call was repeated exactly, or all paths that the user named were read.
5. If all tools are withheld, the response is plain text, which the model writes better than JSON.

All functions are pure and depend only on the request. Rules 2 to 5 change only the prompt of this model: the
log has the tools that the run offers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from refold.reducers.messages import Message, MessageCall, ToolSchema
from refold.reducers.vocabulary import Role

Schema = dict[str, Any]

# Bound of a string without its own: long enough for a path or a line, short enough to stop rambling.
MAX_STRING: Final = 400
# llama.cpp refuses a grammar that repeats a rule more than 2,000 times.
MAX_REPEATS: Final = 1000
# A grammar with thousands of alternatives slows down every token.
MAX_PATHS: Final = 100

# A word that could be a path: it contains a slash or a dot and does not end in one.
_PATH: Final = re.compile(r"(?<![\w./-])[\w-]*(?:[./][\w-]+)+(?![\w/-])")


class Exchange(msgspec.Struct, frozen=True):
    """One exchange between user and model: calls with results, the user's texts, the model's answer."""

    results: tuple[tuple[MessageCall, str], ...] = ()
    texts: tuple[str, ...] = ()
    answer: str = ""


def exchanges(messages: Iterable[Message]) -> list[Exchange]:
    """Group the messages, without system messages, into exchanges; the last has no answer yet.

    Consecutive user texts without an answer between them belong to one exchange: a reminder does not end the
    task before it. A result whose call is not in the messages gets a call with the tool's name.
    """
    done: list[Exchange] = []
    open_calls: dict[str, MessageCall] = {}
    now = Exchange()
    for message in messages:
        match message.role:
            case Role.USER:
                now = msgspec.structs.replace(now, texts=(*now.texts, message.text))
            case Role.TOOL:
                call = open_calls.pop(message.call or "", MessageCall("", message.name or "tool", "{}"))
                now = msgspec.structs.replace(now, results=(*now.results, (call, message.text)))
            case Role.ASSISTANT if message.calls:
                open_calls.update((call.id, call) for call in message.calls)
            case Role.ASSISTANT:
                done.append(msgspec.structs.replace(now, answer=message.text))
                now = Exchange()
            case Role.SYSTEM:
                pass
    return [*done, now]


def transcript(
    messages: Sequence[Message], tools: Sequence[ToolSchema] = (), *, optional: bool = False
) -> list[dict[str, str]]:
    """Return the messages for the chat template: `role` and `content`, system text first (rule 1)."""
    system = [message.text for message in messages if message.role is Role.SYSTEM]
    if tools:
        system.append(manual(tools, optional=optional))
    turns = [_turn("system", "\n\n".join(filter(None, system)))]
    for exchange in exchanges(messages):
        shown = [f"{_format_call(call)} returned:\n{output}" for call, output in exchange.results]
        turns.append(_turn("user", "\n\n".join(filter(None, [*shown, *exchange.texts]))))
        turns.append(_turn("assistant", exchange.answer))
    return [turn for turn in turns if turn["content"]]


def manual(tools: Sequence[ToolSchema], *, optional: bool = False) -> str:
    """Return the system text that describes the JSON objects that the model can write."""
    lines = [f"{_example(tool, optional=optional)}  {_first_line(tool.description)}" for tool in tools]
    return "\n".join(
        [
            "Reply with one JSON object, one of:",
            *lines,
            '{"answer": "<text>"}  Answer the user.',
        ]
    )


def offered_tools(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> tuple[ToolSchema, ...]:
    """Return the tools that are not withheld (rule 4)."""
    current = exchanges(messages)[-1]
    barred = repeated_tools(current)
    named = bool(wanted_paths(current))
    spent = named and not unread_paths(current)
    return tuple(
        tool
        for tool in tools
        if tool.name not in barred and not (spent and _lone_path(_required_only(_decode(tool))))
    )


def answer_schema(
    messages: Sequence[Message], tools: Sequence[ToolSchema], *, optional: bool = False
) -> Schema:
    """Return the JSON schema of the next response: one shape for each offered tool and one for the text.

    Raises `msgspec.DecodeError` for a tool schema that is not a JSON object.
    """
    paths = unread_paths(exchanges(messages)[-1]) or find_paths(messages)
    shapes: list[Schema] = []
    definitions: Schema = {}
    for number, tool in enumerate(tools):
        prefix = f"t{number}_"
        schema = _local(_decode(tool), prefix)
        arguments = _restrict_path(_required_only(schema) if not optional else _close(schema), paths)
        shapes.append(_shape(tool={"const": tool.name}, arguments=bound_schema(arguments)))
        own = cast("Schema", schema.get("$defs") or {})
        definitions |= {prefix + name: bound_schema(value) for name, value in own.items()}
    shapes.append(_shape(answer={"type": "string"}))
    return {"oneOf": shapes, "$defs": definitions} if definitions else {"oneOf": shapes}


def repeated_tools(exchange: Exchange) -> frozenset[str]:
    """Return the tools that were called in this exchange without arguments, or twice with equal ones."""
    seen: set[tuple[str, str]] = set()
    found: set[str] = set()
    for call, _ in exchange.results:
        mark = call.name, _compact(call.arguments)
        if mark[1] == "{}" or mark in seen:
            found.add(call.name)
        seen.add(mark)
    return frozenset(found)


def wanted_paths(exchange: Exchange) -> list[str]:
    """Return the paths in this exchange's results that the user named, in full or by their last parts."""
    named = _paths(exchange.texts)
    shown = _paths(output for _, output in exchange.results)
    return [path for path in shown if any(f"/{path}".endswith(f"/{name}") for name in named)]


def unread_paths(exchange: Exchange) -> list[str]:
    """Return the wanted paths that are not arguments of this exchange's calls."""
    given = {value for call, _ in exchange.results for value in _values(call.arguments)}
    return [path for path in wanted_paths(exchange) if path not in given]


def find_paths(messages: Iterable[Message]) -> list[str]:
    """Return words of results and user texts that could be paths, latest message first, each once."""
    return _paths(reversed([message.text for message in messages if message.role in {Role.USER, Role.TOOL}]))


def _paths(texts: Iterable[str]) -> list[str]:
    words = (word for text in texts for word in _PATH.findall(text) if len(word) <= MAX_STRING)
    return list(dict.fromkeys(words))[:MAX_PATHS]


def bound_schema(schema: Any) -> Any:
    """Return the schema with every string bounded and every object closed, within the grammar's limits."""
    if isinstance(schema, list):
        return [bound_schema(item) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    found = cast("Schema", schema)
    result = {key: _bound_value(key, value) for key, value in found.items()}
    if found.get("type") == "string" and not {"enum", "const", "pattern", "format"} & found.keys():
        result["maxLength"] = min(_number(found.get("maxLength"), MAX_STRING), MAX_REPEATS)
        if "minLength" in found:
            result["minLength"] = min(_number(found["minLength"], 0), result["maxLength"])
    if isinstance(found.get("properties"), dict):
        result.setdefault("additionalProperties", False)
    return result


def _bound_value(key: str, value: Any) -> Any:
    """Bound the value under a schema's keyword; plain data is unchanged, maps of names are entered."""
    if key in {"const", "enum", "default", "examples"}:
        return value
    if key in {"properties", "$defs"} and isinstance(value, dict):
        return {name: bound_schema(inner) for name, inner in cast("Schema", value).items()}
    return bound_schema(value)


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default


def _decode(tool: ToolSchema) -> Schema:
    return msgspec.json.decode(tool.schema or "{}", type=dict[str, Any])


def _required_only(schema: Schema) -> Schema:
    """Return the schema of the arguments with required properties only (rule 2)."""
    properties = cast("Schema", schema.get("properties") or {})
    names = [name for name in cast("list[str]", schema.get("required") or []) if name in properties]
    return _close({"properties": {name: properties[name] for name in names}, "required": names})


def _close(schema: Schema) -> Schema:
    return {
        "type": "object",
        "properties": schema.get("properties") or {},
        "required": schema.get("required") or [],
        "additionalProperties": False,
    }


def _lone_path(schema: Schema) -> bool:
    """Return whether `path` is the only required argument. With others, as in a write, it may be new."""
    alone: bool = schema["required"] == ["path"]
    return alone and _is_string(schema["properties"].get("path"))


def _is_string(schema: object) -> bool:
    return isinstance(schema, dict) and cast("Schema", schema).get("type") == "string"


def _restrict_path(schema: Schema, paths: list[str]) -> Schema:
    if not paths or not _lone_path(schema):
        return schema
    return schema | {"properties": schema["properties"] | {"path": {"enum": paths}}}


def _local(schema: Any, prefix: str) -> Any:
    """Prefix the names of references, because the schemas of several tools share one root."""
    if isinstance(schema, list):
        return [_local(item, prefix) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    found = cast("Schema", schema)
    result: Schema = {key: _local(value, prefix) for key, value in found.items()}
    reference = found.get("$ref")
    if isinstance(reference, str):
        result["$ref"] = reference.replace("#/$defs/", f"#/$defs/{prefix}", 1)
    return result


def _shape(**properties: Schema) -> Schema:
    return _close({"properties": properties, "required": list(properties)})


def _example(tool: ToolSchema, *, optional: bool) -> str:
    schema = _decode(tool)
    names = (_close(schema) if optional else _required_only(schema))["properties"]
    return _json({"tool": tool.name, "arguments": {name: f"<{name}>" for name in names}})


def _format_call(call: MessageCall) -> str:
    """Format a call for the transcript: `read_file(index.md)`."""
    return f"{call.name}({', '.join(_values(call.arguments))})"


def _values(arguments: str) -> Iterator[str]:
    try:
        found = msgspec.json.decode(arguments, type=Mapping[str, Any])
    except msgspec.MsgspecError:
        yield arguments
        return
    yield from (value if isinstance(value, str) else _json(value) for value in found.values())


def _compact(arguments: str) -> str:
    """Normalise the arguments' JSON, so that equal calls compare equal whatever their white space."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic").decode()
    except (msgspec.MsgspecError, UnicodeError):
        return arguments


def _turn(role: str, content: str) -> dict[str, str]:
    """Return a turn whose text cannot end it: `<|…|>` marks turns in chat templates, and a file may contain
    such marks.
    """
    return {"role": role, "content": content.replace("<|", "< |")}


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode().replace('":', '": ').replace(',"', ', "')
