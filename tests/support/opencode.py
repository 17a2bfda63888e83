"""Exports of OpenCode, of a few words, and what was read of them."""

import json
from typing import Any

from refold.importers.derivation.gap import conversations
from refold.importers.formats.opencode.importer import OPENCODE
from refold.importers.items import Item
from refold.importers.source import Source
from support.sessions import Json

INFO: Json = {
    "id": "ses_1",
    "projectID": "p",
    "directory": "/p",
    "version": "1.2.3",
    "time": {"created": 1_700_000_000_000},
}


def user(id_: str, *parts: Json, **more: Any) -> Json:
    """A person's message."""
    return {
        "info": {"id": id_, "role": "user", "time": {"created": 1_700_000_001_000}, **more},
        "parts": list(parts),
    }


def answer(id_: str, *parts: Json, finish: str | None = "stop", **more: Any) -> Json:
    """An answer."""
    time = {"created": 1_700_000_002_000, "completed": 1_700_000_003_000}
    info = {"id": id_, "role": "assistant", "modelID": "m", "time": time, **more}
    return {"info": info | ({"finish": finish} if finish else {}), "parts": list(parts)}


def text(said: str, **more: Any) -> Json:
    """A part of text."""
    return {"type": "text", "text": said, **more}


def tool(call: str, status: str = "completed", **state: Any) -> Json:
    """A part with a call, and what came of it."""
    said = {"completed": {"output": "7"}, "error": {"error": "no such file"}}.get(status, {})
    given = {"status": status, "input": {"z": 1, "a": 2}, **said, **state}
    return {"type": "tool", "callID": call, "tool": "bash", "state": given}


def finished(reason: str = "stop", **tokens: Any) -> Json:
    """The end of a response."""
    counts = {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}} | tokens
    return {"type": "step-finish", "reason": reason, "tokens": counts, "cost": 0.5}


def read(*messages: Json, **info: Any) -> list[Item]:
    """The items of a session of these messages."""
    doc = {"info": INFO | info, "messages": list(messages)}
    return list(conversations(OPENCODE.items(Source.of("x", json.dumps(doc).encode()))))


GO = user("u", text("go"))
HI = answer("a", {"type": "step-start"}, text("hi"), finished())
