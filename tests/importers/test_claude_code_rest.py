"""What a row of a Claude Code session says where nobody expects it is kept beside the item that it became."""

import json
from typing import Any

import msgspec
import pytest

from refold.importers.items import Returned
from support.claude_code import answer, called, read, result, row, said, user
from support.sessions import Json

LOST = "a word that stands once"
GO = user("u", None, "go")
INNER = {"type": "user", "uuid": "w", "message": {"role": "user", "content": "look"}}


def reported(inner: Json, **data: str) -> Json:
    """A row that reports this one of a sub-agent."""
    told = {"type": "agent_progress", "agentId": "abc", "message": inner, **data}
    return row("progress", "p", "u", data=told, parentToolUseID="t1", version="1")


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(
            [user("v", "u", [said("x"), {"type": "thinking", "thinking": LOST}])], id="a person's thought"
        ),
        pytest.param([user("v", "u", [said("x"), called("t", a=LOST)])], id="a person's call"),
        pytest.param(
            [answer("a", "u", "r", {"type": "tool_result", "tool_use_id": "t", "content": LOST})],
            id="the model's result",
        ),
        pytest.param(
            [answer("a", "u", "r", called("t", a=LOST), model="<synthetic>")],
            id="a call in the model's place",
        ),
        pytest.param(
            [answer("a", "u", "r", called("t", a=1)), answer("b", "a", "r", called("t", a=LOST))],
            id="a call's id again",
        ),
        pytest.param(
            [answer("a", "u", "r", said("x")), answer("b", "a", "r", said("y"), model=LOST)],
            id="another model of one answer",
        ),
        pytest.param(
            [
                answer("a", "u", "r", said("x"), stop_reason=LOST),
                answer("b", "a", "r", said("y"), stop_reason="end_turn"),
            ],
            id="another reason for its end",
        ),
        pytest.param(
            [answer("a", "u", "r", {"type": "text", "text": {"a": LOST}})], id="a text that is none"
        ),
        pytest.param([result("v", "u", "t", is_error=LOST)], id="an error by a word"),
        pytest.param([row("user", "v", "u", message={"content": {"a": LOST}})], id="an object as content"),
        pytest.param([row("user", "v", "u", message={"content": "x", "model": LOST})], id="a person's model"),
        pytest.param([reported(INNER, prompt=LOST)], id="a sub-agent's words"),
        pytest.param([reported({**INNER, "sessionId": LOST})], id="a sub-agent's session"),
        pytest.param([reported({**INNER, "version": LOST})], id="a sub-agent's version"),
        pytest.param([reported({**INNER, "progress": LOST})], id="a sub-agent's field of our own name"),
    ],
)
def test_nothing_of_a_row_is_lost(rows: list[Json]) -> None:
    """Whatever the harness meant by it, it stands in the log."""
    items = read(GO, *rows)
    assert LOST in json.dumps([msgspec.to_builtins(item) for item in items], default=str)


@pytest.mark.parametrize(("said", "marked"), [(False, True), (None, True), ("yes", False), (1, False)])
def test_a_mark_that_is_neither_true_nor_false_is_not_known(said: Any, *, marked: bool) -> None:
    """A result of which nobody can tell whether it failed is not told as a success."""
    (returned,) = [
        item for item in read(GO, result("r", "a", "t", is_error=said)) if isinstance(item, Returned)
    ]
    assert (None, marked) == (returned.error, returned.marked)
