"""What goes wrong on the way to a model: each failure has its class, and nothing is lost or leaked."""

import json
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from refold.engine.models.protocol import (
    ModelError,
    ModelRequest,
    Reply,
    TextDelta,
)
from refold.engine.models.pydantic_ai import PydanticAIModel
from refold.engine.models.vendor_failures import LONGEST_WAIT, Circumstances, exposes, retry_after, translate
from refold.reducers.vocabulary import FailureClass
from support.wire import (
    COUNTS,
    HELLO,
    ON_THE_WIRE,
    SECOND,
    SECRET,
    Answering,
    Server,
    Wire,
    ask,
    chat,
    done,
    half_response,
    items,
    made,
    opened,
    piece,
    refused,
    said,
    sse,
    status,
)

pytestmark = ON_THE_WIRE


CHAT_ERROR = {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}


@pytest.mark.parametrize("name", ["openai:test", "openai-responses:test", "anthropic:claude-test"])
@pytest.mark.parametrize(
    ("script", "failure", "code", "wait"),
    [
        pytest.param(
            status(429, CHAT_ERROR, retry_after="7"), FailureClass.RATE_LIMIT, 429, 7 * SECOND, id="429"
        ),
        pytest.param(
            status(429, CHAT_ERROR, retry_after="7", retry_after_ms="1250.5"),
            FailureClass.RATE_LIMIT,
            429,
            1_250_500_000,
            id="milliseconds are more exact",
        ),
        pytest.param(status(500, "oops"), FailureClass.OVERLOADED, 500, None, id="500"),
        pytest.param(
            status(529, {"error": {"type": "overloaded_error", "message": "Overloaded"}}),
            FailureClass.OVERLOADED,
            529,
            None,
            id="529",
        ),
        pytest.param(status(413, "{}"), FailureClass.CONTEXT_OVERFLOW, 413, None, id="413"),
        pytest.param(status(404, CHAT_ERROR), FailureClass.BAD_REQUEST, 404, None, id="404"),
        pytest.param(status(408, ""), FailureClass.TIMEOUT, 408, None, id="408"),
        pytest.param(
            status(
                400,
                {
                    "error": {
                        "message": "This model's maximum context length is 8192 tokens",
                        "code": "context_length_exceeded",
                    }
                },
            ),
            FailureClass.CONTEXT_OVERFLOW,
            400,
            None,
            id="400 for a full context",
        ),
        pytest.param(
            status(
                400,
                {
                    "type": "error",
                    "error": {"type": "invalid_request_error", "message": "prompt is too long: 2 > 1"},
                },
            ),
            FailureClass.CONTEXT_OVERFLOW,
            400,
            None,
            id="400 for a long prompt",
        ),
    ],
)
async def test_status(
    server: Server, name: str, script: Answering, failure: FailureClass, code: int, wait: int | None
) -> None:
    """A status is one failure of its class, with its wait, and is not tried again behind our back."""
    server.script = script
    failed = await refused(server, name)
    assert (failure, code, wait, "") == (
        failed.failure,
        failed.status,
        failed.retry_after,
        failed.partial_text,
    )


@pytest.mark.parametrize("code", [401, 403])
async def test_auth_names_the_variable_and_hides_the_key(server: Server, code: int) -> None:
    """A refused key is class `auth`, says which variable to check, and never shows the key that was
    echoed.
    """
    server.script = status(code, {"error": {"message": f"Incorrect API key provided: {SECRET}."}})
    failed = await refused(server)
    assert (FailureClass.AUTH, code) == (failed.failure, failed.status)
    assert "REFOLD_API_KEY" in failed.message
    assert "Incorrect API key provided: [key]." in failed.message


@pytest.mark.parametrize("name", ["openai:test", "openai-responses:test", "anthropic:claude-test"])
async def test_connection_that_never_answers(server: Server, name: str) -> None:
    """A connection that is dropped before an answer is a network failure."""
    server.script = Wire.reset
    assert FailureClass.NETWORK is (await refused(server, name)).failure


async def test_nobody_listens() -> None:
    """A refused connection is a network failure."""
    model = PydanticAIModel("openai:test", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ModelError) as caught:
        await items(model, ModelRequest(messages=HELLO))
    assert FailureClass.NETWORK is caught.value.failure
    await model.aclose()


@pytest.mark.parametrize("name", ["openai:test", "anthropic:claude-test"])
async def test_silence_is_a_timeout(server: Server, name: str) -> None:
    """A server that says nothing within the timeout is a timeout, whoever set it."""
    server.script = Wire.hang
    assert FailureClass.TIMEOUT is (await refused(server, name, timeout=0.1)).failure
    # Here the time to connect is limited, too, and a busy machine needs some.
    model = PydanticAIModel(name, base_url=server.address, api_key=SECRET, timeout=0.5)
    with pytest.raises(ModelError) as caught:
        await items(model, ModelRequest(messages=HELLO))
    assert FailureClass.TIMEOUT is caught.value.failure
    assert "silent for 0.5 s (--timeout" in caught.value.message
    assert server.address.removesuffix("/v1") in caught.value.message
    await model.aclose()
    await model.aclose()


BREAKS: list[Any] = [
    pytest.param(
        "openai:test",
        sse(piece({"content": "Half an "}), piece({"content": "ans"}), then=Wire.reset),
        id="chat, reset",
    ),
    pytest.param("openai:test", sse(piece({"content": "Half an ans"})), id="chat, closed politely"),
    pytest.param(
        "openai:test",
        sse(piece({"content": "Half an ans"}), then=lambda w: w.chunk("data: {broken\n\n")),
        id="chat, garbage",
    ),
    pytest.param(
        "anthropic:claude-test",
        sse(opened(), *said(0, "Half an ", "ans")[:-1], then=Wire.reset),
        id="anthropic, reset",
    ),
    pytest.param(
        "anthropic:claude-test", sse(opened(), *said(0, "Half an ans")), id="anthropic, closed politely"
    ),
    pytest.param("openai-responses:test", sse(*half_response()), id="responses, closed politely"),
    pytest.param("openai-responses:test", sse(*half_response(), then=Wire.reset), id="responses, reset"),
]


@pytest.mark.parametrize(("name", "script"), BREAKS)
async def test_broken_stream(server: Server, name: str, script: Answering) -> None:
    """A stream that ends in the middle, however it does, is broken, and what had arrived is kept."""
    server.script = script
    failed = await refused(server, name)
    assert (FailureClass.STREAM_BROKEN, "Half an ans") == (failed.failure, failed.partial_text)


async def test_stalled_stream(server: Server) -> None:
    """A stream that falls silent in the middle is broken, and what had arrived is kept."""
    server.script = sse(piece({"content": "Half an ans"}), then=Wire.hang)
    failed = await refused(server, timeout=1.0)
    assert (FailureClass.STREAM_BROKEN, "Half an ans") == (failed.failure, failed.partial_text)


@pytest.mark.parametrize("script", [sse(), sse(then=done), status(200, "<html>", content_type="text/html")])
async def test_empty_stream(server: Server, script: Answering) -> None:
    """A 200 without an answer is a broken stream with nothing in it."""
    server.script = script
    failed = await refused(server)
    assert (FailureClass.STREAM_BROKEN, "") == (failed.failure, failed.partial_text)


@pytest.mark.parametrize(
    ("name", "script", "failure"),
    [
        (
            "openai:test",
            sse(piece({"content": "Half"}), {"error": {"message": "busy", "code": "overloaded"}}),
            FailureClass.OVERLOADED,
        ),
        (
            "openai:test",
            sse(piece({"content": "Half"}), {"error": {"message": "too many tokens"}}),
            FailureClass.CONTEXT_OVERFLOW,
        ),
        (
            "anthropic:claude-test",
            sse(
                opened(),
                *said(0, "Half"),
                {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            ),
            FailureClass.OVERLOADED,
        ),
    ],
)
async def test_error_inside_a_stream(
    server: Server, name: str, script: Answering, failure: FailureClass
) -> None:
    """An error that the provider reports in mid-stream has the class of its words, and keeps the partial
    text.
    """
    server.script = script
    failed = await refused(server, name)
    assert (failure, "Half") == (failed.failure, failed.partial_text)


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"index": 0}]},
        {"choices": "x"},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": 5}]}}]},
        {"usage": {"prompt_tokens": "many"}, "choices": []},
        {"choices": [{"index": 0, "delta": {"content": {"a": 1}}}]},
        [],
        7,
    ],
    ids=str,
)
async def test_hostile_events(server: Server, event: Any) -> None:
    """Whatever a server sends, a stream ends with a reply or a `ModelError`, nothing else."""

    def say_it(wire: Wire) -> None:
        wire.chunk(f"data: {json.dumps(event)}\n\n")
        done(wire)

    server.script = sse(then=say_it)
    async with made(server) as model:
        try:
            *_, last = await items(model, ModelRequest(messages=HELLO))
        except ModelError:
            return
    assert isinstance(last, Reply)


async def test_lone_surrogates_are_cleaned(server: Server) -> None:
    """Text that no log could hold is cleaned before anybody sees it."""
    server.script = chat(piece({"content": "a\ud800b"}, "stop"), COUNTS)
    deltas, reply = await ask(server)
    assert ("a\ufffdb", [TextDelta("a\ufffdb")]) == (reply.text, deltas)


@pytest.mark.parametrize("name", ["openai:test", "anthropic:claude-test"])
@pytest.mark.parametrize("before", [True, False], ids=["before a byte", "in mid-stream"])
async def test_cancelling_hangs_up(server: Server, name: str, before: bool) -> None:
    """A cancelled request lets the cancellation through and closes the connection."""
    first = [opened(), *said(0, "x")[:-1]] if name.startswith("anthropic") else [piece({"content": "x"})]
    server.script = Wire.hang if before else sse(*first, then=Wire.hang)
    async with made(server, name) as model:
        with anyio.move_on_after(0.2) as scope:
            await items(model, ModelRequest(messages=HELLO))
        assert scope.cancelled_caught
        assert await anyio.to_thread.run_sync(server.gone.wait, 5)


async def test_closing_hangs_up(server: Server) -> None:
    """A stream that its reader closes half-way closes the connection."""
    server.script = sse(piece({"content": "x"}), then=Wire.hang)
    async with made(server) as model:
        stream = model.stream(ModelRequest(messages=HELLO))
        assert TextDelta("x") == await anext(stream)
        await stream.aclose()
        assert await anyio.to_thread.run_sync(server.gone.wait, 5)


# What the libraries raise, without a server

NOW = 1_700_000_000 * SECOND  # Tue, 14 Nov 2023 22:13:20 GMT
AROUND = Circumstances(opened=False, partial="", key="SOME_KEY", secret="", address="", now=NOW)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "2"}, 2 * SECOND),
        ({"retry-after": " 1.5 "}, 1_500_000_000),
        ({"retry-after-ms": "1"}, 1_000_000),
        ({"retry-after-ms": "0.1", "retry-after": "9"}, 100_000),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9 * SECOND),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:30 GMT"}, 10 * SECOND),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:10 GMT"}, 0),
        ({"retry-after": "Tue, 14 Nov 99999 22:13:10 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "NaN"}, None),
        ({"retry-after": "Infinity"}, None),
        ({"retry-after": "1e400"}, LONGEST_WAIT),
        ({"retry-after": "1e-400"}, 0),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, LONGEST_WAIT),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
    ],
    ids=str,
)
def test_retry_after(headers: dict[str, str], wait: int | None) -> None:
    """A wait is read from seconds, milliseconds or a date; what cannot be meant is no wait, or the
    longest.
    """
    assert wait == retry_after(headers, NOW)


@given(value=st.text(), now=st.integers(0, 2**63 - 1))
def test_retry_after_is_total(value: str, now: int) -> None:
    """Whatever a header says, the wait is none or one that a log can hold."""
    wait = retry_after({"retry-after": value, "retry-after-ms": value}, now)
    assert wait is None or 0 <= wait <= LONGEST_WAIT


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (TimeoutError("x"), FailureClass.TIMEOUT),
        (ConnectionResetError("x"), FailureClass.NETWORK),
        (json.JSONDecodeError("x", "", 0), FailureClass.STREAM_BROKEN),
        (RuntimeError("too many requests"), FailureClass.RATE_LIMIT),
        (RuntimeError("surprise"), FailureClass.OTHER),
        (RuntimeError(), FailureClass.OTHER),
    ],
    ids=repr,
)
def test_exceptions(error: Exception, failure: FailureClass) -> None:
    """An exception without a status has the class of its kind, else of its words; later it is a broken
    stream.
    """
    failed = translate(error, AROUND)
    assert failure is failed.failure
    assert failed.message
    later = translate(error, structs.replace(AROUND, opened=True, partial="Half"))
    assert (FailureClass.STREAM_BROKEN, "Half") == (later.failure, later.partial_text)


def test_long_messages_are_cut() -> None:
    """A page of HTML in place of an error does not fill the log."""
    assert 2_000 == len(translate(RuntimeError("x" * 1_000_000), AROUND).message)


def test_a_key_in_a_cause_is_noticed() -> None:
    """A secret anywhere along an exception's causes is found, also where they run in a circle."""
    inner, outer = ValueError(f"key {SECRET}"), RuntimeError("no")
    outer.__cause__, inner.__cause__ = inner, outer
    assert exposes(outer, SECRET)
    assert not exposes(outer, "other")
    assert not exposes(outer, "")
