"""Servers that do not stream: one JSON document in place of events."""

import json
from typing import Any

import pytest

from refold.engine import Agent, tool
from refold.engine.models.protocol import ModelError, ModelRequest, Reply
from refold.engine.models.pydantic_ai import PydanticAIModel
from refold.engine.models.vendor_failures import as_stream
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass, StopReason
from support.wire import HELLO, ON_THE_WIRE, SECRET, Server, Wire, items, status

pytestmark = ON_THE_WIRE


def completion(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    """A chat completion, as servers send it that were not asked to stream."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "gpt-test",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    """A message with two calls of one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "content": None,
        "tool_calls": [{"id": f"call_{n}", "type": "function", "function": function} for n in (1, 2)],
    }


async def asked(server: Server, name: str = "openai:test") -> list[Any]:
    """All that came of one request, over a client of the adapter's own."""
    path = "" if name.startswith("anthropic") else "/v1"
    model = PydanticAIModel(name, base_url=server.address + path, api_key=SECRET)
    try:
        return await items(model, ModelRequest(messages=HELLO))
    finally:
        await model.aclose()


async def test_a_text_is_read(server: Server) -> None:
    """Text, tokens and the reason of the end are those of the document, after one request."""
    server.script = status(
        200, completion({"content": "Hello there."}), **{"content-type": "application/json; charset=utf-8"}
    )
    *deltas, reply = await asked(server)
    assert isinstance(reply, Reply)
    assert ("Hello there.", StopReason.END_TURN, "stop") == (reply.text, reply.stop, reply.stop_raw)
    assert Usage(input=7, output=3) == reply.usage
    assert "Hello there." == "".join(delta.text for delta in deltas)
    assert 1 == len(server.requests)


async def test_calls_are_read(server: Server) -> None:
    """Each call of the document is a call of the answer, with its id and arguments."""
    server.script = status(200, completion(calling("look", at="door"), "tool_calls"))
    *_, reply = await asked(server)
    assert isinstance(reply, Reply)
    assert [("call_1", "look", '{"at": "door"}'), ("call_2", "look", '{"at": "door"}')] == [
        (call.provider_id, call.name, call.arguments) for call in reply.calls
    ]
    assert StopReason.TOOL_USE is reply.stop


async def test_a_whole_run_against_a_server_that_does_not_stream(server: Server) -> None:
    """A run with a call and an answer completes with two requests."""
    seen: list[str] = []

    @tool(replay="read_only")
    async def look(at: str) -> str:
        """Look."""
        seen.append(at)
        return "open"

    answers = iter(
        [completion(calling("look", at="door"), "tool_calls"), completion({"content": "It is open."})]
    )

    def script(wire: Wire) -> None:
        status(200, next(answers))(wire)

    server.script = script
    model = PydanticAIModel("openai:test", base_url=server.address + "/v1", api_key=SECRET)
    result = await Agent(model, tools=[look]).run("Look.")
    await model.aclose()
    assert ("It is open.", ["door", "door"], 2) == (result.text, seen, len(server.requests))


@pytest.mark.parametrize("name", ["openai:test", "openai-responses:test", "anthropic:claude-test"])
@pytest.mark.parametrize(
    "body",
    [
        "{}",
        "[]",
        '{"choices": [3]}',
        '{"choices": "x"}',
        '{"choices": [{"message": "x"}]}',
        "no json",
        '"text"',
    ],
)
async def test_a_document_that_is_no_chat_completion(name: str, body: str, server: Server) -> None:
    """The failure says that the server did not stream, and is not tried again."""
    server.script = status(200, body)
    with pytest.raises(
        ModelError, match="the server did not stream: its response is application/json"
    ) as caught:
        await asked(server, name)
    assert FailureClass.BAD_REQUEST is caught.value.failure
    assert 1 == len(server.requests)


async def test_an_error_in_a_document(server: Server) -> None:
    """An error with status 200 is the failure that its words say."""
    server.script = status(200, {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}})
    with pytest.raises(ModelError, match="Rate limit reached") as caught:
        await asked(server)
    assert FailureClass.RATE_LIMIT is caught.value.failure


def test_a_document_without_counts_has_none() -> None:
    """No number is made up where the server counted nothing."""
    whole = completion({"content": "x"})
    del whole["usage"]
    events = [json.loads(line[6:]) for line in as_stream(json.dumps(whole).encode()).split(b"\n\n")[:-2]]
    assert [None, None] == [event["usage"] for event in events]
    assert "x" == events[0]["choices"][0]["delta"]["content"]
