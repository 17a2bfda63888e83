"""`refold worker --listen`: health checks and metrics of a worker over HTTP, for supervisors and Prometheus.

The server runs in threads of its own, so that it answers while the event loop is busy. It reads only what the
event loop has written before: a request never waits for the store.
"""

import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, cast

import anyio

from refold.engine.tasks import Background
from refold.reducers.errors import ExternalFailure, RefoldError, WrongUse
from refold.store.protocol import Store

LOOPBACK = "127.0.0.1"
BEAT = 2.0
"""Seconds between two exchanges with the store."""

READY_WITHIN = 10.0
"""Seconds without an answer of the store after which a worker is not ready."""

TURN_WITHIN = 60.0
"""Seconds without a turn of the event loop after which a worker is not alive."""

ANSWER_WITHIN = 600.0
"""Seconds without an answer of the store after which a worker is not alive: longer than it takes to replace a
database server, because a restart of the worker would not help.
"""

_TIMEOUT = 5.0  # seconds that a client may stay silent
_MOST_CLIENTS = 8  # at a time; others are disconnected
_TEXT = "text/plain; charset=utf-8"


class CannotListen(ExternalFailure):
    """The address is in use, or is not of this machine."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(address, problem)
        self.address, self.problem = address, problem

    def __str__(self) -> str:
        return f"cannot listen on {self.address}: {self.problem}; choose another address with --listen"


def listen_address(typed: str) -> tuple[str, int]:
    """Parse `PORT`, `HOST:PORT` or `[HOST]:PORT`; the host is loopback by default. Raises `WrongUse`."""
    host, colon, port = typed.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    # Without brackets, a colon in the host would be part of an IPv6 address, and the port a guess.
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16) or (":" in host and bare == host):
        raise WrongUse(f"--listen {typed!r}: expected PORT, HOST:PORT or [HOST]:PORT, as in {LOOPBACK}:9464")
    if colon and not bare:
        raise WrongUse(
            f"--listen {typed!r}: the host is empty; for all addresses of this machine, write 0.0.0.0"
        )
    return bare or LOOPBACK, int(port)


class Pulse:
    """Whether the event loop turns and the store answers, as seen from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turned = self._answered = clock()
        self._problem = "starting: the store has not answered yet"

    async def beat(self, store: Store) -> None:
        """Ask the store once in `BEAT` seconds, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._turn)
            while True:
                try:
                    await store.head("health")  # any id: of a run that does not exist, the head is empty
                    self._answered, self._problem = self._clock(), ""
                except RefoldError as error:  # its message may name the store
                    self._problem = f"the store failed: {type(error).__name__}"
                await anyio.sleep(BEAT)

    async def _turn(self) -> None:
        while True:
            self._turned = self._clock()
            await anyio.sleep(BEAT / 2)

    def trouble(self) -> str:
        """Return why the worker cannot drive runs now; "" if it can."""
        return self._late(READY_WITHIN, READY_WITHIN) or self._problem

    def death(self) -> str:
        """Return why the worker should be restarted; "" if it should not."""
        return self._late(TURN_WITHIN, ANSWER_WITHIN)

    def _late(self, turn: float, answer: float) -> str:
        now = self._clock()
        if now - self._turned > turn:
            return f"the event loop has not turned for {now - self._turned:.0f} s"
        if now - self._answered > answer:
            return f"the store has not answered for {now - self._answered:.0f} s"
        return ""


class Answer(NamedTuple):
    """A response: status, content type and body."""

    status: HTTPStatus
    type: str
    body: bytes


Pages = dict[str, Callable[[str], Answer]]
"""By path: a function from the request's `Accept` to the response. It is called in any thread."""


def check(trouble: Callable[[], str]) -> Callable[[str], Answer]:
    """Return a page for a health check: 200, or 503 with the reason."""

    def page(accept: str) -> Answer:  # noqa: ARG001
        problem = trouble()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
        return Answer(status, _TEXT, f"{problem or 'ok'}\n".encode())

    return page


class StatusServer(ThreadingHTTPServer):
    """Serves pages under fixed paths, to a few clients at a time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        self.pages = pages
        self._free = threading.BoundedSemaphore(_MOST_CLIENTS)
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family, address = found[0][0], found[0][4]
            super().__init__((str(address[0]), port), _Handler)
        except OSError as error:
            raise CannotListen(shown, error.strerror or str(error)) from error
        at = int(self.server_address[1])
        self.url = f"http://[{host}]:{at}" if ":" in host else f"http://{host}:{at}"

    def server_bind(self) -> None:
        """Bind without the look-up of the host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client in a thread, or disconnect it if there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away; the output is the worker's."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT
    server_version, sys_version = "refold", ""

    def do_GET(self) -> None:
        self._send(body=True)

    def do_HEAD(self) -> None:
        self._send(body=False)

    def _send(self, *, body: bool) -> None:
        pages = cast("StatusServer", self.server).pages
        page = pages.get(self.path.partition("?")[0])
        if page is None:
            known = ", ".join(sorted(pages))
            answer = Answer(HTTPStatus.NOT_FOUND, _TEXT, f"not found; there are {known}\n".encode())
        else:
            answer = page(self.headers.get("Accept", ""))
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Log nothing: a probe every few seconds is no news."""


@asynccontextmanager
async def serving(server: StatusServer, pulse: Pulse, store: Store) -> AsyncGenerator[None]:
    """Serve, and keep the pulse, while the block runs."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    beating = Background(lambda: pulse.beat(store))
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        await beating.stop()
