"""Operations become calls of the offered tools, and each wire reads back what it wrote."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.offers import call_of
from clients.scripts import Delegate, Edit, Failure, Malformed, Operation, Shell, UnknownTool, Usage
from clients.server import agent_of
from clients.wires import WIRES
from clients.wires.chat import Chat
from clients.wires.gemini import Gemini
from clients.wires.protocol import Reply, ScriptedCall, Tool, Wire
from clients.wires.responses import Responses
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role

FOLDER = Path("/folder")
TEXT = {"type": "string"}


def tool(name: str, *parameters: str) -> Tool:
    return Tool(name, dict.fromkeys(parameters, TEXT))


@pytest.mark.parametrize(
    ("operation", "offered", "name", "arguments"),
    [
        pytest.param(
            Shell("ls"), tool("bash", "command", "timeout"), "bash", {"command": "ls"}, id="a plain shell"
        ),
        pytest.param(
            Shell("ls"),
            tool("exec_command", "cmd", "yield_time_ms", "tty"),
            "exec_command",
            {"cmd": "ls", "yield_time_ms": 30_000},
            id="a shell with background commands",
        ),
        pytest.param(
            Shell("ls"),
            Tool("shell", {"command": {"type": "array"}}),
            "shell",
            {"command": ["bash", "-lc", "ls"]},
            id="a shell that takes words",
        ),
        pytest.param(
            Edit("a.txt", "old", "new"),
            tool("edit", "filePath", "oldString", "newString", "replaceAll"),
            "edit",
            {"filePath": "/folder/a.txt", "oldString": "old", "newString": "new"},
            id="an editor by camel case",
        ),
        pytest.param(
            Edit("a.txt", "old", "new"),
            tool("edit", "path", "edits"),
            "edit",
            {"path": "/folder/a.txt", "edits": [{"oldText": "old", "newText": "new"}]},
            id="an editor that takes several edits",
        ),
        pytest.param(
            Edit("a.txt", "old", "new"),
            tool("file_editor", "command", "path", "old_str", "new_str"),
            "file_editor",
            {"command": "str_replace", "path": "/folder/a.txt", "old_str": "old", "new_str": "new"},
            id="an editor of several commands",
        ),
        pytest.param(
            Edit("a.txt", "old", "new"),
            tool("bash", "command"),
            "bash",
            {"command": "sed -i 's/old/new/' a.txt"},
            id="no editor: the shell edits",
        ),
        pytest.param(
            Delegate("look"),
            tool("task", "prompt", "description", "subagent_type", "command"),
            "task",
            {"prompt": "look", "description": "scripted", "subagent_type": "general"},
            id="a subagent",
        ),
        pytest.param(
            Delegate("look"),
            tool("bash", "command"),
            "bash",
            {"command": "echo no sub-agents"},
            id="no subagents: a command",
        ),
        pytest.param(UnknownTool(), tool("bash", "command"), "no_such_tool", {"x": 1}, id="an unknown tool"),
    ],
)
def test_an_operation_becomes_a_call_of_what_is_offered(
    operation: Operation, offered: Tool, name: str, arguments: dict[str, Any]
) -> None:
    """A call has the offered tool's name, and values for the parameters that the operation covers."""
    call = call_of(operation, [offered], FOLDER, "c1")
    assert (name, arguments) == (call.name, json.loads(call.arguments))


def test_malformed_arguments_are_no_json() -> None:
    """The arguments of a malformed call cannot be parsed, and whether it ran only the work folder shows."""
    call = call_of(Malformed(), [tool("bash", "command")], FOLDER, "c1")
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(call.arguments)
    assert call.fails is None


def test_what_no_tool_can_do_is_an_error() -> None:
    """Without a suitable tool, an operation is an error."""
    with pytest.raises(LookupError, match="request: think"):
        call_of(Shell("ls"), [tool("think")], FOLDER, "c1")


CALLS = (ScriptedCall("c1", "bash", '{"command": "ls"}'), ScriptedCall("c2", "bash", '{"command": "pwd"}'))
REPLY = Reply("I look around, in words of more than one piece.", CALLS, Usage(10, 4, 2), "A thought.")
ASKED = (
    Message(role=Role.SYSTEM, text="Be brief."),
    Message(role=Role.USER, text="Do it."),
    Message(
        role=Role.ASSISTANT,
        text=REPLY.text,
        calls=tuple(MessageCall(call.id, call.name, call.arguments) for call in CALLS),
    ),
    Message(role=Role.TOOL, text="a.txt", call="c1"),
    Message(role=Role.TOOL, text="/folder", call="c2"),
)


def chat_body() -> dict[str, Any]:
    message = Chat().document(REPLY, 1)["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": each.call, "content": each.text} for each in ASKED[3:]]
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Do it."}]},
    ]
    return {"messages": [*said, message, *results]}


def responses_body() -> dict[str, Any]:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Do it."}]}
    results = [
        {"type": "function_call_output", "call_id": each.call, "output": each.text} for each in ASKED[3:]
    ]
    return {"instructions": "Be brief.", "input": [said, *Responses().document(REPLY, 1)["output"], *results]}


def gemini_body() -> dict[str, Any]:
    answer = Gemini().document(REPLY, 1)["candidates"][0]["content"]
    results = [
        {"functionResponse": {"id": each.call, "name": "bash", "response": {"output": each.text}}}
        for each in ASKED[3:]
    ]
    said = {"role": "user", "parts": [{"text": "Do it."}]}
    system = {"parts": [{"text": "Be brief."}]}
    return {"systemInstruction": system, "contents": [said, answer, {"role": "user", "parts": results}]}


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        pytest.param(Chat(), chat_body(), id="chat"),
        pytest.param(Responses(), responses_body(), id="responses"),
        pytest.param(Gemini(), gemini_body(), id="gemini"),
    ],
)
def test_a_wire_reads_what_it_wrote(wire: Wire, body: dict[str, Any]) -> None:
    """An answer that a client sends back, with its results, is the message that the wire answered with."""
    assert list(ASKED) == wire.messages(body)


def pieces_of(value: object) -> Iterator[str]:
    """Each text, delta and argument in the events of a stream, in order."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str) and name in ("content", "delta", "text", "arguments"):
                yield inner
            else:
                yield from pieces_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pieces_of(inner)


@pytest.mark.parametrize("wire", [pytest.param(wire, id=wire.name) for wire in WIRES])
def test_a_stream_holds_all_of_a_reply(wire: Wire) -> None:
    """The joined pieces of a stream are the text, and it has the calls and the usage of the reply."""
    events = wire.events(REPLY, 1)
    assert REPLY.text in "".join(pieces_of(events))
    written = json.dumps(events)
    assert [True] * 5 == [each in written for each in ("c1", "c2", "10", "4", "2")]


@pytest.mark.parametrize("wire", [pytest.param(wire, id=wire.name) for wire in WIRES])
def test_a_failure_says_why(wire: Wire) -> None:
    """The body of a failure holds its message."""
    assert "too long" in json.dumps(wire.error(Failure(400, "too long", "code", "CODE")))


@pytest.mark.parametrize(
    ("said", "offers_tools", "agent"),
    [
        pytest.param(["SCRIPT=main. Do it."], True, "main", id="a prompt"),
        pytest.param(["SCRIPT=sub Look."], True, "sub", id="a subagent's prompt"),
        pytest.param(["SCRIPT=main.", "Write a <state_snapshot>."], False, "compaction", id="a summary"),
        pytest.param(["SCRIPT=main.", "Name this in three words."], False, "aside", id="a title"),
        pytest.param(["SCRIPT=main. <state_snapshot> so far", "Go on."], True, "main", id="after a summary"),
    ],
)
def test_whose_request_it_is(said: list[str], offers_tools: bool, agent: str) -> None:
    """Tools and words of a request identify its agent."""
    messages = [Message(role=Role.USER, text=text) for text in said]
    assert agent == agent_of(messages, offers_tools=offers_tools)
