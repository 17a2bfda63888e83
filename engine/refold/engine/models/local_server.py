"""llama.cpp's own server, run inside this process and asked through its in-process calls.

Not over its loopback port: the calls stream the same JSON, let go of the interpreter lock, and need no HTTP
client. The port (chosen by the system) is locked with a random key, for it would answer anyone on the machine.

A request runs in a thread of its own, which hands the pieces over through a queue. It stops at the next
piece once the reader has stopped: at the next token, or while it still reads the prompt, after the next 256 tokens.
The thread never waits for an event loop, so a loop that ends cannot hang it.
"""

import importlib
import queue
import secrets
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import anyio.to_thread
import msgspec

from refold.engine.models.protocol import ModelError
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass

# Tokens of a prompt between two looks at whether anyone still listens; about a second on two cores.
BATCH: Final = 256

# What llama.cpp's server calls its errors, in our words.
_FAILURES: Final = {
    "exceed_context_size_error": FailureClass.CONTEXT_OVERFLOW,
    "invalid_request_error": FailureClass.BAD_REQUEST,
    "unavailable_error": FailureClass.OVERLOADED,
}


class Piece(msgspec.Struct, frozen=True):
    """What a piece of the server's stream says: text, the finish reason, usage, an error, the answer's id."""

    text: str = ""
    finish: str = ""
    usage: Usage | None = None
    failure: ModelError | None = None
    id: str = ""


class LocalAnswer:
    """One request on its way: a thread that puts chunks, and a reader that takes them."""

    def __init__(self, ask: "Callable[[LocalAnswer], None]") -> None:
        self._chunks: queue.SimpleQueue[Piece | Exception | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=ask, args=(self,), name="refold-local-model")

    def put(self, chunk: Piece | Exception | None) -> None:
        """Hand over a chunk, an exception, or None for the end."""
        self._chunks.put(chunk)

    async def next(self) -> Piece | None:
        """The next chunk, or None at the end. Raises `ModelError` for what went wrong in the thread."""
        found = await anyio.to_thread.run_sync(self._chunks.get, abandon_on_cancel=True)
        if isinstance(found, ModelError):
            raise found
        if isinstance(found, Exception):
            raise _translated(found) from found
        return found

    def stop(self) -> None:
        """Say that the reader has stopped."""
        self._stopped.set()

    @property
    def unwanted(self) -> bool:
        """The reader has stopped: the stream was closed, or the program is at its end."""
        return self._stopped.is_set() or not threading.main_thread().is_alive()


class LocalServer:
    """llama.cpp's server, started by the first request that needs it, and the requests that it works on."""

    def __init__(self, path: Path, context: int, threads: int) -> None:
        self._path, self._context, self._threads = path, context, threads
        self._lock = threading.Lock()
        self._server: Any = None
        self._answers: set[LocalAnswer] = set()

    def ask(self, body: dict[str, Any]) -> LocalAnswer:
        """Start a request; its chunks come from the answer."""
        answer = LocalAnswer(lambda answer: self._work(body, answer))
        self._answers.add(answer)
        answer.thread.start()
        return answer

    def close(self) -> None:
        """Stop every request and wait for it, then drop the server, whose end frees what it holds."""
        for answer in (waiting := list(self._answers)):
            answer.stop()
        for answer in waiting:
            answer.thread.join()
        with self._lock:
            self._server = None

    def _work(self, body: dict[str, Any], answer: LocalAnswer) -> None:
        try:
            server = self._started()
            if not answer.unwanted:
                server.handle_chat_completions(body, partial(_taken, answer))
            answer.put(None)
        except Exception as error:  # every failure of the native code goes to who waits for it
            answer.put(error)
        finally:
            self._answers.discard(answer)

    def _started(self) -> Any:
        with self._lock:
            if self._server is None:
                self._server = _server(self._path, self._context, self._threads)
            return self._server


def _server(path: Path, context: int, threads: int) -> Any:
    native: Any = importlib.import_module("xllamacpp")
    params = native.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_batch = params.n_ubatch = BATCH
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = 256
    params.prefill_assistant = False
    params.verbosity = -1  # below its errors: they come back to us as exceptions
    params.ui = params.endpoint_slots = False
    params.api_keys = [secrets.token_hex(32)]
    try:
        return native.Server(params)
    except RuntimeError as error:
        problem = f"llama.cpp cannot load {path} with a context of {context} tokens: is there memory for it?"
        raise ModelError(FailureClass.OTHER, problem) from error


def _taken(answer: LocalAnswer, chunk: Any) -> bool:
    """Hand a chunk of the server's stream over; True stops it. An exception here would be lost in native code."""
    try:
        answer.put(_chunk(chunk))
    except Exception as error:
        answer.put(error)
        return True
    return answer.unwanted


def _chunk(found: dict[str, Any]) -> Piece:
    if "error" in found:
        return Piece(failure=_failure(found["error"]))
    choices: list[dict[str, Any]] = found.get("choices") or [{}]
    choice = choices[0]
    delta: dict[str, Any] = choice.get("delta") or {}
    return Piece(
        text=delta.get("content") or "",
        finish=choice.get("finish_reason") or "",
        usage=_usage(found["usage"]) if found.get("usage") else None,
        id=found.get("id") or "",
    )


def _usage(found: dict[str, Any]) -> Usage:
    details = cast("dict[str, int]", found.get("prompt_tokens_details") or {})
    return Usage(
        input=found.get("prompt_tokens", 0),
        output=found.get("completion_tokens", 0),
        cache_read=details.get("cached_tokens", 0),
    )


def _failure(error: dict[str, Any]) -> ModelError:
    kind = _FAILURES.get(str(error.get("type")), FailureClass.OTHER)
    return ModelError(kind, str(error.get("message") or "no reason given"), status=error.get("code"))


def _translated(error: Exception) -> ModelError:
    # llama.cpp refuses a schema that it can make no grammar of with a ValueError that names the place.
    kind = FailureClass.BAD_REQUEST if isinstance(error, ValueError) else FailureClass.OTHER
    return ModelError(kind, f"llama.cpp: {error}")
