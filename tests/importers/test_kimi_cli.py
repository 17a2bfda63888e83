"""Kimi CLI's sessions, rule by rule, on rows of a few words: the wire, and the context beside it."""

from functools import partial
from typing import Any

import pytest

from refold.importers.formats.kimi_cli import KIMI_CLI
from refold.importers.items import (
    Answered,
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
from support.sessions import Json, only, score, told

read = partial(sessions.read, KIMI_CLI)


def wire(kind: str, **payload: Any) -> Json:
    """A message of the wire."""
    return {"timestamp": 1_700_000_000.5, "message": {"type": kind, "payload": payload}}


def text(said: str) -> Json:
    """A part of text, as the wire has it."""
    return wire("ContentPart", type="text", text=said)


def call(id_: str, arguments: str | None = "{}") -> Json:
    """A call, as the wire has it."""
    return wire("ToolCall", type="function", id=id_, function={"name": "Shell", "arguments": arguments})


def result(call_: str, output: Any = "7", message: str = "", *, failed: bool = False) -> Json:
    """What came of a call, as the wire has it."""
    return wire(
        "ToolResult",
        tool_call_id=call_,
        return_value={"is_error": failed, "output": output, "message": message},
    )


def used(**counts: int) -> Json:
    """The usage of a step."""
    return wire("StatusUpdate", token_usage=counts, message_id="r")


HEAD: Json = {"type": "metadata", "protocol_version": "1.9"}
GO = wire("TurnBegin", user_input=[{"type": "text", "text": "go"}])
STEP = wire("StepBegin", n=1)
END = wire("TurnEnd")


def test_a_step_is_an_answer() -> None:
    """Its parts, its calls, and behind them its usage, in which the input has not what was cached."""
    thought = wire("ContentPart", type="think", think="hm")
    counts = used(input_other=3, output=7, input_cache_read=20, input_cache_creation=100)
    items = read(
        HEAD,
        GO,
        STEP,
        thought,
        text("I look."),
        call("c", '{"z":'),
        wire("ToolCallPart", arguments_part="1}"),
        counts,
    )
    found = only(Answered, items)
    assert ("I look.", "hm", "r") == (found.text, found.reasoning, found.response_id)
    assert ("c", "Shell", '{"z":1}') == (found.calls[0].id, found.calls[0].name, found.calls[0].arguments)
    assert Usage(input=123, output=7, cache_read=20, cache_write=100) == found.usage
    assert ("1700000000.5", "1700000000.5") == only(RunEnded, items).times


def test_results_stand_behind_the_answer_that_asked() -> None:
    """A tool may be done before the step is."""
    items = read(
        GO,
        STEP,
        call("a"),
        result("a"),
        call("b"),
        used(output=1),
        result("b", "8"),
        wire("StepBegin", n=2),
        text("done"),
        END,
    )
    rows = [each for each in told(items) if each[0] != "Remarked"]
    assert [
        ("Said", "go"),
        ("Answered", ""),
        ("Returned", "7"),
        ("Returned", "8"),
        ("Answered", "done"),
    ] == rows
    assert ["a", "b"] == [asked.id for item in items if isinstance(item, Answered) for asked in item.calls]


def test_an_answer_is_said_before_its_usage_is_told() -> None:
    """The usage may come behind results, whose answer is no younger than they are."""
    late = used(output=1) | {"timestamp": 1_700_000_009.5}
    items = read(GO, STEP, call("c"), result("c"), late)
    assert only(Returned, items).at == only(Answered, items).at
    assert "lines 3-5" == only(Answered, items).position


@pytest.mark.parametrize(
    ("output", "message", "failed", "shown"),
    [
        pytest.param("7", "", False, "7", id="output"),
        pytest.param("7", "Done.", False, "<system>Done.</system>\n7", id="with a remark"),
        pytest.param("", "Done.", False, "<system>Done.</system>", id="a remark only"),
        pytest.param("x", "No.", True, "<system>ERROR: No.</system>\nx", id="failed"),
        pytest.param([{"type": "text", "text": "7"}], "", False, "7", id="parts"),
    ],
)
def test_what_the_model_is_shown_of_a_result(output: Any, message: str, *, failed: bool, shown: str) -> None:
    """The tool's remark stands in a tag before the output, as in the context beside the wire."""
    found = only(Returned, read(GO, STEP, call("c"), result("c", output, message, failed=failed)))
    assert (shown, ToolError.RAISED if failed else None, "Shell") == (found.output, found.error, found.name)


def test_a_step_that_was_interrupted() -> None:
    """Why is not said.

    What had arrived is part of a request that failed; with calls it is an answer, for they were asked.
    """
    stop = wire("StepInterrupted")
    found = only(RequestFailed, read(GO, STEP, text("I wi"), stop))
    assert (FailureClass.OTHER, "I wi") == (found.failure, found.partial_text)
    assert [("Said", "go"), ("Remarked", "unmapped"), ("RequestFailed", "")] == told(read(GO, STEP, stop))
    asked = told(read(GO, STEP, call("c"), stop))
    assert [("Answered", ""), ("Remarked", "interrupted")] == asked[-2:]


def test_an_attempt_that_failed() -> None:
    """It has its status and its name, and the step goes on."""
    again = wire(
        "StepRetry",
        n=1,
        next_attempt=2,
        max_attempts=3,
        wait_s=0.5,
        error_type="APIStatusError",
        status_code=503,
    )
    items = read(GO, STEP, again, text("hi"), END)
    found = only(RequestFailed, items)
    assert (FailureClass.OVERLOADED, 503, "APIStatusError") == (found.failure, found.status, found.message)
    assert "hi" == only(Answered, items).text


def test_what_is_beside_the_conversation() -> None:
    """Approvals, hooks, sub-agents and compactions are the harness's own; rows that nobody knows are counted
    as such.
    """
    kinds = ("ApprovalRequest", "HookTriggered", "SubagentEvent", "CompactionBegin", "Hologram")
    items = [item for item in read(GO, *map(wire, kinds)) if isinstance(item, Remarked)]
    assert ["approval", "hook", "subagent", "compaction", "unmapped"] == [item.what for item in items]
    assert [True, True, True, True, False] == [item.known for item in items]


def test_what_was_typed_meanwhile_is_a_message() -> None:
    """A person steers the turn that is going on."""
    items = read(GO, STEP, text("hi"), wire("SteerInput", user_input="left"))
    assert ["go", "left"] == [item.text for item in items if isinstance(item, Said)]


CONTEXT: list[Json] = [
    {"role": "_system_prompt", "content": "You count."},
    {"role": "_checkpoint", "id": 0},
    {"role": "user", "content": "go"},
    {
        "role": "assistant",
        "content": [{"type": "think", "think": "hm"}, {"type": "text", "text": "I look."}],
        "tool_calls": [{"type": "function", "id": "c", "function": {"name": "Shell", "arguments": "{}"}}],
    },
    {"role": "tool", "content": [{"type": "text", "text": "<system>Done.</system>"}, {"type": "text", "text": "7"}], "tool_call_id": "c"},
    {"role": "user", "content": "<system-reminder>brief</system-reminder>"},
    {"role": "assistant", "content": "Seven."},
    {"role": "_usage", "token_count": 9},
]  # fmt: skip


def test_a_context_is_what_the_model_is_shown() -> None:
    """Its marks stand beside; it does not say of a result that it failed."""
    items = read(*CONTEXT)
    began = items[0]
    assert isinstance(began, RunBegan)
    assert [(Role.SYSTEM, "You count.")] == [(each.role, each.text) for each in began.messages]
    assert ("tool_errors",) == began.unsaid
    assert ["user", "harness"] == [item.by for item in items if isinstance(item, Said)]
    assert ["hm", ""] == [item.reasoning for item in items if isinstance(item, Answered)]
    assert ("<system>Done.</system>\n7", "Shell") == (
        only(Returned, items).output,
        only(Returned, items).name,
    )
    assert "finished" == only(RunEnded, items).end


@pytest.mark.parametrize(
    ("listed", "end"),
    [
        pytest.param([HEAD], "open", id="nothing"),
        pytest.param([HEAD, GO], "open", id="a prompt"),
        pytest.param([HEAD, GO, STEP, text("hi"), END], "finished", id="an answer"),
        pytest.param([HEAD, GO, STEP, call("c")], "open", id="a call"),
        pytest.param([HEAD, GO, STEP, call("c"), result("c")], "open", id="a result"),
        pytest.param([HEAD, GO, STEP, wire("StepInterrupted")], "unknown", id="interrupted"),
        pytest.param(CONTEXT[:4], "open", id="a call in a context"),
        pytest.param(CONTEXT[:5], "open", id="a result in a context"),
    ],
)
def test_how_a_session_ends(listed: list[Json], end: str) -> None:
    """The last row of the conversation says how."""
    assert end == only(RunEnded, read(*listed)).end


@pytest.mark.parametrize(
    ("listed", "sure"),
    [
        pytest.param([HEAD, GO], 95, id="the wire"),
        pytest.param(CONTEXT[:2], 95, id="a context"),
        pytest.param([HEAD], 60, id="a header alone"),
        pytest.param([HEAD, {"type": "config.update", "time": 1}], None, id="the header of another wire"),
        pytest.param([{"role": "user", "content": "x"}], None, id="messages without marks"),
    ],
)
def test_detection(listed: list[Json], sure: int | None) -> None:
    """The format is told by messages of the wire, or by the marks of a context."""
    assert sure == score(KIMI_CLI, *listed)
