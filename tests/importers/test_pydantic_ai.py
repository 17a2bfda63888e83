"""Message histories of Pydantic AI: parts, retries, usage of all versions, ends."""

from typing import Any

import msgspec
import pytest

from refold.importers.formats.pydantic_ai import PYDANTIC_AI
from refold.importers.items import Answered, Item, Remarked, Returned, RunBegan, RunEnded, Said, Unread
from refold.importers.source import BadTranscript, Source
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import Role, StopReason, ToolError
from support.transcribed import every, tally_of


def request(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts), "timestamp": "2025-01-01T00:00:02Z"} | more


def response(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 2, "cache_read_tokens": 0}
    return {
        "kind": "response",
        "parts": list(parts),
        "usage": usage,
        "timestamp": "2025-01-01T00:00:03Z",
    } | more


def prompt(text: Any) -> dict[str, Any]:
    return {"part_kind": "user-prompt", "content": text, "timestamp": "2025-01-01T00:00:01Z"}


def call(number: str = "c1") -> dict[str, Any]:
    return {"part_kind": "tool-call", "tool_name": "look", "args": {"q": 1}, "tool_call_id": number}


def result(content: Any = "found", number: str = "c1", **more: Any) -> dict[str, Any]:
    return {
        "part_kind": "tool-return",
        "tool_name": "look",
        "content": content,
        "tool_call_id": number,
    } | more


def retry(content: Any, tool: str | None = "look") -> dict[str, Any]:
    return {"part_kind": "retry-prompt", "content": content, "tool_name": tool, "tool_call_id": "c1"}


TEXT = {"part_kind": "text", "content": "done"}
LIST = [
    request(prompt("go")),
    response(call()),
    request(result()),
    response(TEXT, finish_reason="stop", model_name="m"),
]


def of(value: object) -> list[Item]:
    return list(PYDANTIC_AI.items(Source.of("messages", msgspec.json.encode(value))))


def test_a_conversation() -> None:
    """Requests before the first answer open the run; requests with results are a tool's messages."""
    items = of(LIST)
    assert ["RunBegan", "Remarked", "Answered", "Returned", "Answered", "RunEnded"] == [
        type(item).__name__ for item in items
    ]
    assert '{"timestamp":"2025-01-01T00:00:01Z"}' == every(items, Remarked)[0].rest
    assert ["go"] == [message.text for message in every(items, RunBegan)[0].messages]
    assert [None, StopReason.END_TURN] == [item.stop for item in every(items, Answered)]
    ended = every(items, RunEnded)[0]
    tally = tally_of(items)
    assert ("finished", 4, 1, 2, 1) == (
        ended.end,
        tally.messages,
        tally.user_messages,
        tally.assistant_messages,
        tally.tool_messages,
    )
    assert (1, 1, 0, 20, 0, None, 4) == (
        tally.tool_calls, tally.tool_results, tally.tool_errors, tally.input_tokens, tally.cache_read_tokens,
        tally.cache_write_tokens, tally.output_tokens,
    )  # fmt: skip
    assert ("2025-01-01T00:00:01Z", "2025-01-01T00:00:03Z") == (tally.first_timestamp, tally.last_timestamp)


@pytest.mark.parametrize(
    ("part", "error", "counted"),
    [
        pytest.param(result(), None, 0, id="a result"),
        pytest.param(result(outcome="failed"), ToolError.RAISED, 1, id="an outcome that says failed"),
        pytest.param(result(outcome="retried"), None, 0, id="a retry that the tool asked for"),
        pytest.param(retry("no such thing"), ToolError.RAISED, 1, id="a retry of a tool's call"),
        pytest.param(
            retry([{"type": "missing"}]),
            ToolError.BAD_ARGUMENTS,
            1,
            id="a retry with the validator's complaints",
        ),
    ],
)
def test_results(part: dict[str, Any], error: ToolError | None, counted: int) -> None:
    """A call's result fails where the format marks it as failed."""
    items = of([*LIST[:2], request(part)])
    assert [error] == [item.error for item in every(items, Returned)]
    ended, tally = every(items, RunEnded)[0], tally_of(items)
    assert ("open", 1, counted) == (ended.end, tally.tool_results, tally.tool_errors)


def test_a_retry_without_a_tool_is_the_frameworks_word() -> None:
    """A retry that names no tool is a message of the harness, and no result."""
    items = of([LIST[0], response(TEXT), request(retry("again, please", None))])
    assert [("again, please", "harness")] == [(item.text, item.by) for item in every(items, Said)]
    assert (
        (2, 0) == (tally_of(items).user_messages, tally_of(items).tool_messages)
        if isinstance(items[-1], RunEnded)
        else None
    )


def test_instructions_and_parts() -> None:
    """Instructions are a system message; a prompt of several parts is their text, and whole beside it."""
    items = of(
        [request(prompt(["a", {"kind": "image-url", "url": "u"}]), instructions="be brief"), response(TEXT)]
    )
    messages = every(items, RunBegan)[0].messages
    assert [(Role.SYSTEM, "be brief"), (Role.USER, "a\n[image-url]")] == [
        (each.role, each.text) for each in messages
    ]
    assert ["unmapped"] == [item.what for item in every(items, Remarked)]
    assert '"url":"u"' in every(items, Remarked)[0].rest


def test_what_stands_beside_a_part_is_kept() -> None:
    """Signatures and ids of an answer's texts, thoughts and calls are in what is left of it."""
    parts = (TEXT | {"id": "t1"}, {"part_kind": "thinking", "content": "hm", "signature": "sig"}, call())
    answer = every(of([LIST[0], response(*parts)]), Answered)[0]
    assert (
        '{"parts":[{"id":"t1","part_kind":"text"},{"part_kind":"thinking","signature":"sig"}]}' == answer.rest
    )


def test_usage_of_older_versions() -> None:
    """`request_tokens` and `response_tokens` are the older names of usage."""
    usage = {"request_tokens": 3, "response_tokens": 4, "details": {"reasoning_tokens": 1}}
    items = of([LIST[0], response(TEXT, usage=usage)])
    assert [Usage(input=3, output=4, reasoning=1)] == [item.usage for item in every(items, Answered)]
    assert 3 == tally_of(items).input_tokens


def test_an_output_tool_ends_the_run() -> None:
    """The framework's own result for an output tool is the end, not a pending prompt."""
    items = of([*LIST[:2], request(result("Final result processed."))])
    assert ["finished"] == [item.end for item in every(items, RunEnded)]


def test_unknown_parts_are_kept() -> None:
    """A part of a kind that we do not know is kept whole."""
    odd = {"part_kind": "hologram", "content": "kept"}
    items = of([LIST[0], response(TEXT, odd), request(odd), {"kind": "dream", "parts": []}])
    assert "kept" in every(items, Answered)[0].rest
    assert ["no_part", "no_message"] == [item.code for item in every(items, Unread)]


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'[{"parts'])
def test_nothing_to_read(data: bytes) -> None:
    """A file without a message is refused by name."""
    with pytest.raises(BadTranscript, match="mine"):
        list(PYDANTIC_AI.items(Source.of("mine", data)))


def test_a_result_whose_call_is_not_there_is_a_result() -> None:
    """Results are counted by the calls that they name, whether these are in the history or not."""
    items = of([LIST[0], request(result(number="gone"), result(number="gone"), result(number="c2"))])
    assert 2 == tally_of(items).tool_results


def test_runs_in_one_document() -> None:
    """A document that lists runs has one run for each that has messages, by its id."""
    document = {
        "runs": [{"id": "a", "messages": LIST, "outcome": 1}, {"id": "b", "messages": LIST[:1]}, {"id": "c"}],
        "note": "kept",
    }
    items = of(document)
    assert ['{"around":{"note":"kept","runs":[{"id":"c"}]},"id":"a","outcome":1}', '{"id":"b"}'] == [
        item.rest for item in every(items, RunBegan)
    ]
    assert ["a", "b"] == [item.key for item in every(items, RunBegan)]
    assert ["finished", "open"] == [item.end for item in every(items, RunEnded)]
