"""Shapes in which sessions of command-line agents are found beside the usual ones: bare rows, cut heads, odd
layouts.
"""

import json
from typing import Any

import pytest

from refold.importers.fields import stamp
from refold.importers.items import Answered, Remarked, RunBegan, RunEnded, Said, Unread
from refold.importers.registry import detect_format, importer
from refold.importers.source import Source
from refold.importers.tallies import RunCounts
from refold.importers.transcript import Transcript
from support.transcribed import tally_of

Json = dict[str, Any]
PROMPT: Json = {"type": "user", "message": {"content": "hi"}, "timestamp": "2026-01-01T00:00:00Z"}
ANSWER: Json = {"type": "assistant", "message": {"content": [{"type": "text", "text": "ho"}]}}
META: Json = {"type": "session_meta", "payload": {"id": "s"}}
CHAT: Json = {
    "lastUpdated": "2026-01-01T00:00:00Z",
    "messages": [{"type": "info", "content": "x", "id": "1"}],
}


def lines(*rows: Json) -> bytes:
    """A file of these rows."""
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def counted(name: str, data: bytes) -> RunCounts:
    """What an importer counts in a file."""
    return tally_of(importer(name).items(Source.of("x", data)))


@pytest.mark.parametrize(
    ("format_", "data"),
    [
        pytest.param("claude_code", lines(PROMPT, ANSWER), id="messages without ids or a session"),
        pytest.param("claude_code", lines(PROMPT | {"sessionId": "s"}), id="a prompt and a session"),
        pytest.param("claude_code", b'x"}\n' + lines(PROMPT, ANSWER), id="the first line is a rest"),
        pytest.param(
            "claude_code",
            lines({"type": "file-history-snapshot", "snapshot": {"x": "y" * 100_000}}, PROMPT),
            id="a long snapshot before the first message",
        ),
        pytest.param(
            "claude_code", lines({"type": "summary", "summary": "s", "leafUuid": "u"}), id="only a summary"
        ),
        pytest.param(
            "claude_code",
            lines({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}),
            id="only a snapshot",
        ),
        pytest.param(
            "claude_code",
            lines({"type": "queue-operation", "operation": "enqueue", "sessionId": "s"}),
            id="only a queue operation",
        ),
        pytest.param("codex", lines(META)[:40], id="cut in the header of a rollout"),
        pytest.param(
            "codex",
            lines({"id": "s", "timestamp": "2025-06-01T09:00:00.000Z", "instructions": None}),
            id="only the bare header of an old rollout",
        ),
        pytest.param(
            "pi", b'{"type":"session","version":3,"id":"s","ti', id="cut in the header of a session"
        ),
        pytest.param(
            "pi",
            lines(
                {"type": "title", "title": "t"},
                {"type": "message", "message": {"role": "user", "content": "hi"}},
            ),
            id="an entry that nobody knows, and no header",
        ),
        pytest.param(
            "gemini_cli", json.dumps(CHAT, indent=2).encode()[:-20], id="a chat cut before its header"
        ),
        pytest.param(
            "gemini_cli", lines({"id": "1", "type": "gemini", "content": "ho"}), id="one message of a log"
        ),
    ],
)
def test_a_session_is_known_by_what_is_left_of_it(format_: str, data: bytes) -> None:
    """A file of a known format is detected, whatever part of it there is."""
    assert format_ == detect_format(Source.of("x", data)).format


def test_messages_without_ids_are_counted_one_by_one() -> None:
    """An answer without an id is an answer of its own."""
    tally = counted("claude_code", lines(PROMPT, ANSWER, PROMPT, ANSWER))
    assert (2, 2, 4) == (tally.user_messages, tally.assistant_messages, tally.messages)


def test_a_counter_that_stands_at_zero_says_so() -> None:
    """Token totals of zero were counted; only without any total does a rollout not say."""
    total = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
    event: Json = {
        "type": "event_msg",
        "payload": {"type": "token_count", "info": {"total_token_usage": total}},
    }
    silent: Json = {"type": "event_msg", "payload": {"type": "token_count", "info": None}}
    assert (0, 0) == (
        counted("codex", lines(META, event)).input_tokens,
        counted("codex", lines(META, event)).output_tokens,
    )
    assert counted("codex", lines(META, silent)).input_tokens is None


MESSAGES: list[Json] = [
    {"id": "1", "type": "user", "content": "hi"},
    {"id": "2", "type": "gemini", "content": "ho", "tokens": {"input": 3, "output": 1}},
]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            b'{\n "sessionId": "s",\n "projectHash": "p",\n "messages": [\n'
            + json.dumps(MESSAGES[0]).encode()
            + b",\n"
            + json.dumps(MESSAGES[1], indent=2).encode()
            + b"\n ]\n}\n",
            id="a message of a document in a line of its own",
        ),
        pytest.param(lines(*MESSAGES), id="a log without a header"),
        pytest.param(b'{"sessionId": "s", "proj\n' + lines(*MESSAGES), id="a log with half a header"),
        pytest.param(
            lines({"sessionId": "s", "projectHash": "p", "messages": MESSAGES[:1]}, MESSAGES[1]),
            id="a document in a line, a log behind it",
        ),
        pytest.param(
            lines(
                {"sessionId": "s", "projectHash": "p", "messages": MESSAGES[:1]},
                {"sessionId": "t", "projectHash": "p", "messages": MESSAGES[1:]},
            ),
            id="two documents, a line each",
        ),
    ],
)
def test_a_chat_is_read_however_its_lines_lie(data: bytes) -> None:
    """Whether a chat is a document or a log is told by its values, not by where its lines break."""
    tally = counted("gemini_cli", data)
    assert (1, 1, 3) == (tally.user_messages, tally.assistant_messages, tally.input_tokens)
    assert 1 == sum(isinstance(item, RunBegan) for item in importer("gemini_cli").items(Source.of("x", data)))


@pytest.mark.parametrize(
    ("written", "told"),
    [
        pytest.param("2026-01-01T12:00:00+02:00", "2026-01-01T10:00:00Z", id="east of Greenwich"),
        pytest.param("2026-01-01T12:00:00.250-05:00", "2026-01-01T17:00:00.250Z", id="west, with a fraction"),
        pytest.param("2026-01-01T12:00:00.370Z", "2026-01-01T12:00:00.370Z", id="UTC as it was written"),
        pytest.param("2026-01-01T12:00:00", "2026-01-01T12:00:00", id="no zone, none told"),
    ],
)
def test_times_are_told_in_utc(written: str, told: str) -> None:
    """A time of another zone is told in UTC; one without a zone as it stands."""
    assert told == stamp(written)


def test_what_no_row_can_be_made_of_is_reported() -> None:
    """A file that breaks off in its first row has one run without messages, and its bytes in a diagnostic."""
    source = Source.of("x", lines(META)[:40])
    reading = Transcript(source, importer(detect_format(source).format))
    for run in reading.runs():
        for _ in run.derive(lambda seq: b"\0" * 16):
            pass
    assert ("0", "-") == (str(reading.counts().messages), reading.counts().first_timestamp)
    unread = [item for item in importer("codex").items(source) if isinstance(item, Unread)]
    assert ["not_json"] == [item.code for item in unread]


def test_what_the_harness_says_for_the_model_keeps_its_id() -> None:
    """A row in the model's place is no answer, so what names it stands in the rest."""
    row: Json = {
        "type": "assistant",
        "message": {"id": "m-1", "model": "<synthetic>", "content": "No response."},
    }
    items = list(importer("claude_code").items(Source.of("x", lines(PROMPT, row))))
    assert ["m-1" in item.rest for item in items if isinstance(item, Said)] == [False, True]


def test_a_call_without_a_result_keeps_its_status() -> None:
    """What a chat says of a call that was never answered is a remark at its place."""
    call: Json = {"id": "c", "name": "ls", "args": {}, "status": "executing", "displayName": "List"}
    chat = {"sessionId": "s", "projectHash": "p", "messages": [MESSAGES[1] | {"toolCalls": [call]}]}
    items = importer("gemini_cli").items(Source.of("x", json.dumps(chat).encode()))
    (found,) = [item for item in items if isinstance(item, Remarked)]
    assert ("$.messages[0].toolCalls[0]", "unanswered") == (found.position, found.what)
    assert {"status": "executing", "displayName": "List"} == json.loads(found.rest)


def test_a_branch_stays_left_behind_when_a_compaction_moves_what_it_keeps() -> None:
    """A compaction names a message that it writes again behind itself: what was left before stays left."""

    def row(uuid: str, parent: str | None, kind: str, **more: Any) -> Json:
        found = {"id": uuid, "model": "m", "content": [{"type": "text", "text": uuid}]}
        return {"type": kind, "uuid": uuid, "parentUuid": parent, "message": found} | more

    boundary: Json = {"type": "system", "subtype": "compact_boundary", "uuid": "cut", "parentUuid": None}
    data = lines(
        row("p1", None, "user"),
        row("a1", "p1", "assistant"),
        row("left", "a1", "user"),
        row("left too", "left", "assistant") | {"uuid": "left2"},
        row("p2", "a1", "user"),
        row("a2", "p2", "assistant"),
        boundary | {"logicalParentUuid": "kept", "compactMetadata": {}},
        row("sum", "cut", "user", isCompactSummary=True),
        row("kept", "sum", "assistant"),
        row("p3", "kept", "user"),
        row("a3", "p3", "assistant"),
    )
    items = list(importer("claude_code").items(Source.of("x", data)))
    end = next(place for place, item in enumerate(items) if isinstance(item, RunEnded))
    assert ["a1", "a2", "kept", "a3"] == [item.text for item in items[:end] if isinstance(item, Answered)]
    assert ["line 3"] == [
        item.position for item in items[:end] if isinstance(item, Remarked) and item.what == "rewound"
    ]
