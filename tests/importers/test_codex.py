"""Codex rollouts, rule by rule, on rows of a few words."""

import json
from functools import partial
from typing import Any

import pytest

from refold.importers.items import (
    Answered,
    Cancelled,
    Item,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Said,
)
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass, Role, ToolError
from support import sessions
from support.sessions import CODEX, Json, only, score
from support.transcribed import tally_of

read = partial(sessions.read, CODEX.importer)
row, item, event, tokens = CODEX.row, CODEX.item, CODEX.event, CODEX.tokens
message, call, result = CODEX.message, CODEX.call, CODEX.result


META = row("session_meta", id="s", cli_version="0.1", base_instructions={"text": "You are."})
STARTED = event("task_started", turn_id="t")


def told(items: list[Item]) -> list[tuple[str, str]]:
    """What was said, asked and returned, in order, noise left out."""
    return [each for each in sessions.told(items) if each != ("Remarked", "unmapped")]


def test_the_header_begins_the_run() -> None:
    """Id, system prompt, version and the first turn's model are known from the beginning."""
    began = read(META, row("turn_context", model="m", approval_policy="never"))[0]

    assert isinstance(began, RunBegan)
    assert ("s", "m", "codex", "line 1") == (began.key, began.model, began.agent, began.position)
    assert [(Role.SYSTEM, "You are.")] == [(each.role, each.text) for each in began.messages]


def test_a_response_is_its_items_with_the_growth_that_follows() -> None:
    """Thoughts, text and parallel calls are one answer; a repeated counter adds nothing; an output ends
    it.
    """
    thought = item("reasoning", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="x")
    items = read(
        META, message("user", "go"), thought, message("assistant", "ok"), call("a"), call("b"),
        tokens(100, 10, 40), result("a", "one"), tokens(100, 10, 40), result("b", "two"),
        message("assistant", "end"), tokens(250, 15, 140),
    )  # fmt: skip

    assert [
        ("Said", "go"), ("Answered", "ok"), ("Returned", "one"), ("Returned", "two"), ("Answered", "end")
    ] == told(items)  # fmt: skip
    first, second = [it for it in items if isinstance(it, Answered)]
    assert ("hm", ["a", "b"], "lines 3-6") == (
        first.reasoning,
        [each.id for each in first.calls],
        first.position,
    )
    assert [Usage(input=100, output=10, cache_read=40), Usage(input=150, output=5, cache_read=100)] == [
        first.usage,
        second.usage,
    ]


def test_usage_may_come_after_the_results() -> None:
    """An answer waits for its usage past the outputs of its calls, and stays before them."""
    items = read(META, call("a"), result("a", "one"), tokens(100, 10), message("assistant", "end"))

    assert [("Answered", ""), ("Returned", "one"), ("Answered", "end")] == told(items)
    assert [100, 0] == [it.usage.input for it in items if isinstance(it, Answered)]


@pytest.mark.parametrize(
    ("counters", "grown"),
    [
        pytest.param([tokens(10, 1), tokens(10, 1), tokens(30, 2)], (30, 2), id="repeated and cumulative"),
        pytest.param([tokens(10, 1), tokens(5, 1)], (15, 2), id="a smaller total is a new counter"),
        pytest.param(
            [event("token_count", info=None), tokens(7, 1)], (7, 1), id="an event without a counter"
        ),
        pytest.param([event("token_count", info=None)], (None, None), id="never a counter"),
    ],
)
def test_tokens_are_the_growth_of_the_counter(
    counters: list[Json], grown: tuple[int | None, int | None]
) -> None:
    """What was spent is how much the total grew."""
    tally = tally_of(read(META, *counters))
    assert grown == (tally.input_tokens, tally.output_tokens)


def test_what_the_screen_showed_is_not_said_again() -> None:
    """Events that repeat items are remarks."""
    items = read(
        META,
        message("user", "go"),
        event("user_message", message="go"),
        event("agent_message", message="hi"),
        message("assistant", "hi"),
    )
    assert [("Said", "go"), ("Answered", "hi")] == told(items)


@pytest.mark.parametrize(
    ("role", "words", "by", "ours"),
    [
        pytest.param("user", "go", "user", Role.USER, id="the person"),
        pytest.param(
            "user", "# AGENTS.md instructions for /x", "harness", Role.USER, id="the repository's rules"
        ),
        pytest.param("user", "<environment_context>", "harness", Role.USER, id="the environment"),
        pytest.param("developer", "be brief", "harness", Role.SYSTEM, id="a developer"),
    ],
)
def test_who_said_what(role: str, words: str, by: str, ours: Role) -> None:
    """The first items of a user are boilerplate, and say so in their first words."""
    found = only(Said, read(META, message(role, words)))
    assert (by, ours) == (found.by, found.role)


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        pytest.param("Exit code: 0\nWall time: 1 seconds\nOutput:\nfine", False, id="code 0"),
        pytest.param("Exit code: 1\nWall time: 1 seconds\nOutput:\n", True, id="code 1"),
        pytest.param("Chunk ID: a\nProcess exited with code 2\nOutput:\nx", True, id="the other wording"),
        pytest.param("Wall time: 1 seconds\nOutput:\nExit code: 1", False, id="only the head counts"),
        pytest.param("execution error: Io(..)", True, id="not even run"),
        pytest.param('{"output":"x","metadata":{"exit_code":1}}', True, id="JSON with a code"),
        pytest.param('{"output":"x","metadata":{"exit_code":0}}', False, id="JSON with code 0"),
        pytest.param({"content": "x", "success": False}, True, id="an object without success"),
        pytest.param([{"type": "input_text", "text": "Exit code: 3\nOutput:\n"}], True, id="parts"),
    ],
)
def test_a_result_says_in_its_head_that_it_failed(output: Any, failed: bool) -> None:
    """There is no field for it: the wordings of all versions are read."""
    items = read(META, call("a"), result("a", output))
    assert (ToolError.RAISED if failed else None) is only(Returned, items).error
    assert int(failed) == tally_of(items).tool_errors


@pytest.mark.parametrize(
    ("found", "name", "arguments"),
    [
        pytest.param(
            call("a", '{"b": 1,  "a": 2}'), "shell", '{"b": 1,  "a": 2}', id="JSON text as it was written"
        ),
        pytest.param(
            item("custom_tool_call", call_id="a", name="apply_patch", input="*** x"),
            "apply_patch",
            '{"input":"*** x"}',
            id="a text",
        ),
        pytest.param(
            item("local_shell_call", call_id="a", action={"command": ["ls"]}),
            "local_shell",
            '{"command":["ls"]}',
            id="an action",
        ),
        pytest.param(
            item("tool_search_call", call_id="a", arguments={"query": "x"}),
            "tool_search",
            '{"query":"x"}',
            id="an object",
        ),
    ],
)
def test_calls_of_each_kind(found: Json, name: str, arguments: str) -> None:
    """Each kind of call has a name and arguments as JSON text."""
    (asked,) = only(Answered, read(META, found)).calls
    assert ("a", name, arguments) == (asked.id, asked.name, asked.arguments)


def test_a_call_that_the_provider_ran_waits_for_nothing() -> None:
    """A hosted search is counted as a call, and is a remark, for its result is no message."""
    items = read(META, item("web_search_call", id="ws", action={"query": "x"}))
    assert [("Remarked", "hosted_call")] == told(items)
    assert 1 == tally_of(items).tool_calls


def test_a_compaction_names_what_was_left() -> None:
    """The replacement is the next prompt, behind the system prompt; what was encrypted has its place."""
    left = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "compaction", "encrypted_content": "x"},
    ]
    items = read(
        META,
        message("user", "go"),
        message("assistant", "hi"),
        row("compacted", message="", replacement_history=left),
    )

    found = only(Prompted, items)
    assert ("compaction", ["You are.", "go", "[compaction]"]) == (
        found.why,
        [each.text for each in found.messages],
    )


def test_an_old_compaction_left_its_summary() -> None:
    """Without a replacement, the summary is what is known."""
    found = only(Prompted, read(META, message("user", "go"), row("compacted", message="So far.")))
    assert ["You are.", "So far."] == [each.text for each in found.messages]


def test_a_roll_back_takes_the_last_turns() -> None:
    """The person's last prompts go, with all that followed them."""
    items = read(
        META, message("user", "one"), message("assistant", "a"), message("user", "two"), message("assistant", "b"),
        message("user", "three"), message("assistant", "c"), event("thread_rolled_back", num_turns=2),
    )  # fmt: skip
    found = only(Prompted, items)
    assert ("rollback", ["You are.", "one", "a"]) == (found.why, [each.text for each in found.messages])


def test_policies_in_force_are_told_per_turn() -> None:
    """Each turn's approval and sandbox policy is a remark with all of it."""
    items = read(META, row("turn_context", model="m", approval_policy="never"), message("assistant", "hi"))
    assert "never" == json.loads(only(Remarked, items).rest)["payload"]["approval_policy"]
    assert "m" == only(Answered, items).model


@pytest.mark.parametrize(
    ("found", "what"),
    [
        pytest.param(event("guardian_assessment", risk_level="high"), "guardrail", id="a guardian"),
        pytest.param(event("context_compacted"), "compaction", id="a compaction on the screen"),
        pytest.param(event("turn_aborted", reason="replaced"), "turn_aborted", id="not the person"),
        pytest.param(event("exec_approval_request"), "approval", id="a question"),
        pytest.param(row("session_meta", id="parent"), "session", id="the header of a parent"),
        pytest.param(event("exec_command_end", exit_code=0), "unmapped", id="any other"),
    ],
)
def test_what_is_remarked(found: Json, what: str) -> None:
    """Decisions of the source keep their word, and the row is in the rest."""
    remarked = only(Remarked, read(META, found))
    assert (what, found) == (remarked.what, json.loads(remarked.rest))


@pytest.mark.parametrize(
    ("found", "failure"),
    [
        pytest.param({"error": {"kind": "rate_limit", "message": "x"}}, FailureClass.RATE_LIMIT, id="a kind"),
        pytest.param(
            {"message": "x", "codex_error_info": "usage_limit_exceeded"},
            FailureClass.RATE_LIMIT,
            id="a limit of use",
        ),
        pytest.param(
            {"message": "x", "codex_error_info": "context_window_exceeded"},
            FailureClass.CONTEXT_OVERFLOW,
            id="too long",
        ),
        pytest.param(
            {"message": "x", "codex_error_info": {"stream": {"http_status_code": 503}}},
            FailureClass.OVERLOADED,
            id="a status",
        ),
        pytest.param({"message": "connection reset"}, FailureClass.NETWORK, id="words"),
    ],
)
def test_errors_are_failed_requests(found: Json, failure: FailureClass) -> None:
    """The class follows from the source's word, its status, or its message."""
    assert failure is only(RequestFailed, read(META, event("error", **found))).failure


@pytest.mark.parametrize(
    ("found", "end", "source"),
    [
        pytest.param([], "unknown", "no task events in the file", id="no events"),
        pytest.param([STARTED], "open", "task_started without task_complete", id="begun"),
        pytest.param(
            [STARTED, event("task_complete")], "finished", "last task event is task_complete", id="complete"
        ),
        pytest.param(
            [STARTED, event("turn_aborted", reason="interrupted")],
            "cancelled",
            "last task event is turn_aborted",
            id="stopped",
        ),
        pytest.param(
            [STARTED, event("error", error={"kind": "rate_limit"})],
            "limit:rate",
            "last task event is error rate_limit",
            id="a limit",
        ),
        pytest.param(
            [STARTED, event("error", message="boom")], "error", "last task event is error", id="an error"
        ),
        pytest.param(
            [event("task_complete"), STARTED], "open", "task_started without task_complete", id="begun again"
        ),
    ],
)
def test_how_a_rollout_ends(found: list[Json], end: str, source: str) -> None:
    """The last event of a task says how."""
    ended = only(RunEnded, read(META, *found))
    assert (end, source) == (ended.end, ended.end_source)


def test_a_stop_by_the_person_is_a_cancellation() -> None:
    """An interrupted turn was cancelled by its user."""
    assert "interrupted" == only(Cancelled, read(META, event("turn_aborted", reason="interrupted"))).reason


def test_bare_items_of_old_versions_are_read() -> None:
    """Without an envelope the item is the row."""
    bare = [message("user", "go")["payload"], call("a")["payload"], result("a")["payload"]]
    assert [("Said", "go"), ("Answered", ""), ("Returned", "done")] == told(read(*bare))


@pytest.mark.parametrize(
    ("found", "sure"),
    [
        pytest.param([META], 95, id="a header"),
        pytest.param([message("user", "go")], 85, id="items"),
        pytest.param([call("a")["payload"]], 45, id="bare items"),
        pytest.param([{"type": "message", "message": {"role": "user"}}], None, id="another format"),
    ],
)
def test_detection(found: list[Json], sure: int | None) -> None:
    """The format is told by its envelopes."""
    assert sure == score(CODEX.importer, *found)
