"""Spans: the shapes of the exporters, the names of the conventions, what is counted and which run it is of."""

import sqlite3
from typing import Any, TypeVar

import msgspec
import pytest

from refold.reducers.vocabulary import Role, StopReason, ToolError
from refold.replay.importers.items import (
    Answered,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Unread,
)
from refold.replay.importers.otel.importer import OTEL
from refold.replay.importers.source import BadTranscript, Source
from support.transcribed import tallies, tally_of
from support.unknown_keys import lost

START = 1_700_000_000
T = TypeVar("T")


def source(value: object) -> Source:
    return Source.of("spans", msgspec.json.encode(value))


def span(
    number: int, op: str, parent: int | None = None, *, length: int = 1, status: str = "UNSET", **own: Any
) -> dict[str, Any]:
    """A span of the Python SDK, beginning at second `number`."""
    return {
        "name": f"{op} x",
        "context": {"trace_id": "0xt", "span_id": f"0x{number}"},
        "parent_id": None if parent is None else f"0x{parent}",
        "start_time": iso(number),
        "end_time": iso(number + length),
        "status": {"status_code": status},
        "attributes": {"gen_ai.operation.name": op}
        | {name.replace("__", "."): value for name, value in own.items()},
        "events": [],
    }


def iso(second: int) -> str:
    return f"2023-11-14T22:13:{20 + second:02d}.000001Z"


def says(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def asks(call: str, name: str = "look") -> dict[str, Any]:
    return {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": call, "name": name, "arguments": {"q": 1}}],
    }


def answers(call: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call, "response": text}]}


def chat(number: int, parent: int | None, prompt: list[Any], answer: Any, **own: Any) -> dict[str, Any]:
    captured = {"gen_ai__input__messages": msgspec.json.encode(prompt).decode()} if prompt else {}
    captured |= {"gen_ai__output__messages": msgspec.json.encode([answer]).decode()} if answer else {}
    tokens = {"gen_ai__usage__input_tokens": 10, "gen_ai__usage__output_tokens": 2}
    return span(number, "chat", parent, **(captured | tokens | own))


RUN = [
    span(0, "invoke_agent", length=9, gen_ai__usage__input_tokens=20, gen_ai__agent__name="a"),
    chat(1, 0, [says("user", "go")], asks("c1")),
    span(3, "execute_tool", 0, gen_ai__tool__call__id="c1", gen_ai__tool__name="look", gen_ai__tool__call__result='{"wrapped": 1}'),
    chat(5, 0, [says("user", "go"), asks("c1"), answers("c1", "found")], says("assistant", "done")),
]  # fmt: skip


def of(value: object) -> list[Any]:
    return list(OTEL.items(source(value)))


def only(items: list[Any], kind: type[T]) -> list[T]:
    return [item for item in items if isinstance(item, kind)]


def test_a_run_is_its_agents_span() -> None:
    """A run begins with the first prompt, tells each prompt before its answer, and counts chats, not the agent's copy."""
    items = of(RUN)
    names = ["RunBegan", "Prompted", "Answered", "Returned", "Prompted", "Answered", "RunEnded"]
    assert names == [type(item).__name__ for item in items]
    assert ("a", "go") == (items[0].agent, items[0].messages[0].text)
    tally = tally_of(items)
    assert (2, 1, 1, 0, 20, 4) == (
        tally.messages, tally.tool_calls, tally.tool_results, tally.tool_errors, tally.input_tokens, tally.output_tokens,
    )  # fmt: skip
    assert (None, None, None) == (tally.user_messages, tally.tool_messages, tally.cache_read_tokens)
    assert ("finished", iso(0), iso(9)) == (items[-1].end, tally.first_timestamp, tally.last_timestamp)


def test_a_result_is_what_the_next_prompt_shows() -> None:
    """A tool's output is what the model read, not the framework's wrapping; arguments are spelled as in the answer."""
    items = of(RUN)
    assert "found" == only(items, Returned)[0].output
    assert (
        only(items, Answered)[0].calls[0].arguments == only(items, Prompted)[1].messages[1].calls[0].arguments
    )


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
    assert pieces == [message.text for message in only(of([row]), Prompted)[0].messages]


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
    assert "go" == only(items, Prompted)[0].messages[0].text
    assert "done" == only(items, Answered)[0].text


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
    assert 7 == getattr(only(of([row]), Answered)[0].usage, field)


def test_ai_sdk_inner_spans_belong_by_time() -> None:
    """The AI SDK's outer span is a run, the inner one of its kind within its time the answer; its usage counts once."""
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
    assert [("hi", StopReason.END_TURN)] == [(item.text, item.stop) for item in only(items, Answered)]
    assert 5 == tally_of(items).input_tokens


def test_helpers_are_counted_but_no_part_of_the_conversation() -> None:
    """A chat outside of every agent is remarked in the run before it, and its tokens count."""
    title = chat(7, None, [says("user", "title?")], says("assistant", "T"))
    title["context"]["trace_id"] = "0xother"
    items = of([*RUN, title])
    assert ["helper:chat"] == [item.what for item in only(items, Remarked)]
    assert 30 == tally_of(items).input_tokens


def test_calls_are_inferred_where_contents_were_not_captured() -> None:
    """Without captured answers, a chat asked for the tools that ran before the next chat."""
    rows = [
        row | {"attributes": {k: v for k, v in row["attributes"].items() if "messages" not in k}}
        for row in RUN
    ]
    assert [["look"], []] == [[call.name for call in item.calls] for item in only(of(rows), Answered)]


def test_without_an_agent_a_conversation_is_a_run() -> None:
    """A file that lost its agent's span still imports, its end read off the last span."""
    items = of(RUN[1:])
    assert ["finished"] == [item.end for item in only(items, RunEnded)]
    assert 2 == len(only(items, Answered))
    assert ["open"] == [item.end for item in only(of(RUN[1:3]), RunEnded)]


def test_sub_agents_are_runs() -> None:
    """An agent under an agent is a run of its own, and a remark in the one above."""
    inner = [span(6, "invoke_agent", 0), chat(7, 6, [says("user", "sub")], says("assistant", "ok"))]
    items = of([*RUN, *inner])
    assert ["go", "sub"] == [item.messages[0].text for item in only(items, RunBegan)]
    assert ["subagent"] == [item.what for item in only(items, Remarked)]


@pytest.mark.parametrize(
    ("change", "end"),
    [
        pytest.param({"status": {"status_code": "ERROR"}}, "error", id="error status"),
        pytest.param({"end_time": None}, "open", id="no end"),
        pytest.param({}, "finished", id="ended"),
    ],
)
def test_ends(change: dict[str, Any], end: str) -> None:
    """A run ends as its agent's span says."""
    assert [end] == [item.end for item in only(of([RUN[0] | change, *RUN[1:]]), RunEnded)]


def test_failures() -> None:
    """A failed tool is an error of its result; a failed chat without an answer is a request that failed."""
    tool = RUN[2] | {"status": {"status_code": "ERROR"}}
    failed = chat(7, 0, [], None) | {
        "status": {"status_code": "ERROR", "description": "429 too many requests"}
    }
    items = of([RUN[0], RUN[1], tool, RUN[3], failed])
    assert [ToolError.RAISED] == [item.error for item in only(items, Returned)]
    assert ["rate_limit"] == [item.failure for item in only(items, RequestFailed)]
    assert (3, 1) == (tally_of(items).assistant_messages, tally_of(items).tool_errors)


def test_a_partial_prompt_is_a_remark() -> None:
    """A prompt with results but not their calls is only the new part of one: told as new messages, not as the prompt."""
    rows = [RUN[0], RUN[1], chat(5, 0, [answers("c1", "found")], says("assistant", "done"))]
    items = of(rows)
    assert 1 == len(only(items, Prompted))
    assert ["prompt:partial"] == [item.what for item in only(items, Remarked)]
    assert ["found"] == [item.output for item in only(items, Returned)]


def test_a_span_twice_counts_once() -> None:
    """A repeated span is said to be repeated, and counted once."""
    items = of([*RUN, RUN[1]])
    assert ["repeated"] == [item.code for item in only(items, Unread)]
    assert 2 == tally_of(items).assistant_messages


def test_every_span_has_its_place() -> None:
    """The positions of all items together name every span."""
    rows = [*RUN, span(8, "execute_hook", 0), span(9, "embeddings", 0)]
    assert {f"$[{number}]" for number in range(len(rows))} == {item.position for item in of(rows)}


def test_nothing_is_dropped() -> None:
    """A key that nobody has heard of is in the log, whoever exported the spans: in a span, around it, in its attributes."""
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
    """A SQLite store gives the same counts; its columns stand in for attributes; other tables are kept as a remark."""
    data = database(RUN)
    items = list(OTEL.items(Source.of("x.db", data)))
    assert tally_of(of(RUN)) == tally_of(items)
    assert ["unmapped"] == [item.what for item in only(items, Remarked)]
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


def test_a_cut_document_imports_up_to_the_cut() -> None:
    """A document that breaks off gives its whole spans, and says where it broke off."""
    data = msgspec.json.encode(RUN)
    items = list(OTEL.items(Source.of("x", data[:-300])))
    assert ["cut"] == [item.code for item in only(items, Unread)]
    assert 1 == len(only(items, Answered))


def test_roles() -> None:
    """A result in a user's message is a tool's message in the prompt."""
    prompt = only(of(RUN), Prompted)[1]
    assert [Role.USER, Role.ASSISTANT, Role.TOOL] == [message.role for message in prompt.messages]


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
    assert [("look", "found")] == [(each.name, each.output) for each in only(items, Returned)]


def test_spans_in_groups() -> None:
    """Lists of spans under names are read as one list; what stands beside them is kept."""
    items = list(OTEL.items(source({"a": RUN[:2], "b": RUN[2:], "note": "kept"})))
    assert [2] == [tally.messages for tally in tallies(items)]
    assert ['{"note":"kept"}'] == [item.rest for item in only(items, Unread)]


def test_spans_of_no_run_are_said_to_be_none() -> None:
    """A file of spans without an agent, a chat or a tool says that it holds no run."""
    items = list(OTEL.items(source([span(0, "embeddings")])))
    assert ["no_run"] == [item.code for item in only(items, Unread)]
    assert not only(items, RunBegan)
