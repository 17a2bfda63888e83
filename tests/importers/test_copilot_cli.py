"""Copilot CLI's sessions, rule by rule, on events of a few words."""

from functools import partial

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
)
from refold.reducers.messages import Usage
from refold.reducers.source_marks import HOSTED
from refold.reducers.vocabulary import FailureClass, Role, ToolError
from support import sessions
from support.sessions import COPILOT_CLI, Json, only, score, told

event, prompt, answer, result = COPILOT_CLI.event, COPILOT_CLI.user, COPILOT_CLI.answer, COPILOT_CLI.result
read = partial(sessions.read, COPILOT_CLI.importer)


HEAD = event(
    "session.start", sessionId="s", producer="copilot-agent", copilotVersion="1.0.1", selectedModel="m"
)


def test_the_header_and_the_first_system_prompt_begin_the_run() -> None:
    """Later prompts of the system are written anew with each turn, and stand beside."""
    first, again = (
        event("system.message", role="system", content=said) for said in ("You count.", "You count!")
    )
    items = read(HEAD, prompt(), first, answer("hi"), prompt(), again, answer("hi"))
    began = items[0]
    assert isinstance(began, RunBegan)
    assert ("s", "m", {"version": "1.0.1"}) == (began.key, began.model, began.labels)
    assert [(Role.SYSTEM, "You count.")] == [(each.role, each.text) for each in began.messages]
    assert ["hi", "hi"] == [item.text for item in items if isinstance(item, Answered)]


def test_the_model_is_shown_what_became_of_a_prompt() -> None:
    """The words that were typed are kept beside what was made of them; a skill's prompt is no person's."""
    items = read(prompt("go", transformedContent="<now/> go"), prompt("do", source="skill-pdf"))
    assert [("<now/> go", "user"), ("do", "harness")] == [
        (i.text, i.by) for i in items if isinstance(i, Said)
    ]
    assert '"content":"go"' in items[1].rest


def test_rows_are_one_answer_until_something_comes_back() -> None:
    """A row a call or a piece, with starts of tools between them; every piece tells the tokens of all."""
    rows = [
        answer("I look.", outputTokens=9),
        answer("", "a"),
        event("tool.execution_start", toolCallId="a", toolName="bash"),
    ]
    items = read(
        prompt(),
        *rows,
        answer("", "b", outputTokens=9, reasoningText="hm"),
        result("a"),
        result("b"),
        answer("done"),
    )
    first = next(item for item in items if isinstance(item, Answered))
    assert ("I look.", "hm", ["a", "b"]) == (first.text, first.reasoning, [call.id for call in first.calls])
    assert (Usage(output=9), "partial", '{"z":1,"a":2}') == (
        first.usage,
        first.quality,
        first.calls[0].arguments,
    )
    assert ["I look.", "done"] == [item.text for item in items if isinstance(item, Answered)]


def test_another_response_is_another_answer() -> None:
    """Rows that name two responses of the provider are two answers."""
    items = read(answer("one", apiCallId="r1"), answer("more", apiCallId="r1"), answer("two", apiCallId="r2"))
    assert [("Answered", "one\nmore"), ("Answered", "two")] == told(items)


@pytest.mark.parametrize(
    ("data", "output", "error"),
    [
        pytest.param({}, "7", None, id="done"),
        pytest.param({"success": False, "error": {"message": "no", "code": "failure"}}, "no", ToolError.RAISED, id="failed"),
        pytest.param({"success": False, "error": {"message": "no", "code": "denied"}}, "no", ToolError.CANCELLED, id="denied"),
        pytest.param({"success": False, "error": {"message": "no", "code": "timeout"}}, "no", ToolError.TIMEOUT, id="too late"),
    ],
)  # fmt: skip
def test_results(data: Json, output: str, error: ToolError | None) -> None:
    """A result is what the model is shown of it, under the name that its tool began with."""
    start = event("tool.execution_start", toolCallId="a", toolName="bash")
    found = only(Returned, read(answer("", "a"), start, result("a", **data)))
    assert ("a", "bash", output, error) == (found.id, found.name, found.output, found.error)


def test_what_is_not_of_the_main_agent_stands_beside() -> None:
    """Rows of sub-agents, by either mark, and commands that a person ran."""
    mine = result("u", isUserRequested=True)
    items = read(
        answer("", "a"), answer("sub", agent="a"), answer("sub", parentToolCallId="a"), mine, result("a")
    )
    assert [
        ("Answered", ""),
        ("Remarked", "subagent"),
        ("Unread", ""),
        ("Remarked", "unmapped"),
        ("Returned", "7"),
    ] == told(items)


def test_calls_that_the_provider_answered_are_told() -> None:
    """They were never left to the harness."""
    items = read(answer("hi", serverTools={"items": [{"type": "web_search_tool_call"}]}))
    assert [HOSTED] == [item.what for item in items if isinstance(item, Remarked)]


def test_failed_requests() -> None:
    """Each attempt is one; what sums them up is none, nor what fails while calls are open."""
    attempt = event("session.error", errorType="model_call", message="x", statusCode=503)
    items = read(prompt(), attempt, attempt, event("session.error", errorType="query", message="gave up"))
    assert [FailureClass.OVERLOADED] * 2 == [
        item.failure for item in items if isinstance(item, RequestFailed)
    ]
    assert ("Remarked", "error") == told(items)[-1]
    alone = only(RequestFailed, read(prompt(), event("session.error", errorType="quota", message="no quota")))
    assert "no quota" == alone.message
    mid = read(
        answer("", "a"), event("session.error", errorType="system", message="x"), result("a"), answer("hi")
    )
    assert [("Answered", ""), ("Remarked", "error"), ("Returned", "7"), ("Answered", "hi")] == told(mid)


def test_a_compaction_stands_for_what_was_there_when_it_began() -> None:
    """What came while it ran stays behind its summary, and the system prompt before it."""
    begin, end = (
        event("session.compaction_start"),
        event("session.compaction_complete", success=True, summaryContent="S"),
    )
    items = read(prompt(), answer("", "a"), result("a"), begin, answer("hi", "b"), result("b", "8"), end)
    assert ["S", "hi", "8"] == [each.text for each in only(Prompted, items).messages]
    told_first = event("system.message", role="system", content="You are.")
    headed = read(told_first, prompt(), begin, end)
    assert ["You are.", "S"] == [each.text for each in only(Prompted, headed).messages]
    failed = read(prompt(), begin, event("session.compaction_complete", success=False, error="x"))
    assert not [item for item in failed if isinstance(item, Prompted)]


def test_a_notification_is_told_to_the_model() -> None:
    """It is the harness's message."""
    found = only(Said, read(event("system.notification", content="idle")))
    assert ("idle", "harness") == (found.text, found.by)


USED = {"m": {"usage": {"inputTokens": 9, "outputTokens": 4, "cacheReadTokens": 5, "cacheWriteTokens": 1}}}
SHUT = event("session.shutdown", shutdownType="routine", modelMetrics=USED)


def test_a_shutdown_sums_up_the_tokens() -> None:
    """It does so only where the session had but one time, and ends with it."""
    assert (9, 5, 1, 4) == only(RunEnded, read(HEAD, answer("hi"), SHUT)).used
    for events in (
        [SHUT, event("session.resume"), answer("hi")],
        [event("session.resume"), answer("hi"), SHUT],
        [answer("hi")],
    ):
        items = read(HEAD, *events)
        assert only(RunEnded, items).used is None
        assert ("input_tokens", "cache_read_tokens", "cache_write_tokens") == only(RunBegan, items).unsaid


@pytest.mark.parametrize(
    ("events", "end"),
    [
        pytest.param([], "open", id="nothing"),
        pytest.param([prompt()], "open", id="a prompt"),
        pytest.param([prompt(), answer("hi")], "finished", id="an answer"),
        pytest.param([prompt(), answer("", "a")], "open", id="a call"),
        pytest.param([prompt(), answer("", "a"), result("a")], "open", id="a result"),
        pytest.param([prompt(), event("abort", reason="user_initiated")], "cancelled", id="a stop"),
        pytest.param(
            [prompt(), event("session.error", errorType="quota", message="x")], "error", id="an error"
        ),
    ],
)
def test_how_a_session_ends(events: list[Json], end: str) -> None:
    """The last event of the conversation says how."""
    assert end == only(RunEnded, read(HEAD, *events, SHUT)).end


@pytest.mark.parametrize(
    ("events", "sure"),
    [
        pytest.param([HEAD], 98, id="a header"),
        pytest.param([prompt(), answer("hi")], 85, id="events"),
        pytest.param(
            [{"type": "message", "role": "user", "content": "x"}], None, id="bare items of another format"
        ),
        pytest.param([{"type": "assistant.message", "content": "x"}], None, id="events without data"),
    ],
)
def test_detection(events: list[Json], sure: int | None) -> None:
    """The format is told by its header or its events."""
    assert sure == score(COPILOT_CLI.importer, *events)


def test_without_turns_each_message_is_an_answer() -> None:
    """In a file that tells of no turn the ids of messages part answers; the calls that nothing answers stay
    without results.
    """
    rows = [
        prompt(),
        answer("", "a", messageId="m1"),
        answer("", "b", messageId="m2"),
        answer("Done", messageId="m3"),
    ]
    items = read(*rows)
    assert [["a"], ["b"], []] == [[call.id for call in i.calls] for i in items if isinstance(i, Answered)]
    assert "finished" == only(RunEnded, items).end
    pieces = [event("assistant.turn_start"), *rows]
    assert 1 == sum(isinstance(item, Answered) for item in read(*pieces))
