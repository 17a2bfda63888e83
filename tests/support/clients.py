"""One script as five clients record it: what a person says, and for each answer its text and the commands that it runs.

Written by hand after what Gemini CLI 0.61, Qwen Code 0.15, OpenCode 1.18, Codex 0.169 and Pi 0.73 write.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

Json = dict[str, Any]
TIME = "2026-01-01T00:00:{:02}.000Z"
MILLISECONDS = 1_767_225_600_000


class Turn(NamedTuple):
    """A person's words, and the answers to it, each with the commands that it runs; the last has none."""

    said: str
    answers: Sequence[tuple[str, Sequence[str]]]


Script = Sequence[Turn]


def lines(rows: Sequence[Json]) -> bytes:
    """Rows as the lines of a file."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


class _Ids:
    """Ids in order, each of its own."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"


def gemini(script: Script) -> bytes:
    """A log of Gemini CLI: a row of results behind each batch, as they were sent."""
    new, rows = _Ids(), list[Json]()
    rows.append({"sessionId": "s", "projectHash": "p", "startTime": TIME.format(0), "kind": "main"})
    context = {
        "id": "c",
        "timestamp": TIME.format(0),
        "type": "user",
        "content": [{"text": "<session_context>\nX"}],
    }
    rows.append({"$set": {"messages": [context]}})
    for turn in script:
        rows.append(
            {"id": new("u"), "timestamp": TIME.format(1), "type": "user", "content": [{"text": turn.said}]}
        )
        for text, commands in turn.answers:
            tokens = {"input": 9, "output": 3, "cached": 0, "thoughts": 0, "tool": 0, "total": 12}
            answer = {
                "id": new("g"),
                "timestamp": TIME.format(2),
                "type": "gemini",
                "content": text,
                "tokens": tokens,
                "model": "m",
            }
            rows.append(answer)
            parts = list[Json]()
            calls = list[Json]()
            for command in commands:
                call = new("call")
                output = f"Output: {command}\nProcess Group PGID: 7"
                part = {
                    "functionResponse": {
                        "id": call,
                        "name": "run_shell_command",
                        "response": {"output": output},
                    }
                }
                parts.append(part)
                calls.append({
                    "id": call, "name": "run_shell_command", "args": {"command": command}, "result": [part],
                    "status": "success", "timestamp": TIME.format(2),
                })  # fmt: skip
            if calls:
                rows.append(answer | {"toolCalls": calls})
                rows.append({"id": new("r"), "timestamp": TIME.format(2), "type": "user", "content": parts})
    return lines(rows)


def qwen(script: Script) -> bytes:
    """A session of Qwen Code: a tree of rows, a result each."""
    new, rows = _Ids(), list[Json]()

    def add(kind: str, **more: Any) -> None:
        parent = rows[-1]["uuid"] if rows else None
        base = {
            "uuid": new("row"),
            "parentUuid": parent,
            "sessionId": "s",
            "timestamp": TIME.format(1),
            "type": kind,
        }
        rows.append({**base, "version": "0.15.10", **more})

    for turn in script:
        add("user", message={"role": "user", "parts": [{"text": turn.said}]})
        for text, commands in turn.answers:
            calls = [(new("call"), command) for command in commands]
            asked = [
                {"functionCall": {"id": call, "name": "run_shell_command", "args": {"command": c}}}
                for call, c in calls
            ]
            used = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
            add(
                "assistant",
                model="m",
                message={"role": "model", "parts": [{"text": text}, *asked]},
                usageMetadata=used,
            )
            for call, command in calls:
                output = (
                    f"Command: {command}\nOutput: {command}\nExit Code: 0\nSignal: 0\nProcess Group PGID: 7"
                )
                part = {
                    "functionResponse": {
                        "id": call,
                        "name": "run_shell_command",
                        "response": {"output": output},
                    }
                }
                add(
                    "tool_result",
                    message={"role": "user", "parts": [part]},
                    toolCallResult={"callId": call, "status": "success"},
                )
    return lines(rows)


def opencode(script: Script) -> bytes:
    """An export of OpenCode: a document of messages with parts."""
    new, messages = _Ids(), list[Json]()
    for turn in script:
        time = {"created": MILLISECONDS, "completed": MILLISECONDS}
        messages.append(
            {
                "info": {"id": new("msg"), "role": "user", "time": time},
                "parts": [{"type": "text", "text": turn.said}],
            }
        )
        for text, commands in turn.answers:
            done = {"start": MILLISECONDS, "end": MILLISECONDS}
            tools = [
                {"type": "tool", "callID": new("call"), "tool": "bash", "state": {
                    "status": "completed", "input": {"command": command}, "output": command, "metadata": {"exit": 0}, "time": done,
                }} for command in commands
            ]  # fmt: skip
            reason = "tool-calls" if tools else "stop"
            counts = {"input": 9, "output": 3, "reasoning": 0, "cache": {"read": 0, "write": 0}}
            ends = {"type": "step-finish", "reason": reason, "tokens": counts, "cost": 0}
            info = {"id": new("msg"), "role": "assistant", "modelID": "m", "time": time, "finish": reason}
            messages.append(
                {
                    "info": info,
                    "parts": [{"type": "step-start"}, {"type": "text", "text": text}, *tools, ends],
                }
            )
    info = {
        "id": "ses_1",
        "projectID": "p",
        "directory": "/p",
        "version": "1.18.33",
        "time": {"created": MILLISECONDS},
    }
    return json.dumps({"info": info, "messages": messages}).encode()


def codex(script: Script) -> bytes:
    """A rollout of Codex: items of the responses, between events of the screen."""
    rows, used = list[Json](), 0

    def add(kind: str, **payload: Any) -> None:
        rows.append({"timestamp": TIME.format(1), "type": kind, "payload": payload})

    add("session_meta", id="s", cli_version="0.169.0")
    new = _Ids()
    for turn in script:
        add("event_msg", type="task_started", turn_id=new("turn"))
        add("response_item", type="message", role="user", content=[{"type": "input_text", "text": turn.said}])
        for text, commands in turn.answers:
            content = [{"type": "output_text", "text": text}]
            add("response_item", type="message", role="assistant", content=content)
            calls = [(new("call"), command) for command in commands]
            for call, command in calls:
                arguments = json.dumps({"cmd": command})
                add(
                    "response_item",
                    type="function_call",
                    name="exec_command",
                    call_id=call,
                    arguments=arguments,
                )
            used += 1
            total = {"input_tokens": 9 * used, "cached_input_tokens": 0, "output_tokens": 3 * used}
            add("event_msg", type="token_count", info={"total_token_usage": total})
            for call, command in calls:
                output = f"Chunk ID: 1\nProcess exited with code 0\nOutput:\n{command}"
                add("response_item", type="function_call_output", call_id=call, output=output)
        if not turn.answers[-1][1]:
            add("event_msg", type="task_complete", turn_id="turn")
    return lines(rows)


def pi(script: Script) -> bytes:
    """A session of Pi: entries, a message each."""
    new = _Ids()
    rows: list[Json] = [
        {"type": "session", "version": 3, "id": "s", "timestamp": TIME.format(0), "cwd": "/p"}
    ]

    def add(**message: Any) -> None:
        parent = rows[-1]["id"] if len(rows) > 1 else None
        rows.append(
            {
                "type": "message",
                "id": new("e"),
                "parentId": parent,
                "timestamp": TIME.format(1),
                "message": message,
            }
        )

    for turn in script:
        add(role="user", content=[{"type": "text", "text": turn.said}])
        for text, commands in turn.answers:
            calls: list[Json] = [
                {"type": "toolCall", "id": new("call"), "name": "bash", "arguments": {"command": c}}
                for c in commands
            ]
            used = {"input": 9, "output": 3, "cacheRead": 0, "cacheWrite": 0}
            content = [{"type": "text", "text": text}, *calls]
            add(
                role="assistant",
                content=content,
                model="m",
                usage=used,
                stopReason="toolUse" if calls else "stop",
            )
            for call in calls:
                said = [{"type": "text", "text": call["arguments"]["command"]}]
                add(role="toolResult", toolCallId=call["id"], toolName="bash", content=said, isError=False)
    return lines(rows)


CLIENTS: Mapping[str, Callable[[Script], bytes]] = MappingProxyType(
    {"gemini_cli": gemini, "qwen_code": qwen, "opencode": opencode, "codex": codex, "pi": pi}
)
"""How each client records a script, by its format."""


def answers(script: Script) -> Iterator[tuple[str, Sequence[str]]]:
    """The answers of a script, in order."""
    return (answer for turn in script for answer in turn.answers)
