"""The embedded model: a GGUF file run in this process.

The sampler is constrained to the JSON shapes of `local_dialect`, with white space where JSON allows it, and
the finished JSON is translated to ordinary calls and text. A call's arguments are passed on byte for byte.
"""

import importlib.util
import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import anyio.to_thread
import msgspec

from refold.engine.models import local_server, weights
from refold.engine.models.local_dialect import answer_schema, offered_tools, transcript
from refold.engine.models.local_server import LocalServer, Piece
from refold.engine.models.protocol import (
    CallDelta,
    Delta,
    ModelError,
    ModelRequest,
    ModelUnavailable,
    Reply,
    TextDelta,
)
from refold.reducers.errors import WrongUse
from refold.reducers.messages import ReplyCall, Usage
from refold.reducers.vocabulary import FailureClass, StopReason

_ANSWER: Final = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_TOOL: Final = re.compile(r'\s*\{\s*"tool"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
# Complete units of a JSON string: plain characters, escapes, and surrogate pairs. A high surrogate is
# complete only with the next unit.
_WHOLE: Final = re.compile(
    r'(?:[^"\\]|\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?!\\|\Z)|(?=\\[^u]))'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*"
)


class AnswerReader:
    """Incremental reader of a response; `feed` returns the deltas that each piece completes.

    `text` is the response's text so far. `tool` and `arguments` are the call's, or None and "" until a call
    is recognised. `closed`: the text or the call is complete.
    """

    def __init__(self) -> None:
        self.tool: str | None = None
        self.closed = False
        self._head: str | None = ""  # text before the shape was recognised; then None
        self._rest = ""  # raw characters of a text that are not complete units yet
        self._pieces: list[str] = []
        self._depth, self._quoted, self._escaped = 0, False, False

    @property
    def text(self) -> str:
        """The text of the response so far."""
        return "" if self.tool is not None else "".join(self._pieces)

    @property
    def arguments(self) -> str:
        """The arguments of the call so far, byte for byte."""
        return "" if self.tool is None else "".join(self._pieces)

    def feed(self, piece: str) -> list[Delta]:
        """Read the next piece. Never raises: text that fits no shape yields nothing."""
        if self._head is not None:
            return self._begin(self._head + piece)
        return self._more(piece)

    def _begin(self, head: str) -> list[Delta]:
        if found := _ANSWER.match(head):
            self._head = None
            return self._more(head[found.end() :])
        if found := _TOOL.match(head):
            self._head = None
            self.tool = _unquote(found[1])
            return [CallDelta(0, name=self.tool), *self._more(head[found.end() :])]
        self._head = head
        return []

    def _more(self, piece: str) -> list[Delta]:
        if self.closed:
            return []
        new = self._text(piece) if self.tool is None else self._raw(piece)
        if not new:
            return []
        self._pieces.append(new)
        return [TextDelta(new) if self.tool is None else CallDelta(0, arguments=new)]

    def _text(self, piece: str) -> str:
        raw = self._rest + piece
        whole = _WHOLE.match(raw)
        end = whole.end() if whole else 0
        self._rest = raw[end:]
        self.closed = self._rest.startswith('"')
        return _unquote(f'"{raw[:end]}"')

    def _raw(self, piece: str) -> str:
        for position, char in enumerate(piece):
            if self._closes(char):
                self.closed = True
                return piece[: position + 1]
        return piece

    def _closes(self, char: str) -> bool:
        """Advance over one character of the arguments; return whether it ends them."""
        if self._quoted:
            self._quoted = self._escaped or char != '"'
            self._escaped = char == "\\" and not self._escaped
        elif char == '"':
            self._quoted = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            return self._depth <= 0
        return False


def _unquote(literal: str) -> str:
    """Decode a JSON string literal; control characters that strict JSON forbids are accepted."""
    try:
        return msgspec.json.decode(literal, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return _decode_leniently(literal)


def _decode_leniently(literal: str) -> str:
    """Decode what msgspec refuses: raw control characters, and lone surrogates, which become U+FFFD."""
    try:
        text = str(json.loads(literal, strict=False))
    except ValueError:
        text = literal[1:-1]
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


ADAPTER: Final = "local"
DEFAULT_CONTEXT: Final = 8192
# The maximum of output tokens if a request names none: a small model may ramble until its context is full.
DEFAULT_OUTPUT: Final = 512


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sampling settings of a local model. The defaults are deterministic."""

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] = 0
    stop: str | list[str] = []
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = DEFAULT_OUTPUT


class LocalModel:
    """A GGUF model in this process: a known name (`smollm2-135m`) or the path of a file.

    `context` is the tokens that prompt and response share; `threads` the processor cores to use, by default
    all but one. `optional_arguments` offers the tools' optional arguments too, for models that use them
    sensibly. The file is checked here, and loaded (about a second) at the first request. Requests to one
    model run one after the other, so that they do not change each other's results. Raises `WrongUse` if the
    extra is missing, the name is unknown, the weights are not fetched, or the file is not a complete GGUF.
    """

    def __init__(
        self,
        path_or_name: str | Path,
        *,
        context: int = DEFAULT_CONTEXT,
        threads: int | None = None,
        optional_arguments: bool = False,
    ) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise weights.missing_extra("xllamacpp")
        for what, number in (("context", context), ("threads", threads)):
            if number is not None and number < 1:
                raise WrongUse(f"{what}: expected at least 1, got {number}")
        self._path = _locate(path_or_name)
        local_server.check_weights(self._path)
        self.name, self.priced, self.context = f"{ADAPTER}:{path_or_name}", True, context
        self._optional = optional_arguments
        self._server = LocalServer(self._path, context, threads or _cores())

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        """See `Model.stream`. Generation stops soon after the stream is closed or cancelled."""
        body = _body(request, optional=self._optional)
        reading = _Accumulator(self._path.stem, constrained="response_format" in body)
        answer = self._server.ask(body)
        try:
            while (found := await answer.next()) is not None:
                for delta in reading.take(found):
                    yield delta
        finally:
            answer.stop()
        yield reading.reply()

    async def aclose(self) -> None:
        """Stop running requests and free the model's memory. A later request loads it again."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._server.close)


class _Accumulator:
    """Accumulator of one response's chunks."""

    def __init__(self, model: str, *, constrained: bool) -> None:
        self._model = model
        self._reader = AnswerReader() if constrained else None
        self._texts: list[str] = []
        self._finish, self._id = "", ""
        self._usage: Usage | None = None

    def take(self, chunk: Piece) -> list[Delta]:
        """Return the deltas of a chunk. Raises the chunk's `ModelError`, with the text so far."""
        if chunk.failure is not None:
            chunk.failure.partial_text = self._text()
            raise chunk.failure
        self._finish, self._id = chunk.finish or self._finish, chunk.id or self._id
        self._usage = chunk.usage or self._usage
        if not chunk.text:
            return []
        if self._reader is not None:
            return self._reader.feed(chunk.text)
        self._texts.append(chunk.text)
        return [TextDelta(chunk.text)]

    def reply(self) -> Reply:
        """Return the complete response. Raises `ModelError` if the stream ended without a finish reason."""
        if not self._finish:
            problem = "the stream ended without a finish reason"
            raise ModelError(FailureClass.STREAM_BROKEN, problem, partial_text=self._text())
        return Reply(
            text=self._text(),
            calls=self._calls(),
            stop=self._stop(),
            stop_raw=self._finish,
            usage=self._usage,
            cost_nanousd=0,
            model=self._model,
            adapter=ADAPTER,
            adapter_version=_version(),
            response_id=self._id,
        )

    def _text(self) -> str:
        return "".join(self._texts) if self._reader is None else self._reader.text

    def _calls(self) -> tuple[ReplyCall, ...]:
        if self._reader is None or self._reader.tool is None:
            return ()
        return (ReplyCall(provider_id="call_0", name=self._reader.tool, arguments=self._reader.arguments),)

    def _stop(self) -> StopReason:
        """Return the stop reason. Only a stop sequence can end a constrained response before its JSON."""
        if self._finish == "length":
            return StopReason.MAX_TOKENS
        if self._finish != "stop":
            return StopReason.OTHER
        if self._reader is None:
            return StopReason.END_TURN
        if not self._reader.closed:
            return StopReason.STOP_SEQUENCE
        return StopReason.END_TURN if self._reader.tool is None else StopReason.TOOL_USE


def _body(request: ModelRequest, *, optional: bool) -> dict[str, Any]:
    """Return the request for llama.cpp's server. Raises `ModelError` for unsupported settings or tools."""
    settings = _settings(request.settings)
    most = settings.max_tokens if request.max_output is None else request.max_output
    return {
        **_prompt(request, optional=optional),
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "stop": settings.stop,
        "max_tokens": max(1, min(most, settings.max_tokens)),  # below 1 means no limit to llama.cpp
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "cache_prompt": True,
    }


def _prompt(request: ModelRequest, *, optional: bool) -> dict[str, Any]:
    """Return the messages and, with tools, the format that constrains the response."""
    try:
        tools = offered_tools(request.messages, request.tools)
        if not tools:
            return {"messages": transcript(request.messages)}
        messages = transcript(request.messages, request.tools, optional=optional)
        schema = answer_schema(request.messages, tools, optional=optional)
    except msgspec.MsgspecError as error:
        raise ModelError(
            FailureClass.BAD_REQUEST, f"a tool's schema is not a JSON object: {error}"
        ) from error
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return {"messages": messages, "response_format": form}


def _settings(texts: dict[str, str]) -> Settings:
    try:
        return msgspec.convert({name: msgspec.json.decode(text) for name, text in texts.items()}, Settings)
    except msgspec.MsgspecError as error:
        names = ", ".join(Settings.__struct_fields__)
        problem = f"invalid setting of the local model: {error}; known settings, with JSON values: {names}"
        raise ModelError(FailureClass.BAD_REQUEST, problem) from error


def _locate(path_or_name: str | Path) -> Path:
    """Return the path of a known model or of a file."""
    asked = Path(path_or_name).expanduser()
    if str(path_or_name) not in weights.KNOWN:
        if asked.suffix == ".gguf" or asked.exists():
            return asked
        weights.known(str(path_or_name))  # raises an error that lists the known names
    path = weights.path_of(str(path_or_name))
    if not path.exists():
        raise ModelUnavailable(
            f"the model {path_or_name} is not on this machine: fetch it with `refold model fetch`"
        )
    return path


def _cores() -> int:
    """Return the number of processor cores to use: all that this process may use, minus one.

    llama.cpp's threads wait for each other by spinning. With one core fewer than threads, they fall from 60
    to 4 tokens per second, and the event loop, the store and other programs need a core.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return max(1, (len(affinity(0)) if affinity else os.cpu_count() or 1) - 1)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError):
        return version("xllamacpp")
    return ""
