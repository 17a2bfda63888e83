"""The condition `when`: the permission mode, the subagent and the MCP server, as the log records them."""

import json
from typing import Any

import pytest

from refold.reducers.events import (
    Answer,
    Call,
    CallRefused,
    ModelResponded,
    Parent,
    Remark,
    RunForked,
    RunStarted,
    SourceRecorded,
)
from refold.reducers.guards.permissions import Permissions
from refold.reducers.parser import parse
from refold.reducers.permissions.conditions import ToolCall
from refold.reducers.permissions.rules import Effect, Order, PermissionRule, decide
from refold.reducers.permissions.run_facts import RunFacts, When
from refold.reducers.policy import Policy
from refold.reducers.run_records import read_mode, take_calls, take_event
from refold.reducers.vocabulary import StopReason
from support.scenario import Scenario

CLAUDE = RunFacts(format="claude_code", child=False)


@pytest.mark.parametrize(
    ("when", "tool", "run", "expected"),
    [
        (When(mode=("plan", "accept*")), "Bash", RunFacts(mode="acceptEdits"), True),
        (When(mode=("plan",)), "Bash", RunFacts(mode="default"), False),
        (When(mode=("*",)), "Bash", RunFacts(), None),
        (When(subagent=True), "Bash", RunFacts(child=True), True),
        (When(subagent=False), "Bash", RunFacts(child=True), False),
        (When(subagent=False), "Bash", RunFacts(), None),
        (When(subagent=("review*",)), "Bash", RunFacts(child=True, agent="reviewer"), True),
        (When(subagent=("review*",)), "Bash", RunFacts(child=True, agent="tester"), False),
        (When(subagent=("review*",)), "Bash", RunFacts(child=True), None),
        (When(subagent=("review*",)), "Bash", RunFacts(child=False), False),
        (When(server=("git*",)), "mcp__github__push", RunFacts(), True),
        (When(server=("git",)), "mcp__github__push", RunFacts(), False),
        (When(server=("git*",)), "Bash", CLAUDE, False),
        (When(server=("git*",)), "push", RunFacts(), None),
        (When(server=("git*",)), "mcp__github", CLAUDE, None),
        (When(server=("my",)), "mcp_my_server_tool", RunFacts(format="gemini_cli"), None),
        (When(server=("my*",)), "mcp_my_server_tool", RunFacts(format="gemini_cli"), True),
        (When(server=("other",)), "mcp_my_server_tool", RunFacts(format="gemini_cli"), False),
        (When(server=("*",)), "read_file", RunFacts(format="gemini_cli"), None),
        (When(mode=("plan",), subagent=True), "Bash", RunFacts(child=False), False),
        (When(mode=("plan",), subagent=True), "Bash", RunFacts(child=True), None),
    ],
)  # fmt: skip
def test_when_it_holds(when: When, tool: str, run: RunFacts, expected: bool | None) -> None:
    """All parts must hold; what the record lacks is unknown, unless another part is false."""
    assert expected is when.holds(tool, run)
    assert (expected is None) is bool(when.unknowns(tool, run))


def rule(effect: Effect, **keys: Any) -> PermissionRule:
    return PermissionRule(effect=effect, **keys)


def test_a_server_may_be_named_mcp() -> None:
    """Only the name of a tool is refused in place of a server's."""
    assert [] == list(When(server=("mcp_tools",)).problems())
    assert ["server[0]"] == [place for place, _ in When(server=("mcp__",)).problems()]


PLAN = When(mode=("plan",))


@pytest.mark.parametrize(
    ("rules", "order", "otherwise", "expected"),
    [
        pytest.param([rule("refuse", when=PLAN)], "strictest", "permit", "unknown", id="a refusal"),
        pytest.param([rule("ask", when=PLAN)], "strictest", "permit", "unknown", id="a question"),
        pytest.param([rule("permit", when=PLAN)], "strictest", "ask", "unknown", id="a permission"),
        pytest.param([rule("permit", when=PLAN)], "strictest", "permit", "permit", id="permitted in any case"),
        pytest.param([rule("permit", when=PLAN), rule("permit")], "strictest", "ask", "permit", id="permitted by another"),
        pytest.param([rule("permit", when=PLAN), rule("refuse")], "strictest", "ask", "refuse", id="refused in any case"),
        pytest.param([rule("permit", when=PLAN), rule("refuse")], "first", "ask", "unknown", id="a permission that is first"),
        pytest.param([rule("refuse"), rule("permit", when=PLAN)], "first", "ask", "refuse", id="a refusal that is first"),
        pytest.param([rule("refuse"), rule("permit", when=PLAN)], "last", "ask", "unknown", id="a permission that is last"),
        pytest.param([rule("permit", when=PLAN, command=("ls",))], "strictest", "ask", "ask", id="not about this command"),
    ],
)  # fmt: skip
def test_an_unrecorded_mode(
    rules: list[PermissionRule], order: Order, otherwise: Effect, expected: str
) -> None:
    """A rule never permits for an unknown mode; the decision is unknown where the mode would change it."""
    call = ToolCall("Bash", '{"command": "git status"}')
    found = decide(rules, order, otherwise, call)
    assert expected == found.effect
    assert ("the permission mode is not recorded" == found.why) is (expected == "unknown")


def test_an_unreadable_script_is_not_permitted_in_any_mode() -> None:
    """Whatever the mode, a rule does not permit what it cannot read: that is known."""
    call = ToolCall("Bash", '{"command": "eval $X"}')
    assert decide([rule("permit", when=PLAN, command=("ls",))], "strictest", "ask", call).effect == "ask"


def recorded(format_: str, row: Any, what: str = "permission_mode") -> SourceRecorded:
    text = json.dumps(row) if isinstance(row, dict) else row
    content = Remark(text=text) if text is not None else None
    return SourceRecorded(
        at=1, format=format_, source="0" * 64, position="line 1", what=what, content=content
    )


@pytest.mark.parametrize(
    ("format_", "row", "mode"),
    [
        ("claude_code", {"permissionMode": "plan"}, "plan"),
        ("claude_code", {"permissionMode": 3}, None),
        ("claude_code", {"permissionMode": " "}, None),
        ("claude_code", '{"permissionMode": "plan"', None),
        ("claude_code", "permissionMode", None),
        ("claude_code", None, None),
        ("codex", {"payload": {"approval_policy": "never", "sandbox_policy": {"mode": "danger-full-access"}}},
         "never, danger-full-access"),
        ("codex", {"payload": {"approval_policy": "never", "sandbox_policy": "read-only"}}, "never, read-only"),
        ("codex", {"payload": {"approval_policy": "never"}}, "never"),
        ("codex", {"payload": {"approval_policy": {"granular": 1}}}, None),
        ("codex", {"payload": ["approval_policy"]}, None),
        ("copilot_cli", {"data": {"newMode": "autopilot"}}, "autopilot"),
        ("copilot_cli", {"data": {"newMode": None}}, None),
        ("qwen_code", '{"permissionMode": ' + "[" * 2000, None),
    ],
)  # fmt: skip
def test_the_mode_in_a_row_of_a_source(format_: str, row: Any, mode: str | None) -> None:
    """Each format states it in its own field."""
    assert mode == read_mode(recorded(format_, row))


def started(labels: dict[str, str], parent: Parent | None = None, agent: str = "") -> RunStarted:
    return RunStarted(
        at=1,
        format=1,
        run="r",
        rules=1,
        policy=Policy(),
        model="m",
        labels=labels,
        parent=parent,
        agent=agent,
    )


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (started({"mode": "plan"}), RunFacts(mode="plan", child=False)),
        (started({}, Parent(run="p", call="c"), "reviewer"), RunFacts(child=True, agent="reviewer")),
        (started({"source.format": "claude_code", "mode": "x"}, agent="claude-code"), CLAUDE),
        (started({"source.format": "claude_code", "source.parent": "p"}), RunFacts(format="claude_code", child=True)),
        (started({"source.format": "claude_code", "source.parent": "p", "source.branch": "rewound"}),
         RunFacts(format="claude_code")),
        (started({"source.format": "codex"}), RunFacts(format="codex")),
        (started({"source.format": "claude_code"}, agent="iflow"), RunFacts(format="iflow", child=False)),
    ],
)  # fmt: skip
def test_what_a_run_begins_with(event: RunStarted, expected: RunFacts) -> None:
    """A live run is known; an imported one as far as its format marks subagents."""
    assert expected == take_event(RunFacts(), event)


def test_a_fork_may_change_the_mode() -> None:
    """Its labels replace those of its parent."""
    fork = RunForked(
        at=1, run="f", rules=1, parent="r", parent_seq=1, parent_hash="0", labels={"mode": "plan"}
    )
    assert RunFacts(mode="plan") == take_event(RunFacts(mode="default"), fork)


def judged(*events: Any, **keys: Any) -> list[str]:
    """The decisions of a guard about one call after each of these events."""
    guard = Permissions(rules=(rule("refuse", tool="Bash", when=PLAN, **keys),))
    own = guard.start()
    told: list[str] = []
    for event in events:
        own = guard.observe(own, event)
        call = Call(id="c", name="Bash")
        made = ModelResponded(
            at=1, request=1, stop=StopReason.TOOL_USE, calls=(call,), content=Answer(arguments=("{}",))
        )
        own = guard.observe(own, made)
        told.append(own.decisions["c"].effect)
    return told


def test_a_change_of_the_mode_applies_from_there() -> None:
    """Before the first record it is unknown, and after an erased one again."""
    events = [
        started({"source.format": "claude_code"}),
        recorded("claude_code", {"permissionMode": "default"}),
        recorded("claude_code", {"permissionMode": "plan"}),
        recorded("claude_code", {"cwd": "/x"}, "unmapped"),
        recorded("claude_code", None, ""),
        recorded("claude_code", None),
    ]
    assert ["unknown", "permit", "refuse", "refuse", "refuse", "unknown"] == judged(*events)


def test_a_tool_that_ends_plan_mode_makes_it_unknown() -> None:
    """Until a row states it again; the source may not record the change before the next call."""
    guard = Permissions(rules=(rule("refuse", tool="Bash", when=PLAN),))
    own = guard.observe(guard.start(), started({"source.format": "claude_code"}))
    own = guard.observe(own, recorded("claude_code", {"permissionMode": "plan"}))
    told: list[str] = []
    for name in ("Bash", "ExitPlanMode", "Bash"):
        call, content = Call(id="c", name=name), Answer(arguments=("{}",))
        made = ModelResponded(at=1, request=1, stop=StopReason.TOOL_USE, calls=(call,), content=content)
        own = guard.observe(own, made)
        told.append(own.decisions["c"].effect)
    assert ["refuse", "permit", "unknown"] == told
    assert CLAUDE == take_calls(CLAUDE, [Call(id="c", name="ExitPlanMode")])
    live = RunFacts(mode="plan")
    assert live is take_calls(live, [Call(id="c", name="ExitPlanMode")])


@pytest.mark.parametrize(
    ("mode", "then", "expected"),
    [
        ("plan", "permit", "permission"),
        ("default", "refuse", ""),
        (None, "permit", ""),
        (None, "refuse", "permission_unknown"),
    ],
)
def test_a_live_run_names_its_mode(mode: str | None, then: str, expected: str) -> None:
    """The label `mode`; without it, the effect for what is unknown applies."""
    guard = {
        "guard": "permissions",
        "unknown": then,
        "rules": [{"effect": "refuse", "when": {"mode": ["plan"]}}],
    }
    scenario = Scenario({"guards": [guard]}, labels={} if mode is None else {"mode": mode})
    scenario.answer("", ("act", "{}"))
    assert expected == next((event.code for event in scenario.log if isinstance(event, CallRefused)), "")


def test_an_unknown_permission_is_no_less_strict_than_without_it() -> None:
    """A rule that permits in some mode does not turn a refusal into a question."""
    permit = {"effect": "permit", "when": {"mode": ["plan"]}}
    guard = {"guard": "permissions", "unknown": "ask", "else": "refuse", "rules": [permit]}
    scenario = Scenario({"guards": [guard]})
    scenario.answer("", ("act", "{}"))
    assert ["permission_unknown"] == [event.code for event in scenario.log if isinstance(event, CallRefused)]


def test_it_is_a_condition_of_all_rules_over_arguments() -> None:
    """The guard `arguments` and approvers read the mode, too."""
    match = {"approver": "arguments", "when": {"mode": ["plan"]}, "then": "reject", "else": "approve"}
    for policy in (
        {"guards": [{"guard": "arguments", "when": {"mode": ["plan"]}}]},
        {"approvals": {"chain": [match]}},
    ):
        assert parse(policy)
        scenario = Scenario(policy, labels={"mode": "plan"})
        scenario.answer("", ("act", "{}"))
        assert [True] == [
            isinstance(event, CallRefused) for event in scenario.log if isinstance(event, CallRefused)
        ]
