"""`refold whatif` over sources that know of calls or requests which the log does not have: nothing is said to
agree.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold

Json = dict[str, Any]

USER: Json = {"role": "user", "content": "Find it."}
SEARCH: Json = {"type": "tool_use", "id": "s", "name": "web_search", "input": {}}
TEXT: Json = {"type": "text", "text": "Done."}


def codex(call: Json) -> list[Json]:
    payloads = [
        ("session_meta", {"id": "s"}),
        ("response_item", {"type": "message", "role": "user", "content": [{"text": "Find it."}]}),
        ("response_item", call),
        ("response_item", {"type": "message", "role": "assistant", "content": [{"text": "Done."}]}),
        ("event_msg", {"type": "task_complete"}),
    ]
    time = "2026-01-01T00:00:00.000Z"
    return [{"timestamp": time, "type": kind, "payload": payload} for kind, payload in payloads]


def pi(*messages: Json) -> list[Json]:
    head = {"type": "session", "id": "s", "version": 3}
    listed = enumerate(messages)
    return [
        head,
        *({"type": "message", "id": f"{n}", "parentId": f"{n - 1}", "message": m} for n, m in listed),
    ]


def span(output: Json) -> list[Json]:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": "Go."}]}]
        ),
        "gen_ai.output.messages": json.dumps([output]),
    }
    return [{"name": "chat", "context": {"span_id": "a", "trace_id": "t"}, "attributes": attributes}]


def swe(answer: Json, step: Json) -> Json:
    history = [{"role": "system", "content": "Be brief.", "agent": "primary"}, USER, answer]
    return {"trajectory": [step], "history": history, "info": {"exit_status": "submitted"}}


def agents(output: Json) -> list[Json]:
    data = {"type": "generation", "input": [USER], "output": [output]}
    ids = {
        "id": "s1",
        "trace_id": "t",
        "started_at": "2026-01-01T00:00:00Z",
        "ended_at": "2026-01-01T00:00:01Z",
    }
    return [{"object": "trace", "id": "t"}, {"object": "trace.span", **ids, "span_data": data}]


SERVER: Json = {"type": "server_tool_call", "id": "s", "server_tool_call": {"type": "web_search"}}
GENAI: Json = {"role": "assistant", "parts": [SERVER, {"type": "text", "content": "Done."}]}
CHAT: Json = {"role": "assistant", "content": [{"type": "mcp_tool_listing", "id": "x"}, TEXT]}
ABORTED: Json = {"role": "assistant", "content": [], "stopReason": "aborted"}
BUILTIN: list[Json] = [
    {"part_kind": "builtin-tool-call", "tool_name": "web_search", "tool_call_id": "b", "args": {}},
    {"part_kind": "builtin-tool-return", "tool_name": "web_search", "tool_call_id": "b", "content": []},
    {"part_kind": "text", "content": "Done."},
]
PYDANTIC: list[Json] = [
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Find it."}]},
    {"kind": "response", "parts": BUILTIN},
]
INSPECT: Json = {
    "version": 2,
    "status": "success",
    "eval": {"task": "t", "run_id": "r", "dataset": {}},
    "samples": [{"id": 1, "epoch": 1, "messages": [USER, {"role": "assistant", "content": [SEARCH, TEXT]}]}],
}
ATIF: Json = {
    "schema_version": "ATIF-v1.5",
    "agent": {"name": "a"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Find it."},
        {"step_id": 2, "source": "agent", "message": [SEARCH, TEXT]},
    ],
}
MINI: Json = {
    "info": {"exit_status": "Submitted", "mini_version": "1.1", "model_stats": {}},
    "messages": [USER, {"role": "assistant", "content": [SEARCH, TEXT]}],
}
OPENHANDS: list[Json] = [
    {"id": 0, "source": "user", "action": "message", "args": {"content": "Find it."}},
    {
        "id": 1,
        "source": "agent",
        "action": "message",
        "args": {"content": "Done."},
        "tool_call_metadata": {
            "model_response": {"id": "r", "choices": [{"message": {"content": [SEARCH, TEXT]}}]},
        },
    },
]
SILENT = {"type": "message", "role": "assistant", "content": "Done.", "agent": "primary"}

KNOWN: dict[str, Json | list[Json]] = {
    "Codex: a search of the provider's": codex(
        {"type": "web_search_call", "id": "w", "action": {"query": "x"}}
    ),
    "Codex: a computer of the provider's": codex({"type": "computer_call", "call_id": "w", "action": {}}),
    "Pi: an interrupted request": pi(USER, ABORTED, USER, {"role": "assistant", "content": "Done."}),
    "Pydantic AI: a built-in tool": PYDANTIC,
    "GenAI: a part of a server's tool": span(GENAI),
    "Agents SDK: a part that may be a call": agents(CHAT),
    "SWE-agent: an action that the history lacks": swe(
        SILENT, {"action": "ls", "response": "Done.", "observation": "a.py"}
    ),
    "Inspect: a server's tool": INSPECT,
    "ATIF: a call among the words": ATIF,
    "mini-swe-agent: a call among the words": MINI,
    "OpenHands: a call among the words": OPENHANDS,
}


def written(folder: Path, source: Json | list[Json]) -> Path:
    """A file of one document; of rows, if they have a type and so are a session's or a trace's."""
    file = folder / "source.json"
    lines = isinstance(source, list) and {"type", "object"} & source[0].keys()
    file.write_text("\n".join(map(json.dumps, source)) if lines else json.dumps(source))
    return file


@pytest.mark.parametrize("source", KNOWN)
def test_what_the_source_has_more_of_is_no_agreement(
    source: str, refold: Refold, store: Path, tmp_path: Path
) -> None:
    """Of a run whose source knows of a call or a request that no fact has, no other policy is said to agree;
    it says why.
    """
    refold("import", written(tmp_path, KNOWN[source]), "--store", store)
    said = refold("whatif", "@last", "--set", "limits.step=500", "--store", store)
    assert (125, True) == (said.code, "inconclusive" in said.out), said.out + said.err


WORD: Json = {"role": "assistant", "content": "Done.", "stopReason": "pausedForReasons"}


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        pytest.param("truncation.max=2", 125, id="a policy that looks at why a response stopped"),
        pytest.param("limits.step=500", 0, id="one that does not"),
    ],
)
def test_a_stop_reason_that_is_not_known(
    settings: str, code: int, refold: Refold, store: Path, tmp_path: Path
) -> None:
    """It is no end of its own accord: what asks whether an answer was cut is not judged by it."""
    assert 0 == refold("import", written(tmp_path, pi(USER, WORD)), "--store", store).code
    said = refold("whatif", "@last", "--set", settings, "--store", store)
    assert (code, code == 125) == (said.code, "pausedForReasons" in said.out), said.out + said.err


SEARCHED: Json = {
    "type": "web_search_call",
    "id": "w",
    "action": {"type": "search", "query": "how to rm -rf"},
}
SHELL: Json = {
    "type": "function_call",
    "call_id": "c",
    "name": "exec_command",
    "arguments": '{"cmd": "rm -rf x"}',
}


@pytest.mark.parametrize(
    ("call", "rule", "code", "said"),
    [
        pytest.param(SEARCHED, {"tool": "exec_command"}, 1, "matches rule guards[0]", id="a rule of another tool"),
        pytest.param(SEARCHED, {"tool": "web*"}, 125, "the provider ran web_search", id="a rule that finds it"),
        pytest.param(SEARCHED, {}, 125, "the provider ran web_search", id="a rule of any tool that finds it"),
        pytest.param(SEARCHED, {"field": "cmd"}, 1, "matches rule guards[0]", id="a rule of a field that it lacks"),
        pytest.param({**SEARCHED, "action": {"query": "x"}}, {}, 1, "matches rule guards[0]", id="another query"),
        pytest.param({**SEARCHED, "action": None}, {}, 125, "the provider ran them, or it is unknown", id="no query"),
        pytest.param({**SEARCHED, "type": "computer_call"}, {"tool": "exec_command"}, 125, "it is unknown who did", id="whoever ran it"),
    ],
)  # fmt: skip
def test_a_call_of_the_provider_is_judged_by_its_tool(
    call: Json, rule: Json, code: int, said: str, refold: Refold, store: Path, tmp_path: Path
) -> None:
    """A rule that is not about a provider's search, or finds nothing in its query, is judged on behind it."""
    rows = codex(call)
    rows[4:4] = [{**rows[2], "payload": SHELL}]
    refold("import", written(tmp_path, rows), "--store", store)
    policy = tmp_path / "policy.json"
    guard = {"guard": "arguments", "matches": "rm -rf", "then": "stop", **rule}
    policy.write_text(json.dumps({"schema": "refold/v1", "preset": "observed", "guards": [guard]}))
    found = refold("whatif", "@last", "--policy", policy, "--store", store)
    assert (code, True) == (found.code, said in found.out), found.out + found.err
