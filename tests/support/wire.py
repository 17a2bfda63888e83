"""A loopback server that speaks vendors' dialects, and how tests ask a model through it."""

import json
import socket
import struct
import threading
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from refold.engine.models.protocol import (
    CallDelta,
    Delta,
    ModelError,
    ModelRequest,
    ReasoningDelta,
    Reply,
    TextDelta,
)
from refold.engine.models.pydantic_ai import PydanticAIModel
from refold.reducers.messages import Message, ToolSchema
from refold.reducers.vocabulary import Role

ON_THE_WIRE = [
    pytest.mark.anyio,
    # The vendors' libraries leave their inner generators to the garbage collector, which trio remarks on.
    # By then the response is closed: the tests that hang up show it.
    pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning"),
]

SECRET = "sk-very-secret-key"
SECOND = 1_000_000_000
LS = ToolSchema(
    name="ls", description="List.", schema='{"type":"object","properties":{"p":{"type":"string"}}}'
)
HELLO = (Message(role=Role.SYSTEM, text="Be brief."), Message(role=Role.USER, text="Hello"))

Answering = Callable[["Wire"], None]


class Wire(BaseHTTPRequestHandler):
    """One connection of the server; a script answers each request with it."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append(json.loads(body))
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers.get("authorization") or self.headers.get("x-api-key") or "")
        self.server.script(self)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def reset(self) -> None:
        """Drop the connection as a crashed server does."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def hang(self) -> None:
        """Say nothing more until the client goes away."""
        self.close_connection = True
        if self.connection.recv(1) == b"":
            self.server.gone.set()


class Server(ThreadingHTTPServer):
    """A scripted server on a loopback port; it remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Wire)
        self.script: Answering = lambda wire: None
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str] = []
        self.gone = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what some tests are about."""


def sse(*events: dict[str, Any], then: Answering = Wire.end) -> Answering:
    """A stream of events, each with its `type` as the event's name if it has one."""

    def answer(wire: Wire) -> None:
        wire.begin()
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            wire.chunk(f"{name}data: {json.dumps(event)}\n\n")
        then(wire)

    return answer


def status(code: int, body: object, **headers: str) -> Answering:
    """A plain response."""

    def answer(wire: Wire) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        wire.send_response(code)
        for name, value in {"content-type": "application/json", **headers}.items():
            wire.send_header(name.replace("_", "-"), value)
        wire.send_header("content-length", str(len(data)))
        wire.end_headers()
        wire.wfile.write(data)

    return answer


# OpenAI chat completions


def piece(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**CHUNK, "choices": [choice]}


CHUNK: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "gpt-5-mini-2025-08-07",
}
COUNTS: dict[str, Any] = {
    **CHUNK,
    "choices": [],
    "usage": {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "total_tokens": 1100,
        "prompt_tokens_details": {"cached_tokens": 600},
        "completion_tokens_details": {"reasoning_tokens": 30},
    },
}


def done(wire: Wire) -> None:
    wire.chunk("data: [DONE]\n\n")
    wire.end()


def chat(*events: dict[str, Any]) -> Answering:
    return sse(*events, then=done)


def calling(index: int, **fields: Any) -> dict[str, Any]:
    """A piece of a tool call."""
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return {"tool_calls": [{"index": index, **fields, "function": function}]}


# Anthropic messages


def opened(**usage: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test-1",
    }
    message |= {"content": [], "stop_reason": None, "stop_sequence": None}
    message |= {"usage": {"input_tokens": 10, "output_tokens": 1, **usage}}
    return {"type": "message_start", "message": message}


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def said(index: int, *texts: str) -> list[dict[str, Any]]:
    deltas = ({"type": "text_delta", "text": text} for text in texts)
    return block(index, {"type": "text", "text": ""}, *deltas)


def thought(index: int, text: str, signature: str) -> list[dict[str, Any]]:
    start = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [
        {"type": "thinking_delta", "thinking": text},
        {"type": "signature_delta", "signature": signature},
    ]
    return block(index, start, *deltas)


def used(index: int, call: str, *arguments: str) -> list[dict[str, Any]]:
    start = {"type": "tool_use", "id": call, "name": "ls", "input": {}}
    return block(index, start, *({"type": "input_json_delta", "partial_json": text} for text in arguments))


def closed(stop: str, output: int = 50) -> list[dict[str, Any]]:
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": output}},
        {"type": "message_stop"},
    ]


# Asking


@asynccontextmanager
async def made(server: Server, name: str = "openai:test", **options: Any) -> AsyncGenerator[PydanticAIModel]:
    import httpx2

    path = "" if name.startswith("anthropic") else "/v1"
    # `timeout` is for silence alone: to connect may take a busy machine longer than a test wants to wait.
    patience = httpx2.Timeout(30.0, read=options.pop("timeout", 30.0))
    # Certificates take longer to load than most of these tests take, and nothing here speaks TLS.
    async with httpx2.AsyncClient(verify=False, timeout=patience) as http_client:
        model = PydanticAIModel(
            name, base_url=server.address + path, api_key=SECRET, http_client=http_client, **options
        )
        yield model
        await model.aclose()
        assert not http_client.is_closed


async def items(model: PydanticAIModel, request: ModelRequest) -> list[Delta | Reply]:
    async with aclosing(model.stream(request)) as stream:
        return [item async for item in stream]


async def ask(server: Server, name: str = "openai:test", **request: Any) -> tuple[list[Delta], Reply]:
    """The deltas and the reply, with what holds for every answer checked."""
    asked = ModelRequest(**{"messages": HELLO, "tools": (LS,), **request})
    async with made(server, name) as model:
        *deltas, reply = await items(model, asked)
    assert isinstance(reply, Reply)
    kept: list[Delta] = [delta for delta in deltas if not isinstance(delta, Reply)]
    assert deltas == kept
    assert reply.text == "".join(delta.text for delta in kept if isinstance(delta, TextDelta))
    assert reply.reasoning == "".join(delta.text for delta in kept if isinstance(delta, ReasoningDelta))
    for index, call in enumerate(reply.calls):
        pieces = [delta for delta in kept if isinstance(delta, CallDelta) and delta.index == index]
        assert call.name == "".join(delta.name for delta in pieces)
        assert call.arguments == "".join(delta.arguments for delta in pieces)
    assert len(server.requests) == 1
    return kept, reply


async def refused(server: Server, name: str = "openai:test", **options: Any) -> ModelError:
    """The failure, with what holds for every failure checked: one request only, and no secret."""
    async with made(server, name, **options) as model:
        with pytest.raises(ModelError) as caught:
            await items(model, ModelRequest(messages=HELLO))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert len(server.requests) <= 1  # none where we gave up before a busy server had read it
    return caught.value


# OpenAI responses


def half_response() -> list[dict[str, Any]]:
    """The first events of an OpenAI response: `Half an ans`."""
    response: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "in_progress",
    }
    response |= {"output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return [
        {"type": "response.created", "sequence_number": 0, "response": response},
        {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": message},
        {"type": "response.content_part.added", "sequence_number": 2, **place, "part": part},
        {
            "type": "response.output_text.delta",
            "sequence_number": 3,
            **place,
            "delta": "Half an ans",
            "logprobs": [],
        },
    ]
