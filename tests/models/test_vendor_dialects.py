"""Anthropic's messages and OpenAI's responses, spoken by a loopback server."""

import json
from typing import Any

import pytest

from refold.engine.models.protocol import (
    TextDelta,
)
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role, StopReason
from support.wire import (
    HELLO,
    ON_THE_WIRE,
    Server,
    ask,
    closed,
    opened,
    said,
    sse,
    thought,
    used,
)

pytestmark = ON_THE_WIRE


async def test_anthropic_text(server: Server) -> None:
    """Anthropic's text, usage with cache reads and writes inside the input, and stop."""
    usage = {"cache_read_input_tokens": 200, "cache_creation_input_tokens": 30}
    server.script = sse(opened(**usage), {"type": "ping"}, *said(0, "Good ", "day"), *closed("end_turn"))
    deltas, reply = await ask(server, "anthropic:claude-test")
    assert [TextDelta("Good "), TextDelta("day")] == deltas
    assert Usage(input=240, output=50, cache_read=200, cache_write=30) == reply.usage
    assert ("claude-test-1", "msg_1", "") == (reply.model, reply.response_id, reply.provider_data)
    assert ["Be brief."] == [server.requests[0]["system"]]
    assert "/v1/messages" in server.paths[0]


@pytest.mark.parametrize(
    ("raw", "stop"),
    [
        ("end_turn", StopReason.END_TURN),
        ("max_tokens", StopReason.MAX_TOKENS),
        ("stop_sequence", StopReason.STOP_SEQUENCE),
        ("tool_use", StopReason.TOOL_USE),
        ("refusal", StopReason.CONTENT_FILTER),
        ("pause_turn", StopReason.OTHER),
        ("model_context_window_exceeded", StopReason.MAX_TOKENS),
        ("something_new", StopReason.OTHER),
    ],
)
async def test_anthropic_stops(server: Server, raw: str, stop: StopReason) -> None:
    """Each stop reason is one of ours, with the provider's own word beside it."""
    server.script = sse(opened(), *said(0, "x"), *closed(raw))
    _, reply = await ask(server, "anthropic:claude-test")
    assert (stop, raw) == (reply.stop, reply.stop_raw)


async def test_anthropic_signed_reasoning_goes_back(server: Server) -> None:
    """Signed reasoning, text and parallel calls go back as the blocks that they were, results in one turn."""
    name = "anthropic:claude-test"
    server.script = sse(
        opened(),
        *thought(0, "Two dirs.", "sig-1"),
        *said(1, "Looking."),
        *used(2, "toolu_1", '{"p"', ': "a"}'),
        *used(3, "toolu_2"),
        *closed("tool_use"),
    )
    _, reply = await ask(server, name)
    assert ("Two dirs.", "Looking.") == (reply.reasoning, reply.text)
    assert [("toolu_1", '{"p": "a"}'), ("toolu_2", "")] == [(c.provider_id, c.arguments) for c in reply.calls]
    assert "sig-1" in reply.provider_data
    assert "Two dirs." not in reply.provider_data
    calls = tuple(MessageCall(f"c{n}", call.name, call.arguments) for n, call in enumerate(reply.calls))
    again = Message(
        role=Role.ASSISTANT,
        text=reply.text,
        reasoning=reply.reasoning,
        calls=calls,
        provider_data=reply.provider_data,
    )
    results = [Message(role=Role.TOOL, text=f"r{n}", call=f"c{n}", name="ls") for n in range(2)]
    server.requests.clear()
    await ask(server, name, messages=(*HELLO, again, *results))
    _, assistant, user = server.requests[0]["messages"]
    assert ["thinking", "text", "tool_use", "tool_use"] == [part["type"] for part in assistant["content"]]
    assert ("Two dirs.", "sig-1") == (
        assistant["content"][0]["thinking"],
        assistant["content"][0]["signature"],
    )
    assert [("c0", {"p": "a"}), ("c1", {})] == [
        (part["id"], part["input"]) for part in assistant["content"][2:]
    ]
    assert ["c0", "c1"] == [part["tool_use_id"] for part in user["content"]]


@pytest.mark.parametrize(
    "change",
    [
        {"reasoning": "Three dirs."},
        {"text": "Else."},
        {"provider_data": "{}"},
        {"provider_data": "junk"},
        {"calls": ()},
    ],
    ids=str,
)
async def test_signatures_of_changed_reasoning_stay_home(server: Server, change: dict[str, Any]) -> None:
    """What is no longer what the model wrote goes back without the signature, which would be refused."""
    name = "anthropic:claude-test"
    server.script = sse(
        opened(), *thought(0, "Two dirs.", "sig"), *said(1, "So."), *used(2, "t"), *closed("tool_use")
    )
    _, reply = await ask(server, name)
    fields: dict[str, Any] = {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "provider_data": reply.provider_data,
    }
    fields |= {"calls": (MessageCall("c", "ls", ""),), **change}
    server.requests.clear()
    result = Message(role=Role.TOOL, text="r", call="c", name="ls")
    await ask(server, name, messages=(*HELLO, Message(role=Role.ASSISTANT, **fields), result))
    assert "thinking" not in json.dumps(server.requests[0]["messages"])
    assert fields["text"] == server.requests[0]["messages"][1]["content"][0]["text"]


async def test_anthropic_late_system_message(server: Server) -> None:
    """A system message in mid-conversation stays in its place, whoever must be said to speak it."""
    server.script = sse(opened(), *said(0, "x"), *closed("end_turn"))
    late = (Message(role=Role.ASSISTANT, text="Hi"), Message(role=Role.SYSTEM, text="Hurry."))
    await ask(server, "anthropic:claude-test", messages=(*HELLO, *late))
    sent = server.requests[0]
    assert "Be brief." == sent["system"]
    assert ["user", "assistant", "user"] == [message["role"] for message in sent["messages"]]
    assert "Hurry." == sent["messages"][2]["content"][0]["text"]


async def test_responses_reasoning(server: Server) -> None:
    """OpenAI's responses API gives text, reasoning that goes back encrypted, a call, usage and stop."""
    reasoning = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "enc",
    }
    call = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": "ls",
        "arguments": '{ "p": "a" }',
        "status": "completed",
    }
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5-mini-2025-08-07",
        "status": "completed",
    }
    response |= {"output": [reasoning, call], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    usage: dict[str, Any] = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4},
    }
    usage |= {"output_tokens_details": {"reasoning_tokens": 3}}
    started = {**response, "status": "in_progress", "output": []}
    args = {"item_id": "fc_1", "output_index": 1}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": started},
        {"type": "response.output_item.added", "output_index": 0, "item": {**reasoning, "summary": []}},
        {
            "type": "response.reasoning_summary_part.added",
            "item_id": "rs_1",
            "output_index": 0,
            "summary_index": 0,
            "part": {"type": "summary_text", "text": ""},
        },
        {
            "type": "response.reasoning_summary_text.delta",
            "item_id": "rs_1",
            "output_index": 0,
            "summary_index": 0,
            "delta": "Hm.",
        },
        {"type": "response.output_item.done", "output_index": 0, "item": reasoning},
        {"type": "response.output_item.added", "output_index": 1, "item": {**call, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", **args, "delta": '{ "p": "a" }'},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.completed", "response": {**response, "usage": usage}},
    ]
    server.script = sse(*({**event, "sequence_number": n} for n, event in enumerate(events)))
    _, reply = await ask(server, "openai-responses:gpt-5-mini")
    assert ("Hm.", '{ "p": "a" }', "call_1") == (
        reply.reasoning,
        reply.calls[0].arguments,
        reply.calls[0].provider_id,
    )
    assert Usage(input=10, output=5, cache_read=4, reasoning=3) == reply.usage
    assert (StopReason.TOOL_USE, "completed") == (reply.stop, reply.stop_raw)
    again = Message(
        role=Role.ASSISTANT,
        reasoning=reply.reasoning,
        calls=(MessageCall("c0", "ls", '{"p":"a"}'),),
        provider_data=reply.provider_data,
    )
    server.requests.clear()
    await ask(
        server,
        "openai-responses:gpt-5-mini",
        messages=(*HELLO, again, Message(role=Role.TOOL, text="r", call="c0", name="ls")),
    )
    assert "enc" in [item.get("encrypted_content") for item in server.requests[0]["input"]]
    assert ["/v1/responses"] * 2 == server.paths
