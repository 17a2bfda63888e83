"""Rows of Claude Code sessions, of a few words each, and what was read of them."""

from typing import Any

from refold.importers.formats.claude_code.importer import CLAUDE_CODE
from refold.importers.items import Item, RunEnded
from support import sessions
from support.sessions import Json


def row(kind: str, uuid: str, parent: str | None, **more: Any) -> Json:
    """A row of a session."""
    base: Json = {"type": kind, "uuid": uuid, "parentUuid": parent, "isSidechain": False, "sessionId": "s"}
    return base | {"timestamp": "2026-01-01T00:00:00.000Z"} | more


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> Json:
    """A row of the user's side."""
    return row("user", uuid, parent, message={"role": "user", "content": content}, **more)


def result(uuid: str, parent: str, call: str, said: Any = "done", **more: Any) -> Json:
    """A row with a tool's result."""
    return user(uuid, parent, [{"type": "tool_result", "tool_use_id": call, "content": said} | more])


def answer(uuid: str, parent: str | None, response: str, block: Json, **more: Any) -> Json:
    """A row with a block of an answer."""
    used = {
        "input_tokens": 3,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 100,
        "output_tokens": 1,
    }
    message = {"id": response, "role": "assistant", "model": "m", "content": [block], "usage": used} | more
    return row("assistant", uuid, parent, message=message)


def said(words: str) -> Json:
    """A block of text."""
    return {"type": "text", "text": words}


def called(call: str, **arguments: Any) -> Json:
    """A block with a call."""
    return {"type": "tool_use", "id": call, "name": "Bash", "input": arguments}


def synthetic(uuid: str, parent: str, words: str, **more: Any) -> Json:
    """A row in which the CLI itself speaks."""
    message = {"id": uuid, "model": "<synthetic>", "role": "assistant", "content": [said(words)]}
    return row("assistant", uuid, parent, message=message, **more)


def read(*found: Json) -> list[Item]:
    """The items of a session of these rows."""
    return sessions.read(CLAUDE_CODE, *found)


def ending(items: list[Item]) -> RunEnded:
    """How the run ended."""
    return sessions.only(RunEnded, items)
