"""Chats of Gemini CLI of a few words, and their items."""

import json
from typing import Any

from refold.importers.formats.gemini_cli.importer import GEMINI_CLI
from refold.importers.items import Item
from refold.importers.source import Source
from support.sessions import Json, lines, text_of

HEADER: Json = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-01T00:00:00.000Z"}


def message(id_: str, kind: str, content: Any, **more: Any) -> Json:
    """A message of a chat."""
    return {"id": id_, "timestamp": "2026-01-01T00:00:01.000Z", "type": kind, "content": content} | more


def called(id_: str, output: str | None, status: str = "success", name: str = "ls") -> Json:
    """A call, its result inside it."""
    inside = {"functionResponse": {"id": id_, "name": name, "response": {"output": output}}}
    more: Json = {"result": [inside]} if output is not None else {}
    return {"id": id_, "name": name, "args": {"z": 1, "a": 2}, "status": status} | more


def document(*messages: Any) -> list[Item]:
    """The items of a chat as a document."""
    data = json.dumps(HEADER | {"messages": list(messages)}, indent=2).encode()
    return list(GEMINI_CLI.items(Source.of("x", data)))


def log(*rows: Any) -> list[Item]:
    """The items of a chat as a log."""
    return list(GEMINI_CLI.items(Source.of("x", lines(*rows))))


def told(items: list[Item]) -> list[tuple[str, str, str]]:
    """What was said, asked and returned, in order, and where."""
    return [(type(item).__name__, item.position, text_of(item)) for item in items[1:-1]]


def sent(id_: str, *parts: Json) -> Json:
    """The row in which the results of a batch were sent, since 0.50 or so."""
    return message(id_, "user", list(parts))


def response(call: str, output: str, key: str = "output") -> Json:
    """A part with a result."""
    return {"functionResponse": {"id": call, "name": "ls", "response": {key: output}}}


GO = message("u", "user", "go")
HI = message("a", "gemini", "hi", model="g")
ASKED = message("b", "gemini", "ok", toolCalls=[called("1", "one")])
