"""OpenAI's chat completions, as most of the clients speak it."""

from typing import Any

from clients.scripts import Failure
from clients.wires.protocol import Body, Reply, ScriptedCall, Tool, pieces, text_of
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role

_ROLES = {"developer": Role.SYSTEM}


class Chat:
    """The wire of `/chat/completions`."""

    name = "chat"
    end = "[DONE]"

    def serves(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def streams(self, path: str, body: Body) -> bool:
        return bool(body.get("stream"))

    def tools(self, body: Body) -> list[Tool]:
        functions = [tool["function"] for tool in body.get("tools") or [] if "function" in tool]
        return [
            Tool(each["name"], (each.get("parameters") or {}).get("properties") or {}) for each in functions
        ]

    def messages(self, body: Body) -> list[Message]:
        return [_message(row) for row in body["messages"]]

    def events(self, reply: Reply, number: int) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": reply.reasoning}] if reply.reasoning else []
        deltas += [{"content": piece} for piece in pieces(reply.text)]
        for index, call in enumerate(reply.calls):
            deltas.append({"tool_calls": [{"index": index, **_call(call, "")}]})
            half = len(call.arguments) // 2
            for part in (call.arguments[:half], call.arguments[half:]):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        chunks = [_chunk(number, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
        chunks.append(_chunk(number, [{"index": 0, "delta": {}, "finish_reason": _reason(reply)}]))
        return [*chunks, {**_chunk(number, []), "usage": _usage(reply)}]

    def document(self, reply: Reply, number: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [_call(call, call.arguments) for call in reply.calls]
        choice = {"index": 0, "message": message, "finish_reason": _reason(reply)}
        return {**_chunk(number, [choice]), "object": "chat.completion", "usage": _usage(reply)}

    def arguments(self, text: str) -> str:
        return text

    def error(self, failure: Failure) -> dict[str, Any]:
        return {"error": {"message": failure.message, "type": failure.code, "code": failure.code}}


def _message(row: dict[str, Any]) -> Message:
    calls = tuple(
        MessageCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in row.get("tool_calls") or []
    )
    role = Role(_ROLES.get(row["role"], row["role"]))
    return Message(role=role, text=text_of(row.get("content")), calls=calls, call=row.get("tool_call_id"))


def _call(call: ScriptedCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _chunk(number: int, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000 + number,
        "model": "scripted-model",
        "choices": choices,
    }


def _reason(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }
