"""Traces of the OpenAI Agents SDK: runs, ends, and answers that were not recorded."""

from typing import Any

import msgspec
import pytest

from refold.importers.formats.openai_agents import OPENAI_AGENTS
from refold.importers.items import (
    Answered,
    Item,
    Prompted,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Unread,
)
from refold.importers.source import BadTranscript, Source
from refold.reducers.vocabulary import ToolError
from support.transcribed import every, tally_of


def span(number: int, kind: str, parent: int | None = 0, error: str = "", **data: Any) -> dict[str, Any]:
    return {
        "object": "trace.span",
        "id": f"s{number}",
        "trace_id": "t",
        "parent_id": None if parent is None else f"s{parent}",
        "started_at": f"2025-01-01T00:00:{number:02d}.5+00:00",
        "ended_at": f"2025-01-01T00:00:{number + 10:02d}.5+00:00",
        "span_data": {"type": kind} | data,
        "error": {"message": error, "data": {}} if error else None,
    }


def turn(number: int, error: str = "", **data: Any) -> dict[str, Any]:
    return span(number, "custom", error=error, name="turn", data={"sdk_span_type": "turn"} | data)


HEAD = {"object": "trace", "id": "t", "workflow_name": "w", "group_id": None, "metadata": None}
TOOL = span(3, "function", name="add", input='{"x":1}', output="2")
ROWS = [
    HEAD,
    TOOL,
    turn(2, usage={"input_tokens": 50, "output_tokens": 5}),
    turn(4, usage={"input_tokens": 60, "output_tokens": 5}),
    span(1, "agent", name="a", tools=["add"]),
    span(0, "custom", None, name="task", data={"sdk_span_type": "task"}),
]


def of(rows: list[Any]) -> list[Item]:
    data = b"\n".join(msgspec.json.encode(row) for row in rows)
    return list(OPENAI_AGENTS.items(Source.of("traces", data)))


def test_a_trace_is_a_run() -> None:
    """A turn with usage is an answer, its functions are what it asked for; no message is counted where none
    is recorded.
    """
    items = of(ROWS)
    assert [[("add", '{"x":1}')], []] == [
        [(call.name, call.arguments) for call in item.calls] for item in every(items, Answered)
    ]
    assert [("2", "add")] == [(item.output, item.name) for item in every(items, Returned)]
    tally = tally_of(items)
    assert (None, None, None, None) == (
        tally.messages,
        tally.assistant_messages,
        tally.input_tokens,
        tally.output_tokens,
    )
    assert (1, 1, 0) == (tally.tool_calls, tally.tool_results, tally.tool_errors)
    assert ("2025-01-01T00:00:00.5Z", "2025-01-01T00:00:14.5Z") == (
        tally.first_timestamp,
        tally.last_timestamp,
    )
    began = every(items, RunBegan)[0]
    assert ("t", "a", ["add"]) == (began.key, began.agent, [tool.name for tool in began.tools])


@pytest.mark.parametrize(
    ("rows", "end"),
    [
        pytest.param(ROWS, "finished", id="the outermost span ended"),
        pytest.param(
            [*ROWS[:4], span(1, "agent", error="Max turns exceeded")], "limit:turns", id="the turn limit"
        ),
        pytest.param(
            [*ROWS[:4], turn(6, "Guardrail tripwire triggered"), ROWS[5]], "guardrail", id="a guardrail"
        ),
        pytest.param([*ROWS[:4], span(1, "agent", error="boom")], "error", id="another error of the agent"),
        pytest.param(ROWS[:4], "open", id="the outermost span is not there"),
        pytest.param([HEAD], "open", id="nothing but the trace"),
        pytest.param(
            [span(3, "function", error="boom", name="add"), ROWS[5]], "finished", id="a failed tool is no end"
        ),
    ],
)
def test_ends(rows: list[Any], end: str) -> None:
    """A run ends by the errors of its agent and turns, else by its outermost span."""
    assert [end] == [item.end for item in every(of(rows), RunEnded)]


def test_generations_are_the_answers_where_they_are_recorded() -> None:
    """With generation spans, those are the answers and are counted; turns are remarks."""
    said = [{"role": "assistant", "content": "hi"}]
    row = span(5, "generation", input=[{"role": "user", "content": "go"}], output=said, model="m", usage={"input_tokens": 7, "output_tokens": 1})  # fmt: skip
    items = of([*ROWS, row])
    assert [("hi", "m")] == [(item.text, item.model) for item in every(items, Answered)]
    assert [("go",)] == [tuple(message.text for message in item.messages) for item in every(items, Prompted)]
    tally = tally_of(items)
    assert (1, 1, 7, 1) == (tally.messages, tally.assistant_messages, tally.input_tokens, tally.output_tokens)


def test_guardrails_and_the_rest_are_remarks() -> None:
    """Guardrails, handoffs and the spans above are kept by their types."""
    items = of([*ROWS, span(7, "guardrail", name="g", triggered=False), span(8, "handoff", to_agent="b")])
    assert {"task", "agent", "guardrail", "handoff"} == {item.what for item in every(items, Remarked)}


def test_a_failed_function() -> None:
    """A function span with an error is a result with one, and is counted."""
    items = of([*ROWS, span(5, "function", name="add", error="boom")])
    assert [None, ToolError.RAISED] == [item.error for item in every(items, Returned)]
    assert 1 == tally_of(items).tool_errors


def test_rows_of_starts_and_copies() -> None:
    """A row that a span began is told by the row that it ended; the same row again is said to be repeated."""
    begun = TOOL | {"ended_at": None}
    items = of([HEAD, begun, *ROWS[1:], TOOL])
    assert ["repeated"] == [item.code for item in every(items, Unread)]
    assert 1 == tally_of(items).tool_calls
    assert {f"line {number}" for number in range(1, len(ROWS) + 3)} == {item.position for item in items}


def test_an_upload_of_rows() -> None:
    """The body that the SDK uploads, rows under `data`, is read as the lines are."""
    items = list(OPENAI_AGENTS.items(Source.of("x", msgspec.json.encode({"data": ROWS}))))
    assert tally_of(of(ROWS)) == tally_of(items)


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"object'])
def test_nothing_to_read(data: bytes) -> None:
    """A file without a trace is refused by name."""
    with pytest.raises(BadTranscript, match="mine"):
        list(OPENAI_AGENTS.items(Source.of("mine", data)))
