"""A session as a coding agent would write it, and what `refold import` says of what it read."""

import json
from typing import Any


def row(kind: str, number: int, **message: Any) -> str:
    """A line of a session."""
    head = {"type": kind, "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None}
    rest = {"sessionId": "s", "version": "2.0.0", "timestamp": f"2026-01-01T00:00:{number:02}Z"}
    return json.dumps({**head, **rest, "isSidechain": False, "cwd": "/srv", "message": message}) + "\n"


def session(*said: str) -> str:
    """A session in which a person says things and the model answers."""
    lines: list[str] = []
    for place, text in enumerate(said):
        content = [{"type": "text", "text": f"re: {text}"}]
        usage = {"input_tokens": 10, "output_tokens": 2}
        lines.append(row("user", 2 * place, role="user", content=text))
        answer = {"role": "assistant", "id": f"m{place}", "model": "x", "content": content, "usage": usage}
        lines.append(row("assistant", 2 * place + 1, **answer))
    return "".join(lines)


def documents(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]
