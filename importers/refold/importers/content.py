"""Parts of a message, independent of format: text, calls with their arguments, tool definitions."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import cast

import msgspec

from refold.importers.fields import (
    JSON,
    as_written,
    at,
    json_text,
    rows,
    table,
    take,
    take_each,
    take_first,
    take_if,
    take_text,
    text,
    word_of,
)
from refold.importers.source import decode_json
from refold.reducers.events import Manifest
from refold.reducers.messages import MessageCall
from refold.reducers.vocabulary import StopReason

_CALLING = re.compile(r"(?i)tool|function|call|exec|command|cmd|shell|bash")
_KINDS = ("type", "kind", "event")

TOOLS = re.compile(r"(?i)tool")
"""Pattern for names and kinds that indicate a call, in data that a harness displays of a subagent."""

_IDS = ("call_id", "id", "toolCallId", "tool_call_id")
_NAMES = ("name", "toolName", "tool_name", "function_name", "function")
_INNER = ("function", "functionCall", "function_call", "custom")
_ARGUMENTS = ("arguments", "args", "input", "parameters", "params")
_SCHEMAS = ("parameters", "input_schema", "inputSchema")

_NO_ARGUMENTS = ("{}", "null", "[]")
_EMPTY: tuple[JSON, ...] = (None, "", {}, [], "{}", "null", "[]")
_BESIDE = frozenset({
    "id", "call_id", "toolCallId", "tool_call_id", "name", "index", "status", "type", "kind", "part_kind",
    "object", "toolCallType", "namespace", "title", "toolTitle", "thoughtSignature", "thought_signature",
    "signature", "cache_control", "caller", "provider_name", "provider_details", "providerMetadata",
    "providerOptions", "extra_content",
})  # fmt: skip
"""Keys of a call that hold no arguments in any format: metadata, status, provider state."""

_MARKS = (("complete", True), ("providerExecuted", False), ("dynamic", False), ("dynamic", True))
"""Values of such keys on calls with complete arguments."""

CALLS = ("function", "tool_call", "tool_use", "tool-call", "function_call", "server_tool_use", "mcp_call")
"""Types of parts that are calls."""

TEXTS = ("text", "input_text", "output_text", "summary_text")
"""Types of parts that are text."""


def words(content: JSON, *, beside: Collection[str] = (), lines: str = "\n") -> str:
    """Return the text of a content: a string, or its parts joined by `lines`.

    A part that is not text becomes its type in brackets, as `[image]`. Parts of the types in `beside` (calls,
    results, reasoning) are skipped.
    """
    if isinstance(content, list):
        return lines.join(word_of(part) for part in content if text(part, "type") not in beside)
    return content if isinstance(content, str) else "" if content is None else as_written(content)


def plain(value: JSON) -> str:
    """Return a string unchanged, text parts joined by line breaks, and anything else as JSON text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    parts = [text(part, "text") or text(part, "content") for part in rows(value)]
    return "\n".join(parts) if parts and all(parts) else json_text(value)


def take_plain(value: JSON, *path: str) -> str:
    """Return the same for the value at this path, and take it. Other fields of text parts are left."""
    content, said = at(value, *path), plain(at(value, *path))
    if not (rows(content) and all(text(part, "text") or text(part, "content") for part in rows(content))):
        take(value, *path)
    for part in take_each(value, *path):
        take_first(part, "text", "content")
        take_if(part, "type", *TEXTS)
    return said


def decode_nested_json(value: JSON) -> JSON:
    """Decode a value that was encoded as JSON text, once or several times. Other text is unchanged."""
    for _ in range(3):
        if not (isinstance(value, str) and value[:1] in '{["'):
            return value
        try:
            value = _decode(value)
        except (ValueError, RecursionError):
            return value
    return value


def unwrap(value: JSON, *path: str) -> None:
    """Replace JSON text at this path by the value that it encodes."""
    holder, written = at(value, *path[:-1]), at(value, *path)
    if isinstance(holder, dict) and isinstance(written, str):
        holder[path[-1]] = decode_nested_json(written)


def _decode(value: str) -> JSON:
    """Decode JSON text, even with unnecessary escapes. Raises `ValueError`."""
    try:
        return cast("JSON", msgspec.json.decode(value))
    except msgspec.DecodeError:
        if "\\" not in value:
            raise
        return decode_json(value.encode(errors="replace"))


def arguments(value: JSON) -> str:
    """Return arguments as JSON text: a string unchanged, anything else encoded in its order."""
    return value if isinstance(value, str) else as_written({} if value is None else value)


def find_call_mark(value: JSON, marks: re.Pattern[str] = _CALLING) -> str:
    """Return the first name or kind by which a value may hold a call or a result; "" for none."""
    return next(_find_call_marks(value, marks), "")


def _find_call_marks(value: JSON, marks: re.Pattern[str]) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _find_call_marks(each, marks)
    elif isinstance(value, dict):
        yield from (kind for name in _KINDS if marks.search(kind := text(value, name)))
        for key, inner in value.items():
            if inner and marks.search(key):
                yield key
            yield from _find_call_marks(inner, marks)


class UnreadCall(MessageCall, frozen=True):
    """A call whose name or arguments could not be read. Its JSON is that of a `MessageCall`."""


def read_call(id_: str, name: str, given: JSON, *left: JSON, beside: Collection[str] = ()) -> MessageCall:
    """Return a call with these arguments; `left` is what remains of the part that held it.

    Returns an `UnreadCall` if it has no name, or if it has no arguments but `left` may contain them: a value
    that is not empty, under a key that neither `beside` nor `_BESIDE` lists.
    """
    written = arguments(given)
    if name and given and given not in _NO_ARGUMENTS:
        return MessageCall(id_, name, written)
    kept = [each for part in left for each in table(part).items()]
    unread = not name or any(key not in beside and _may_be_given(key, value) for key, value in kept)
    return UnreadCall(id_, name, written) if unread else MessageCall(id_, name, written)


def _may_be_given(key: str, value: JSON) -> bool:
    return value not in _EMPTY and key not in _BESIDE and (key, value) not in _MARKS


def mark_unread(call: MessageCall) -> UnreadCall:
    """Return a call as unread, for example if two records of it in the source differ."""
    return UnreadCall(call.id, call.name, call.arguments)


def agree(call: MessageCall, other: JSON) -> bool:
    """Return whether another record of a call has the same texts as its arguments, under the keys of both."""
    given = table(decode_nested_json(call.arguments))
    return all(
        given[key] == value
        for key, value in table(other).items()
        if isinstance(value, str) and isinstance(given.get(key), str)
    )


def call_of(part: JSON, name: str = "") -> MessageCall:
    """Return the call in a part, by any of the keys that formats use for id, tool and arguments.

    `name`: the tool, if the part does not have it.
    """
    inner = {name: {**table(part, name)} for name in _INNER if table(part, name)}
    return take_call({**table(part), **inner}, name)


def take_call(part: JSON, name: str = "") -> MessageCall:
    """Return the same, taken out of its part."""
    around = next((name for name in _INNER if table(part, name)), "")
    inner = table(part, around) if around else table(part)
    given = take(inner, _first_key(inner, _ARGUMENTS))
    id_ = take_first(part, *_IDS) or take_text(inner, "id")
    name = take_first(inner, *_NAMES) or take_first(part, *_NAMES) or name
    take_if(part, "type", *CALLS, *(["custom"] if around == "custom" else []))
    take_if(part, around, {})
    wrapped: JSON = {"input": given} if around == "custom" and given is not None else given
    return read_call(id_, name, wrapped, part, inner, beside=(around,))


def _first_key(row: dict[str, JSON], keys: Iterable[str]) -> str:
    return next((key for key in keys if key in row), "")


def take_calls(message: JSON, name: str = "tool_calls") -> tuple[MessageCall, ...]:
    """Return the calls listed in a message, and take them out of it.

    Listed values that are not objects are left.
    """
    return tuple([_take_listed_call(call) for call in take_each(message, name) if call])


def _take_listed_call(call: JSON) -> MessageCall:
    return take_call(call) if isinstance(call, dict) else UnreadCall("", "", "{}")


def calls_of(message: JSON, name: str = "tool_calls") -> tuple[MessageCall, ...]:
    """Return the calls listed in a message."""
    return take_calls({name: deepcopy([*rows(message, name)])}, name)


def take_tools(value: JSON, *path: str) -> tuple[Manifest, ...]:
    """Return the offered tools, and take them out of the definitions at this path.

    Definitions are a list or JSON text, nested as in OpenAI's API or flat. Repeated names count once.
    """
    found: dict[str, Manifest] = {}
    unwrap(value, *path)
    for row in take_each(value, *path):
        around = "function" if table(row, "function") else ""
        inner = table(row, around) if around else row
        schema = next((key for key in _SCHEMAS if isinstance(at(inner, key), dict)), "")
        name = text(inner, "name") or text(inner, "title")
        if not name or name in found:
            continue
        take_if(inner, "name", name)
        take_if(inner, "title", name)
        body = json_text(take(inner, schema)) if schema else "{}"
        found[name] = Manifest(name=name, description=take_text(inner, "description"), schema=body)
        take_if(row, "type", "function")
        take_if(row, around, {})
    return tuple(found.values())


def manifests(definitions: JSON) -> tuple[Manifest, ...]:
    """Return the tools in these definitions (a list or JSON text), which are not changed."""
    return take_tools({"tools": deepcopy(definitions)}, "tools")


_WORDS: Mapping[StopReason, tuple[str, ...]] = MappingProxyType(
    {
        StopReason.END_TURN: ("stop", "end_turn"),
        StopReason.MAX_TOKENS: (
            "length",
            "max_tokens",
            "max_output_tokens",
            "model_length",
            "model_context_window_exceeded",
        ),
        StopReason.TOOL_USE: ("tool_call", "tool_calls", "tool_use", "tooluse", "function_call"),
        StopReason.STOP_SEQUENCE: ("stop_sequence",),
        StopReason.CONTENT_FILTER: ("content_filter", "refusal"),
        StopReason.OTHER: ("error", "aborted", "cancelled", "pause_turn"),
    }
)
_STOPS = {word: stop for stop, words in _WORDS.items() for word in words}


def stop_of(word: str) -> StopReason | None:
    """Return the stop reason for a provider's word, None for ""."""
    return _STOPS.get(_plain(word), StopReason.OTHER) if word else None


def end_of(word: str) -> str:
    """Return the end of a run whose last response has no call and this stop reason.

    Without a known stop reason, the end is unknown: the response may be incomplete.
    """
    match stop_of(word):
        case None | StopReason.OTHER:
            return "unknown"
        case StopReason.MAX_TOKENS:
            return "limit:token"
        case _:
            return "finished"


def is_known(word: str) -> bool:
    """Return whether a provider's stop reason is known."""
    return _plain(word) in _STOPS


def _plain(word: str) -> str:
    return word.lower().removeprefix("stopreason.").replace("-", "_")
