"""A TCP proxy between a store and a PostgreSQL server, which loses statements and responses.

It knows where a statement ends, so a fault hits one statement. It runs in a thread of its own, for tests on
any event loop.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_ENDS = b"SQ"  # Sync and Query: the messages of a client that end a statement
_READY = b"Z"  # the message of a server that ends a response


class Fault(StrEnum):
    """What happens to one statement."""

    NONE = "its response returns"
    UNSENT = "the connection is lost before the statement arrives"
    SENT = "the connection is lost when the statement has arrived"
    DONE = "the connection is lost when the statement was executed"
    STALLED = "the statement is executed, and no response returns"
    LATE = "the connection is lost, and the statement arrives later"


class Proxy:
    """Listens on a loopback port while used as a context manager; `address` is that of a store behind it.

    `choose` returns what happens to the next statement; called in the proxy's thread. `count` counts faults.
    """

    def __init__(self, address: str, choose: Callable[[], Fault], late: float = 0.02) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        self._parts, self._server = parts, (parts.hostname, parts.port or 5432)
        self._choose, self._late = choose, late
        self.count = dict.fromkeys(Fault, 0)
        self.arrived = threading.Event()
        """Set when a late statement has arrived and was executed."""
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._sessions: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._run()])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        user = f"{self._parts.username}@" if self._parts.username else ""
        plain = "sslmode=disable&gssencmode=disable"  # so that the proxy can read along
        query = f"{self._parts.query}&{plain}" if self._parts.query else plain
        self.address = urlunsplit(self._parts._replace(netloc=f"{user}127.0.0.1:{port}", query=query))
        self._ready.set()
        await self._stop.wait()
        listening.close()
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sessions.add(task)
        task.add_done_callback(self._sessions.discard)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._serve(reader, writer)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(*self._server)
        try:
            length = await client.readexactly(4)
            to_server.write(length + await client.readexactly(int.from_bytes(length) - 4))
            await _respond(server, to_client)
            while True:
                statement = await _read_statement(client)
                if not statement:
                    return
                fault = self._choose()
                self.count[fault] += 1
                if fault is Fault.UNSENT:
                    return
                if fault is Fault.LATE:
                    to_client.close()
                    await asyncio.sleep(self._late)
                to_server.write(statement)
                await to_server.drain()
                if fault is Fault.SENT:
                    return
                await _respond(server, to_client if fault is Fault.NONE else None)
                if fault is Fault.LATE:
                    self.arrived.set()
                if fault is Fault.STALLED:
                    await client.read()  # until the client gives up
                if fault is not Fault.NONE:
                    return
        finally:
            to_client.close()
            to_server.close()


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return a message's type, and the message."""
    start = await reader.readexactly(5)
    return start[:1], start + await reader.readexactly(int.from_bytes(start[1:]) - 4)


async def _read_statement(client: asyncio.StreamReader) -> bytes:
    """Return the messages of the next statement; b"" if the client says that it ends the session."""
    messages = b""
    while True:
        kind, message = await _read_message(client)
        if kind == b"X":
            return b""
        messages += message
        if kind in _ENDS:
            return messages


async def _respond(server: asyncio.StreamReader, to_client: asyncio.StreamWriter | None) -> None:
    """Forward a response until the server is ready for the next statement."""
    while True:
        kind, message = await _read_message(server)
        if to_client is not None:
            to_client.write(message)
        if kind == _READY:
            if to_client is not None:
                await to_client.drain()
            return
