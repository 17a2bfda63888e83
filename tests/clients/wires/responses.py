"""OpenAI's Responses, as Codex speaks it."""

import json
from typing import Any

from clients.scripts import Failure
from clients.wires.protocol import Body, Reply, ScriptedCall, Tool, pieces, text_of
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role

_ROLES = {"developer": Role.SYSTEM}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = ("function_call_output", "custom_tool_call_output")


class Responses:
    """The wire of `/responses`."""

    name = "responses"
    end = ""

    def serves(self, path: str) -> bool:
        return path.endswith("/responses")

    def streams(self, path: str, body: Body) -> bool:
        return bool(body.get("stream"))

    def tools(self, body: Body) -> list[Tool]:
        return [
            Tool(
                tool["name"],
                (tool.get("parameters") or {}).get("properties") or {},
                free_text=tool.get("type") == "custom",
            )
            for tool in body.get("tools") or []
            if "name" in tool
        ]

    def messages(self, body: Body) -> list[Message]:
        found: list[Message] = []
        if body.get("instructions"):
            found.append(Message(role=Role.SYSTEM, text=body["instructions"]))
        for item in body["input"]:
            if item.get("type") != "reasoning":
                _add(found, _message(item))
        return found

    def events(self, reply: Reply, number: int) -> list[dict[str, Any]]:
        whole = self.document(reply, number)
        begun = {**whole, "status": "in_progress", "output": []}
        events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        for index, item in enumerate(whole["output"]):
            events += _item_events(item, index)
        return [*events, {"type": "response.completed", "response": whole}]

    def document(self, reply: Reply, number: int) -> dict[str, Any]:
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1_700_000_000 + number,
            "status": "completed",
            "model": "scripted-model",
            "output": _items(reply, number),
            "usage": _usage(reply),
        }

    def arguments(self, text: str) -> str:
        return text

    def error(self, failure: Failure) -> dict[str, Any]:
        return {"error": {"message": failure.message, "type": failure.code, "code": failure.code}}


def _message(item: dict[str, Any]) -> Message:
    kind = item.get("type", "message")
    if kind in _CALLS:
        return Message(
            role=Role.ASSISTANT, calls=(MessageCall(item["call_id"], item["name"], item[_CALLS[kind]]),)
        )
    if kind in _RESULTS:
        return Message(role=Role.TOOL, text=text_of(item["output"]), call=item["call_id"])
    if kind == "message":
        role = Role(_ROLES.get(item["role"], item["role"]))
        return Message(role=role, text=text_of(item["content"]))
    return Message(role=Role.USER, text=json.dumps(item))


def _add(found: list[Message], message: Message) -> None:
    """Add a message; an answer is several items in a row, and one message here."""
    if not (found and message.role == found[-1].role == Role.ASSISTANT):
        found.append(message)
        return
    last = found[-1]
    text = "\n".join(part for part in (last.text, message.text) if part)
    found[-1] = Message(role=Role.ASSISTANT, text=text, calls=(*last.calls, *message.calls))


def _items(reply: Reply, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append(
            {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "c2NyaXB0"}
        )
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
        items.append({**message, "status": "completed", "content": content})
    return [*items, *(_call(call) for call in reply.calls)]


def _call(call: ScriptedCall) -> dict[str, Any]:
    kind = "custom_tool_call" if call.free_text else "function_call"
    named = {
        "type": kind,
        "id": f"fc_{call.id}",
        "call_id": call.id,
        "name": call.name,
        "status": "completed",
    }
    return {**named, _CALLS[kind]: call.arguments}


def _item_events(item: dict[str, Any], index: int) -> list[dict[str, Any]]:
    message = item["type"] == "message"
    begun = {**item, "content": []} if message else item
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": index, "item": begun}
    ]
    if message:
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": []}
        events.append({"type": "response.content_part.added", **at, "part": part})
        deltas = pieces(item["content"][0]["text"])
        events += [{"type": "response.output_text.delta", **at, "delta": delta} for delta in deltas]
    return [*events, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }
