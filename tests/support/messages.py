"""Messages of a conversation, and tools to call in it, of a few words each."""

import json

from refold.reducers.messages import Message, MessageCall, ToolSchema
from refold.reducers.vocabulary import Role


def tool(name: str, required: str = "", optional: str = "") -> ToolSchema:
    names = required.split() + optional.split()
    schema = {
        "type": "object",
        "properties": {one: {"type": "string"} for one in names},
        "required": required.split(),
    }
    return ToolSchema(name=name, description=f"Does {name}.\nMore.", schema=json.dumps(schema))


LIST, READ, WRITE = tool("list", "", "path"), tool("read", "path", "offset"), tool("write", "path content")


def system(text: str) -> list[Message]:
    return [Message(role=Role.SYSTEM, text=text)]


def user(text: str) -> list[Message]:
    return [Message(role=Role.USER, text=text)]


def said(text: str) -> list[Message]:
    return [Message(role=Role.ASSISTANT, text=text)]


def called(name: str, arguments: str, output: str, key: str = "c") -> list[Message]:
    return [
        Message(role=Role.ASSISTANT, calls=(MessageCall(key, name, arguments),)),
        Message(role=Role.TOOL, call=key, name=name, text=output),
    ]
