"""How Claude Code sessions end, and how they are told from others."""

import json

import pytest

from refold.importers.formats.claude_code.importer import CLAUDE_CODE
from refold.importers.items import Cancelled
from refold.importers.source import Source
from support.claude_code import answer, called, ending, read, result, row, said, user
from support.sessions import Json, only, told

PROMPT = user("u", None, "go")
HELLO = answer("a", "u", "r", said("hi"))
CALL = answer("a", "u", "r", called("t"))
STOP = "[Request interrupted by user for tool use]"


@pytest.mark.parametrize(
    ("found", "end", "source"),
    [
        pytest.param([PROMPT], "open", "last message is a prompt without a response", id="a prompt"),
        pytest.param([PROMPT, CALL], "open", "1 tool call(s) without a result at the end", id="a call"),
        pytest.param(
            [PROMPT, CALL, result("b", "a", "t")],
            "open",
            "last message is a result without a response",
            id="a result",
        ),
        pytest.param(
            [PROMPT, CALL, result("b", "a", "t"), user("c", "b", [said(STOP)])],
            "cancelled",
            f"last message: {STOP}",
            id="a stop",
        ),
        pytest.param(
            [
                PROMPT,
                HELLO,
                user("b", "a", "<command-name>/exit</command-name>"),
                user("c", "b", "<local-command-stdout>bye</local-command-stdout>"),
            ],
            "unknown",
            "last response has no call, and its stop reason is not recorded; then the local command /exit",
            id="a local command",
        ),
        pytest.param(
            [PROMPT, answer("a", "u", "r", said("hi"), stop_reason="end_turn")],
            "finished",
            "last response has no call, stop=end_turn",
            id="a stop reason",
        ),
        pytest.param(
            [PROMPT, answer("a", "u", "r", {"type": "thinking", "thinking": "hm"})],
            "open",
            "last response has only reasoning: cut while it was written",
            id="thinking",
        ),
        pytest.param(
            [PROMPT, HELLO, row("progress", "p", "a")],
            "unknown",
            "last response has no call, and its stop reason is not recorded",
            id="noise",
        ),
        pytest.param(
            [PROMPT, HELLO, row("progress", "p", "a", data={"hookEvent": "Stop"})],
            "finished",
            "last response has no call; then the turn was over",
            id="hooks of an end",
        ),
        pytest.param(
            [PROMPT, HELLO, row("progress", "p", "a", data={"hookEvent": "PostToolUse"})],
            "unknown",
            "last response has no call, and its stop reason is not recorded",
            id="other hooks",
        ),
        pytest.param(
            [PROMPT, HELLO, row("system", "p", "a", subtype="turn_duration")],
            "finished",
            "last response has no call; then the turn was over",
            id="how long the turn took",
        ),
        pytest.param(
            [PROMPT, answer("a", "u", "r", said("hi"), stop_reason="max_tokens")],
            "limit:token",
            "last response has no call, stop=max_tokens",
            id="the output limit",
        ),
        pytest.param([{"type": "summary", "summary": "x"}], "open", "no message in it", id="no message"),
    ],
)
def test_how_a_session_ends(found: list[Json], end: str, source: str) -> None:
    """The last row of the main chain says how, local commands and noise skipped."""
    ended = ending(read(*found))
    assert (end, source) == (ended.end, ended.end_source)


def test_a_stop_by_the_person_is_told_and_shown() -> None:
    """The marker is a message that later answers see, and a cancellation."""
    items = read(PROMPT, user("b", "u", [said(STOP)]), user("c", "b", "again"))

    assert [("Said", "go"), ("Said", STOP), ("Cancelled", ""), ("Said", "again")] == told(items)
    assert STOP == only(Cancelled, items).reason


@pytest.mark.parametrize(
    ("data", "score"),
    [
        pytest.param(json.dumps(PROMPT).encode(), 90, id="rows"),
        pytest.param(
            b'{"type":"user","sessionId":"s","message":{}}',
            50,
            id="rows without parents",
        ),
        pytest.param(b'[16:29] claude says "tool_use" "session_id"', 5, id="a printed session"),
        pytest.param(b'{"messages":[]}', None, id="something else"),
    ],
)
def test_detection(data: bytes, score: int | None) -> None:
    """The format is told by keys of its rows."""
    found = CLAUDE_CODE.match(Source.of("x", data))
    assert score == (found.score if found else None)
