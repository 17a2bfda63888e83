"""Spans in every shape and by every name: of exporters, span stores, and older or other conventions."""

import sqlite3
from typing import Any

import msgspec
import pytest

from refold.importers.formats.otel.importer import OTEL
from refold.importers.items import Answered, Prompted, Remarked, Returned, Unread
from refold.importers.source import BadTranscript, Source
from refold.reducers.vocabulary import StopReason
from support.spans import RUN, START, iso, of, source, span
from support.transcribed import every, tallies, tally_of
from support.unknown_keys import lost


def test_exporters_agree() -> None:
    """The same spans of Python, JavaScript, OTLP and one a line give the same run."""
    expected = [msgspec.structs.replace(item, position="", rest="") for item in of(RUN)]
    for value in (javascript(RUN), otlp(RUN), "\n".join(msgspec.json.encode(row).decode() for row in RUN)):
        data = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
        found = [
            msgspec.structs.replace(item, position="", rest="") for item in OTEL.items(Source.of("x", data))
        ]
        assert expected == found


def nanos(when: str) -> int:
    return (START + int(when[17:19]) - 20) * 10**9 + 1000


def javascript(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": row["name"],
            "spanContext": {"traceId": "t", "spanId": row["context"]["span_id"][2:]},
            "parentSpanId": (row["parent_id"] or "0x")[2:],
            "startTime": [nanos(row["start_time"]) // 10**9, 1000],
            "endTime": [nanos(row["end_time"]) // 10**9, 1000],
            "status": {"code": 2 if row["status"]["status_code"] == "ERROR" else 0},
            "attributes": row["attributes"],
        }
        for row in rows
    ]


def otlp(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def typed(value: Any) -> dict[str, Any]:
        return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}

    spans = [
        {
            "name": row["name"],
            "traceId": "t",
            "spanId": row["context"]["span_id"][2:],
            "parentSpanId": (row["parent_id"] or "0x")[2:],
            "startTimeUnixNano": str(nanos(row["start_time"])),
            "endTimeUnixNano": str(nanos(row["end_time"])),
            "status": {"code": "STATUS_CODE_UNSET"},
            "attributes": [{"key": key, "value": typed(value)} for key, value in row["attributes"].items()],
        }
        for row in rows
    ]
    return {
        "resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": spans}]}]
    }


@pytest.mark.parametrize(
    ("own", "pieces"),
    [
        pytest.param({"gen_ai.prompt": '[{"role":"user","content":"go"}]'}, ["go"], id="one JSON text, the older name"),
        pytest.param(
            {"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "s", "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "go"},
            ["s", "go"],
            id="numbered attributes",
        ),
        pytest.param({"gen_ai.system_instructions": '[{"type":"text","content":"s"}]', "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"go"}]}]'}, ["s", "go"], id="system instructions come first"),
        pytest.param({"gen_ai.system_instructions": '[{"type":"text","content":"s"}]', "gen_ai.input.messages": '[{"role":"system","parts":[{"type":"text","content":"s"}]}]'}, ["s"], id="a system prompt that is said twice is told once"),
        pytest.param({"events": '[{"event.name":"gen_ai.user.message","content":"go","role":"user"}]'}, ["go"], id="events in an attribute"),
    ],
)  # fmt: skip
def test_names_of_prompts(own: dict[str, Any], pieces: list[str]) -> None:
    """A prompt is read under each name that the conventions gave it."""
    row = span(0, "chat")
    row["attributes"] |= own
    assert pieces == [message.text for message in every(of([row]), Prompted)[0].messages]


def test_messages_in_events() -> None:
    """Messages and choices that were recorded as events of the span are the prompt and the answer."""
    row = span(0, "chat")
    row["events"] = [
        {"name": "gen_ai.user.message", "timestamp": iso(0), "attributes": {"content": "go"}},
        {
            "name": "gen_ai.choice",
            "timestamp": iso(1),
            "attributes": {"message": '{"role":"assistant","content":"done"}'},
        },
    ]
    items = of([row])
    assert "go" == every(items, Prompted)[0].messages[0].text
    assert "done" == every(items, Answered)[0].text


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        pytest.param("gen_ai.usage.prompt_tokens", 7, "input", id="prompt_tokens"),
        pytest.param("gen_ai.usage.completion_tokens", 7, "output", id="completion_tokens"),
        pytest.param("gen_ai.usage.cache_read.input_tokens", "7", "cache_read", id="a number as text"),
        pytest.param("gen_ai.usage.cache_creation.input_tokens", 7, "cache_write", id="cache creation"),
        pytest.param("ai.usage.cachedInputTokens", 7, "cache_read", id="the AI SDK's own name"),
    ],
)
def test_names_of_usage(name: str, value: int | str, field: str) -> None:
    """Usage is read under old names and new ones."""
    row = span(0, "chat")
    row["attributes"][name] = value
    assert 7 == getattr(every(of([row]), Answered)[0].usage, field)


def test_ai_sdk_inner_spans_belong_by_time() -> None:
    """The AI SDK's outer span is a run, the inner one of its kind within its time the answer; its usage
    counts once.
    """
    own = {"ai.usage.promptTokens": 5}
    outer = span(0, "", length=5) | {
        "name": "ai.generateText",
        "attributes": {"ai.operationId": "ai.generateText"} | own,
    }
    inner = span(1, "") | {
        "name": "ai.generateText.doGenerate",
        "attributes": {
            "ai.response.text": "hi",
            "ai.response.finishReason": "stop",
            "gen_ai.usage.input_tokens": 5,
        }
        | own,
    }
    items = of([inner, outer])
    assert [("hi", StopReason.END_TURN)] == [(item.text, item.stop) for item in every(items, Answered)]
    assert 5 == tally_of(items).input_tokens


def test_nothing_is_dropped() -> None:
    """A key that nobody has heard of is in the log, whoever exported the spans: in a span, around it, in its
    attributes.
    """
    rows = [*RUN, span(8, "execute_hook", 0), span(9, "embeddings", 0)]
    for value in (rows, javascript(rows), otlp(rows), {"group": rows}):
        assert [] == lost(source(value), "otel")


def database(rows: list[dict[str, Any]]) -> bytes:
    """The rows as an editor's span store keeps them."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE spans (span_id TEXT, trace_id TEXT, parent_span_id TEXT, name TEXT, start_time_ms, end_time_ms,"
        " status_code INTEGER, operation_name TEXT, input_tokens INTEGER);"
        "CREATE TABLE span_attributes (span_id TEXT, key TEXT, value TEXT);"
        "CREATE TABLE span_events (id INTEGER, span_id TEXT, name TEXT, timestamp_ms, attributes TEXT);"
        "CREATE TABLE other (x); INSERT INTO other VALUES (1);"
    )
    for row in rows:
        own = dict(row["attributes"])
        key = row["context"]["span_id"]
        times = nanos(row["start_time"]) / 1e6, nanos(row["end_time"]) / 1e6
        columns = (key, "t", row["parent_id"], row["name"], *times, 0, own.pop("gen_ai.operation.name"))
        connection.execute(
            "INSERT INTO spans VALUES (?,?,?,?,?,?,?,?,?)",
            (*columns, own.pop("gen_ai.usage.input_tokens", None)),
        )
        connection.executemany(
            "INSERT INTO span_attributes VALUES (?,?,?)", [(key, name, str(v)) for name, v in own.items()]
        )
    data = connection.serialize()
    connection.close()
    return data


def test_a_database_of_spans() -> None:
    """A SQLite store gives the same counts; its columns stand in for attributes; other tables are kept as a
    remark.
    """
    data = database(RUN)
    items = list(OTEL.items(Source.of("x.db", data)))
    assert tally_of(of(RUN)) == tally_of(items)
    assert ["unmapped"] == [item.what for item in every(items, Remarked)]
    found = OTEL.match(Source.of("x.db", data))
    assert found is not None
    assert found.score > 50


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"hello", id="no JSON"),
        pytest.param(b"[]", id="an empty list"),
        pytest.param(b"SQLite format 3\x00" + b"\x00" * 100, id="a broken database"),
        pytest.param(database([])[:2000], id="a cut database"),
    ],
)
def test_nothing_to_read(data: bytes) -> None:
    """Where not one span can be read, the file is refused by name."""
    with pytest.raises(BadTranscript, match="spans of mine"):
        list(OTEL.items(Source.of("spans of mine", data)))


@pytest.mark.parametrize(
    ("agent", "chat_", "tool", "usage"),
    [
        pytest.param(
            {"openinference.span.kind": "AGENT"},
            {"openinference.span.kind": "LLM"},
            {"openinference.span.kind": "TOOL", "tool.name": "look", "output.value": "found"},
            {"llm.token_count.prompt": 10, "llm.token_count.completion": 2},
            id="OpenInference",
        ),
        pytest.param(
            {"traceloop.span.kind": "agent"},
            {"llm.request.type": "chat"},
            {"traceloop.span.kind": "tool", "gen_ai.tool.name": "look", "output.value": "found"},
            {"gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.completion_tokens": 2},
            id="OpenLLMetry",
        ),
    ],
)
def test_kinds_of_other_conventions(
    agent: dict[str, Any], chat_: dict[str, Any], tool: dict[str, Any], usage: dict[str, Any]
) -> None:
    """Agents, answers and tools are known where an instrumentation names them in attributes of its own."""
    listed = [span(0, "", length=9), span(1, "", 0), span(3, "", 0)]
    for row, own in zip(listed, (agent, chat_ | usage, tool), strict=True):
        row["attributes"] = own
    found = source(listed)
    items = list(OTEL.items(found))
    match = OTEL.match(found)
    assert match is not None
    tally = tally_of(items)
    assert (1, 1, 10, 2) == (tally.messages, tally.tool_calls, tally.input_tokens, tally.output_tokens)
    assert [("look", "found")] == [(each.name, each.output) for each in every(items, Returned)]


def test_spans_in_groups() -> None:
    """Lists of spans under names are read as one list; what stands beside them is kept."""
    items = list(OTEL.items(source({"a": RUN[:2], "b": RUN[2:], "note": "kept"})))
    assert [2] == [tally.messages for tally in tallies(items)]
    assert ['{"note":"kept"}'] == [item.rest for item in every(items, Unread)]
