"""Files in the shape of agents that are not read here, a few words each: they look like formats that are."""

import json
from typing import Any

Json = dict[str, Any]


def _at(second: int) -> str:
    return f"2026-03-01T10:00:{second:02}.000Z"


def _lines(*rows: Json) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _kimi(role: str, said: str, place: int) -> Json:
    message = {"role": role, "parts": [{"type": "text", "text": said}]}
    return {"type": role, "sessionId": "k", "timestamp": _at(place), "message": message}


def _part(kind: str, **more: Any) -> Json:
    return {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "type": kind, **more}


RAN: Json = {"status": "completed", "input": {"command": "ls"}, "output": "7"}
STEP = {"sessionID": "ses_1", "timestamp": 1_772_359_200_000}

CLOSE: dict[str, tuple[str, str]] = {
    "Kimi CLI, rows": ("claude_code", _lines(_kimi("user", "Count.", 0), _kimi("assistant", "Seven.", 1))),
    "a fork of Gemini CLI": (
        "gemini_cli",
        json.dumps(
            {
                "sessionId": "s",
                "projectHash": "p",
                "startTime": _at(0),
                "lastUpdated": _at(1),
                "messages": [
                    {"id": "1", "timestamp": _at(0), "type": "user", "content": "Count."},
                    {"id": "2", "timestamp": _at(1), "type": "fork", "content": "Seven.", "toolCalls": []},
                ],
            }
        ),
    ),
    "Droid, streamed": (
        "claude_code",
        _lines(
            {"type": "system", "subtype": "init", "session_id": "d", "tools": ["Execute"]},
            {"type": "message", "role": "user", "id": "m0", "text": "Count."},
            {"type": "tool_call", "id": "c", "toolName": "Execute", "parameters": {"command": "ls"}},
            {"type": "tool_result", "id": "c", "isError": False, "value": "7"},
            {"type": "message", "role": "assistant", "id": "m1", "text": "Seven."},
            {"type": "completion", "finalText": "Seven.", "numTurns": 2},
        ),
    ),
    "messages that read, among calls that do not": (
        "codex",
        _lines(
            {"type": "message", "role": "user", "content": "Drop the table."},
            *[{"type": "tool_call", "tool": "sql", "input": "drop"}, {"type": "tool_result", "output": "ok"}]
            * 3,
            {"type": "message", "role": "assistant", "content": "Done."},
        ),
    ),
    "OpenCode, parts": (
        "codex",
        _lines(
            _part("step-start"),
            _part("reasoning", text="ls"),
            _part("tool", callID="c", tool="bash", state=RAN),
            _part("text", text="Seven."),
            _part("step-finish", reason="stop", cost=0),
        ),
    ),
    "OpenCode, a run": (
        "codex",
        _lines(
            {"type": "step_start", **STEP, "part": _part("step-start")},
            {"type": "reasoning", **STEP, "part": _part("reasoning", text="ls")},
            {"type": "tool_use", **STEP, "part": _part("tool", callID="c", tool="bash", state=RAN)},
            {"type": "text", **STEP, "part": _part("text", text="Seven.")},
        ),
    ),
}
"""By agent: the format that it looks most like, and a file."""

FAR: dict[str, str] = {
    "OpenCode, a session": json.dumps(
        {
            "id": "ses_1",
            "projectID": "p",
            "directory": "/p",
            "title": "Count",
            "time": {"created": 1_772_359_200_000},
        }
    ),
    "OpenCode, a message": json.dumps(
        {"id": "msg_1", "sessionID": "ses_1", "role": "assistant", "modelID": "m"}
    ),
    "OpenCode, a part": json.dumps(_part("reasoning", text="ls")),
}
"""By agent: a file that looks like no format."""
