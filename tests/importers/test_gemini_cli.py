"""Gemini CLI chats, rule by rule, on messages of a few words."""

import json
from typing import Any

import pytest

from refold.importers.formats.gemini_cli.importer import GEMINI_CLI
from refold.importers.items import (
    Answered,
    Cancelled,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.importers.source import Source
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import Refuser, ToolError
from support.gemini_cli import (
    ASKED,
    GO,
    HEADER,
    HI,
    called,
    document,
    log,
    message,
    response,
    sent,
    told,
)
from support.sessions import Json, only
from support.transcribed import tally_of


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


UNSURE = "last response has no call, and its stop reason is not recorded"


@pytest.mark.parametrize(
    ("messages", "end", "source"),
    [
        pytest.param([], "open", "no message in it", id="nothing"),
        pytest.param([message("w", "warning", "x")], "open", "no message in it", id="a warning"),
        pytest.param([GO], "open", "last message is a prompt without a response", id="a prompt"),
        pytest.param([GO, HI], "unknown", UNSURE, id="an answer"),
        pytest.param([GO, HI, message("i", "info", "bye")], "unknown", UNSURE, id="words after it"),
        pytest.param(
            [message("a", "gemini", "", toolCalls=[called("1", None)])],
            "open", "1 tool call(s) without a result at the end", id="a call",
        ),
        pytest.param(
            [message("a", "gemini", "", toolCalls=[called("1", "x")])],
            "open", "last message is a result without a response", id="a result",
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


def test_results_that_were_sent_are_no_words_of_a_person() -> None:
    """A row of results that their calls have already says nothing new, and begins no turn."""
    items = log(HEADER, GO, ASKED, sent("r", response("1", "one")), HI)
    assert ["Said", "Answered", "Returned", "Remarked", "Answered"] == [kind for kind, _, _ in told(items)]
    tally = tally_of(items)
    assert (1, 1, 1, 1) == (tally.user_messages, tally.tool_messages, tally.tool_calls, tally.tool_results)


def test_a_result_that_only_stands_where_it_was_sent() -> None:
    """Calls and results among the parts of the messages are read where `toolCalls` does not have them."""
    asked = message("a", "gemini", [{"text": "ok"}, {"functionCall": {"id": "1", "name": "ls", "args": {}}}])
    items = log(HEADER, GO, asked, sent("r", response("1", "no", "error"), {"inlineData": {"data": "x"}}))
    assert [("1", "ls")] == [(call.id, call.name) for call in only(Answered, items).calls]
    found = only(Returned, items)
    assert ("1", "no", ToolError.RAISED) == (found.id, found.output, found.error)
    assert [("go", "user"), ("[inlineData]", "harness")] == [
        (item.text, item.by) for item in items if isinstance(item, Said)
    ]
    assert ("open", "last message is a result without a response") == (
        only(RunEnded, items).end, only(RunEnded, items).end_source
    )  # fmt: skip


BLOCK = "\nProcess Group PGID: 7\n</untrusted_context>"


@pytest.mark.parametrize(
    ("output", "error", "marked"),
    [
        pytest.param(f"<untrusted_context>\nOutput: x{BLOCK}", None, True, id="no code is 0"),
        pytest.param(f"Output: x\nExit Code: 3{BLOCK}", ToolError.RAISED, True, id="a code"),
        pytest.param(f"Output: Exit Code: 0\nExit Code: 3{BLOCK}", ToolError.RAISED, True, id="after one in the output"),
        pytest.param(f"Output: Exit Code: 3\nx{BLOCK}", None, True, id="a code in the output only"),
        pytest.param(f"Output: x\nSignal: SIGKILL{BLOCK}", ToolError.RAISED, True, id="a signal"),
        pytest.param("Output: x\nError: (none)\nExit Code: 0\nSignal: 0\nProcess Group PGID: 7", None, True, id="older, 0"),
        pytest.param("Output: x\nExit Code: (none)\nSignal: 9\nBackground PIDs: (none)", ToolError.RAISED, True, id="older, a signal"),
        pytest.param(f"Output: x{BLOCK}\n\n<hook_context>y</hook_context>", None, True, id="with a hook's words behind it"),
        pytest.param("Command timed out after 9ms before it could complete.", ToolError.TIMEOUT, True, id="timed out"),
        pytest.param("Command was cancelled by user before it could complete.", ToolError.CANCELLED, True, id="cancelled"),
        pytest.param("Command moved to background (PID: 7).", None, False, id="still running"),
        pytest.param("a summary of the output", None, False, id="other words"),
    ],
)  # fmt: skip
def test_how_a_command_ended(output: str, error: ToolError | None, marked: bool) -> None:
    """The status of a command that failed is `success`: how it ended the shell tool's own last lines say,
    else nobody knows.
    """
    call = {**called("1", output), "name": "run_shell_command"}
    found = only(Returned, log(HEADER, GO, message("a", "gemini", "", toolCalls=[call])))
    assert (error, marked) == (found.error, found.marked)


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ("Tool execution blocked: not here", Refuser.HOOK),
        ("Tool execution denied by policy. Ask first.", Refuser.RULE),
        ('Tool execution for "Shell" denied by policy.', Refuser.RULE),
        ('Tool "rm" not found. Did you mean one of: "ls"?', ToolError.UNKNOWN_TOOL),
        ("params must have required property 'command'", ToolError.BAD_ARGUMENTS),
        ("MCP tool says: Tool execution blocked: no", ToolError.RAISED),
    ],
)
def test_the_words_of_an_error(words: str, outcome: ToolError | Refuser) -> None:
    """Words of the CLI's own at the beginning of an error say how the call failed, or that it never ran; of a
    success nothing.
    """
    failed = only(
        Returned, log(HEADER, GO, message("a", "gemini", "", toolCalls=[called("1", words, "error")]))
    )
    assert outcome == (failed.refused_by or failed.error)
    well = only(Returned, log(HEADER, GO, message("a", "gemini", "", toolCalls=[called("1", words)])))
    assert (None, None, True) == (well.refused_by, well.error, well.marked)


def test_an_answer_that_was_cut_off() -> None:
    """An answer whose tokens nobody counted was cut off: the chat's end says so."""
    ended = only(RunEnded, log(HEADER, GO, message("a", "gemini", "half an", tokens=None)))
    assert ("unknown", "last response has no token counts: cut off") == (ended.end, ended.end_source)


def test_a_file_in_which_nobody_asked_anything() -> None:
    """What the CLI puts before a chat is no prompt that waits for an answer."""
    context = message("c", "user", [{"text": "<session_context>\nThis is the Gemini CLI."}])
    ended = only(RunEnded, log(HEADER, {"$set": {"messages": [context]}}))
    assert ("unknown", True) == (ended.end, "no prompt" in ended.end_source)
