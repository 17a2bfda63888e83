"""What a person typed while Claude Code worked: in `view` and `show` where the model was handed it, and told
where it never was.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from support.claude_code import answer, called, result, row, said, user
from support.sessions import Json
from support.transcripts import path_of

STOP = "STOP: that is the production database"
Shown = Callable[..., tuple[str, str]]


def queue(operation: str, content: str | None = None, **more: Any) -> Json:
    """A row of the queue in which a person's words wait for the agent."""
    base: Json = {"type": "queue-operation", "operation": operation, "sessionId": "s"}
    base |= {"timestamp": "2026-01-01T00:00:00.000Z"} | ({} if content is None else {"content": content})
    return base | more


def attached(uuid: str, kind: str, **more: Any) -> Json:
    """A row that the harness attached to the conversation."""
    return row("attachment", uuid, None, attachment={"type": kind, **more})


WORKED = [
    user("u", None, "clean up"),
    answer("a", "u", "r1", called("t1", command="drop")),
    result("r", "a", "t1"),
]
WENT_ON = [answer("b", "r", "r2", said("I go on."))]
NEW_PROMPT = [user("v", "b", "another matter"), answer("c", "v", "r3", said("well"))]


@pytest.fixture
def shown(refold: Refold, store: Path, tmp_path: Path) -> Shown:
    """What `view` and `show` say of a session of these rows."""

    def of(*rows: Json) -> tuple[str, str]:
        file = tmp_path / "session.jsonl"
        file.write_text("".join(json.dumps(each) + "\n" for each in rows))
        assert 0 == refold("import", file, "--store", store).code
        assert 0 == refold("audit", "@last", "--store", store).code
        return refold("view", "@last", "--store", store).out, refold("show", "@last", "--store", store).out

    return of


@pytest.mark.parametrize(
    "leaving",
    [
        pytest.param(
            queue("remove", STOP, reason="absorbed_mid_turn"), id="absorbed in the middle of a turn"
        ),
        pytest.param(queue("remove", STOP), id="removed, as older versions say it"),
        pytest.param(queue("remove"), id="removed, and the row does not say what"),
    ],
)
def test_what_was_taken_from_the_queue_reached_the_model(shown: Shown, leaving: Json) -> None:
    """A message whose only trace is the queue stands in the view, and `show` quotes it."""
    view, show = shown(*WORKED, queue("enqueue", STOP), leaving, *WENT_ON)
    assert 1 == view.count(STOP)
    assert view.index("clean up") < view.index(STOP)
    assert STOP in show
    assert "never" not in show


@pytest.mark.parametrize(
    "again",
    [
        pytest.param([queue("remove", STOP), attached("q", "queued_command", prompt=STOP, commandMode="prompt")],
                     id="attached behind it"),
        pytest.param([attached("q", "queued_command", prompt=STOP, commandMode="prompt"), queue("remove", STOP)],
                     id="attached before it"),
        pytest.param([queue("remove", STOP), user("w", "r", STOP)], id="a row of the user behind it"),
        pytest.param([queue("dequeue"), user("w", "r", [said(STOP)])], id="dequeued, and a row of the user"),
        pytest.param([queue("dequeue"), user("w", "r", f"{STOP}\nand more")], id="dequeued with others"),
    ],
)  # fmt: skip
def test_what_comes_again_is_not_doubled(shown: Shown, again: list[Json]) -> None:
    """A message that the session writes a second time, as a row or an attachment, was said once."""
    view, show = shown(*WORKED, queue("enqueue", STOP), *again, *WENT_ON)
    assert 1 == view.count(STOP)
    assert 1 == show.count(STOP)


def test_what_began_to_wait_before_the_file_is_not_doubled(shown: Shown) -> None:
    """Of words whose coming no row tells, that they left is no second message beside the row that has
    them.
    """
    again = attached("q", "queued_command", prompt=STOP, commandMode="prompt")
    view, _ = shown(*WORKED, queue("remove", STOP), again, *WENT_ON)
    assert 1 == view.count(STOP)


def test_what_was_said_on_a_branch_that_was_left_is_in_no_view(shown: Shown) -> None:
    """Who goes back to an earlier prompt takes back what was typed since, too."""
    greeted = [user("x", None, "hello"), answer("y", "x", "r0", said("hi"))]
    begun = [user("u", "y", "clean up"), *WORKED[1:]]
    anew = [user("v", "y", "clean up, slowly"), answer("c", "v", "r3", said("well"))]
    view, show = shown(*greeted, *begun, queue("enqueue", STOP), queue("remove", STOP), *WENT_ON, *anew)
    assert "slowly" in view
    assert STOP not in view
    assert "source: rewound" in show


def test_a_notice_that_waits_was_typed_by_nobody(shown: Shown) -> None:
    """What the harness itself put into the queue is never called typed."""
    _, show = shown(*WORKED, queue("enqueue", "<task-notification>done"), *WENT_ON)
    assert "typed" not in show


def test_the_same_words_typed_twice_were_said_twice(shown: Shown) -> None:
    """An answer between the two tells that the second is no copy of the first."""
    view, _ = shown(
        *WORKED, queue("enqueue", STOP), queue("remove", STOP), *WENT_ON,
        user("v", "b", STOP), answer("c", "v", "r3", said("well")),
    )  # fmt: skip
    assert 2 == view.count(STOP)


@pytest.mark.parametrize(
    ("leaving", "why"),
    [
        pytest.param([queue("popAll", STOP)], "withdrawn before it was sent", id="taken back"),
        pytest.param([queue("popAll")], "withdrawn before it was sent", id="all of it taken back"),
        pytest.param([], "typed, not sent to the model", id="it stays queued"),
        pytest.param([queue("dequeue")], "unknown whether it was sent", id="dequeued, and no row has it"),
        pytest.param(
            [queue("remove", STOP, reason="lost")],
            "unknown whether it was sent",
            id="removed for a reason nobody knows",
        ),
    ],
)
def test_what_never_reached_the_model_is_told(shown: Shown, leaving: list[Json], why: str) -> None:
    """Words that were taken back, or wait still, are in no view: `show` quotes them, and says so."""
    view, show = shown(*WORKED, queue("enqueue", STOP), *leaving, *WENT_ON, *NEW_PROMPT)
    assert STOP not in view
    (line,) = [line for line in show.splitlines() if STOP in line]
    assert why in line


def test_words_leave_the_queue_in_their_order(shown: Shown) -> None:
    """Of several that wait the first leaves where the row does not name one, the named one where it does."""
    view, show = shown(
        *WORKED, queue("enqueue", "one"), queue("enqueue", "two"), queue("enqueue", "three"),
        queue("remove"), queue("popAll", "three"), queue("remove", "two"), *WENT_ON,
    )  # fmt: skip
    assert view.index("one\n") < view.index("two\n")
    assert "three" not in view
    assert "three" in show


def test_a_local_command_is_no_message(shown: Shown) -> None:
    """A command of the CLI that was typed meanwhile is no word to the model."""
    view, _ = shown(*WORKED, queue("enqueue", "/skills"), queue("remove"), *WENT_ON)
    assert "/skills" not in view


@pytest.mark.parametrize(
    ("attachment", "words", "by"),
    [
        (attached("q", "mcp_instructions_delta", addedNames=["db"], addedBlocks=["Use db with care."]),
         "Use db with care.", "harness"),
        (attached("q", "skill_listing", content="- deploy: ships it"), "- deploy: ships it", "harness"),
        (attached("q", "todo_reminder", content=[{"content": "Check the backup", "status": "pending"}]),
         "Check the backup", "harness"),
        (attached("q", "todo_reminder", content=[]), "[todo_reminder]", "harness"),
        (attached("q", "hook_additional_context", content=["It is Friday.", "Freeze."]), "It is Friday.", "hook"),
        (attached("q", "hook_additional_context", content="It is Friday."), "It is Friday.", "hook"),
        (attached("q", "hook_success", hookName="SessionStart:startup", hookEvent="SessionStart", content="Be brief."),
         "[hook_success: SessionStart:startup]\n  Be brief.", "hook"),
        (attached("q", "hook_blocking_error", hookName="Stop", blockingError={"blockingError": "Tests fail."}),
         "[hook_blocking_error: Stop]\n  Tests fail.", "hook"),
        (attached("q", "file", filename="/a.md", content={"type": "text", "file": {"content": "1 words"}}),
         "[file: /a.md]\n  1 words", "harness"),
        (attached("q", "edited_text_file", filename="/a.md", snippet="7 words"),
         "[edited_text_file: /a.md]\n  7 words", "harness"),
        (attached("q", "nested_memory", path="/CLAUDE.md", content={"type": "Project", "content": "Be brief."}),
         "[nested_memory: /CLAUDE.md]\n  Be brief.", "harness"),
        (attached("q", "invoked_skills", skills=[{"name": "s", "path": "/s.md", "content": "Do so."}]),
         "[invoked_skills: /s.md]\n  Do so.", "harness"),
        (attached("q", "agent_listing_delta", addedTypes=["x"], addedLines=["- x: looks"]), "- x: looks", "harness"),
        (attached("q", "deferred_tools_delta", addedNames=["db_query"], addedLines=[]), "db_query", "harness"),
        (attached("q", "task_reminder", content=[{"id": "1", "subject": "Check it", "status": "pending"}]),
         "[pending] Check it", "harness"),
        (attached("q", "selected_lines_in_ide", filename="/a.py", content="x = 1", lineStart=1, lineEnd=1),
         "[selected_lines_in_ide: /a.py]\n  x = 1", "harness"),
        (attached("q", "compact_file_reference", filename="/a.py", displayPath="a.py"),
         "[compact_file_reference: /a.py]", "harness"),
        (attached("q", "date_change", newDate="2026-01-02"), "2026-01-02", "harness"),
        (attached("q", "queued_command", prompt=[said(STOP)], commandMode="prompt"), STOP, "user"),
        (attached("q", "queued_command", prompt="<task-notification>done", commandMode="task-notification"),
         "<task-notification>done", "harness"),
    ],
)  # fmt: skip
def test_attachments_that_reach_the_model_are_in_the_view(
    shown: Shown, attachment: Json, words: str, by: str
) -> None:
    """What the harness attached and the model was given is a message, said by who put it there."""
    view, show = shown(*WORKED, attachment, *WENT_ON)
    assert words in view
    assert f"({by})" in show or f"message from {by}" in show


@pytest.mark.parametrize(
    "kind", ["command_permissions", "hook_success", "hook_non_blocking_error", "nobody_knows"]
)
def test_other_attachments_stay_beside_the_log(shown: Shown, kind: str) -> None:
    """An attachment of another type, or of a hook that says nothing to the model, is in no view."""
    view, _ = shown(*WORKED, attached("q", kind, content="some words", newDate="some words"), *WENT_ON)
    assert "some words" not in view


def test_messages_out_of_the_queue_are_counted_apart(refold: Refold) -> None:
    """The counts follow the rule of the format; messages in rows that it leaves out are counted beside
    them.
    """
    ran = refold("import", path_of("claude_code/every-row-type-redacted.jsonl"), "--dry-run", "-o", "json")
    told = json.loads(ran.out)
    assert told["messages"] == told["user_messages"] + told["assistant_messages"] + told["tool_messages"]
    assert 26 == told["beside"]


def test_a_real_session_tells_a_command_that_waited(refold: Refold, store: Path) -> None:
    """What was typed in a real session, and left the queue with no other trace, is quoted by `show`."""
    assert 0 == refold("import", path_of("claude_code/call-without-result.jsonl"), "--store", store).code
    assert (
        'unknown whether it was sent to the model: "/skills"' in refold("show", "@last", "--store", store).out
    )
