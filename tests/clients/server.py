"""A model server on loopback: it plays a script to a client and records every request body.

Each request gets the next turn of its agent. The request identifies the agent: a subagent's prompt has a
marker, a compaction contains known words of its client, and other requests without tools are asides.
"""

import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from clients import scripts
from clients.offers import SUBMISSION, call_of
from clients.scripts import Answer, Failure, Script, Shell, Turn
from clients.truth import Agent, Exchange
from clients.wires import WIRES
from clients.wires.protocol import Reply, Wire
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role

SUB = "SCRIPT=sub"
COMPACTION = re.compile(
    "CONTEXT CHECKPOINT COMPACTION|state_snapshot|structured context checkpoint|anchored summary|"
    "detailed (but concise )?summary",
)
"""Words of the clients' requests for a summary, in the system prompt or in the last message."""


class Recorder:
    """Plays a script to all connections of a server, and writes each exchange to a file as it happens."""

    def __init__(self, script: Script, folder: Path, log: Path) -> None:
        self.script, self.folder, self.log = script, folder, log
        self._lock = threading.Lock()
        self._asked = Counter[Agent]()
        self._number = 0

    def exchange(self, wire: Wire, path: str, body: dict[str, Any]) -> Exchange:
        """Answer a request with the next turn of its agent, and record both."""
        messages, tools = wire.messages(body), wire.tools(body)
        agent = agent_of(messages, offers_tools=bool(tools))
        with self._lock:
            self._number += 1
            turn = self._turn(agent)
            self._asked[agent] += 1
            exchange = Exchange(
                number=self._number,
                wire=wire.name,
                agent=agent,
                turn=self._asked[agent],
                status=turn.status if isinstance(turn, Failure) else 200,
                broken=isinstance(turn, Answer) and turn.broken,
                streamed=wire.streams(path, body),
                reply=self._reply(turn, wire, body) if isinstance(turn, Answer) else None,
                failure=turn if isinstance(turn, Failure) else None,
                body=msgspec.Raw(msgspec.json.encode(body)),
            )
            with self.log.open("ab") as file:
                file.write(msgspec.json.encode(exchange) + b"\n")
        return exchange

    def _turn(self, agent: Agent) -> Turn:
        fixed = {"compaction": scripts.SUMMARY, "aside": scripts.ASIDE}.get(agent)
        turns = self.script.sub if agent == "sub" else self.script.turns
        at = self._asked[agent]
        return fixed or (turns[at] if at < len(turns) else scripts.NOTHING_LEFT)

    def _reply(self, turn: Answer, wire: Wire, body: dict[str, Any]) -> Reply:
        tools = wire.tools(body)
        operations = turn.calls
        if tools and not operations and not turn.broken and SUBMISSION in json.dumps(body):
            operations = (Shell(f"echo {SUBMISSION}"),)
        calls = tuple(
            call_of(operation, tools, self.folder, f"call_{self._number:03}_{index}")
            for index, operation in enumerate(operations)
        )
        carried = tuple(
            msgspec.structs.replace(call, arguments=wire.arguments(call.arguments)) for call in calls
        )
        return Reply(turn.text, carried, turn.usage, turn.reasoning)


def agent_of(messages: Sequence[Message], *, offers_tools: bool) -> Agent:
    """Identify the agent of a request."""
    said = [message.text for message in messages if message.role == Role.USER]
    if not offers_tools:
        first = next((message.text for message in messages if message.role == Role.SYSTEM), "")
        return "compaction" if COMPACTION.search(first + "\n".join(said[-1:])) else "aside"
    return "sub" if any(SUB in text for text in said) else "main"


@contextmanager
def serving(recorder: Recorder) -> Iterator[str]:
    """A server on a free port of 127.0.0.1 while the block runs; its URL, without a path."""
    server = _Server(recorder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.recorder = recorder

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: clients may disconnect, and a request without a reply fails in the client."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass

    def do_GET(self) -> None:
        model = {"id": "scripted-model", "object": "model"}
        self._json({"object": "list", "data": [model]}, 200 if "/models" in self.path else 404)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        wire = next((each for each in WIRES if each.serves(path)), None)
        if wire is None:
            counts = "ount" in path  # Google's countTokens
            self._json({"totalTokens": len(raw) // 4} if counts else {}, 200 if counts else 404)
            return
        exchange = self.server.recorder.exchange(wire, path, json.loads(raw))
        if exchange.failure is not None:
            self._json(wire.error(exchange.failure), exchange.status)
        elif exchange.reply is not None and exchange.streamed:
            self._stream(wire, wire.events(exchange.reply, exchange.number), broken=exchange.broken)
        elif exchange.reply is not None and exchange.broken:
            self._reset()
        elif exchange.reply is not None:
            self._json(wire.document(exchange.reply, exchange.number), 200)

    def _json(self, document: dict[str, Any], status: int) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if status == 429:
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, wire: Wire, events: list[dict[str, Any]], *, broken: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events[: len(events) // 2] if broken else events:
            named = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{named}data: {json.dumps(event)}\n\n".encode())
        if broken:
            self._reset()
        elif wire.end:
            self.wfile.write(f"data: {wire.end}\n\n".encode())

    def _reset(self) -> None:
        """Drop the connection as a crashed server does."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
