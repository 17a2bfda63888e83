"""OpenAI-compatible chat completions, spoken by a loopback server; the real libraries, no mocks."""

import json

import pytest

from refold.engine.models.protocol import (
    CallDelta,
    ModelError,
    ModelRequest,
    TextDelta,
)
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import FailureClass, Role, StopReason
from support.wire import (
    COUNTS,
    HELLO,
    LS,
    ON_THE_WIRE,
    SECRET,
    Server,
    ask,
    calling,
    chat,
    items,
    made,
    piece,
)

pytestmark = ON_THE_WIRE


async def test_chat_text(server: Server) -> None:
    """Text arrives in pieces and whole, with the model that answered, its id, usage and stop."""
    server.script = chat(
        piece({"role": "assistant", "content": "Good "}), piece({"content": "day"}, "stop"), COUNTS
    )
    deltas, reply = await ask(server)
    assert [TextDelta("Good "), TextDelta("day")] == deltas
    assert "Good day" == reply.text
    assert (StopReason.END_TURN, "stop") == (reply.stop, reply.stop_raw)
    assert Usage(input=1000, output=100, cache_read=600, reasoning=30) == reply.usage
    assert ("gpt-5-mini-2025-08-07", "chatcmpl-1") == (reply.model, reply.response_id)
    assert ("pydantic-ai", "", None) == (reply.adapter, reply.provider_data, reply.cost_nanousd)
    assert reply.adapter_version
    assert [f"Bearer {SECRET}"] == server.keys
    assert ["/v1/chat/completions"] == server.paths


async def test_chat_reasoning(server: Server) -> None:
    """Reasoning is kept apart from text, and goes back to the server that wrote it in its own field."""
    server.script = chat(
        piece({"reasoning_content": "Hm, "}),
        piece({"reasoning_content": "ls."}),
        piece({"content": "Yes"}, "stop"),
        COUNTS,
    )
    _, reply = await ask(server)
    assert ("Hm, ls.", "Yes") == (reply.reasoning, reply.text)
    again = Message(
        role=Role.ASSISTANT, text=reply.text, reasoning=reply.reasoning, provider_data=reply.provider_data
    )
    server.requests.clear()
    await ask(server, messages=(*HELLO, again, HELLO[1]))
    assert {"role": "assistant", "content": "Yes", "reasoning_content": "Hm, ls."} == server.requests[0][
        "messages"
    ][2]


async def test_chat_parallel_calls_in_pieces(server: Server) -> None:
    """Calls that arrive interleaved come out whole, in order, arguments byte for byte."""
    server.script = chat(
        piece(calling(0, id="call_a", type="function", name="ls", arguments="")),
        piece(calling(1, id="call_b", type="function", name="ls", arguments='{"p":')),
        piece(calling(0, arguments='{ "p" :  "a')),
        piece(calling(1, arguments=' "b"}')),
        piece(calling(0, arguments='\\u00e9" }')),
        piece({}, "tool_calls"),
        COUNTS,
    )
    deltas, reply = await ask(server)
    assert [("call_a", "ls", '{ "p" :  "a\\u00e9" }'), ("call_b", "ls", '{"p": "b"}')] == [
        (call.provider_id, call.name, call.arguments) for call in reply.calls
    ]
    assert CallDelta(1, "ls", '{"p":') == deltas[1]
    assert (StopReason.TOOL_USE, "tool_calls") == (reply.stop, reply.stop_raw)


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        '{"p": 1,}',
        "not json",
        "[1]",
        "null",
        '{"p": 1e999, "p": 2}',
        '{"p": "\U0001f600 é"}',
        " {} \n",
    ],
)
async def test_chat_arguments_survive(server: Server, arguments: str) -> None:
    """Arguments are the text that the model wrote, whether it is JSON or not, and can be sent back."""
    server.script = chat(
        piece(calling(0, id="c", type="function", name="ls", arguments=arguments)),
        piece({}, "tool_calls"),
        COUNTS,
    )
    _, reply = await ask(server)
    assert arguments == reply.calls[0].arguments
    server.requests.clear()
    call = MessageCall("c", "ls", arguments)
    result = Message(role=Role.TOOL, text="no", call="c", name="ls")
    await ask(server, messages=(*HELLO, Message(role=Role.ASSISTANT, calls=(call,)), result))
    sent = server.requests[0]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert isinstance(json.loads(sent), dict)


async def test_chat_call_without_id(server: Server) -> None:
    """A call that the server gave no id has an empty provider id, not one that the library made up."""
    server.script = chat(
        piece(calling(0, type="function", name="ls", arguments="{}")), piece({}, "stop"), COUNTS
    )
    _, reply = await ask(server)
    assert ("", StopReason.TOOL_USE, "stop") == (reply.calls[0].provider_id, reply.stop, reply.stop_raw)


@pytest.mark.parametrize(
    ("raw", "stop"),
    [
        ("stop", StopReason.END_TURN),
        ("length", StopReason.MAX_TOKENS),
        ("tool_calls", StopReason.TOOL_USE),
        ("function_call", StopReason.TOOL_USE),
        ("content_filter", StopReason.CONTENT_FILTER),
        ("guardrail_intervened", StopReason.OTHER),
    ],
)
async def test_chat_stops(server: Server, raw: str, stop: StopReason) -> None:
    """Each stop reason is one of ours, with the provider's own word beside it."""
    server.script = chat(piece({"content": "x"}), piece({}, raw), COUNTS)
    _, reply = await ask(server)
    assert (stop, raw) == (reply.stop, reply.stop_raw)


async def test_chat_refusal(server: Server) -> None:
    """A refusal is a content-filter stop, and its text is the answer's text."""
    server.script = chat(
        piece({"refusal": "I can't "}), piece({"refusal": "help."}), piece({}, "stop"), COUNTS
    )
    _, reply = await ask(server)
    assert (StopReason.CONTENT_FILTER, "refusal", "I can't help.") == (reply.stop, reply.stop_raw, reply.text)


@pytest.mark.parametrize(
    ("max_output", "stop"),
    [(None, StopReason.END_TURN), (100, StopReason.MAX_TOKENS), (101, StopReason.END_TURN)],
)
async def test_chat_without_stop_reason(server: Server, max_output: int | None, stop: StopReason) -> None:
    """Without a stop reason, but with its counts, an answer is whole and its stop inferred."""
    server.script = chat(piece({"content": "x"}), COUNTS)
    _, reply = await ask(server, max_output=max_output)
    assert (stop, "") == (reply.stop, reply.stop_raw)


async def test_chat_request(server: Server) -> None:
    """The request holds the messages in order, results with their ids, tools, settings and the output cap."""
    server.script = chat(piece({"content": "x"}, "stop"), COUNTS)
    calls = (MessageCall("t1.0", "ls", '{"p":"a"}'), MessageCall("t1_1", "ls", ""))
    messages = (
        *HELLO,
        Message(role=Role.ASSISTANT, text="Look:", calls=calls, provider_data='{"of":"another"}'),
        Message(role=Role.TOOL, text="A", call="t1.0", name="ls"),
        Message(role=Role.TOOL, text="", call="t1_1", name="ls"),
        Message(role=Role.SYSTEM, text="Hurry."),
        Message(role=Role.USER, text="And?"),
    )
    settings = {"temperature": "0.2", "seed": "7", "stop_sequences": '["X"]', "openai_user": '"me"'}
    await ask(server, messages=messages, settings=settings, max_output=64)
    sent = server.requests[0]
    first, second = sent["messages"][2]["tool_calls"]
    assert first["id"].startswith("call_")
    assert [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Look:", "tool_calls": [first, second]},
        {"role": "tool", "tool_call_id": first["id"], "content": "A"},
        {"role": "tool", "tool_call_id": "t1_1", "content": ""},
        {"role": "system", "content": "Hurry."},
        {"role": "user", "content": "And?"},
    ] == sent["messages"]
    assert ({"name": "ls", "arguments": "{}"}, "t1_1") == (second["function"], second["id"])
    assert {
        "type": "function",
        "function": {"name": "ls", "description": "List.", "parameters": json.loads(LS.schema)},
    } == sent["tools"][0]
    assert (0.2, 7, ["X"], "me", 64) == (
        sent["temperature"],
        sent["seed"],
        sent["stop"],
        sent["user"],
        sent["max_completion_tokens"],
    )
    assert {"include_usage": True} == sent["stream_options"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"temprature": "1"}, "unknown setting 'temprature'"),
        ({"anthropic_speed": '"fast"'}, "unknown setting"),
        ({"openai_conversation_id": '"auto"'}, "unknown setting"),
        ({"temperature": "warm"}, "'temperature': expected JSON"),
    ],
)
async def test_bad_settings(server: Server, settings: dict[str, str], told: str) -> None:
    """A setting that the vendor does not have, or that is no JSON, is refused by name and nothing is sent."""
    async with made(server) as model:
        with pytest.raises(ModelError, match=told) as caught:
            await items(model, ModelRequest(messages=HELLO, settings=settings))
    assert FailureClass.BAD_REQUEST is caught.value.failure
    assert [] == server.requests
