"""One script as five clients record it: what a person says, and for each answer its text and the commands
that it runs.

Written by hand after what Gemini CLI 0.61, Qwen Code 0.15, OpenCode 1.18, Codex 0.169 and Pi 0.73 write.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from support import gemini_cli as chat
from support import opencode as exported
from support.sessions import CODEX, PI, Json, QwenCode, Rows, lines


class Turn(NamedTuple):
    """A person's words, and the answers to it, each with the commands that it runs; the last has none."""

    said: str
    answers: Sequence[tuple[str, Sequence[str]]]


Script = Sequence[Turn]


class _Ids:
    """Ids in order, each of its own."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"


def gemini(script: Script) -> bytes:
    """A log of Gemini CLI: a row of results behind each batch, as they were sent."""
    new = _Ids()
    context = chat.message("c", "user", [{"text": "<session_context>\nX"}])
    rows: list[Json] = [chat.HEADER | {"kind": "main"}, {"$set": {"messages": [context]}}]
    counts = {"input": 9, "output": 3, "cached": 0, "thoughts": 0, "tool": 0, "total": 12}
    for turn in script:
        rows.append(chat.message(new("u"), "user", [{"text": turn.said}]))
        for text, commands in turn.answers:
            answer = chat.message(new("g"), "gemini", text, tokens=counts, model="m")
            rows.append(answer)
            outputs = [f"Output: {command}\nProcess Group PGID: 7" for command in commands]
            calls = [
                chat.called(new("call"), output, name="run_shell_command") | {"args": {"command": command}}
                for command, output in zip(commands, outputs, strict=True)
            ]
            if calls:
                rows.append(answer | {"toolCalls": calls})
                parts = [part for call in calls for part in call["result"]]
                rows.append(chat.sent(new("r"), *parts))
    return lines(*rows)


def tree(
    rows: Rows, script: Script, used: Callable[[bool], Json], output: Callable[[str], str] = str
) -> bytes:
    """A session of a format whose rows name their parents: each goes on from the last one.

    `used`: what else stands in an answer, by whether it has calls; `output`: what a command prints.
    """
    new, written = _Ids(), [*rows.head]
    parent: str | None = None

    def add(make: Callable[..., Json], *parts: Any, **more: Any) -> None:
        nonlocal parent
        id_ = new("row")
        written.append(make(id_, parent, *parts, **more))
        parent = id_

    for turn in script:
        add(rows.user, turn.said)
        for text, commands in turn.answers:
            calls = [(new("call"), command) for command in commands]
            asked = [rows.call(call, command=command) for call, command in calls]
            add(rows.answer, text, *asked, **used(bool(calls)))
            for call, command in calls:
                add(rows.result, call, output(command))
    return lines(*written)


def qwen(script: Script) -> bytes:
    """A session of Qwen Code."""
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    output = "Command: {0}\nOutput: {0}\nExit Code: 0\nSignal: 0\nProcess Group PGID: 7".format
    return tree(QwenCode("run_shell_command"), script, lambda _: {"usageMetadata": counts}, output)


def pi(script: Script) -> bytes:
    """A session of Pi."""
    counts = {"input": 9, "output": 3, "cacheRead": 0, "cacheWrite": 0}
    return tree(PI, script, lambda calls: {"usage": counts, "stopReason": "toolUse" if calls else "stop"})


def opencode(script: Script) -> bytes:
    """An export of OpenCode: a document of messages with parts."""
    new, messages = _Ids(), list[Json]()
    for turn in script:
        messages.append(exported.user(new("msg"), exported.text(turn.said)))
        for text, commands in turn.answers:
            tools = [
                exported.tool(new("call"), input={"command": command}, output=command, metadata={"exit": 0})
                for command in commands
            ]
            reason = "tool-calls" if tools else "stop"
            ends = exported.finished(reason, input=9, output=3)
            parts = [{"type": "step-start"}, exported.text(text), *tools, ends]
            messages.append(exported.answer(new("msg"), *parts, finish=reason))
    return json.dumps({"info": exported.INFO, "messages": messages}).encode()


def codex(script: Script) -> bytes:
    """A rollout of Codex: items of the responses, between events of the screen."""
    new, used = _Ids(), 0
    rows = [CODEX.row("session_meta", id="s", cli_version="0.169.0")]
    for turn in script:
        rows += [CODEX.event("task_started", turn_id=new("turn")), CODEX.message("user", turn.said)]
        for text, commands in turn.answers:
            calls = [(new("call"), command) for command in commands]
            rows.append(CODEX.message("assistant", text))
            rows += [CODEX.call(call, json.dumps({"cmd": c}), "exec_command") for call, c in calls]
            used += 1
            rows.append(CODEX.tokens(9 * used, 3 * used))
            output = "Chunk ID: 1\nProcess exited with code 0\nOutput:\n{}".format
            rows += [CODEX.result(call, output(command)) for call, command in calls]
        if not turn.answers[-1][1]:
            rows.append(CODEX.event("task_complete", turn_id="turn"))
    return lines(*rows)


CLIENTS: Mapping[str, Callable[[Script], bytes]] = MappingProxyType(
    {"gemini_cli": gemini, "qwen_code": qwen, "opencode": opencode, "codex": codex, "pi": pi}
)
"""How each client records a script, by its format."""


def answers(script: Script) -> Iterator[tuple[str, Sequence[str]]]:
    """The answers of a script, in order."""
    return (answer for turn in script for answer in turn.answers)
