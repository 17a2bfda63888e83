"""How a small model is offered tools: a transcript in plain words, and answers held to a JSON schema.

A small model's chat template knows no tools. So the tools are described in the system text, the sampler is
held to one of a few JSON shapes, and the finished JSON is translated to an ordinary call or text:

    {"tool": "read_file", "arguments": {"path": "index.md"}}    one such shape a tool
    {"answer": "…"}                                             the final text

Five rules came out of trying this with SmolLM2-135M, which otherwise parrots its own calls for ever:

1. Results stand *before* the request that they serve, in one message: what was asked is what it reads last.
2. Optional arguments are not offered: it fills each with a guess.
3. A `path` that is all a tool needs is one that was seen in a result or in what the user wrote; of those in
   results, the ones that the user named come before all others.
4. A tool is withheld until the user is answered once it can only be repeated: it takes no arguments, the last
   call was repeated to the letter, or all paths that the user named were read.
5. With every tool withheld the answer is plain text: without JSON it writes better.

Everything here is pure; the request alone decides. Rules 2 to 5 bend what is offered to this model only: the
log has the tools that the run offers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from refold.reducers.messages import Message, MessageCall, ToolSchema
from refold.reducers.vocabulary import Role

Schema = dict[str, Any]

# A string without a bound of its own: long enough for a path or a line, short enough to end a ramble.
MAX_STRING: Final = 400
# llama.cpp refuses a grammar that repeats a rule more than 2,000 times.
MAX_REPEATS: Final = 1000
# A grammar with thousands of alternatives slows down every token.
MAX_PATHS: Final = 100

# A word that could be a path: it holds a slash or a dot, and does not end in one.
_PATH: Final = re.compile(r"(?<![\w./-])[\w-]*(?:[./][\w-]+)+(?![\w/-])")


class Exchange(msgspec.Struct, frozen=True):
    """What happened from one word of the user to the model's answer: calls with results, texts, the
    answer.
    """

    results: tuple[tuple[MessageCall, str], ...] = ()
    texts: tuple[str, ...] = ()
    answer: str = ""


def exchanges(messages: Iterable[Message]) -> list[Exchange]:
    """The transcript, without system messages, as exchanges; the last has no answer yet.

    Texts of the user that no answer parts are one exchange: a reminder does not end what was asked before it.
    A result whose call is not in the transcript is shown under the tool's name.
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
    """The messages as the chat template takes them: `role` and `content`, system text first (rule 1)."""
    system = [message.text for message in messages if message.role is Role.SYSTEM]
    if tools:
        system.append(manual(tools, optional=optional))
    turns = [_turn("system", "\n\n".join(filter(None, system)))]
    for exchange in exchanges(messages):
        shown = [f"{_spoken(call)} returned:\n{output}" for call, output in exchange.results]
        turns.append(_turn("user", "\n\n".join(filter(None, [*shown, *exchange.texts]))))
        turns.append(_turn("assistant", exchange.answer))
    return [turn for turn in turns if turn["content"]]


def manual(tools: Sequence[ToolSchema], *, optional: bool = False) -> str:
    """The system text that tells the model which JSON objects it can write."""
    lines = [f"{_example(tool, optional=optional)}  {_first_line(tool.description)}" for tool in tools]
    return "\n".join(
        [
            "Reply with one JSON object, one of:",
            *lines,
            '{"answer": "<text>"}  Answer the user.',
        ]
    )


def offered(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> tuple[ToolSchema, ...]:
    """The tools that are not withheld (rule 4)."""
    current = exchanges(messages)[-1]
    barred = repeated(current)
    named = bool(wanted(current))
    spent = named and not unread(current)
    return tuple(
        tool
        for tool in tools
        if tool.name not in barred and not (spent and _lone_path(_required(_decoded(tool))))
    )


def answer_schema(
    messages: Sequence[Message], tools: Sequence[ToolSchema], *, optional: bool = False
) -> Schema:
    """The JSON schema of the next answer: one shape for each of the tools offered, one for the text.

    Raises `msgspec.DecodeError` for a tool schema that is no JSON object.
    """
    paths = unread(exchanges(messages)[-1]) or paths_seen(messages)
    shapes: list[Schema] = []
    definitions: Schema = {}
    for number, tool in enumerate(tools):
        prefix = f"t{number}_"
        schema = _local(_decoded(tool), prefix)
        arguments = _grounded(_required(schema) if not optional else _closed(schema), paths)
        shapes.append(_shape(tool={"const": tool.name}, arguments=bounded(arguments)))
        own = cast("Schema", schema.get("$defs") or {})
        definitions |= {prefix + name: bounded(value) for name, value in own.items()}
    shapes.append(_shape(answer={"type": "string"}))
    return {"oneOf": shapes, "$defs": definitions} if definitions else {"oneOf": shapes}


def repeated(exchange: Exchange) -> frozenset[str]:
    """The tools that this exchange called without arguments, or twice with the same."""
    seen: set[tuple[str, str]] = set()
    found: set[str] = set()
    for call, _ in exchange.results:
        mark = call.name, _compact(call.arguments)
        if mark[1] == "{}" or mark in seen:
            found.add(call.name)
        seen.add(mark)
    return frozenset(found)


def wanted(exchange: Exchange) -> list[str]:
    """The paths in this exchange's results that its user named, whole or by their last parts."""
    named = _paths(exchange.texts)
    shown = _paths(output for _, output in exchange.results)
    return [path for path in shown if any(f"/{path}".endswith(f"/{name}") for name in named)]


def unread(exchange: Exchange) -> list[str]:
    """The wanted paths that no call of this exchange was given."""
    given = {value for call, _ in exchange.results for value in _values(call.arguments)}
    return [path for path in wanted(exchange) if path not in given]


def paths_seen(messages: Iterable[Message]) -> list[str]:
    """The words of results and of the user that could be paths, latest message first, each once."""
    return _paths(reversed([message.text for message in messages if message.role in {Role.USER, Role.TOOL}]))


def _paths(texts: Iterable[str]) -> list[str]:
    words = (word for text in texts for word in _PATH.findall(text) if len(word) <= MAX_STRING)
    return list(dict.fromkeys(words))[:MAX_PATHS]


def bounded(schema: Any) -> Any:
    """The schema with every string bounded, every object closed, and no bound that the grammar can't take."""
    if isinstance(schema, list):
        return [bounded(item) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    found = cast("Schema", schema)
    result = {key: _bounded_value(key, value) for key, value in found.items()}
    if found.get("type") == "string" and not {"enum", "const", "pattern", "format"} & found.keys():
        result["maxLength"] = min(_number(found.get("maxLength"), MAX_STRING), MAX_REPEATS)
        if "minLength" in found:
            result["minLength"] = min(_number(found["minLength"], 0), result["maxLength"])
    if isinstance(found.get("properties"), dict):
        result.setdefault("additionalProperties", False)
    return result


def _bounded_value(key: str, value: Any) -> Any:
    """The value of a schema's keyword: plain data stays, and a map of names is no schema itself."""
    if key in {"const", "enum", "default", "examples"}:
        return value
    if key in {"properties", "$defs"} and isinstance(value, dict):
        return {name: bounded(inner) for name, inner in cast("Schema", value).items()}
    return bounded(value)


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default


def _decoded(tool: ToolSchema) -> Schema:
    return msgspec.json.decode(tool.schema or "{}", type=dict[str, Any])


def _required(schema: Schema) -> Schema:
    """The arguments object with its required properties only (rule 2)."""
    properties = cast("Schema", schema.get("properties") or {})
    names = [name for name in cast("list[str]", schema.get("required") or []) if name in properties]
    return _closed({"properties": {name: properties[name] for name in names}, "required": names})


def _closed(schema: Schema) -> Schema:
    return {
        "type": "object",
        "properties": schema.get("properties") or {},
        "required": schema.get("required") or [],
        "additionalProperties": False,
    }


def _lone_path(schema: Schema) -> bool:
    """Whether a path is all that the arguments need. With more of them (a write) a path may well be new."""
    alone: bool = schema["required"] == ["path"]
    return alone and _is_string(schema["properties"].get("path"))


def _is_string(schema: object) -> bool:
    return isinstance(schema, dict) and cast("Schema", schema).get("type") == "string"


def _grounded(schema: Schema, paths: list[str]) -> Schema:
    if not paths or not _lone_path(schema):
        return schema
    return schema | {"properties": schema["properties"] | {"path": {"enum": paths}}}


def _local(schema: Any, prefix: str) -> Any:
    """The schema with its references pointing to definitions under a prefix: several tools share one root."""
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
    return _closed({"properties": properties, "required": list(properties)})


def _example(tool: ToolSchema, *, optional: bool) -> str:
    schema = _decoded(tool)
    names = (_closed(schema) if optional else _required(schema))["properties"]
    return _json({"tool": tool.name, "arguments": {name: f"<{name}>" for name in names}})


def _spoken(call: MessageCall) -> str:
    """A call as the transcript names it: `read_file(index.md)`."""
    return f"{call.name}({', '.join(_values(call.arguments))})"


def _values(arguments: str) -> Iterator[str]:
    try:
        found = msgspec.json.decode(arguments, type=Mapping[str, Any])
    except msgspec.MsgspecError:
        yield arguments
        return
    yield from (value if isinstance(value, str) else _json(value) for value in found.values())


def _compact(arguments: str) -> str:
    """The arguments in one spelling, so that white space does not make two equal calls differ."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic").decode()
    except (msgspec.MsgspecError, UnicodeError):
        return arguments


def _turn(role: str, content: str) -> dict[str, str]:
    """A turn whose text cannot end it: chat templates mark turns as `<|…|>`, and a file may hold such
    marks.
    """
    return {"role": role, "content": content.replace("<|", "< |")}


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode().replace('":', '": ').replace(',"', ', "')
