"""Qwen Code's sessions, rule by rule, on rows of a few words."""

from typing import Any

import pytest

from refold.importers.items import (
    Answered,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.importers.session_rows import Cut
from refold.importers.source import Source
from refold.reducers.events import ModelRequested
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass, Refuser, ToolError
from support.sessions import QWEN_CODE, Json, QwenCode, lines, only, score, told
from support.told import audited, derived, shown

MAIN = "s########1"
SHELL = QwenCode("run_shell_command")
user, answer, call = QWEN_CODE.user, QWEN_CODE.answer, QWEN_CODE.call
returned, read = QWEN_CODE.returned, QWEN_CODE.read
GO = user("u", None, "go")
USED = {"promptTokenCount": 3, "candidatesTokenCount": 1}
HI = answer("a", "u", "hi")


def telemetry(id_: str, parent: str | None, name: str, prompt: str = MAIN, **event: Any) -> Json:
    """A row of telemetry."""
    told = {"event.name": f"qwen-code.{name}", "prompt_id": prompt, **event}
    return QWEN_CODE.row("system", id_, parent, subtype="ui_telemetry", systemPayload={"uiEvent": told})


def test_an_answer_has_its_thoughts_and_its_calls() -> None:
    """Thoughts are parts of their own; arguments keep their order."""
    found = only(
        Answered, read(GO, answer("a", "u", {"text": "hm", "thought": True}, "I look.", call("c", z=1, a=2)))
    )
    assert ("I look.", "hm", "m") == (found.text, found.reasoning, found.model)
    assert ["c", "run", '{"z":1,"a":2}'] == [found.calls[0].id, found.calls[0].name, found.calls[0].arguments]


@pytest.mark.parametrize(
    ("total", "output"),
    [
        pytest.param(107, 7, id="thoughts among the candidates"),
        pytest.param(112, 12, id="thoughts beside them"),
    ],
)
def test_the_total_says_where_the_thoughts_are_counted(total: int, output: int) -> None:
    """Two kinds of providers count them in two ways."""
    counts = {
        "promptTokenCount": 100,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 5,
        "cachedContentTokenCount": 64,
    }
    found = only(Answered, read(answer("a", None, "hi", usageMetadata=counts | {"totalTokenCount": total})))
    assert Usage(input=100, output=output, cache_read=64, reasoning=5) == found.usage


@pytest.mark.parametrize(
    ("response", "status", "output", "error"),
    [
        pytest.param({"output": "7"}, "success", "7", None, id="done"),
        pytest.param({"error": "no"}, "error", "no", ToolError.RAISED, id="failed"),
        pytest.param({"error": "stopped"}, "cancelled", "stopped", ToolError.CANCELLED, id="stopped"),
        pytest.param({"content": [1]}, "success", '{"content":[1]}', None, id="of another shape"),
        pytest.param(None, "success", "", None, id="nothing"),
    ],
)
def test_results(response: Any, status: str, output: str, error: ToolError | None) -> None:
    """A result is what the model is shown of it; the row's status says what became of the call."""
    found = only(Returned, read(answer("a", None, call("c")), returned("r", "a", "c", response, status)))
    assert ("c", "run", output, error) == (found.id, found.name, found.output, found.error)


def test_a_request_that_failed_stands_in_the_telemetry() -> None:
    """One of the session's own prompts, that is: sub-agents have others. Who aborted one cancelled it."""
    failed = telemetry(
        "e", "u", "api_error", error_message="429 quota", error_type="RateLimitError", status_code=429
    )
    found = only(RequestFailed, read(GO, failed))
    assert (FailureClass.RATE_LIMIT, 429, "429 quota") == (found.failure, found.status, found.message)
    other = telemetry("e", "u", "api_error", "s#Explore#1", error_message="x", error_type="RateLimitError")
    assert [("Said", "go"), ("Remarked", "unmapped")] == told(
        read(GO, other, telemetry("f", "e", "api_response"))
    )
    aborted = telemetry("e", "u", "api_error", error_message="x", error_type="APIUserAbortError")
    assert [("Said", "go"), ("Cancelled", "")] == told(read(GO, aborted))


def test_a_compression_says_what_is_left() -> None:
    """The contents that the model is shown from there on stand in the row."""
    left = [{"role": "user", "parts": [{"text": "so far"}]}, answer("x", None, call("c"))["message"]]
    left.append(returned("x", None, "c", {"output": "7"})["message"])
    squeezed = QWEN_CODE.row(
        "system", "k", "a", subtype="chat_compression", systemPayload={"compressedHistory": left}
    )
    found = only(Prompted, read(GO, HI, squeezed))
    assert ("compaction", ["so far", ""]) == (found.why, [each.text for each in found.messages[:2]])
    assert 3 == len(found.messages)


def test_whose_prompts_they_are() -> None:
    """Those with a kind of their own are the harness's, but for what a person typed meanwhile."""
    items = read(
        GO,
        user("n", "u", "done", subtype="notification"),
        user("t", "n", "and?", subtype="mid_turn_user_message"),
    )
    assert ["user", "harness", "user"] == [item.by for item in items if isinstance(item, Said)]


def test_rows_of_a_sub_agent() -> None:
    """In its parent's file they stand beside; in a file of their own they are the run."""
    side = [user("u", None, "go", isSidechain=True), answer("a", "u", "hi", isSidechain=True)]
    assert [("Said", "go"), ("Answered", "hi")] == told(read(*side))
    assert ("Remarked", "subagent") in told(
        read(GO, answer("b", "u", "sub", isSidechain=True), answer("a", "b", "hi"))
    )


def test_what_is_not_known_is_said() -> None:
    """Parts of a kind that nobody knows are named; rows of one are counted as such."""
    items = read(user("u", None, "go", {"hologram": 1}), QWEN_CODE.row("oracle", "o", "u"))
    assert "unknown parts in a message: hologram" == only(Unread, items).problem
    assert not only(Remarked, items).known


@pytest.mark.parametrize(
    ("listed", "end"),
    [
        pytest.param([], "open", id="nothing"),
        pytest.param([GO], "open", id="a prompt"),
        pytest.param([GO, HI], "unknown", id="an answer of which nobody counted the tokens"),
        pytest.param([GO, answer("a", "u", "hi", usageMetadata=USED)], "finished", id="an answer"),
        pytest.param([GO, answer("a", "u", call("c"))], "open", id="a call"),
        pytest.param([GO, answer("a", "u", call("c")), returned("r", "a", "c", {})], "open", id="a result"),
        pytest.param([GO, telemetry("e", "u", "api_error", error_type="APIUserAbortError")], "cancelled", id="aborted"),
        pytest.param([GO, telemetry("e", "u", "api_error", error_type="RateLimitError")], "error", id="failed"),
        pytest.param([GO, telemetry("e", "u", "api_error", error_type="RateLimitError"), answer("a", "e", "hi", usageMetadata=USED)], "finished", id="in the end"),
    ],
)  # fmt: skip
def test_how_a_session_ends(listed: list[Json], end: str) -> None:
    """The last row of the conversation says how."""
    items = read(*listed)
    assert isinstance(items[0], RunBegan)
    assert end == only(RunEnded, items).end


@pytest.mark.parametrize(
    ("listed", "sure"),
    [
        pytest.param([GO], 95, id="a prompt"),
        pytest.param([telemetry("e", None, "api_response")], 95, id="telemetry only"),
        pytest.param(
            [GO | {"message": {"role": "user", "content": "x"}}], None, id="content instead of parts"
        ),
        pytest.param([{"type": "user", "message": GO["message"]}], None, id="rows without ids"),
    ],
)
def test_detection(listed: list[Json], sure: int | None) -> None:
    """The format is told by its rows."""
    assert sure == score(QWEN_CODE.importer, *listed)


@pytest.mark.parametrize(
    ("first", "late"),
    [
        pytest.param(answer("a", "u", "first", call("c"), usageMetadata=USED), True, id="its call ran all the same"),
        pytest.param(answer("a", "u", "first", call("c"), usageMetadata=USED), False, id="its call has no result"),
        pytest.param(answer("a", "u", "first"), False, id="its stream broke off"),
    ],
)  # fmt: skip
def test_an_answer_that_was_withdrawn(first: Json, late: bool) -> None:
    """It is an answer, a result that comes late is its call's, and no later request shows either."""
    second = answer("b", "a", "second", call("d"), usageMetadata=USED)
    late_row = [returned("r", "b", "c", {"output": "late"})] if late else []
    rest = [
        returned("s", "r" if late else "b", "d", {"output": "done"}),
        answer("e", "s", "third", usageMetadata=USED),
    ]
    items = read(GO, first, second, *late_row, *rest)
    deriving, log = derived(items)
    assert ["first", "second", "third"] == [item.text for item in items if isinstance(item, Answered)]
    outputs = [item.output for item in items if isinstance(item, Returned)]
    assert (["late", "done"] if late else ["done"]) == outputs
    asked = [each.seq for each in log if isinstance(each.event, ModelRequested)]
    assert ["go"] == [text for _, text in shown(log, asked[1])]
    assert ["go", "second", "done"] == [text for _, text in shown(log, asked[2])]
    lost = [] if late or "usageMetadata" not in first else ["result_missing"]
    assert lost == [problem.code for problem in deriving.problems]
    assert audited(log).clean


def cuts(*rows: Json) -> list[Cut]:
    """What is taken out of the conversation that these rows record."""
    items = QWEN_CODE.importer.items(Source.of("x", lines(*rows)))
    return [item for item in items if isinstance(item, Cut)]


def test_an_answer_before_another_may_stay() -> None:
    """An answer without calls whose tokens were counted was not withdrawn: the model was asked again."""
    first = answer("a", "u", "first", usageMetadata=USED)
    assert not cuts(GO, first, answer("b", "a", "second"))
    again = answer("a", "u", "first", call("c"))  # two rows of one answer
    assert not cuts(GO, answer("a", "u", "fi"), again)


def test_a_compaction_before_an_answer_that_was_withdrawn() -> None:
    """What the next request shows is what the compaction left, and not what stood before it."""
    history = [{"role": "user", "parts": [{"text": "summary"}]}]
    compacted = QWEN_CODE.row(
        "system", "z", "u", subtype="chat_compression", systemPayload={"compressedHistory": history}
    )
    first, second = answer("a", "z", "cut"), answer("b", "a", "on", usageMetadata=USED)
    _, log = derived(read(GO, answer("x", "u", "old", usageMetadata=USED), compacted, first, second))
    asked = [each.seq for each in log if isinstance(each.event, ModelRequested)]
    assert ["summary"] == [text for _, text in shown(log, asked[-1])]


@pytest.mark.parametrize(
    ("said", "kind", "outcome"),
    [
        ('Tool "rm" not found in registry.', "tool_not_registered", ToolError.UNKNOWN_TOOL),
        ("params must have required property 'x'", "invalid_tool_params", ToolError.BAD_ARGUMENTS),
        ('Qwen Code requires permission to use "run", but that permission was declined.', "execution_denied", Refuser.RULE),
        ('Tool "run" is denied by permission rules. Matching deny rule: "run".', "execution_denied", Refuser.RULE),
        ("Tool execution blocked by hook", "execution_denied", Refuser.HOOK),
        ("the words of a hook, before the call or behind it", "execution_denied", ToolError.RAISED),
        ("Tool execution blocked by hook", "execution_failed", ToolError.RAISED),
    ],
)  # fmt: skip
def test_the_kinds_of_errors(said: str, kind: str, outcome: ToolError | Refuser) -> None:
    """The row says what kind of error it is, and the CLI's own words that a call never ran."""
    kept = returned("r", "a", "c", {"error": said}, "error")
    kept["toolCallResult"]["errorType"] = kind
    found = only(Returned, read(GO, answer("a", "u", call("c")), kept))
    assert outcome == (found.refused_by or found.error)


@pytest.mark.parametrize(("code", "error"), [("0", None), ("3", ToolError.RAISED)])
def test_a_command_has_its_own_code(code: str, error: ToolError | None) -> None:
    """A command that failed has the status `success`: its exit code stands in its last lines."""
    output = f"Command: ls\nDirectory: (root)\nOutput: x\nError: (none)\nExit Code: {code}\nSignal: 0\nProcess Group PGID: 7"
    ended = SHELL.returned("r", "a", "c", {"output": output})
    found = only(Returned, read(GO, answer("a", "u", SHELL.call("c", command="ls", cmd=None)), ended))
    assert (error, True) == (found.error, found.marked)


def test_failures_of_the_sessions_own_requests() -> None:
    """A request that failed is told by whatever name its prompt has; those of sub-agents are not the
    session's.
    """
    own = telemetry("e", "u", "api_error", "83de8beaae0e7", error_message="too long", status_code=400)
    sub = telemetry("f", "e", "api_error", "s#general-purpose-m8zaqb#0", subagent_name="general-purpose")
    items = read(GO, own, sub)
    assert ("too long", 400) == (only(RequestFailed, items).message, only(RequestFailed, items).status)
    assert "error" == only(RunEnded, items).end
