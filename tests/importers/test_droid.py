"""Droid's sessions, rule by rule, on rows of a few words."""

import json
from typing import Any

import pytest

from refold.importers.derivation.gap import conversations
from refold.importers.formats.droid import DROID
from refold.importers.items import (
    Answered,
    Item,
    Prompted,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.importers.source import Source
from refold.reducers.vocabulary import ToolError

Json = dict[str, Any]
HEAD: Json = {"type": "session_start", "id": "s", "title": "Count", "owner": "a", "version": 2, "cwd": "/p"}


def message(id_: str, role: str, *content: Any, parent: str | None = None, **more: Any) -> Json:
    """A message."""
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    told = {"role": role, "content": blocks, **more}
    linked = {} if parent is None else {"parentId": parent}
    return {"type": "message", "id": id_, "timestamp": "2026-01-01T00:00:01.000Z", "message": told, **linked}


def called(id_: str) -> Json:
    """A block with a call."""
    return {"type": "tool_use", "id": id_, "name": "Execute", "input": {"z": 1, "a": 2}}


def result(id_: str, said: Any = "7", **more: Any) -> Json:
    """A block with a result."""
    return {"type": "tool_result", "tool_use_id": id_, "content": said, **more}


def read(*listed: Json) -> list[Item]:
    """The items of a session of these rows."""
    return list(
        conversations(
            DROID.items(Source.of("x", b"".join(json.dumps(each).encode() + b"\n" for each in listed)))
        )
    )


def only(kind: type[Item], items: list[Item]) -> Any:
    """The one item of a kind."""
    (found,) = [item for item in items if isinstance(item, kind)]
    return found


def told(items: list[Item]) -> list[tuple[str, str]]:
    """What was said, asked and returned, in order."""
    return [
        (
            type(item).__name__,
            getattr(item, "text", "") or getattr(item, "output", "") or getattr(item, "what", ""),
        )
        for item in items[1:-1]
    ]


GO = message("u", "user", "go")
HI = message("a", "assistant", "hi")


def test_the_header_begins_the_run() -> None:
    """It names the run; the model is the first that any row names."""
    began = read(HEAD, GO, message("a", "assistant", "hi", model="m"))[0]
    assert isinstance(began, RunBegan)
    assert ("s", "m", {"title": "Count", "cwd": "/p"}) == (began.key, began.model, began.labels)


def test_an_answer_has_its_thoughts_and_its_calls() -> None:
    """Thoughts are blocks of their own; arguments keep their order."""
    found = only(
        Answered,
        read(
            HEAD,
            GO,
            message("a", "assistant", {"type": "thinking", "thinking": "hm"}, "I look.", called("c")),
        ),
    )
    assert ("I look.", "hm") == (found.text, found.reasoning)
    assert ["c", "Execute", '{"z":1,"a":2}'] == [
        found.calls[0].id,
        found.calls[0].name,
        found.calls[0].arguments,
    ]


@pytest.mark.parametrize(
    ("block", "output", "error"),
    [
        pytest.param(result("c"), "7", None, id="text"),
        pytest.param(
            result("c", [{"type": "text", "text": "7"}, {"type": "image"}]), "7\n[image]", None, id="blocks"
        ),
        pytest.param(result("c", "no", is_error=True), "no", ToolError.RAISED, id="failed"),
    ],
)
def test_results(block: Json, output: str, error: ToolError | None) -> None:
    """A result is what the model is shown of it; is_error is the mark."""
    found = only(Returned, read(HEAD, message("a", "assistant", called("c")), message("r", "user", block)))
    assert ("c", "Execute", output, error) == (found.id, found.name, found.output, found.error)


def test_what_is_said_with_results_stands_behind_them() -> None:
    """A message may hold both."""
    both = message("r", "user", result("c"), "<system-reminder>brief</system-reminder>")
    items = read(HEAD, message("a", "assistant", called("c")), both)
    assert [
        ("Answered", ""),
        ("Returned", "7"),
        ("Said", "<system-reminder>brief</system-reminder>"),
    ] == told(items)
    assert "harness" == only(Said, items).by
    assert (
        "user"
        == only(Said, read(HEAD, message("u", "user", "<system-reminder>x</system-reminder>", "go"))).by
    )


def test_a_compaction_leaves_its_summary_and_what_came_behind_its_anchor() -> None:
    """Its anchor is the last message that the summary stands for."""
    squeezed = {
        "type": "compaction_state",
        "id": "k",
        "summaryText": "S",
        "anchorMessage": {"id": "a"},
        "removedCount": 2,
    }
    items = read(HEAD, GO, HI, message("v", "user", "on"), squeezed)
    assert ["S", "on"] == [each.text for each in only(Prompted, items).messages]
    bare = read(HEAD, GO, {"type": "compaction_state", "id": "k"})
    assert [("Said", "go"), ("Remarked", "compaction")] == told(bare)


def test_a_branch_that_was_left_stands_beside() -> None:
    """Where the rows name their parents, those that do not lead to the last one are no part of it."""
    rows = [message("u", "user", "go", parent="s"), message("a", "assistant", "hi", parent="u")]
    left = [
        message("v", "user", "wrong", result("c", is_error=True), parent="a"),
        message("b", "assistant", called("d"), parent="v"),
    ]
    items = read(HEAD, *rows, *left, message("w", "user", "right", parent="a"))
    assert [
        ("Said", "go"),
        ("Answered", "hi"),
        ("Remarked", "rewound"),
        ("Unread", ""),
        ("Said", "right"),
    ] == told(items)
    counts = only(Remarked, items).counts
    assert (1, 1, 1, 1, 1) == (counts.user, counts.assistant, counts.calls, counts.results, counts.errors)


def test_what_is_not_known_is_said() -> None:
    """Blocks of a kind that nobody knows are named; rows of one are counted as such."""
    items = read(
        HEAD, message("u", "user", "go", {"type": "hologram"}), {"type": "todo_state"}, {"type": "oracle"}
    )
    assert "parts of a message that are not known here: hologram" == only(Unread, items).problem
    assert [True, False] == [item.known for item in items if isinstance(item, Remarked)]


@pytest.mark.parametrize(
    ("listed", "end"),
    [
        pytest.param([], "open", id="nothing"),
        pytest.param([GO], "open", id="a prompt"),
        pytest.param([GO, HI], "finished", id="an answer"),
        pytest.param([GO, message("a", "assistant", called("c"))], "open", id="a call"),
        pytest.param(
            [GO, message("a", "assistant", called("c")), message("r", "user", result("c"))],
            "open",
            id="a result",
        ),
    ],
)
def test_how_a_session_ends(listed: list[Json], end: str) -> None:
    """The last message says how."""
    assert end == only(RunEnded, read(HEAD, *listed)).end


@pytest.mark.parametrize(
    ("listed", "score"),
    [
        pytest.param([HEAD], 92, id="a header"),
        pytest.param([GO, {"type": "todo_state", "todos": {}}], 82, id="messages and a list of to-dos"),
        pytest.param([GO, HI], None, id="messages alone"),
        pytest.param([{"type": "session_start", "id": "x"}], None, id="a header that says nothing"),
    ],
)
def test_detection(listed: list[Json], score: int | None) -> None:
    """The format is told by its header, or by what stands beside its messages."""
    match = DROID.match(Source.of("x", b"\n".join(json.dumps(each).encode() for each in listed)))
    assert score == (match.score if match else None)
