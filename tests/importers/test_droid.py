"""Droid's sessions, rule by rule, on rows of a few words."""

import pytest

from refold.importers.items import Answered, Prompted, Remarked, Returned, RunBegan, RunEnded, Said, Unread
from refold.reducers.vocabulary import ToolError
from support.sessions import DROID, Json, only, score, told

user, answer, call, output, read = DROID.user, DROID.answer, DROID.call, DROID.output, DROID.read
GO = user("u", None, "go")
HI = answer("a", None, "hi")


def test_the_header_begins_the_run() -> None:
    """It names the run; the model is the first that any row names."""
    began = read(GO, answer("a", None, "hi", model="m"))[0]
    assert isinstance(began, RunBegan)
    assert ("s", "m", {"title": "Count", "cwd": "/p"}) == (began.key, began.model, began.labels)


def test_an_answer_has_its_thoughts_and_its_calls() -> None:
    """Thoughts are blocks of their own; arguments keep their order."""
    found = only(
        Answered,
        read(
            GO,
            answer("a", None, {"type": "thinking", "thinking": "hm"}, "I look.", call("c", z=1, a=2)),
        ),
    )
    assert ("I look.", "hm") == (found.text, found.reasoning)
    assert ["c", "Execute", '{"z":1,"a":2}'] == [
        found.calls[0].id,
        found.calls[0].name,
        found.calls[0].arguments,
    ]


@pytest.mark.parametrize(
    ("block", "shown", "error"),
    [
        pytest.param(output("c"), "7", None, id="text"),
        pytest.param(
            output("c", [{"type": "text", "text": "7"}, {"type": "image"}]), "7\n[image]", None, id="blocks"
        ),
        pytest.param(output("c", "no", is_error=True), "no", ToolError.RAISED, id="failed"),
    ],
)
def test_results(block: Json, shown: str, error: ToolError | None) -> None:
    """A result is what the model is shown of it; is_error is the mark."""
    found = only(Returned, read(answer("a", None, call("c")), user("r", None, block)))
    assert ("c", "Execute", shown, error) == (found.id, found.name, found.output, found.error)


def test_what_is_said_with_results_stands_behind_them() -> None:
    """A message may hold both."""
    both = user("r", None, output("c"), "<system-reminder>brief</system-reminder>")
    items = read(answer("a", None, call("c")), both)
    assert [
        ("Answered", ""),
        ("Returned", "7"),
        ("Said", "<system-reminder>brief</system-reminder>"),
    ] == told(items)
    assert "harness" == only(Said, items).by
    assert "user" == only(Said, read(user("u", None, "<system-reminder>x</system-reminder>", "go"))).by


def test_a_compaction_leaves_its_summary_and_what_came_behind_its_anchor() -> None:
    """Its anchor is the last message that the summary stands for."""
    squeezed = {
        "type": "compaction_state",
        "id": "k",
        "summaryText": "S",
        "anchorMessage": {"id": "a"},
        "removedCount": 2,
    }
    items = read(GO, HI, user("v", None, "on"), squeezed)
    assert ["S", "on"] == [each.text for each in only(Prompted, items).messages]
    bare = read(GO, {"type": "compaction_state", "id": "k"})
    assert [("Said", "go"), ("Remarked", "compaction")] == told(bare)


def test_what_is_not_known_is_said() -> None:
    """Blocks of a kind that nobody knows are named; rows of one are counted as such."""
    items = read(user("u", None, "go", {"type": "hologram"}), {"type": "todo_state"}, {"type": "oracle"})
    assert "unknown parts in a message: hologram" == only(Unread, items).problem
    assert [True, False] == [item.known for item in items if isinstance(item, Remarked)]


@pytest.mark.parametrize(
    ("listed", "end"),
    [
        pytest.param([], "open", id="nothing"),
        pytest.param([GO], "open", id="a prompt"),
        pytest.param([GO, HI], "finished", id="an answer"),
        pytest.param([GO, answer("a", None, call("c"))], "open", id="a call"),
        pytest.param(
            [GO, answer("a", None, call("c")), user("r", None, output("c"))],
            "open",
            id="a result",
        ),
    ],
)
def test_how_a_session_ends(listed: list[Json], end: str) -> None:
    """The last message says how."""
    assert end == only(RunEnded, read(*listed)).end


@pytest.mark.parametrize(
    ("listed", "sure"),
    [
        pytest.param([*DROID.head], 92, id="a header"),
        pytest.param([GO, {"type": "todo_state", "todos": {}}], 82, id="messages and a list of to-dos"),
        pytest.param([GO, HI], None, id="messages alone"),
        pytest.param([{"type": "session_start", "id": "x"}], None, id="a header that says nothing"),
    ],
)
def test_detection(listed: list[Json], sure: int | None) -> None:
    """The format is told by its header, or by what stands beside its messages."""
    assert sure == score(DROID.importer, *listed)
