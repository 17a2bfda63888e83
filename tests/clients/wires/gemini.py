"""Google's generateContent, as Gemini CLI speaks it."""

import json
from typing import Any

from clients.scripts import Failure
from clients.wires.protocol import Body, Reply, ScriptedCall, Tool, pieces, text_of
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role


class Gemini:
    """The wire of `models/NAME:generateContent` and `:streamGenerateContent`."""

    name = "gemini"
    end = ""

    def serves(self, path: str) -> bool:
        return path.endswith((":generateContent", ":streamGenerateContent"))

    def streams(self, path: str, body: Body) -> bool:
        return path.endswith(":streamGenerateContent")

    def tools(self, body: Body) -> list[Tool]:
        declared = [
            each for tool in body.get("tools") or [] for each in tool.get("functionDeclarations") or []
        ]
        schemas = [each.get("parametersJsonSchema") or each.get("parameters") or {} for each in declared]
        return [
            Tool(each["name"], schema.get("properties") or {})
            for each, schema in zip(declared, schemas, strict=True)
        ]

    def messages(self, body: Body) -> list[Message]:
        system = body.get("systemInstruction")
        found = [Message(role=Role.SYSTEM, text=text_of(system.get("parts")))] if system else []
        for content in body["contents"]:
            found += _answer(content["parts"]) if content.get("role") == "model" else _said(content["parts"])
        return found

    def events(self, reply: Reply, number: int) -> list[dict[str, Any]]:
        last = _chunk([{"text": ""}], number, reply)
        return [*(_chunk([part], number) for part in _parts(reply)), last]

    def document(self, reply: Reply, number: int) -> dict[str, Any]:
        return _chunk(_parts(reply), number, reply)

    def arguments(self, text: str) -> str:
        return json.dumps(_arguments(text))

    def error(self, failure: Failure) -> dict[str, Any]:
        return {"error": {"code": failure.status, "message": failure.message, "status": failure.google}}


def _answer(parts: list[dict[str, Any]]) -> list[Message]:
    text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
    asked = [part["functionCall"] for part in parts if "functionCall" in part]
    calls = tuple(MessageCall(call.get("id", ""), call["name"], json.dumps(call["args"])) for call in asked)
    return [Message(role=Role.ASSISTANT, text=text, calls=calls)]


def _said(parts: list[dict[str, Any]]) -> list[Message]:
    returned = [part["functionResponse"] for part in parts if "functionResponse" in part]
    results = [
        Message(role=Role.TOOL, text=_result(each["response"]), call=each.get("id", "")) for each in returned
    ]
    texts = [part["text"] for part in parts if "text" in part]
    return [*results, Message(role=Role.USER, text="\n".join(texts))] if texts else list(results)


def _result(response: dict[str, Any]) -> str:
    text = response.get("output", response.get("error"))
    return text if isinstance(text, str) else json.dumps(response)


def _parts(reply: Reply) -> list[dict[str, Any]]:
    thoughts: list[dict[str, Any]] = [{"text": reply.reasoning, "thought": True}] if reply.reasoning else []
    return [*thoughts, *({"text": piece} for piece in pieces(reply.text, 40)), *map(_call, reply.calls)]


def _call(call: ScriptedCall) -> dict[str, Any]:
    return {"functionCall": {"id": call.id, "name": call.name, "args": json.loads(call.arguments)}}


def _arguments(text: str) -> dict[str, Any]:
    """On this wire arguments are an object: malformed ones can only be an object of the wrong shape."""
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        return {"malformed": text}
    return found


def _chunk(parts: list[dict[str, Any]], number: int, ended: Reply | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    chunk: dict[str, Any] = {"modelVersion": "scripted-model", "responseId": f"r{number}"}
    if ended is not None:
        candidate["finishReason"] = "STOP"
        usage = ended.usage
        chunk["usageMetadata"] = {
            "promptTokenCount": usage.input,
            "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.output,
            "totalTokenCount": usage.input + usage.output,
        }
    return {**chunk, "candidates": [candidate]}
