"""Spans of an agent of a few words, as the Python SDK exports them."""

from typing import Any

import msgspec

from refold.importers.formats.otel.importer import OTEL
from refold.importers.source import Source

START = 1_700_000_000


def source(value: object) -> Source:
    return Source.of("spans", msgspec.json.encode(value))


def span(
    number: int, op: str, parent: int | None = None, *, length: int = 1, status: str = "UNSET", **own: Any
) -> dict[str, Any]:
    """A span of the Python SDK, beginning at second `number`."""
    return {
        "name": f"{op} x",
        "context": {"trace_id": "0xt", "span_id": f"0x{number}"},
        "parent_id": None if parent is None else f"0x{parent}",
        "start_time": iso(number),
        "end_time": iso(number + length),
        "status": {"status_code": status},
        "attributes": {"gen_ai.operation.name": op}
        | {name.replace("__", "."): value for name, value in own.items()},
        "events": [],
    }


def iso(second: int) -> str:
    return f"2023-11-14T22:13:{20 + second:02d}.000001Z"


def says(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def asks(call: str, name: str = "look") -> dict[str, Any]:
    return {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": call, "name": name, "arguments": {"q": 1}}],
    }


def answers(call: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call, "response": text}]}


def chat(number: int, parent: int | None, prompt: list[Any], answer: Any, **own: Any) -> dict[str, Any]:
    captured = {"gen_ai__input__messages": msgspec.json.encode(prompt).decode()} if prompt else {}
    captured |= {"gen_ai__output__messages": msgspec.json.encode([answer]).decode()} if answer else {}
    tokens = {"gen_ai__usage__input_tokens": 10, "gen_ai__usage__output_tokens": 2}
    return span(number, "chat", parent, **(captured | tokens | own))


RUN = [
    span(0, "invoke_agent", length=9, gen_ai__usage__input_tokens=20, gen_ai__agent__name="a"),
    chat(1, 0, [says("user", "go")], asks("c1")),
    span(3, "execute_tool", 0, gen_ai__tool__call__id="c1", gen_ai__tool__name="look", gen_ai__tool__call__result='{"wrapped": 1}'),
    chat(5, 0, [says("user", "go"), asks("c1"), answers("c1", "found")], says("assistant", "done")),
]  # fmt: skip


def of(value: object) -> list[Any]:
    return list(OTEL.items(source(value)))
