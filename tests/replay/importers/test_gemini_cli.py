"""Gemini CLI chats, rule by rule, on messages of a few words."""

import json
from typing import Any

import pytest

from refold.reducers.messages import Usage
from refold.reducers.vocabulary import Role, ToolError
from refold.replay.importers.gemini_cli.importer import GEMINI_CLI
from refold.replay.importers.items import (
    Answered,
    Cancelled,
    Item,
    Prompted,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.replay.importers.source import Source
from support.transcribed import tally_of

Json = dict[str, Any]
HEADER: Json = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-01T00:00:00.000Z"}


def message(id_: str, kind: str, content: Any, **more: Any) -> Json:
    """A message of a chat."""
    return {"id": id_, "timestamp": "2026-01-01T00:00:01.000Z", "type": kind, "content": content} | more


def called(id_: str, output: str | None, status: str = "success") -> Json:
    """A call, its result inside it."""
    inside = {"functionResponse": {"id": id_, "name": "ls", "response": {"output": output}}}
    more: Json = {"result": [inside]} if output is not None else {}
    return {"id": id_, "name": "ls", "args": {"z": 1, "a": 2}, "status": status} | more


def document(*messages: Any) -> list[Item]:
    """The items of a chat as a document."""
    data = json.dumps(HEADER | {"messages": list(messages)}, indent=2).encode()
    return list(GEMINI_CLI.items(Source.of("x", data)))


def log(*rows: Any) -> list[Item]:
    """The items of a chat as a log."""
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    return list(GEMINI_CLI.items(Source.of("x", data)))


def only(kind: type[Item], items: list[Item]) -> Any:
    """The one item of a kind."""
    (found,) = [item for item in items if isinstance(item, kind)]
    return found


def told(items: list[Item]) -> list[tuple[str, str, str]]:
    """What was said, asked and returned, in order, and where."""
    return [
        (
            type(item).__name__,
            item.position,
            getattr(item, "text", "") or getattr(item, "output", "") or getattr(item, "what", ""),
        )
        for item in items[1:-1]
    ]


GO = message("u", "user", "go")
HI = message("a", "gemini", "hi", model="g")


def test_results_lie_inside_their_calls() -> None:
    """An answer is followed by the results of its calls; they have no messages of their own."""
    items = document(GO, message("a", "gemini", "ok", toolCalls=[called("1", "one"), called("2", "two")]), HI)

    assert [
        ("Said", "$.messages[0]", "go"),
        ("Answered", "$.messages[1]", "ok"),
        ("Returned", "$.messages[1].toolCalls[0]", "one"),
        ("Returned", "$.messages[1].toolCalls[1]", "two"),
        ("Answered", "$.messages[2]", "hi"),
    ] == told(items)
    tally = tally_of(items)
    assert (3, 0, 2, 2, 0) == (
        tally.messages, tally.tool_messages, tally.tool_calls, tally.tool_results, tally.tool_errors
    )  # fmt: skip


def test_thoughts_are_output() -> None:
    """Tokens of thoughts stand beside the output there, inside it here; cached ones are inside the input."""
    tokens = {"input": 100, "output": 10, "cached": 40, "thoughts": 5, "tool": 0, "total": 115}
    thoughts = [{"subject": "Plan", "description": "do it"}, {"subject": "", "description": "now"}]
    found = only(
        Answered, document(message("a", "gemini", "hi", tokens=tokens, thoughts=thoughts, model="g"))
    )

    assert Usage(input=100, output=15, cache_read=40, reasoning=5) == found.usage
    assert ("Plan: do it\nnow", "g", "reported") == (found.reasoning, found.model, found.quality)


@pytest.mark.parametrize(
    ("status", "error", "counted"),
    [("success", None, 0), ("error", ToolError.RAISED, 1), ("cancelled", ToolError.CANCELLED, 0)],
)
def test_errors_of_results(status: str, error: ToolError | None, counted: int) -> None:
    """The status of a call says whether it failed."""
    items = document(message("a", "gemini", "", toolCalls=[called("1", "x", status)]))
    assert (error, counted) == (only(Returned, items).error, tally_of(items).tool_errors)


def test_arguments_stay_in_their_order() -> None:
    """Arguments are JSON text in the order in which the model wrote them."""
    (call,) = only(Answered, document(message("a", "gemini", "", toolCalls=[called("1", "x")]))).calls
    assert ("1", "ls", '{"z":1,"a":2}') == (call.id, call.name, call.arguments)


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        ("info", "Starting", "info"),
        ("info", "Chat history compressed from 9 to 2 tokens.", "compaction"),
        ("warning", "Hook failed", "warning"),
        ("news", "from the future", "unmapped"),
    ],
)
def test_what_the_person_was_told_is_remarked(kind: str, words: str, expected: str) -> None:
    """Messages that the model never saw are remarks, and no messages."""
    items = document(message("i", kind, words))
    assert (expected, 0) == (only(Remarked, items).what, tally_of(items).messages)


def test_a_cancelled_request_was_cancelled() -> None:
    """The CLI's own word for it is a cancellation."""
    assert (
        "Request cancelled."
        == only(Cancelled, document(GO, message("i", "info", "Request cancelled."))).reason
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("go", "go", id="text"),
        pytest.param([{"text": "a"}, {"text": "b"}], "a\nb", id="parts"),
        pytest.param({"text": "a"}, "a", id="a part"),
        pytest.param([{"inlineData": {"data": "x"}}], "[inlineData]", id="an image"),
        pytest.param(7, "7", id="nothing known"),
    ],
)
def test_contents(content: Any, words: str) -> None:
    """A content is text, a part or parts."""
    assert words == only(Said, document(message("u", "user", content))).text


@pytest.mark.parametrize(
    ("messages", "end", "source"),
    [
        pytest.param([], "open", "no user or model message", id="nothing"),
        pytest.param([message("w", "warning", "x")], "open", "no user or model message", id="a warning"),
        pytest.param([GO], "open", "last message is a prompt, no answer after it", id="a prompt"),
        pytest.param([GO, HI], "finished", "last model message is text without tool call", id="an answer"),
        pytest.param([GO, HI, message("i", "info", "bye")], "finished", "last model message is text without tool call", id="words after it"),
        pytest.param(
            [message("a", "gemini", "", toolCalls=[called("1", None)])],
            "open", "1 tool call(s) without result at the end", id="a call",
        ),
        pytest.param(
            [message("a", "gemini", "", toolCalls=[called("1", "x")])],
            "open", "last model message has tool calls, no answer after their results", id="a result",
        ),
    ],
)  # fmt: skip
def test_how_a_chat_ends(messages: list[Json], end: str, source: str) -> None:
    """The last message of the person or the model says how, in a document and in a log."""
    for items in (document(*messages), log(HEADER, *messages)):
        assert (end, source) == (only(RunEnded, items).end, only(RunEnded, items).end_source)


def test_a_log_is_the_same_chat() -> None:
    """Rows of a log are the messages of a document, at their lines; patches of the header are noise."""
    items = log(HEADER, GO, {"$set": {"lastUpdated": "x"}}, HI)

    began = items[0]
    assert isinstance(began, RunBegan)
    assert ("s", "g", "line 1") == (began.key, began.model, began.position)
    assert [
        ("Said", "line 2", "go"),
        ("Remarked", "line 3", "unmapped"),
        ("Answered", "line 4", "hi"),
    ] == told(items)


def test_a_message_that_was_written_anew_counts_once() -> None:
    """The last version counts, in the first one's place; what both were stands beside."""
    done = message("a", "gemini", "ok", toolCalls=[called("1", "one")])
    items = log(HEADER, GO, message("a", "gemini", "ok", toolCalls=[called("1", None)]), done)

    assert [
        ("Said", "line 2", "go"), ("Answered", "line 3", "ok"), ("Returned", "line 3", "one"), ("Remarked", "lines 3-4", "repeated")
    ] == told(items)  # fmt: skip
    assert 2 == tally_of(items).messages


def test_what_was_taken_back_is_remarked() -> None:
    """A rewind takes back its message and all after it: later answers never saw them."""
    items = log(
        HEADER, GO, HI, message("v", "user", "wrong"), {"$rewindTo": "v"}, message("w", "user", "right")
    )

    assert [
        ("Said", "line 2", "go"), ("Answered", "line 3", "hi"), ("Remarked", "line 4", "rewound"),
        ("Remarked", "line 5", "rewind"), ("Said", "line 6", "right"),
    ] == told(items)  # fmt: skip


def test_messages_that_are_replaced_are_the_next_prompt() -> None:
    """A patch with messages says what the model is shown from there on; at the beginning they are the chat."""
    left = [
        message("x", "user", "<state_snapshot>"),
        message("y", "gemini", "ok", toolCalls=[called("1", "one")]),
    ]
    found = only(Prompted, log(HEADER, GO, HI, {"$set": {"messages": left}}))

    assert [(Role.USER, "<state_snapshot>"), (Role.ASSISTANT, "ok"), (Role.TOOL, "one")] == [
        (each.role, each.text) for each in found.messages
    ]
    assert [("Said", "line 2", "go"), ("Answered", "line 2", "hi")] == told(
        log(HEADER, {"$set": {"messages": [GO, HI]}})
    )


def test_a_cut_document_keeps_what_lies_behind_the_cut() -> None:
    """Messages before the cut are read; the broken one is kept as text."""
    data = json.dumps(HEADER | {"messages": [GO, HI]}).encode()
    items = list(GEMINI_CLI.items(Source.of("x", data[:-20])))

    assert "go" == only(Said, items).text
    assert ("cut_document", True) == (only(Unread, items).code, '"gemini"' in only(Unread, items).rest)


@pytest.mark.parametrize(
    ("data", "score"),
    [
        pytest.param(json.dumps(HEADER).encode(), 90, id="a header"),
        pytest.param(json.dumps({"messages": [HI]}).encode(), 75, id="messages"),
        pytest.param(b'[{"type":"gemini","content":""}]', None, id="a list"),
        pytest.param(b'{"sessionId":"s","type":"user"}', None, id="another format"),
    ],
)
def test_detection(data: bytes, score: int | None) -> None:
    """The format is told by its header."""
    match = GEMINI_CLI.match(Source.of("x", data))
    assert score == (match.score if match else None)
