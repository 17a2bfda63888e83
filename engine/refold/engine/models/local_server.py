"""llama.cpp's server in this process, and a check of a GGUF file before the server reads it.

Requests do not use the server's loopback port: direct calls stream the same JSON, release the interpreter
lock, and need no HTTP client. The port (chosen by the system) is protected with a random key, because any
program on the machine could use it.

Each request runs in its own thread, which passes chunks through a queue. After the reader has stopped, it
ends at the next token, or after the next 256 tokens while it processes the prompt. The thread never waits for
an event loop, so it cannot hang when the loop ends.

For a bad file, llama.cpp reports only that loading failed, and its behaviour on malicious files is unknown.
So the header is checked here, with every count bounded by the size of the file. Source of the format: the
GGUF specification of the ggml project, versions 2 and 3 (little-endian; version 1 is obsolete).
"""

import importlib
import mmap
import queue
import secrets
import struct
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import anyio.to_thread
import msgspec

from refold.engine.models.protocol import ModelError
from refold.reducers.errors import WrongUse
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass
from refold.store.protocol import FileProblem

# Tokens of a prompt between two checks for a stopped reader; about a second on two cores.
BATCH: Final = 256

# Error types of llama.cpp's server and our failure classes.
_FAILURES: Final = {
    "exceed_context_size_error": FailureClass.CONTEXT_OVERFLOW,
    "invalid_request_error": FailureClass.BAD_REQUEST,
    "unavailable_error": FailureClass.OVERLOADED,
}


class Piece(msgspec.Struct, frozen=True):
    """A chunk of the server's stream: text, finish reason, usage, error, and the response's id."""

    text: str = ""
    finish: str = ""
    usage: Usage | None = None
    failure: ModelError | None = None
    id: str = ""


class LocalAnswer:
    """One running request: a thread that puts chunks, and a reader that takes them."""

    def __init__(self, ask: "Callable[[LocalAnswer], None]") -> None:
        self._chunks: queue.SimpleQueue[Piece | Exception | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=ask, args=(self,), name="refold-local-model")

    def put(self, chunk: Piece | Exception | None) -> None:
        """Pass on a chunk, an exception, or None for the end."""
        self._chunks.put(chunk)

    async def next(self) -> Piece | None:
        """Return the next chunk, or None at the end. Raises `ModelError` for an error in the thread."""
        found = await anyio.to_thread.run_sync(self._chunks.get, abandon_on_cancel=True)
        if isinstance(found, ModelError):
            raise found
        if isinstance(found, Exception):
            raise _convert_error(found) from found
        return found

    def stop(self) -> None:
        """Signal that the reader has stopped."""
        self._stopped.set()

    @property
    def unwanted(self) -> bool:
        """Whether the reader has stopped: the stream was closed, or the program is ending."""
        return self._stopped.is_set() or not threading.main_thread().is_alive()


class LocalServer:
    """llama.cpp's server, started by the first request, and its running requests."""

    def __init__(self, path: Path, context: int, threads: int) -> None:
        self._path, self._context, self._threads = path, context, threads
        self._lock = threading.Lock()
        self._server: Any = None
        self._answers: set[LocalAnswer] = set()

    def ask(self, body: dict[str, Any]) -> LocalAnswer:
        """Start a request. Read its chunks from the returned object."""
        answer = LocalAnswer(lambda answer: self._work(body, answer))
        self._answers.add(answer)
        answer.thread.start()
        return answer

    def close(self) -> None:
        """Stop every request and wait for it, then drop the server, which frees its memory."""
        for answer in (waiting := list(self._answers)):
            answer.stop()
        for answer in waiting:
            answer.thread.join()
        with self._lock:
            self._server = None

    def _work(self, body: dict[str, Any], answer: LocalAnswer) -> None:
        try:
            server = self._ensure_server()
            if not answer.unwanted:
                server.handle_chat_completions(body, partial(_pass_on, answer))
            answer.put(None)
        except Exception as error:  # every failure of the native code is passed to the reader
            answer.put(error)
        finally:
            self._answers.discard(answer)

    def _ensure_server(self) -> Any:
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
    params.verbosity = -1  # not even its errors: they are raised as exceptions
    params.ui = params.endpoint_slots = False
    params.api_keys = [secrets.token_hex(32)]
    try:
        return native.Server(params)
    except RuntimeError as error:
        problem = f"llama.cpp cannot load {path} with a context of {context} tokens: check the free memory"
        raise ModelError(FailureClass.OTHER, problem) from error


def _pass_on(answer: LocalAnswer, chunk: Any) -> bool:
    """Pass on a chunk of the server's stream; return True to stop the stream.

    It must not raise: native code would lose the exception.
    """
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


def _convert_error(error: Exception) -> ModelError:
    # llama.cpp raises a ValueError with the place for a schema that it cannot convert to a grammar.
    kind = FailureClass.BAD_REQUEST if isinstance(error, ValueError) else FailureClass.OTHER
    return ModelError(kind, f"llama.cpp: {error}")


MAGIC: Final = b"GGUF"
VERSIONS: Final = frozenset({2, 3})

# Metadata value types of fixed size, in bytes: u8 i8 u16 i16 u32 i32 f32 bool, u64 i64 f64.
_FIXED: Final = MappingProxyType({0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8})
_STRING: Final = 8
_ARRAY: Final = 9

# Tensor type: weights and bytes per block. Of an unlisted type, only the start of the data is checked.
_BLOCKS: Final = MappingProxyType({
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2),
})  # fmt: skip


class BadWeights(FileProblem, WrongUse):
    """A file that cannot be run as a GGUF model. `path` is the file, `problem` one sentence."""

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.problem}; give a complete GGUF file, or fetch one with `refold model fetch`"
        )


def check_weights(path: Path) -> None:
    """Raise `BadWeights` unless the file is a GGUF of a known version with the data of all its tensors."""
    try:
        if not path.is_file():
            raise BadWeights(
                str(path), "the file does not exist" if not path.exists() else "it is not a file"
            )
        with path.open("rb") as file:
            start = file.read(8)
            _check_start(path, start)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _Header(path, data).check()
    except OSError as error:
        raise BadWeights(str(path), f"it cannot be read ({error.strerror})") from error


def _check_start(path: Path, start: bytes) -> None:
    if start[:4] != MAGIC:
        raise BadWeights(str(path), f"it is not a GGUF file: it begins with {start[:4]!r}, not {MAGIC!r}")
    version = int.from_bytes(start[4:8], "little")
    if len(start) == 8 and version not in VERSIONS:
        raise BadWeights(str(path), f"it is GGUF version {version}; versions 2 and 3 are supported")


class _Header:
    """A cursor over the header. A read past the end raises the error for a truncated file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at = path, data, 8
        self.alignment = 32

    def check(self) -> None:
        tensors, pairs = self.number(8), self.number(8)
        for _ in range(self.plausible(pairs, 13)):
            self.pair()
        ends = [self.tensor() for _ in range(self.plausible(tensors, 24))]
        start = -(-self.at // self.alignment) * self.alignment
        if ends and start + max(ends) > len(self.data):
            raise self.cut(start + max(ends))

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def take(self, size: int) -> bytes:
        start = self.skip(size)
        return self.data[start : self.at]

    def skip(self, size: int) -> int:
        """Advance by `size` bytes without reading them; return the place before."""
        start = self.at
        if size > len(self.data) - start:
            raise self.cut(start + size)
        self.at = start + size
        return start

    def cut(self, needed: int) -> BadWeights:
        size = len(self.data)
        return BadWeights(
            str(self.path), f"it is truncated or damaged: it has {size} bytes and needs {needed}"
        )

    def plausible(self, count: int, size: int) -> int:
        """Return the count if the rest of the file can hold that many items of `size` bytes; else raise."""
        if count * size > len(self.data) - self.at:
            raise self.cut(self.at + count * size)
        return count

    def pair(self) -> None:
        key = self.take(self.number(8))
        kind = self.number(4)
        if key == b"general.alignment" and kind == 4:
            self.alignment = self.power(self.number(4))
        else:
            self.value(kind)

    def power(self, alignment: int) -> int:
        if alignment < 1 or alignment & (alignment - 1):
            raise self.broken(f"an alignment of {alignment}")
        return alignment

    def value(self, kind: int) -> None:
        if kind == _STRING:
            self.skip(self.number(8))
        elif kind == _ARRAY:
            self.array(self.number(4), self.number(8))
        elif kind in _FIXED:
            self.skip(_FIXED[kind])
        else:
            raise self.broken(f"a value of type {kind}")

    def array(self, kind: int, count: int) -> None:
        if kind == _STRING:
            for _ in range(self.plausible(count, 8)):
                self.skip(self.number(8))
        elif kind in _FIXED:
            self.skip(self.plausible(count, _FIXED[kind]) * _FIXED[kind])
        else:  # nested arrays: allowed by the format, used by no model
            raise self.broken(f"an array of type {kind}")

    def tensor(self) -> int:
        """Read a tensor's entry. Return the end of its data, in bytes from the start of all tensor data."""
        self.skip(self.number(8))
        rank = self.number(4)
        if rank > 4:
            raise self.broken(f"a tensor of {rank} dimensions")
        weights = 1
        for length in struct.unpack(f"<{rank}Q", self.take(8 * rank)):
            weights *= length
        kind, offset = self.number(4), self.number(8)
        block, size = _BLOCKS.get(kind, (1, 0))
        return offset + weights // block * size

    def broken(self, found: str) -> BadWeights:
        return BadWeights(
            str(self.path), f"it is damaged: {found} near byte {self.at} is not valid in a GGUF"
        )
