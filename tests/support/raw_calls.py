"""The calls in a transcript as a few lines of Python find them: by shape, anywhere in the raw JSON.

Knows nothing of refold's readers and matchers. It may find calls that are in no run, such as those of drafts.
"""

import fnmatch
import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

Answer = Literal["yes", "no", "unsure"]


class RawCall(NamedTuple):
    """A call: the tool's name and its arguments."""

    tool: str
    arguments: Any


def find_calls(text: str) -> list[RawCall]:
    """All calls of a transcript: one JSON document, or one a line."""
    return [call for document in _documents(text) for call in _walk(document, 0)]


def _documents(text: str) -> Iterator[Any]:
    try:
        yield json.loads(text)
        return
    except ValueError:
        pass
    decoder = json.JSONDecoder()
    for line in text.splitlines():
        place = 0
        while place < len(line):
            try:
                value, place = decoder.raw_decode(line, place)
            except ValueError:
                break
            yield value
            while place < len(line) and line[place].isspace():
                place += 1


def _walk(value: Any, depth: int) -> Iterator[RawCall]:
    if depth > 60:
        return
    if isinstance(value, dict):
        if call := _call(value):
            yield call
        for inner in value.values():
            yield from _walk(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, depth + 1)
    elif isinstance(value, str) and value[:1] in "[{" and len(value) > 20:
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return
        yield from _walk(inner, depth + 1)


def _call(found: dict[str, Any]) -> RawCall | None:
    kind, name = found.get("type"), found.get("name")
    if kind == "custom_tool_call" and isinstance(name, str):
        return RawCall(name, {"input": found.get("input")})
    if kind in ("tool_use", "toolCall", "tool-call", "function_call") and isinstance(name, str):
        return RawCall(name, _parsed(found.get("input", found.get("arguments", found.get("args")))))
    if kind == "tool" and isinstance(found.get("tool"), str) and isinstance(found.get("state"), dict):
        return RawCall(found["tool"], _parsed(found["state"].get("input")))
    if isinstance(name, str) and ("args" in found or "arguments" in found) and kind in (None, "function"):
        return RawCall(name, _parsed(found.get("args", found.get("arguments"))))
    if isinstance(found.get("function"), str) and "arguments" in found:
        return RawCall(found["function"], _parsed(found["arguments"]))
    if (
        kind in (None, "action")
        and isinstance(found.get("action"), str)
        and isinstance(found.get("args"), dict)
    ):
        return RawCall(_ACTIONS.get(found["action"], found["action"]), found["args"])
    if isinstance(found.get("toolName"), str) and ("args" in found or "input" in found):
        return RawCall(found["toolName"], _parsed(found.get("args", found.get("input"))))
    return None


_ACTIONS = {"run": "execute_bash", "run_ipython": "execute_ipython_cell", "edit": "str_replace_editor"}


def _parsed(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def texts(arguments: Any, keys: tuple[str, ...]) -> list[str]:
    """The texts of some keys of the arguments, or the text that the arguments are."""
    if not isinstance(arguments, dict):
        return []
    found = [arguments[key] for key in keys if key in arguments]
    joined = [" ".join(map(str, each)) if isinstance(each, list) else each for each in found]
    return [each for each in joined if isinstance(each, str)]


_COMMAND_KEYS = ("command", "cmd", "script", "code", "params", "root")


def runs_command(call: RawCall, first: tuple[str, ...], second: tuple[str, ...] = ()) -> Answer:
    """Whether a call runs a program with one of these names and, if given, one of these subcommands."""
    found = texts(call.arguments, _COMMAND_KEYS)
    nested = call.arguments.get("params") if isinstance(call.arguments, dict) else None
    found += texts(nested, _COMMAND_KEYS)
    answers = [_runs(text, first, second) for text in found]
    return "yes" if "yes" in answers else "unsure" if "unsure" in answers else "no"


_OPAQUE = re.compile(
    r"\beval\b|\bsource\b|\$|`|\bsh\b|\bbash\b|xargs|-exec|\balias\b|^\s*\.|['\"\\]\w|\w['\"\\]"
)


def _runs(text: str, first: tuple[str, ...], second: tuple[str, ...]) -> Answer:
    names = re.search(rf"(?<![\w-])(?:{'|'.join(map(re.escape, first))})(?![\w-])", text)
    subs = not second or re.search(rf"(?<![\w-])(?:{'|'.join(map(re.escape, second))})(?![\w-])", text)
    if names and subs and not re.search(r"['\"`$(){}<>*\\#]", text):
        for part in re.split(r"&&|\|\||;|\||\n|&", text):
            words = part.split()
            if words and words[0] in first and (not second or (words[1:2] and words[1] in second)):
                return "yes"
    if names and subs:
        return "unsure"
    return "unsure" if _OPAQUE.search(text) else "no"


_PATH_KEYS = ("file_path", "path", "filePath", "notebook_path", "absolute_path", "filename", "file")


def edits_path(call: RawCall, tools: tuple[str, ...], suffix: str) -> Answer:
    """Whether one of these tools is called with a path that ends in `suffix`."""
    if not is_tool(call, tools):
        return "no"
    return (
        "yes" if any(path.rstrip().endswith(suffix) for path in texts(call.arguments, _PATH_KEYS)) else "no"
    )


def reaches_host(call: RawCall, host: str) -> Answer:
    """Whether a URL among the arguments has this host, or one below it."""
    found = [urlsplit(url if "//" in url else f"//{url}") for url in texts(call.arguments, ("url", "uri"))]
    hosts = [each.hostname or "" for each in found]
    return "yes" if any(each == host or each.endswith(f".{host}") for each in hosts) else "no"


def is_tool(call: RawCall, globs: tuple[str, ...]) -> bool:
    """Whether the tool's name matches one of these globs."""
    return any(fnmatch.fnmatchcase(call.tool, glob) for glob in globs)
