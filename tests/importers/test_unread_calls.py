"""Calls that a source has where no importer reads them as calls: no rule over calls agrees with a run that
has one.
"""

import json
from typing import Any

import pytest

from refold.importers.source import Source
from refold.replay.whatif.verdict import Verdict
from support.inspect_logs import called, event, log, message, model, sample, tool
from support.sessions import CODEX, COPILOT_CLI, Json
from support.unknown_rows import COMMAND, verdicts

INPUT = {"command": COMMAND}
SPANS = [
    event("span_begin", id="s", type="tool", parent_id=None),
    event("span_end", id="s"),
]
HI, DONE = message("user", "hi"), message("assistant", "done")
VIEWED = called("c", content="")
VIEWED["tool_calls"][0] |= {"arguments": {}, "view": {"format": "markdown", "content": COMMAND}}


def verdict_of(format: str, document: object) -> Verdict:  # noqa: A002
    """What the rule says of the only run of a document, or of rows."""
    rows = document if isinstance(document, tuple) else (document,)
    source = Source.of("t", "\n".join(map(json.dumps, rows)).encode())
    ((_, _, verdict),) = verdicts(source, format)
    return verdict


def inspect(*events: Json) -> Json:
    return log(sample([model(DONE, 1, input=[HI]), *events], [HI, DONE]))


def nesting(*events: Json) -> Json:
    """A log in whose only call these events are nested."""
    asked, returned = called("c", content=""), message("tool", "x", tool_call_id="c", function="bash")
    told = [
        model(asked, 1, input=[HI]),
        tool("c", "x", events=[*events]),
        model(DONE, 3, input=[HI, asked, returned]),
    ]
    return log(sample(told, [HI, asked, returned, DONE]))


def untold(*events: Json) -> Json:
    """A log whose events do not have the conversation."""
    return log(sample([*events], [HI, DONE]))


def mini(*messages: Json) -> Json:
    rows = [
        message("system", "s"),
        HI,
        *messages,
        message("user", "Please go on."),
        message("assistant", "ok"),
    ]
    return {"trajectory_format": "mini-swe-agent-1", "info": {"exit_status": "Submitted"}, "messages": rows}


def openhands(*events: Json) -> tuple[Json, ...]:
    said = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    done = {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
    rows = [
        {"kind": "MessageEvent", "source": "user", "llm_message": said},
        *events,
        {"kind": "MessageEvent", "source": "agent", "llm_message": done},
    ]
    return tuple({"id": f"e{n}", "timestamp": f"2026-01-01T00:00:0{n}", **row} for n, row in enumerate(rows))


def acp(**more: Any) -> Json:
    return {"kind": "ACPToolCallEvent", "source": "agent", "tool_call_id": "c", "title": "Terminal", **more}


def acting(wire: Json, **action: Any) -> tuple[Json, Json]:
    """A call as the model wrote it and as it was run, and its result."""
    said = {"id": "c", "name": "bash", "arguments": json.dumps(wire)}
    about = {"tool_name": "bash", "tool_call_id": "c"}
    run = {
        "kind": "ActionEvent",
        "source": "agent",
        "tool_call": said,
        "action": {"kind": "Bash", **action},
        **about,
    }
    seen = {"kind": "Observation", "content": [{"type": "text", "text": "ok"}]}
    return run, {"kind": "ObservationEvent", "source": "environment", "observation": seen, **about}


def codex(*payloads: Json) -> tuple[Json, ...]:
    said = [CODEX.message("user", "hi"), CODEX.call("c1"), CODEX.result("c1", "ok")]
    events = [CODEX.row("event_msg", **payload) for payload in payloads]
    meta = CODEX.row("session_meta", id="s", cli_version="0.146.0")
    return (meta, *said, *events, CODEX.message("assistant", "x"))


def amp(**run: Any) -> Json:
    call = {"type": "tool_use", "id": "t", "name": "Task", "input": {"prompt": "x"}}
    listed: list[Json] = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [call], "state": {"type": "complete", "stopReason": "tool_use"}},
        {"role": "user", "content": [{"type": "tool_result", "toolUseID": "t", "run": {"status": "done", "result": "x", **run}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "y"}], "state": {"type": "complete", "stopReason": "end_turn"}},
    ]  # fmt: skip
    messages = [{**each, "messageId": number} for number, each in enumerate(listed)]
    return {"v": 1, "id": "T-1", "created": 1772359200000, "messages": messages}


def gemini(*messages: Json, wire: Json | None = None, **call: Any) -> Json:
    asked = {"id": "c", "name": "generalist", "args": {}, "status": "success", **call}
    asked["result"] = [{"functionResponse": {"id": "c", "name": "generalist", "response": {"output": "ok"}}}]
    listed: list[Json] = [
        {"type": "user", "content": "hi"},
        {"type": "gemini", "content": [{"functionCall": wire}] if wire else "", "toolCalls": [asked]},
        *messages,
        {"type": "gemini", "content": "done"},
    ]
    rows = [{"id": str(n), "timestamp": "2026-01-01T00:00:00Z", **each} for n, each in enumerate(listed)]
    return {"sessionId": "s", "projectHash": "p", "messages": rows}


WIRE = {"id": "c", "name": "generalist", "args": INPUT}
ACTIVITY = [{"id": "a", "type": "tool_call", "content": "run_shell_command", "args": json.dumps(INPUT)}]


def opencode(*said: Json, name: str = "bash", **state: Any) -> Json:
    part = {"id": "p", "type": "tool", "callID": "c", "tool": name}
    told = {"status": "completed", "input": {}, "output": "x", "metadata": {"exit": 0}, **state}
    info = {
        "id": "a",
        "role": "assistant",
        "modelID": "m",
        "finish": "stop",
        "time": {"created": 2, "completed": 3},
    }
    done = {"id": "q", "type": "text", "text": "done"}
    state_ = None if state.get("status") == "" else told
    return {
        "info": {"id": "s", "version": "1.0.0", "time": {"created": 1}},
        "messages": [
            {
                "info": {"id": "u", "role": "user", "time": {"created": 1}},
                "parts": [{"id": "t", "type": "text", "text": "hi"}, *said],
            },
            {"info": info, "parts": [{**part, "state": state_}, done]},
        ],
    }


TOOL_PART = {"id": "z", "type": "tool", "callID": "d", "tool": "bash", "state": {"input": INPUT}}
KIMI = {"type": "ToolCall", "payload": {"function": {"name": "Shell", "arguments": json.dumps(INPUT)}}}


def kimi(inner: Json) -> tuple[Json, ...]:
    said = [
        ("TurnBegin", {"user_input": "hi"}),
        ("StepBegin", {"n": 1}),
        ("ContentPart", {"type": "text", "text": "done"}),
        ("SubagentEvent", {"task_tool_call_id": "c", "event": inner}),
        ("TurnEnd", {}),
    ]
    rows = ({"timestamp": 1.0 + n, "message": {"type": k, "payload": p}} for n, (k, p) in enumerate(said))
    return ({"type": "metadata", "protocol_version": "1.9"}, *rows)


def atif(*trajectories: Json) -> Json:
    steps = [
        {"step_id": 1, "source": "user", "message": "hi"},
        {"step_id": 2, "source": "agent", "message": "done"},
    ]
    return {
        "schema_version": "ATIF-v1.5",
        "agent": {"name": "a"},
        "steps": steps,
        "subagent_trajectories": [*trajectories],
    }


def copilot(kind: str) -> tuple[Json, ...]:
    event = COPILOT_CLI.event
    head = event("session.start", sessionId="s", copilotVersion="1.0.10")
    ran = event(kind, toolCallId="d", toolName="bash", arguments=INPUT)
    return (head, COPILOT_CLI.user("hi"), ran, COPILOT_CLI.answer("done"))


STEP = {
    "source": "agent",
    "message": "",
    "tool_calls": [{"tool_call_id": "c", "function_name": "sh", "arguments": INPUT}],
}
RESULT = message("user", "<returncode>0</returncode>\n<output></output>")

LOST = [
    pytest.param("inspect", nesting(tool("d", "x")), id="inspect: nested in a tool"),
    pytest.param("inspect", inspect(event("subtask", events=[tool("d", "x")])), id="inspect: nested in a subtask"),
    pytest.param("inspect", inspect(SPANS[0], tool("d", "x", span_id="s"), SPANS[1]), id="inspect: tool in a span"),
    pytest.param("inspect", inspect(SPANS[0], model(called("d"), input=[HI], span_id="s"), SPANS[1]), id="inspect: model in a span"),
    pytest.param("inspect", inspect(event("sandbox", action="exec", cmd=COMMAND)), id="inspect: sandbox"),
    pytest.param("inspect", untold(tool("d", "x")), id="inspect: tool that no message has"),
    pytest.param("inspect", log(sample([model(VIEWED, 1, input=[HI])], [HI, VIEWED])), id="inspect: arguments in a view alone"),
    pytest.param("inspect", untold(event("subtask", events=[tool("d", "x")])), id="inspect: subtask, and no model"),
    pytest.param("inspect", untold(event("sandbox", action="exec", cmd=COMMAND)), id="inspect: sandbox, and no model"),
    pytest.param("mini_swe_agent", mini(message("assistant", f"```sh\n{COMMAND}\n```"), RESULT), id="mini: another fence"),
    pytest.param("mini_swe_agent", mini(message("assistant", f"<bash>{COMMAND}</bash>"), RESULT), id="mini: another pattern"),
    pytest.param("openhands", openhands(acp(raw_input=INPUT)), id="openhands: a call over ACP"),
    pytest.param("openhands", openhands(acp()), id="openhands: a call over ACP without its input"),
    pytest.param("codex", codex({"type": "exec_command_begin", "call_id": "d", "command": [COMMAND]}), id="codex: a command began"),
    pytest.param("codex", codex({"type": "exec_command_end", "call_id": "d", "command": [COMMAND]}), id="codex: a command ended"),
    pytest.param("codex", codex({"type": "mcp_tool_call_begin", "call_id": "d", "invocation": {"arguments": INPUT}}), id="codex: MCP"),
    pytest.param("codex", codex({"type": "patch_apply_begin", "call_id": "d", "changes": {}}), id="codex: a patch"),
    pytest.param("codex", codex({"type": "item_completed", "item": {"type": "CommandExecution", "id": "d"}}), id="codex: an item"),
    pytest.param("codex", codex({"type": "novel_tool_ran", "input": INPUT}), id="codex: an unknown event"),
    pytest.param("amp", amp(progress=[{"message": "", "tool_uses": [{"tool_name": "Bash", "input": INPUT}]}]), id="amp: progress"),
    pytest.param("gemini_cli", gemini(resultDisplay={"isSubagentProgress": True, "recentActivity": ACTIVITY}), id="gemini: progress"),
    pytest.param("gemini_cli", gemini({"type": "user", "content": "x", "toolCalls": [{"args": INPUT}]}), id="gemini: a person's"),
    pytest.param("gemini_cli", gemini({"type": "info", "content": "x", "toolCalls": [{"args": INPUT}]}), id="gemini: a note's"),
    pytest.param("gemini_cli", gemini(wire=WIRE, args={"command": "ls"}), id="gemini: two accounts"),
    pytest.param("openhands", openhands(*acting(INPUT, command="ls")), id="openhands: two accounts"),
    pytest.param("opencode", opencode(name="task", metadata={"summary": [{"tool": "bash"}], "sessionId": "t"}), id="opencode: task"),
    pytest.param("opencode", opencode(TOOL_PART), id="opencode: a person's"),
    pytest.param("opencode", opencode(status=""), id="opencode: without a state"),
    pytest.param("opencode", opencode(status="pending", raw=json.dumps(INPUT)), id="opencode: raw arguments"),
    pytest.param("copilot_cli", copilot("tool.novel"), id="copilot: an unknown event of a tool"),
    pytest.param("copilot_cli", copilot("assistant.novel"), id="copilot: an unknown event of an answer"),
    pytest.param("kimi_cli", kimi(KIMI), id="kimi: a subagent"),
    pytest.param("atif", atif({"steps": [STEP]}), id="atif: a subagent"),
]  # fmt: skip

READ = [
    pytest.param("inspect", nesting(event("info"), model(DONE, input=[HI])), id="inspect: a note in a tool"),
    pytest.param("inspect", inspect(SPANS[0], model(DONE, input=[HI], span_id="s"), SPANS[1]), id="inspect: no call in a span"),
    pytest.param("inspect", inspect(event("sandbox", action="read_file", file="f")), id="inspect: a file of the sandbox"),
    pytest.param("inspect", inspect(SPANS[0], event("sandbox", action="exec", cmd="x", span_id="s"), SPANS[1]), id="inspect: a tool's sandbox"),
    pytest.param("inspect", log(sample([event("sandbox", action="exec", cmd="x"), model(DONE, 1, input=[HI])], [HI, DONE])), id="inspect: sandbox before any answer"),
    pytest.param("mini_swe_agent", mini(message("assistant", "I think."), message("user", "One command, please.")), id="mini: no call"),
    pytest.param("codex", codex({"type": "exec_command_begin", "call_id": "c1", "command": ["x"]}), id="codex: a call of an item"),
    pytest.param("codex", codex({"type": "exec_command_end", "call_id": "d", "source": "user_shell"}), id="codex: a person's command"),
    pytest.param("codex", codex({"type": "web_search_end", "call_id": "d", "query": "x"}), id="codex: a search of the provider"),
    pytest.param("amp", amp(progress={"output": "x", "exitCode": 0}), id="amp: output"),
    pytest.param("gemini_cli", gemini(resultDisplay={"fileDiff": "x"}), id="gemini: a diff"),
    pytest.param("gemini_cli", gemini({"type": "info", "content": "x", "toolCalls": []}), id="gemini: a note"),
    pytest.param("gemini_cli", gemini(wire={**WIRE, "args": {"x": "y"}}, args={"x": "y"}), id="gemini: two equal accounts"),
    pytest.param("openhands", openhands(*acting({"command": "ls"}, command="ls", timeout=5)), id="openhands: two equal accounts"),
    pytest.param("opencode", opencode(name="task", metadata={"sessionId": "t"}), id="opencode: a session of its own"),
    pytest.param("copilot_cli", copilot("tool.user_requested"), id="copilot: a person's command"),
    pytest.param("kimi_cli", kimi({"type": "ContentPart", "payload": {"type": "text", "text": "x"}}), id="kimi: words of a subagent"),
    pytest.param("atif", atif({"steps": [{"source": "agent", "message": "x"}]}), id="atif: words of a subagent"),
]  # fmt: skip


@pytest.mark.parametrize(("format", "document"), LOST)
def test_a_call_that_is_not_read_leaves_the_rule_inconclusive(format: str, document: object) -> None:  # noqa: A002
    """A run whose source has a call that is in no fact is never judged to agree with a rule over calls."""
    assert Verdict.INCONCLUSIVE is verdict_of(format, document)


@pytest.mark.parametrize(("format", "document"), READ)
def test_a_run_whose_calls_are_all_read_is_judged(format: str, document: object) -> None:  # noqa: A002
    """What stands beside the conversation and is no call leaves a rule over calls judged."""
    assert Verdict.AGREE is verdict_of(format, document)
