"""OpenCode's exports, rule by rule, on messages of a few words."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from refold.importers.formats.opencode.importer import OPENCODE
from refold.importers.items import (
    Answered,
    Counted,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.importers.source import BadTranscript, Source
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass, StopReason, ToolError
from support.opencode import GO, HI, INFO, answer, finished, read, text, tool, user
from support.sessions import Json, only, told


def test_a_session_is_a_run() -> None:
    """Its header names the run; times are its messages' own, in milliseconds."""
    items = read(GO, HI)
    assert isinstance(items[0], RunBegan)
    assert ("ses_1", "m", {"version": "1.2.3"}) == (items[0].key, items[0].model, items[0].labels)
    assert [("Said", "go"), ("Answered", "hi")] == told(items)
    assert ("1700000001000", "1700000003000") == only(RunEnded, items).times


def test_a_list_of_messages_is_a_run_too() -> None:
    """Without the header the session's id is what its messages name."""
    items = list(
        OPENCODE.items(Source.of("x", json.dumps([user("u", text("go"), sessionID="ses_2"), HI]).encode()))
    )
    assert isinstance(items[0], RunBegan)
    assert ("ses_2", "$[0]") == (items[0].key, only(Said, items).position)


def test_the_usage_counts_what_was_cached_and_thought() -> None:
    """The source tells the input without what was cached, and the output without what was thought."""
    counts = finished("tool-calls", input=3, output=7, reasoning=5, cache={"read": 20, "write": 100})
    found = only(
        Answered, read(answer("a", {"type": "reasoning", "text": "hm"}, text("hi"), tool("t"), counts))
    )
    assert Usage(input=123, output=12, cache_read=20, cache_write=100, reasoning=5) == found.usage
    assert (500_000_000, StopReason.TOOL_USE, "hm", "a") == (
        found.cost_nanousd, found.stop, found.reasoning, found.response_id
    )  # fmt: skip
    assert ["t", "bash", '{"z":1,"a":2}'] == [
        found.calls[0].id,
        found.calls[0].name,
        found.calls[0].arguments,
    ]


def test_no_price_is_no_price_of_nothing() -> None:
    """Where the source knows no price it writes 0."""
    assert only(Answered, read(answer("a", text("hi"), finished() | {"cost": 0}))).cost_nanousd is None


def test_an_answer_is_said_before_its_tools_are_done() -> None:
    """Its message is complete only with them."""
    ran = tool("t", time={"start": 1_700_000_002_500, "end": 1_700_000_002_900})
    items = read(
        GO,
        answer(
            "a", text("I look.", time={"start": 1, "end": 1_700_000_002_400}), ran, finished("tool-calls")
        ),
    )
    assert 1_700_000_002_500 * 1_000_000 == only(Answered, items).at
    assert (1_700_000_002_900 * 1_000_000, 400_000_000) == (
        only(Returned, items).at,
        only(Returned, items).duration,
    )


def test_a_message_may_be_several_responses() -> None:
    """What stands behind the end of a response is of another; what was begun twice before any end is one."""
    start = {"type": "step-start"}
    twice = answer("a", start, tool("t"), finished("tool-calls"), start, text("done"), finished())
    assert [("Answered", ""), ("Returned", "7"), ("Answered", "done")] == told(read(twice))
    assert [("Answered", "hi")] == told(read(answer("a", start, start, text("hi"), finished())))


@pytest.mark.parametrize(
    ("state", "output", "error"),
    [
        pytest.param(tool("t"), "7", None, id="done"),
        pytest.param(tool("t", "error"), "no such file", ToolError.RAISED, id="failed"),
        pytest.param(
            tool("t", "error", error="Tool execution aborted"), "Tool execution aborted", ToolError.CANCELLED, id="aborted"
        ),
        pytest.param(
            tool("t", "error", metadata={"interrupted": True, "output": "half"}), "half", ToolError.CANCELLED, id="cut short"
        ),
    ],
)  # fmt: skip
def test_results(state: Json, output: str, error: ToolError | None) -> None:
    """A result is what the model is shown of it; who was stopped did not fail."""
    found = only(Returned, read(answer("a", state)))
    assert ("t", "bash", output, error) == (found.id, found.name, found.output, found.error)
    assert "$.messages[0].parts[0]" == found.position


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_call_that_nobody_answered(status: str) -> None:
    """It stays open, and so does the run."""
    items = read(answer("a", tool("t", status), finish=None))
    assert [("Answered", ""), ("Remarked", "unanswered")] == told(items)
    assert ("open", "1 tool call(s) without a result at the end") == (items[-1].end, items[-1].end_source)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("parts", "said", "by"),
    [
        pytest.param([text("go")], "go", "user", id="typed"),
        pytest.param(
            [text("go"), text("a.py", synthetic=True)], "go\na.py", "user", id="with what its harness read"
        ),
        pytest.param([text("go on", synthetic=True)], "go on", "harness", id="the harness's own"),
        pytest.param([text("go"), text("hidden", ignored=True)], "go", "user", id="not shown"),
        pytest.param(
            [text("go"), {"type": "file", "mime": "image/png"}], "go\n[file]", "user", id="an image"
        ),
        pytest.param(
            [text("go"), {"type": "file", "mime": "text/plain"}], "go", "user", id="a file read beside"
        ),
        pytest.param(
            [{"type": "compaction", "auto": True}], "What did we do so far?", "harness", id="a compaction"
        ),
    ],
)
def test_what_the_model_is_told(parts: list[Json], said: str, by: str) -> None:
    """A message is the parts that are shown; it is a person's if one of them was typed."""
    found = only(Said, read(user("u", *parts)))
    assert (said, by) == (found.text, found.by)


def test_a_request_that_failed() -> None:
    """Nothing of it arrived: no answer, and its status says what it was.

    What follows it may be another attempt.
    """
    data = {"message": "Too many requests", "statusCode": 429}
    items = read(GO, answer("a", finish=None, error={"name": "APIError", "data": data}), HI)
    found = only(RequestFailed, items)
    assert (FailureClass.RATE_LIMIT, 429) == (found.failure, found.status)
    assert [("Said", "go"), ("RequestFailed", ""), ("Answered", "hi")] == told(items)


def test_what_was_aborted_was_cancelled() -> None:
    """What had arrived is an answer, whose tokens nobody counted; with nothing there is only the
    cancellation.
    """
    error = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    nothing = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    items = read(GO, answer("a", text("I wi"), finish=None, error=error, tokens=nothing))
    assert [("Said", "go"), ("Answered", "I wi"), ("Cancelled", "")] == told(items)
    assert "" == only(Answered, items).quality
    assert [("Said", "go"), ("Cancelled", "")] == told(read(GO, answer("a", finish=None, error=error)))


def test_a_compaction_leaves_its_summary() -> None:
    """Later requests show the prompt that asked for it, the summary, and what follows."""
    asked = user("c", {"type": "compaction", "auto": True})
    items = read(
        GO, HI, asked, answer("s", text("so far"), summary=True, parentID="c"), user("v", text("on"))
    )
    assert ["What did we do so far?", "so far"] == [each.text for each in only(Prompted, items).messages]


def test_a_compaction_may_keep_a_tail() -> None:
    """What stands from the message that it names on stays before it."""
    asked = user("c", {"type": "compaction", "auto": True, "tail_start_id": "a"})
    items = read(
        GO, answer("a", tool("t"), text("hi")), asked, answer("s", text("so far"), summary=True, parentID="c")
    )
    assert ["hi", "7", "What did we do so far?", "so far"] == [
        each.text for each in only(Prompted, items).messages
    ]


def test_a_summary_that_failed_leaves_all() -> None:
    """A compaction that came to nothing changes nothing."""
    error = {"name": "APIError", "data": {"message": "x"}}
    asked = user("c", {"type": "compaction", "auto": True})
    assert not [
        item
        for item in read(GO, asked, answer("s", summary=True, parentID="c", error=error))
        if isinstance(item, Prompted)
    ]


def test_what_a_person_took_back() -> None:
    """From the message that the session names on, all is beside the log and ends nothing; it is counted."""
    items = read(
        GO, HI, user("v", text("wrong")), answer("b", text("oh"), finish="length"), revert={"messageID": "v"}
    )
    assert [("Said", "go"), ("Answered", "hi"), ("Remarked", "rewound"), ("Remarked", "rewound")] == told(
        items
    )
    counts = [item.counts for item in items if isinstance(item, Remarked)]
    assert [Counted(user=1), Counted(assistant=1)] == [each and replace(each, usage=None) for each in counts]
    assert "finished" == only(RunEnded, items).end


@pytest.mark.parametrize(
    ("messages", "end"),
    [
        pytest.param([], "open", id="nothing"),
        pytest.param([GO], "open", id="a prompt"),
        pytest.param([GO, HI], "finished", id="an answer"),
        pytest.param([GO, answer("a", text("hi"), finish="unknown")], "unknown", id="an answer, nobody knows why it stopped"),
        pytest.param([GO, answer("a", tool("t"), finish="tool-calls")], "open", id="a call"),
        pytest.param([GO, answer("a", tool("t"), finish="unknown")], "open", id="a call, nobody knows why it stopped"),
        pytest.param([GO, answer("a", text("I wi"), finish=None)], "open", id="half an answer"),
        pytest.param([GO, answer("a", text("x"), finish="length")], "limit:token", id="too long"),
        pytest.param([GO, answer("a", error={"name": "MessageAbortedError"})], "cancelled", id="aborted"),
        pytest.param([GO, answer("a", error={"name": "APIError"})], "error", id="failed"),
    ],
)  # fmt: skip
def test_how_a_session_ends(messages: list[Json], end: str) -> None:
    """The last message says how."""
    assert end == only(RunEnded, read(*messages)).end


def test_what_is_not_known_is_said() -> None:
    """Parts of a kind that nobody knows are named, and stand with the message; so do roles."""
    items = read(
        user("u", text("go"), {"type": "hologram", "shape": "x"}), {"info": {"role": "judge"}, "parts": []}
    )
    assert "unknown parts in a message: hologram" == only(Unread, items).problem
    assert "hologram" in only(Said, items).rest
    assert not only(Remarked, items).known


@pytest.mark.parametrize(
    ("value", "score"),
    [
        pytest.param({"info": INFO, "messages": [GO]}, 95, id="an export"),
        pytest.param([GO, HI], 95, id="its messages"),
        pytest.param({"info": INFO, "messages": []}, 80, id="a session in which nobody spoke"),
        pytest.param(
            {"info": {"id": "x"}, "messages": [{"role": "user", "content": "x"}]}, None, id="another format"
        ),
    ],
)
def test_detection(value: Any, score: int | None) -> None:
    """The format is told by its messages, or by its header."""
    match = OPENCODE.match(Source.of("x", json.dumps(value).encode()))
    assert score == (match.score if match else None)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a":1}', b"\x00\xff", b"null"])
def test_nothing_to_read(data: bytes) -> None:
    """A file without a session is refused by name."""
    with pytest.raises(BadTranscript, match="mine"):
        list(OPENCODE.items(Source.of("mine", data)))


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(7, id="a number"),
        pytest.param({"info": [], "parts": {}}, id="lists for objects"),
        pytest.param({"info": {"role": "assistant", "time": 5, "tokens": [], "error": "x"}, "parts": [1, None, {"type": []}]}, id="no parts"),
        pytest.param(answer("a", {"type": "tool", "state": 3}, {"type": "step-finish", "tokens": "x", "cost": "y"}), id="no state"),
        pytest.param(answer("a", tool("t", time={"start": 9, "end": -1})), id="time backwards"),
    ],
)  # fmt: skip
def test_no_message_is_too_strange(message: Any) -> None:
    """Whatever stands in a message, a run begins and ends."""
    items = read(GO, message, message)
    assert [RunBegan, RunEnded] == [type(items[0]), type(items[-1])]
