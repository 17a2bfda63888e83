"""Claude Code sessions, rule by rule, on rows of a few words."""

import json
from typing import Any

import pytest

from refold.importers.formats.claude_code.importer import CLAUDE_CODE
from refold.importers.formats.claude_code.reading import CLEARED
from refold.importers.items import (
    UNCOUNTED,
    Answered,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    Said,
)
from refold.importers.source import Source
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass, Role, StopReason, ToolError
from support.claude_code import answer, called, ending, read, result, row, said, synthetic, user
from support.sessions import Json, only, told
from support.transcribed import tally_of


def test_a_response_is_one_answer_with_its_usage_once() -> None:
    """Rows of one message.id are one answer: its blocks in order, input once, the largest output."""
    items = read(
        user("u", None, "go"),
        answer("a", "u", "r", {"type": "thinking", "thinking": "hm", "signature": "x"}),
        answer("b", "a", "r", said("ok")),
        answer(
            "c",
            "b",
            "r",
            called("t", z=1, a=2),
            usage={"input_tokens": 3, "output_tokens": 40},
            stop_reason="tool_use",
        ),
    )

    found = only(Answered, items)
    assert ("hm", "ok", "lines 2-4", "r", "m") == (
        found.reasoning,
        found.text,
        found.position,
        found.response_id,
        found.model,
    )
    assert ["t", "Bash", '{"z":1,"a":2}'] == [
        found.calls[0].id,
        found.calls[0].name,
        found.calls[0].arguments,
    ]
    assert Usage(input=123, output=40, cache_read=20, cache_write=100) == found.usage
    assert (StopReason.TOOL_USE, "tool_use", "reported") == (found.stop, found.stop_raw, found.quality)
    tally = tally_of(items)
    assert (1, 123, 40) == (tally.assistant_messages, tally.input_tokens, tally.output_tokens)


def test_results_between_the_rows_of_an_answer_come_after_it() -> None:
    """Parallel calls are asked in one answer, and their results follow it in their order."""
    items = read(
        user("u", None, "go"),
        answer("a", "u", "r", called("t1")),
        result("r1", "a", "t1", "one"),
        answer("b", "a", "r", called("t2")),
        result("r2", "b", "t2", "two"),
        answer("c", "r2", "q", said("end")),
    )

    assert [
        ("Said", "go"),
        ("Answered", ""),
        ("Returned", "one"),
        ("Returned", "two"),
        ("Answered", "end"),
    ] == told(items)
    assert 2 == len(next(item for item in items if isinstance(item, Answered)).calls)
    assert ("unknown", "last response has no call, and its stop reason is not recorded") == (
        ending(items).end,
        ending(items).end_source,
    )


def test_a_count_too_small_for_its_text_is_partial() -> None:
    """An output of fewer tokens than one for ten characters was written when the stream began."""
    assert "partial" == only(Answered, read(answer("a", None, "r", said("x" * 100)))).quality


def test_a_repeated_uuid_counts_once() -> None:
    """A row written again with the same uuid is kept as a remark, and counted once."""
    last = answer("a", "u", "r", said("hi"))
    items = read(user("u", None, "go"), last, last | {"cwd": "/elsewhere"})

    assert [("Said", "go"), ("Answered", "hi"), ("Remarked", "repeated")] == told(items)
    assert 2 == tally_of(items).messages


def test_a_placeholder_is_no_uuid() -> None:
    """Rows that share what a redaction put everywhere are rows of their own."""
    items = read(user("[trimmed for fixture]", None, "one"), user("[trimmed for fixture]", None, "two"))

    assert 2 == tally_of(items).user_messages


def test_two_objects_on_a_line_are_two_rows() -> None:
    """A file that was continued without a newline loses nothing."""
    joined = json.dumps(user("u", None, "go")) + json.dumps(answer("a", "u", "r", said("hi")))
    items = list(CLAUDE_CODE.items(Source.of("x", joined.encode())))

    assert [("Said", "go"), ("Answered", "hi")] == told(items)


def test_rows_of_a_sub_agent_are_a_run_of_its_own() -> None:
    """Rows beside the session's are told behind it, as a run that the call began which has their first words
    as its prompt.
    """
    side = {"isSidechain": True}
    items = read(
        user("u", None, "go"),
        answer("a", "u", "r", called("t", prompt="explore")),
        user("s1", None, "explore") | side,
        answer("s2", "s1", "q", said("found")) | side,
        result("b", "a", "t"),
    )

    began = [item for item in items if isinstance(item, RunBegan)]
    assert [("s", "", ""), ("s/agent-1", "s", "t")] == [(run.key, run.parent, run.call) for run in began]
    place = items.index(began[1])
    assert [("Said", "go"), ("Answered", ""), ("Returned", "done")] == told(items[:place])
    assert [("Said", "explore"), ("Answered", "found")] == told(items[place:])
    assert "unknown" == ending(items[place:]).end


def test_rows_without_an_id_are_no_parents() -> None:
    """Two sub-agents stay two, though a row of the first has no uuid and the second begins without a
    parent.
    """
    side = {"isSidechain": True}
    items = read(
        user("u", None, "go"),
        answer("a", "u", "r", called("t", prompt="explore")),
        answer("b", "a", "r", called("w", prompt="search")),
        user("s1", None, "explore") | side,
        user("", "s1", "more") | side,
        user("s2", None, "search") | side,
    )

    assert ["", "t", "w"] == [item.call for item in items if isinstance(item, RunBegan)]


def test_reported_rows_of_a_sub_agent_are_a_run_that_counts_for_nothing() -> None:
    """A row wrapped into `progress` names its agent and the call; what it says is in a run of that agent's,
    and nothing is lost.
    """
    inner = [user("s1", None, "explore"), answer("s2", "s1", "q", called("x")), result("s3", "s2", "x")]
    items = read(
        user("u", None, "go"),
        answer("a", "u", "r", called("t")),
        *(reported(f"p{place}", "t", row) for place, row in enumerate(inner)),
        result("b", "a", "t"),
    )

    first, second = (place for place, item in enumerate(items) if isinstance(item, RunBegan))
    assert [("Said", "go"), ("Answered", ""), ("Returned", "done")] == told(items[first:second])
    assert [("Said", "explore"), ("Answered", ""), ("Returned", "done")] == told(items[second:])
    began = items[second]
    assert isinstance(began, RunBegan)
    assert ("s/abc", "s", "t") == (began.key, began.parent, began.call)
    assert {UNCOUNTED} == {item.counts for item in items[second:]}
    assert all(f'"uuid":"p{place}"' in "".join(item.rest for item in items) for place in range(3))


def reported(uuid: str, call: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row of a sub-agent's as newer versions report it."""
    data = {"type": "agent_progress", "agentId": "abc", "prompt": "explore", "message": row}
    return {"type": "progress", "uuid": uuid, "sessionId": "s", "parentToolUseID": call, "data": data}


def test_a_file_of_a_sub_agent_is_its_conversation() -> None:
    """Where every row is a sidechain's, the rows are the run."""
    side = {"isSidechain": True}
    items = read(user("u", None, "go") | side, answer("a", "u", "r", said("hi")) | side)

    assert [("Said", "go"), ("Answered", "hi")] == told(items)
    assert "unknown" == ending(items).end


def test_a_branch_before_a_compaction_is_a_branch() -> None:
    """The chain goes on behind a boundary, by the logical parent."""
    items = read(
        user("u", None, "go"),
        user("x", "u", "wrong"),
        answer("y", "x", "q", said("oh")),
        answer("a", "u", "r", said("hi")),
        row("system", "c", None, subtype="compact_boundary", logicalParentUuid="a"),
        user("s", "c", "Summary.", isCompactSummary=True),
    )

    assert ("Remarked", "rewound") == told(items)[1]


def test_results_of_parallel_calls_are_no_branch() -> None:
    """Each result hangs on its own piece of the answer: a fork of the tree, not of the conversation."""
    items = read(
        user("u", None, "go"),
        answer("a", "u", "r", called("t1")),
        answer("b", "a", "r", called("t2")),
        result("r1", "a", "t1", "one"),
        result("r2", "b", "t2", "two"),
        answer("c", "r2", "q", said("end")),
    )

    assert [] == [item for item in items if isinstance(item, Remarked)]


def test_a_row_without_its_parent_stays() -> None:
    """A chain that is broken (the file begins in the middle) drops nothing before the break."""
    items = read(user("u", "gone", "go"), answer("a", "u", "r", said("hi")), user("v", "gone too", "more"))

    assert [("Said", "go"), ("Answered", "hi"), ("Said", "more")] == told(items)


@pytest.mark.parametrize(
    ("content", "more", "by"),
    [
        pytest.param("hello", {}, "user", id="a prompt"),
        pytest.param([said("a"), {"type": "image", "source": {}}], {}, "user", id="an image beside it"),
        pytest.param("Base directory for this skill", {"isMeta": True}, "harness", id="a skill"),
        pytest.param("Stop hook feedback:\nnot yet", {"isMeta": True}, "hook", id="a stop hook"),
        pytest.param("<command-name>/exit</command-name>", {}, "harness", id="a local command"),
        pytest.param("<local-command-stdout>bye</local-command-stdout>", {}, "harness", id="its output"),
    ],
)
def test_who_said_what(content: Any, more: Json, by: str) -> None:
    """A message of the user's side is the person's, the harness's or a hook's."""
    found = only(Said, read(user("u", None, content, **more)))
    assert (by, Role.USER) == (found.by, found.role)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        pytest.param(
            "The user doesn't want to proceed with this tool use.", ToolError.CANCELLED, id="rejected"
        ),
        pytest.param("<tool_use_error>InputValidationError: x", ToolError.BAD_ARGUMENTS, id="bad arguments"),
        pytest.param("Error: No such tool available: X", ToolError.UNKNOWN_TOOL, id="unknown tool"),
        pytest.param("Command timed out after 2m", ToolError.TIMEOUT, id="timeout"),
        pytest.param([said("Exit code 1")], ToolError.RAISED, id="any other"),
    ],
)
def test_errors_of_results(content: Any, error: ToolError) -> None:
    """A marked result has the class that its words tell; the same words unmarked are no error."""
    marked = read(result("r", "a", "t", content, is_error=True))
    assert (error, 1) == (only(Returned, marked).error, tally_of(marked).tool_errors)
    assert None is only(Returned, read(result("r", "a", "t", content))).error


def test_a_rejected_call_is_remarked() -> None:
    """A person's refusal is evidence beside the result."""
    items = read(result("r", "a", "t", "The user doesn't want to proceed with this tool use.", is_error=True))
    assert "approval:rejected" == only(Remarked, items).what


def test_a_compaction_leaves_its_summary_and_what_it_kept() -> None:
    """After a compaction the next answer is shown the summary, then the rows that were preserved."""
    kept = {"trigger": "auto", "preTokens": 9, "preservedMessages": {"uuids": ["a"]}}
    items = read(
        user("u", None, "go"),
        answer("a", "u", "r", said("hi")),
        row("system", "c", None, subtype="compact_boundary", logicalParentUuid="a", compactMetadata=kept),
        user("s", "c", "Summary.", isCompactSummary=True),
        answer("b", "s", "q", said("on")),
    )

    found = only(Prompted, items)
    assert ("compaction", ["Summary.", "hi"]) == (found.why, [message.text for message in found.messages])
    assert "compaction" == only(Remarked, items).what
    assert 2 == tally_of(items).user_messages


def test_a_microcompaction_clears_results_in_place() -> None:
    """The conversation is the same, but for the results that it names."""
    cleared = {"preTokens": 9, "tokensSaved": 5, "compactedToolIds": ["t1"]}
    items = read(
        user("u", None, "go"),
        answer("a", "u", "r", called("t1")),
        result("r1", "a", "t1", "long"),
        answer("b", "r1", "q", called("t2")),
        result("r2", "b", "t2", "short"),
        row("system", "m", "r2", subtype="microcompact_boundary", microcompactMetadata=cleared),
    )

    found = only(Prompted, items)
    assert ["go", "", CLEARED, "", "short"] == [message.text for message in found.messages]
    assert ["t1", "t2"] == [message.call for message in found.messages if message.role is Role.TOOL]


@pytest.mark.parametrize(
    ("error", "failure", "status"),
    [
        pytest.param(
            {"status": 529, "error": {"type": "overloaded_error"}},
            FailureClass.OVERLOADED,
            529,
            id="a status",
        ),
        pytest.param({"message": "Connection error."}, FailureClass.NETWORK, None, id="words"),
        pytest.param({}, FailureClass.OTHER, None, id="nothing"),
        pytest.param(
            {"error": {"error": {"type": "authentication_error", "message": "401"}}},
            FailureClass.AUTH,
            None,
            id="nested",
        ),
    ],
)
def test_a_retried_request_failed(error: Json, failure: FailureClass, status: int | None) -> None:
    """A row api_error is a failed request, its class by status and words."""
    items = read(
        user("u", None, "go"), row("system", "e", "u", subtype="api_error", error=error, retryAttempt=1)
    )
    assert (failure, status) == (only(RequestFailed, items).failure, only(RequestFailed, items).status)


def test_an_error_in_the_models_place_is_no_answer() -> None:
    """A synthetic API error is a failed request and the end; no response is counted."""
    items = read(
        user("u", None, "go"),
        synthetic(
            "a", "u", "You've hit your limit", isApiErrorMessage=True, apiErrorStatus=429, error="rate_limit"
        ),
    )

    assert FailureClass.RATE_LIMIT is only(RequestFailed, items).failure
    assert ("limit:rate", "last request failed (429)") == (
        ending(items).end,
        ending(items).end_source,
    )
    assert (0, None) == (tally_of(items).assistant_messages, tally_of(items).input_tokens)


def test_the_harness_in_the_models_place_is_quoted() -> None:
    """Other synthetic words stand in the conversation as an assistant's, said by the harness."""
    found = only(Said, read(synthetic("a", "u", "No response requested.")))
    assert (Role.ASSISTANT, "harness") == (found.role, found.by)


def test_a_mode_of_permissions_is_told_when_it_changes() -> None:
    """The mode in force is a remark at the first prompt that has it."""
    items = read(
        user("u", None, "a", permissionMode="default"),
        user("v", "u", "b", permissionMode="default"),
        user("w", "v", "c", permissionMode="acceptEdits"),
    )
    found = [(item.position, item.rest) for item in items if isinstance(item, Remarked)]
    assert [
        ("line 1", '{"permissionMode":"default"}'),
        ("line 3", '{"permissionMode":"acceptEdits"}'),
    ] == found


def test_a_queued_prompt_was_said() -> None:
    """What a person typed while the agent worked is a message where it was handed over."""
    queued = {"type": "queued_command", "prompt": "also this", "commandMode": "prompt"}
    found = only(Said, read(row("attachment", "q", None, attachment=queued)))
    assert ("also this", "user") == (found.text, found.by)


def test_what_has_no_place_is_in_the_rest() -> None:
    """Signatures, rich results and fields of the row stay beside what was taken of it."""
    items = read(
        answer("a", "u", "r", {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        result("b", "a", "t") | {"toolUseResult": {"stdout": "x"}},
    )
    assert [{"signature": "sig"}] == json.loads(only(Answered, items).rest)["message"]["content"]
    assert {"stdout": "x"} == json.loads(only(Returned, items).rest)["toolUseResult"]


@pytest.mark.parametrize("side", [False, True], ids=["a session", "a sub-agent's own file"])
def test_a_session_begins_with_its_first_message(*, side: bool) -> None:
    """Bookkeeping that is older than the first message does not begin a run."""
    later = {"timestamp": "2026-01-01T00:00:07Z", "isSidechain": side}
    items = read(row("progress", "p", None), user("u", "p", "go") | later)
    assert only(Said, items).at == only(RunBegan, items).at
