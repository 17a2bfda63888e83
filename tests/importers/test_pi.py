"""Pi sessions, rule by rule, on entries of a few words."""

import pytest

from refold.importers.formats.pi import BRANCH, SUMMARY
from refold.importers.items import (
    Answered,
    Cancelled,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Said,
)
from refold.reducers.events import RunStarted
from refold.reducers.machine import AgentState
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass, StopReason, ToolError
from support.sessions import PI, Json, only, score, told
from support.told import derived, events, kinds
from support.transcribed import tally_of

entry, user, answer, call, result, read = PI.entry, PI.user, PI.answer, PI.call, PI.result, PI.read
GO = user("u", None, "go")
HI = answer("a", "u", "hi")


def test_an_answer_has_its_usage_and_its_price() -> None:
    """Cached tokens stand beside the input there, inside it here; the cost is Pi's own, in nano-dollars."""
    usage = {"input": 3, "output": 7, "cacheRead": 20, "cacheWrite": 100, "cost": {"total": 0.017836}}
    blocks = ({"type": "thinking", "thinking": "hm"}, "hi", call("t", z=1, a=2))
    items = read(answer("a", None, *blocks, usage=usage, stopReason="toolUse", responseId="r"))

    found = only(Answered, items)
    assert Usage(input=123, output=7, cache_read=20, cache_write=100) == found.usage
    assert (17_836_000, StopReason.TOOL_USE, "r", "hm") == (
        found.cost_nanousd, found.stop, found.response_id, found.reasoning
    )  # fmt: skip
    assert ["t", "bash", '{"z":1,"a":2}'] == [
        found.calls[0].id,
        found.calls[0].name,
        found.calls[0].arguments,
    ]
    assert (123, 7) == (tally_of(items).input_tokens, tally_of(items).output_tokens)


def test_the_header_may_be_younger_than_the_messages() -> None:
    """The session began when its header says; times are counted over all entries."""
    early = GO | {"timestamp": "2025-12-31T00:00:00.000Z"}
    items = read(early)

    assert isinstance(items[0], RunBegan)
    assert "s" == items[0].key
    tally = tally_of(items)
    assert ("2025-12-31T00:00:00Z", "2026-01-01T00:00:00Z") == (tally.first_timestamp, tally.last_timestamp)


def test_a_result_that_failed_is_marked() -> None:
    """isError is the mark."""
    items = read(result("r", None, "t", failed=True))
    assert ("t", "bash", ToolError.RAISED, 1) == (
        only(Returned, items).id, only(Returned, items).name, only(Returned, items).error, tally_of(items).tool_errors
    )  # fmt: skip


def test_an_aborted_answer_was_cancelled() -> None:
    """What had arrived is an answer; with nothing there is only the cancellation. Both count as responses."""
    part = answer("a", "u", "I wi", stopReason="aborted", errorMessage="Request was aborted")
    none = answer("b", "a", stopReason="aborted", errorMessage="Request was aborted")
    items = read(GO, part, none)

    assert [("Said", "go"), ("Answered", "I wi"), ("Cancelled", ""), ("Cancelled", "")] == told(items)
    assert 2 == tally_of(items).assistant_messages


def test_an_answer_that_broke_off_is_a_failed_request() -> None:
    """Its text is kept as partial; with calls it is an answer, for they were asked."""
    broken = answer("a", "u", "I wi", stopReason="error", errorMessage="503 unavailable")
    found = only(RequestFailed, read(GO, broken))
    assert (FailureClass.OVERLOADED, "I wi") == (found.failure, found.partial_text)

    asked = read(answer("a", None, call("t"), stopReason="error", errorMessage="x"))
    assert [("Answered", ""), ("Remarked", "error")] == told(asked)
    assert "error" == only(RunEnded, asked).end


def test_a_compaction_keeps_from_its_first_entry() -> None:
    """The summary in Pi's words, then the messages from the entry on, whatever an earlier compaction left."""
    items = read(
        user("u", None, "one"),
        answer("a", "u", "two"),
        entry("compaction", "c", "a", summary="S1", firstKeptEntryId="a", tokensBefore=9),
        user("v", "c", "three"),
        entry("compaction", "d", "v", summary="S2", firstKeptEntryId="a", tokensBefore=9),
    )

    first, second = [item for item in items if isinstance(item, Prompted)]
    assert [SUMMARY.format("S1"), "two"] == [each.text for each in first.messages]
    assert [SUMMARY.format("S2"), "two", "three"] == [each.text for each in second.messages]
    assert ["compaction", "compaction"] == [item.what for item in items if isinstance(item, Remarked)]


def test_a_compaction_may_keep_from_an_entry_that_is_no_message() -> None:
    """The first entry kept need not be a message."""
    items = read(
        entry("model_change", "m", None, modelId="x"),
        user("u", "m", "one"),
        entry("compaction", "c", "u", summary="S", firstKeptEntryId="m"),
    )
    assert [SUMMARY.format("S"), "one"] == [each.text for each in only(Prompted, items).messages]


def test_a_compaction_of_version_1_counts_entries() -> None:
    """An index counts the entries of the file from 0, the header among them."""
    plain = [
        {key: value for key, value in each.items() if "Id" not in key and key != "id"} for each in (GO, HI)
    ]
    items = read(*plain, {"type": "compaction", "summary": "S", "firstKeptEntryIndex": 2})
    assert [SUMMARY.format("S"), "hi"] == [each.text for each in only(Prompted, items).messages]


def test_who_goes_back_leaves_a_branch() -> None:
    """Entries that do not lead to the last one are a remark; what the branch came to is a message."""
    items = read(GO, HI,
        user("x", "a", "wrong"), answer("y", "x", "oh"),
        entry("branch_summary", "b", "a", summary="Tried.", fromId="y"),
        user("v", "b", "right"), answer("w", "v", "yes"),
    )  # fmt: skip
    assert [
        ("Said", "go"), ("Answered", "hi"), ("Remarked", "rewound"), ("Unread", ""),
        ("Said", BRANCH.format("Tried.")), ("Said", "right"), ("Answered", "yes"),
    ] == told(items)  # fmt: skip


def test_entries_beside_the_path_are_no_branch() -> None:
    """What hangs off the path without a message on it is noise, not a branch."""
    items = read(GO, entry("branchSummary", "b", "u", summary="x"), HI)
    assert [("Said", "go"), ("Remarked", "subagent"), ("Answered", "hi")] == told(items)


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        pytest.param({"output": "x", "exitCode": 0}, "Ran `ls`\n```\nx\n```", id="with output"),
        pytest.param(
            {"output": "", "exitCode": 2}, "Ran `ls`\n(no output)\n\nCommand exited with code 2", id="failed"
        ),
        pytest.param(
            {"output": "x", "cancelled": True}, "Ran `ls`\n```\nx\n```\n\n(command cancelled)", id="cancelled"
        ),
    ],
)
def test_a_shell_command_of_the_person_is_told_to_the_model(more: Json, shown: str) -> None:
    """It is a message in Pi's words, and none of the counted roles."""
    items = read(entry("message", "b", None, message={"role": "bashExecution", "command": "ls"} | more))
    assert (shown, 0) == (only(Said, items).text, tally_of(items).messages)


def test_a_shell_command_of_the_person_asks_for_nothing() -> None:
    """Neither is it the task of a run, nor is an answer to it waited for: the model is told of it with the
    next prompt.
    """
    shell = entry("message", "b", None, message={"role": "bashExecution", "command": "ls", "output": "x"})
    ran = entry("message", "c", "a", message={"role": "bashExecution", "command": "pwd", "output": "/"})
    deriving, log = derived(read(shell, GO, HI, ran))
    (started,) = [each for each in events(log) if isinstance(each, RunStarted)]
    assert 1 == started.task
    assert "input_received" not in kinds(log)
    assert AgentState.WAITING_FOR_INPUT is deriving.state.agent_state


def test_a_shell_command_may_be_kept_from_the_model() -> None:
    """What was excluded from the context is a remark."""
    hidden = {"role": "bashExecution", "command": "ls", "output": "x", "excludeFromContext": True}
    assert [("Remarked", "unmapped")] == told(read(entry("message", "b", None, message=hidden)))


def test_what_an_extension_put_in_is_the_harnesses() -> None:
    """A custom message is in the conversation, a custom entry is not."""
    items = read(
        entry("custom_message", "c", None, content="note", customType="x"), entry("custom", "d", "c")
    )
    assert "harness" == only(Said, items).by
    assert "unmapped" == only(Remarked, items).what


@pytest.mark.parametrize(
    ("entries", "end", "source"),
    [
        pytest.param([], "open", "no message in it", id="nothing"),
        pytest.param([GO], "open", "last message is a prompt without a response", id="a prompt"),
        pytest.param([GO, HI], "finished", "last response has no call, stop=stop", id="an answer"),
        pytest.param(
            [GO, answer("a", "u", "hi", stopReason=None)],
            "unknown",
            "last response has no call, and its stop reason is not recorded",
            id="no reason",
        ),
        pytest.param(
            [GO, answer("a", "u", call("t"), stopReason="toolUse")],
            "open",
            "1 tool call(s) without a result at the end",
            id="a call",
        ),
        pytest.param(
            [result("r", None, "t")], "open", "last message is a result without a response", id="a result"
        ),
        pytest.param(
            [answer("a", None, "x", stopReason="length")],
            "limit:token",
            "last response has no call, stop=length",
            id="too long",
        ),
        pytest.param(
            [answer("a", None, stopReason="aborted")],
            "cancelled",
            "last request was cancelled",
            id="aborted",
        ),
    ],
)
def test_how_a_session_ends(entries: list[Json], end: str, source: str) -> None:
    """The last message says how."""
    ended = only(RunEnded, read(*entries))
    assert (end, source) == (ended.end, ended.end_source)


def test_a_cancellation_tells_its_reason() -> None:
    """The message of the error stands as the reason."""
    items = read(answer("a", None, stopReason="aborted", errorMessage="Request was aborted"))
    assert "Request was aborted" == only(Cancelled, items).reason


@pytest.mark.parametrize(
    ("entries", "sure"),
    [
        pytest.param([*PI.head], 90, id="a header"),
        pytest.param([GO, HI], 70, id="messages"),
        pytest.param(
            [{"type": "message", "role": "user", "content": "x"}], None, id="bare items of another format"
        ),
        pytest.param([{"type": "session", "id": "x", "payload": {}}], None, id="envelopes"),
    ],
)
def test_detection(entries: list[Json], sure: int | None) -> None:
    """The format is told by its header or its entries."""
    assert sure == score(PI.importer, *entries)


@pytest.mark.parametrize(
    ("counted", "calls", "end", "stop"),
    [(3, [], "finished", "stop"), (0, [], "unknown", ""), (0, [call("t")], "open", "stop")],
)
def test_an_answer_of_which_no_token_was_counted(
    counted: int, calls: list[Json], end: str, stop: str
) -> None:
    """Pi writes `stop` where a stream broke off, too: of a text without a token counted nobody knows why it
    ended.
    """
    used = {"input": counted, "output": counted, "cacheRead": 0, "cacheWrite": 0}
    items = read(user("u", None, "go"), answer("a", "u", "half an", *calls, usage=used))
    assert (end, stop) == (only(RunEnded, items).end, only(Answered, items).stop_raw)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("Tool bash not found", ToolError.UNKNOWN_TOOL),
        ('Validation failed for tool "bash":\n  - command: Required', ToolError.BAD_ARGUMENTS),
        ("no such file: Tool bash not found", ToolError.RAISED),
    ],
)
def test_the_words_of_an_error(words: str, error: ToolError) -> None:
    """Pi's own words say how a call failed that never ran; of one that went well they say nothing."""
    asked = [user("u", None, "go"), answer("a", "u", call("t"))]
    assert error is only(Returned, read(*asked, result("r", "a", "t", words, failed=True))).error
    assert None is only(Returned, read(*asked, result("r", "a", "t", words))).error
