"""Whatever happens to a file of spans or messages, it imports as far as it can be read."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.importers.formats.langfuse import LANGFUSE
from refold.importers.formats.openai_agents import OPENAI_AGENTS
from refold.importers.formats.openai_messages import OPENAI_MESSAGES
from refold.importers.formats.otel.importer import OTEL
from refold.importers.formats.pydantic_ai import PYDANTIC_AI
from refold.importers.formats.tau_bench import TAU_BENCH
from refold.importers.items import Item, RunBegan, RunEnded
from refold.importers.registry import Importer
from refold.importers.source import BadTranscript, Source
from support.strategies import scaled

MESSAGES: list[Any] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "go"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "r"},
    {"role": "assistant", "content": "done"},
]
TIMES = {
    "start_time": "2025-01-01T00:00:00Z",
    "end_time": "2025-01-01T00:00:01Z",
    "status": {"status_code": "OK"},
}


def otel_span(number: int, op: str, parent: str | None, **own: Any) -> dict[str, Any]:
    context = {"trace_id": "t", "span_id": str(number)}
    return TIMES | {"name": op, "context": context, "parent_id": parent, "attributes": {"gen_ai.operation.name": op} | own, "events": []}  # fmt: skip


def seen(number: int, kind: str, **own: Any) -> dict[str, Any]:
    times = {"startTime": "2025-01-01T00:00:00Z", "endTime": "2025-01-01T00:00:01Z"}
    return times | {"id": str(number), "type": kind, "name": "f", "level": "DEFAULT"} | own


def traced(number: int, kind: str, **data: Any) -> dict[str, Any]:
    times = {"started_at": "2025-01-01T00:00:00+00:00", "ended_at": "2025-01-01T00:00:01+00:00"}
    return times | {"object": "trace.span", "id": str(number), "trace_id": "t", "parent_id": None, "span_data": {"type": kind} | data}  # fmt: skip


PARTS = [
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "go"}]},
    {
        "kind": "response",
        "parts": [{"part_kind": "tool-call", "tool_name": "f", "args": "{}", "tool_call_id": "c"}],
    },
    {
        "kind": "request",
        "parts": [{"part_kind": "tool-return", "tool_name": "f", "content": "r", "tool_call_id": "c"}],
    },
    {"kind": "response", "parts": [{"part_kind": "text", "content": "done"}], "usage": {"input_tokens": 1}},
]
SPANS = [
    otel_span(0, "invoke_agent", None),
    otel_span(
        1, "chat", "0", **{"gen_ai.input.messages": MESSAGES[:2], "gen_ai.output.messages": MESSAGES[2:3]}
    ),
    otel_span(2, "execute_tool", "0", **{"gen_ai.tool.call.id": "c", "gen_ai.tool.name": "f"}),
    otel_span(
        3, "chat", "0", **{"gen_ai.input.messages": MESSAGES[:4], "gen_ai.output.messages": MESSAGES[4:]}
    ),
]
SEEN = [
    seen(1, "GENERATION", input=MESSAGES[:2], output=MESSAGES[2]),
    seen(2, "TOOL", output="r"),
    seen(3, "GENERATION"),
]
TRACED = [
    {"object": "trace", "id": "t"},
    traced(1, "function", name="f"),
    traced(2, "generation", output=MESSAGES[2:3]),
]

FORMATS: list[tuple[Importer, list[Any], Callable[[list[Any]], Any]]] = [
    (OTEL, SPANS, lambda rows: rows),
    (LANGFUSE, SEEN, lambda rows: {"trace": {"id": "t"}, "observations": rows}),
    (OPENAI_AGENTS, TRACED, lambda rows: {"data": rows}),
    (PYDANTIC_AI, PARTS, lambda rows: rows),
    (TAU_BENCH, MESSAGES, lambda rows: [{"task_id": 1, "traj": rows}]),
    (OPENAI_MESSAGES, MESSAGES, lambda rows: {"messages": rows}),
]
EACH = pytest.mark.parametrize(
    ("importer", "rows", "around"), [pytest.param(*each, id=each[0].name) for each in FORMATS]
)
FEW = settings(max_examples=scaled(40), suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(importer: Importer, data: bytes) -> list[Item]:
    """All items, or none where nothing can be read.

    The runs are told one after the other, with keys of their own.
    """
    source = Source.of("x", data)
    importer.match(source)
    try:
        items = list(importer.items(source))
    except BadTranscript:
        return []
    edges = [type(item) for item in items if isinstance(item, RunBegan | RunEnded)]
    assert [RunBegan, RunEnded] * (len(edges) // 2) == edges
    keys = [item.key for item in items if isinstance(item, RunBegan)]
    assert len(set(keys)) == len(keys)
    assert all(item.position for item in items)
    msgspec.json.encode(items)
    return items


@EACH
def test_whole(importer: Importer, rows: list[Any], around: Callable[[list[Any]], Any]) -> None:
    """The document that the others damage is read without a complaint."""
    items = read(importer, msgspec.json.encode(around(rows)))
    assert 1 == sum(isinstance(item, RunEnded) for item in items)


@EACH
@FEW
@given(data=st.data())
def test_cut_anywhere(
    importer: Importer, rows: list[Any], around: Callable[[list[Any]], Any], data: st.DataObject
) -> None:
    """A file cut at any byte imports up to the cut, and nothing but BadTranscript is raised."""
    whole = msgspec.json.encode(around(rows))
    read(importer, whole[: data.draw(st.integers(0, len(whole)))])


@EACH
@FEW
@given(data=st.data())
def test_elements_shuffled(
    importer: Importer, rows: list[Any], around: Callable[[list[Any]], Any], data: st.DataObject
) -> None:
    """Elements left out, twice, swapped or replaced by something else: diagnostics, no exception."""
    odd: st.SearchStrategy[Any] = st.sampled_from(
        [*rows, None, 17, "x", [], {}, {"role": "tool"}, {"type": "GENERATION"}, {"parts": [{}]}]
    )
    read(importer, msgspec.json.encode(around(data.draw(st.lists(odd, max_size=8)))))


@EACH
@FEW
@given(data=st.data())
def test_values_replaced(
    importer: Importer, rows: list[Any], around: Callable[[list[Any]], Any], data: st.DataObject
) -> None:
    """Any value in the document may be of any other type."""
    odd: st.SearchStrategy[Any] = st.sampled_from(
        [None, -1, 1e300, "\u202e<script>", [], {}, [[]], {"": ""}, "0x", True, "9" * 40]
    )

    def changed(value: Any) -> Any:
        if data.draw(st.integers(0, 12)) == 0:
            return data.draw(odd)
        if isinstance(value, dict):
            return {key: changed(inner) for key, inner in value.items()}
        return [changed(inner) for inner in value] if isinstance(value, list) else value

    read(importer, msgspec.json.encode(around([changed(row) for row in rows])))


@EACH
def test_hostile_bytes(importer: Importer, rows: list[Any], around: Callable[[list[Any]], Any]) -> None:
    """Deep nesting, lone surrogates and numbers without end are read or refused, never a crash."""
    whole = msgspec.json.encode(around(rows))
    for old, new in (
        (b'"go"', b'"\\ud800"'),
        (b'"go"', b"9" * 5000),
        (b'"go"', b"[" * 5000 + b"]" * 5000),
        (b'"c"', b"NaN"),
    ):
        read(importer, whole.replace(old, new))
