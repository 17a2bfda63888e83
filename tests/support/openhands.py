"""Events of OpenHands, of a few words each, as its two versions write them."""

import json
from typing import Any


def response(name: str, *calls: str, said: str = "go") -> dict[str, Any]:
    asked = [
        {"id": call, "function": {"name": "execute_bash", "arguments": '{"command": "ls"}'}} for call in calls
    ]
    return {
        "id": name,
        "model": "m",
        "choices": [{"finish_reason": "tool_calls", "message": {"content": said, "tool_calls": asked}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2},
    }


def acted(number: int, call: str, raw: dict[str, Any], action: str = "run", **args: Any) -> dict[str, Any]:
    metadata = {"function_name": "execute_bash", "tool_call_id": call, "model_response": raw}
    return {
        "id": number,
        "timestamp": f"2025-01-01T10:00:{number:02}.500000",
        "source": "agent",
        "action": action,
        "args": {"command": "ls", "thought": "go"} | args,
        "tool_call_metadata": metadata,
    }


def observed(
    number: int, call: str, raw: dict[str, Any], content: str = "out", code: int = 0
) -> dict[str, Any]:
    return {
        "id": number,
        "timestamp": f"2025-01-01T10:00:{number:02}.500000",
        "source": "agent",
        "observation": "run",
        "content": content,
        "cause": number - 1,
        "extras": {"metadata": {"exit_code": code}},
        "tool_call_metadata": {"function_name": "execute_bash", "tool_call_id": call, "model_response": raw},
    }


def asked(number: int, text: str = "Do it") -> dict[str, Any]:
    return {
        "id": number,
        "timestamp": "2025-01-01T10:00:00",
        "source": "user",
        "action": "message",
        "args": {"content": text},
    }


ONE, TWO, THREE = response("r1", "c1"), response("r2", "c2", "c3"), response("r3", "c4", said="done")
EVENTS: list[dict[str, Any]] = [
    {"id": 0, "source": "agent", "action": "system", "args": {"content": "You are.", "tools": []}},
    asked(1),
    acted(2, "c1", ONE),
    observed(3, "c1", ONE, "one"),
    acted(4, "c2", TWO),
    observed(5, "c2", TWO, "two", code=1),
    acted(6, "c3", TWO),
    observed(7, "c3", TWO, "three"),
    acted(8, "c4", THREE, "finish"),
]


def act(number: int, call: str, reply: str = "R") -> dict[str, Any]:
    return {
        "id": f"e{number}",
        "timestamp": f"2026-01-01T10:00:{number:02}",
        "source": "agent",
        "kind": "ActionEvent",
        "thought": [{"type": "text", "text": "go"}],
        "reasoning_content": "because",
        "tool_name": "terminal",
        "tool_call_id": call,
        "tool_call": {"id": call, "name": "terminal", "arguments": '{"z": 1, "a": 2}'},
        "llm_response_id": reply,
    }


def measured(number: int, call: str, **observation: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": f"out {call}"}]
    return {
        "id": f"e{number}",
        "timestamp": f"2026-01-01T10:00:{number:02}",
        "source": "environment",
        "kind": "ObservationEvent",
        "tool_name": "terminal",
        "tool_call_id": call,
        "observation": {"content": content, **observation},
    }


def event(number: int, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"e{number}",
        "timestamp": f"2026-01-01T10:00:{number:02}",
        "source": "environment",
        "kind": kind,
        **more,
    }


USER = event(
    1,
    "MessageEvent",
    source="user",
    llm_message={"role": "user", "content": [{"type": "text", "text": "Do it"}]},
)
V1_EVENTS = [
    event(0, "SystemPromptEvent", system_prompt={"type": "text", "text": "You are."}, tools=[]),
    USER | {"source": "user"},
    act(2, "c1"),
    act(3, "c2"),
    measured(4, "c1"),
    measured(5, "c2", exit_code=2),
]


def lines(*events: Any) -> str:
    return "\n".join(map(json.dumps, events))
