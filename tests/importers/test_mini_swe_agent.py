"""mini-swe-agent: commands in texts and beside them, results with codes, ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers.formats.mini_swe_agent import MINI_SWE_AGENT, end_of
from refold.importers.items import Answered, Remarked, Returned, RunBegan, RunEnded, Said
from refold.importers.source import Source
from refold.reducers.events import ModelRequested, SourceRecorded
from refold.reducers.vocabulary import Refuser, StopReason, ToolError
from support.told import audited, derived, shown
from support.transcribed import encoded, every, items_of, tally_of, whole_up_to

GIVEN = [{"role": "system", "content": "One command."}, {"role": "user", "content": "Fix it."}]


def v1(command: str, **extra: Any) -> dict[str, Any]:
    content = f"THOUGHT: go\n\n```bash\n{command}\n```"
    return {"role": "assistant", "content": content} | ({"extra": extra} if extra else {})


def v2(*commands: str, **more: Any) -> dict[str, Any]:
    actions = [{"command": command} for command in commands]
    return {
        "role": "assistant",
        "content": "go",
        "extra": {"actions": actions, "timestamp": 1795234095.1002536},
    } | more


def code(number: int, text: str = "") -> dict[str, Any]:
    return {"role": "user", "content": f"<returncode>{number}</returncode>\n<output>\n{text}</output>"}


def run(*messages: Any, status: str | None = "Submitted", **info: Any) -> dict[str, Any]:
    info = info if status is None else info | {"exit_status": status}
    return {
        "info": {"mini_version": "1.15.0", **info},
        "messages": [*GIVEN, *messages],
        "trajectory_format": "mini-swe-agent-1",
    }


SUBMIT = v1("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
DOCUMENT = run(
    v1("ls"), code(0, "a\n"), v1("cat b"), code(1), SUBMIT, {"role": "user", "content": "diff --git"}
)


def test_the_fenced_command_is_the_call() -> None:
    """Each answer calls `bash` with its one command, and what came back is its result."""
    items = items_of(MINI_SWE_AGENT, DOCUMENT)
    assert ['{"command":"ls"}', '{"command":"cat b"}'] == [
        each.calls[0].arguments for each in every(items, Answered)[:2]
    ]
    assert [None, ToolError.RAISED, None] == [each.error for each in every(items, Returned)]
    assert [each.calls[0].id for each in every(items, Answered)] == [
        each.id for each in every(items, Returned)
    ]


def test_the_submission_is_the_last_commands_output() -> None:
    """It has no return code, so it is not counted as a result; but it is what the command gave back."""
    items = items_of(MINI_SWE_AGENT, DOCUMENT)
    tally = tally_of(items)
    assert "diff --git" == every(items, Returned)[-1].output
    assert (3, 2, 1, 0) == (tally.tool_calls, tally.tool_results, tally.tool_errors, tally.tool_messages)
    assert (7, 4, 3) == (tally.messages, tally.user_messages, tally.assistant_messages)


@pytest.mark.parametrize(
    "answer",
    ["no command", "```bash\nls\n```\nand\n```bash\npwd\n```", "```python\nprint()\n```"],
    ids=["none", "two", "another language"],
)
def test_an_answer_without_exactly_one_command_is_no_call(answer: str) -> None:
    """The reminder that it gets was said, not returned."""
    reminder = {"role": "user", "content": "Please always provide EXACTLY ONE action"}
    items = items_of(
        MINI_SWE_AGENT, run({"role": "assistant", "content": answer}, reminder, v1("ls"), code(0))
    )
    assert [(), 1] == [every(items, Answered)[0].calls, len(every(items, Answered)[1].calls)]
    assert ([reminder["content"]], 1) == (
        [each.text for each in every(items, Said)],
        len(every(items, Returned)),
    )


def test_a_killed_command_has_no_code_and_is_a_timeout() -> None:
    """Version 1 words it, version 2 names the exception."""
    killed = "The last command <command>sleep 9</command> timed out and has been killed."
    named = {
        "role": "user",
        "content": "<returncode>-1</returncode>",
        "extra": {"returncode": -1, "exception_type": "TimeoutExpired"},
    }
    items = items_of(
        MINI_SWE_AGENT,
        run(v1("sleep 9"), {"role": "user", "content": killed}, v2("sleep 8"), named, v1("ls"), code(0)),
    )
    assert [ToolError.TIMEOUT, ToolError.TIMEOUT, None] == [each.error for each in every(items, Returned)]
    assert (3, 2) == ((tally := tally_of(items)).tool_results, tally.tool_errors)


def test_version_2_has_several_commands_and_an_exit() -> None:
    """Actions beside the answer are its calls, by the ids of its function calls; `exit` is no message."""
    calls = [{"id": f"c{n}", "function": {"name": "bash", "arguments": "{}"}} for n in (1, 2)]
    results = [
        {
            "role": "tool",
            "tool_call_id": f"c{n}",
            "content": f"r{n}",
            "extra": {"returncode": n - 1, "timestamp": 1795234099.5},
        }
        for n in (2, 1)
    ]
    exit_ = {"role": "exit", "content": "", "extra": {"exit_status": "LimitsExceeded", "submission": ""}}
    items = items_of(
        MINI_SWE_AGENT, run(v2("ls", "pwd", tool_calls=calls), *results, exit_, status="LimitsExceeded")
    )
    assert ["c1", "c2"] == [call.id for call in every(items, Answered)[0].calls]
    assert [("c2", "r2", ToolError.RAISED), ("c1", "r1", None)] == [
        (each.id, each.output, each.error) for each in every(items, Returned)
    ]
    tally = tally_of(items)
    assert (4, 2, 2) == (tally.messages, tally.tool_messages, tally.tool_calls)
    assert ("2026-11-21T04:08:15.100254Z", "2026-11-21T04:08:19.500000Z") == (
        tally.first_timestamp,
        tally.last_timestamp,
    )
    assert ["exit"] == [each.what for each in every(items, Remarked)]


def test_the_responses_api_has_messages_without_roles() -> None:
    """Its answers are objects of their own, its results outputs of calls."""
    answer = {
        "object": "response",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "go"}]}],
        "usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
        "extra": {"actions": [{"command": "ls", "tool_call_id": "c1"}]},
    }
    result = {"type": "function_call_output", "call_id": "c1", "output": "a", "extra": {"returncode": 0}}
    items = items_of(MINI_SWE_AGENT, run(answer, result))
    assert ("go", "c1") == (every(items, Answered)[0].text, every(items, Answered)[0].calls[0].id)
    assert [("c1", "a")] == [(each.id, each.output) for each in every(items, Returned)]
    assert (9, 4, 2) == ((used := every(items, Answered)[0].usage).input, used.cache_read, used.output)


def test_the_raw_answer_has_usage_cost_and_reasoning() -> None:
    """Version 1 keeps the provider's answer: tokens, dollars, the stop reason and the time are taken from
    there.
    """
    raw = {
        "id": "gen-1",
        "model": "m",
        "created": 1763508910,
        "choices": [{"finish_reason": "length", "message": {"content": "x", "reasoning": "because"}}],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 3,
            "cost": 0.00528,
            "prompt_tokens_details": {"cached_tokens": 5},
        },
    }
    items = items_of(MINI_SWE_AGENT, run(v1("ls", response=raw), code(0)))
    answer, tally = every(items, Answered)[0], tally_of(items)
    assert ("because", StopReason.MAX_TOKENS, "gen-1") == (answer.reasoning, answer.stop, answer.response_id)
    assert (5_280_000, "reported") == (answer.cost_nanousd, answer.quality)
    assert (7, 5, None, 3) == (
        tally.input_tokens,
        tally.cache_read_tokens,
        tally.cache_write_tokens,
        tally.output_tokens,
    )
    assert ("2025-11-18T23:35:10Z", 1763508910 * 10**9) == (tally.first_timestamp, answer.at)


STEPS = {"config": {"agent": {"step_limit": 12}}, "model_stats": {"api_calls": 12}}


@pytest.mark.parametrize(
    ("info", "end"),
    [
        ({"exit_status": "Submitted"}, "finished"),
        ({"exit_status": "LimitsExceeded", **STEPS}, "limit:steps"),
        ({"exit_status": "LimitsExceeded", "config": {"agent": {"step_limit": 0}}}, "limit:cost"),
        ({"exit_status": "TimeExceeded"}, "limit:time"),
        ({"exit_status": "UserInterruption"}, "cancelled"),
        ({"exit_status": "RepeatedFormatError"}, "error"),
        ({"exit_status": "IndexError"}, "error"),
        ({"exit_status": ""}, "open"),
        (None, "unknown"),
    ],
)
def test_the_exit_status_says_the_end(info: Any, end: str) -> None:
    """A name that is no status of the agent is an exception's class."""
    assert end == end_of({"messages": []} if info is None else {"info": info})[0]


def test_a_bare_list_is_a_run_too() -> None:
    """Before 1.0 there was nothing but the messages."""
    items = items_of(MINI_SWE_AGENT, DOCUMENT["messages"])
    assert ("unknown", "no info block") == ((ended := every(items, RunEnded)[0]).end, ended.end_source)
    assert (2, 3) == (len(every(items, RunBegan)[0].messages), len(every(items, Answered)))


@pytest.mark.parametrize(
    ("document", "score"),
    [
        pytest.param(DOCUMENT, 98, id="named"),
        pytest.param(DOCUMENT["messages"], 85, id="a bare list"),
        pytest.param({"info": {"model_stats": {}}, "messages": []}, 85, id="info and messages"),
        pytest.param(GIVEN, None, id="any chat"),
        pytest.param({"history": []}, None, id="another document"),
        pytest.param(
            {"info": {"config": {"agent": {}, "model": {}, "environment": {}}}},
            80,
            id="cut before its messages",
        ),
    ],
)
def test_knows_its_own(document: Any, score: int | None) -> None:
    """A trajectory is told by its content."""
    match = MINI_SWE_AGENT.match(Source.of("t", encoded(document)))
    assert score == (match.score if match else None)


@given(cut=st.integers(0, 3000))
def test_cut_anywhere_it_imports_up_to_the_cut(cut: int) -> None:
    """Half a trajectory has no answer that the whole one has not."""
    data = encoded(DOCUMENT)
    texts = {answer.text for answer in every(items_of(MINI_SWE_AGENT, data), Answered)}
    part = whole_up_to(MINI_SWE_AGENT, data[: min(cut, len(data))])
    assert {answer.text for answer in every(part, Answered)} <= texts


def rejected(words: str, text: str, *calls: tuple[str, str], **more: Any) -> dict[str, Any]:
    """The message that stands for an answer that the agent could not use."""
    asked = [
        {"id": f"r{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for place, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": text, "tool_calls": asked or None, **more}
    choice = {"finish_reason": "tool_calls" if calls else "stop", "index": 0, "message": message}
    used = {"prompt_tokens": 50, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 7}}
    response = {"id": "x", "created": 1795467778, "model": "m", "choices": [choice], "usage": used}
    return {"role": "user", "content": words, "extra": {"response": response, "cost": 0.25}}


BAD = [
    ("no_such_tool", "{}"),
    ("bash", '{"command": '),
    ("bash", '{"cmd": 1}'),
    ("bash", '{"command": "ls"}'),
]


def test_a_rejected_answer_is_an_answer() -> None:
    """An answer that stands beside the message sent instead of it counts, costs, and says why each of its
    calls did not run.
    """
    items = items_of(
        MINI_SWE_AGENT, run(v2("ls"), code(0), rejected("no!", "Let me see.", *BAD), v2("pwd"), code(0))
    )
    answer = every(items, Answered)[1]
    assert ("Let me see.", 50, 5, 7, 250_000_000, "m", "x") == (
        answer.text, answer.usage.input, answer.usage.output, answer.usage.cache_read, answer.cost_nanousd, answer.model,
        answer.response_id,
    )  # fmt: skip
    assert [name for name, _ in BAD] == [call.name for call in answer.calls]
    assert [ToolError.UNKNOWN_TOOL, ToolError.BAD_ARGUMENTS, ToolError.BAD_ARGUMENTS, Refuser.HARNESS] == [
        each.error or each.refused_by for each in every(items, Returned)[1:5]
    ]
    assert ("no!", "harness") == (every(items, Said)[-1].text, every(items, Said)[-1].by)
    tally = tally_of(items)
    assert (6, 6, 3, 50) == (
        tally.tool_calls,
        tally.tool_results,
        tally.assistant_messages,
        tally.input_tokens,
    )


@pytest.mark.parametrize(
    "more",
    [[], [v2("pwd"), code(0)], [rejected("so?", "b"), v2("pwd"), code(0)]],
    ids=["last", "once", "twice"],
)
@pytest.mark.parametrize("calls", [[], BAD], ids=["no call", "calls"])
def test_no_later_prompt_has_a_rejected_answer(calls: list[tuple[str, str]], more: list[Any]) -> None:
    """The model was shown the message that was sent in its place, and nothing of the answer."""
    messages = [v2("ls"), code(0), rejected("no!", "Let me see.", *calls), *more]
    deriving, log = derived(items_of(MINI_SWE_AGENT, run(*messages)))
    at = len(log) if not more else max(e.seq for e in log if isinstance(e.event, ModelRequested))
    texts = [text for _, text in shown(log, at)]
    assert [] == [problem for problem in deriving.problems if problem.code != "half_pair"]
    assert "no!" in texts
    assert more == [] or "Let me see." not in texts
    marks = {e.event.what for e in log if isinstance(e.event, SourceRecorded)}
    assert ({"rejected:changed"}, set()) == (marks & {"rejected:changed"}, marks & {"rejected:unequal"})
    assert audited(log).clean


def test_a_run_may_begin_with_a_rejected_answer() -> None:
    """What stands for an answer is none of the messages that the run begins with."""
    items = items_of(MINI_SWE_AGENT, run(rejected("no!", "Hm."), v2("ls"), code(0)))
    assert (2, "Hm.") == (len(every(items, RunBegan)[0].messages), every(items, Answered)[0].text)
