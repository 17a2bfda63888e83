"""`refold whatif` under rules over arguments and the permission mode, over sessions of Claude Code."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from support import claude_code

PLAN, AUTO = {"permissionMode": "plan"}, {"permissionMode": "acceptEdits"}


@pytest.fixture
def store(refold: Refold, store: Path, tmp_path: Path) -> Path:
    """A store with one session: `ls`, then, in plan mode, `cd x && git push` and `eval $X`."""
    rows = [
        claude_code.user("u1", None, "Look.", cwd="/srv/app", **AUTO),
        claude_code.answer("a1", "u1", "m1", claude_code.called("c1", command="ls")),
        claude_code.result("u2", "a1", "c1", **AUTO),
        claude_code.answer("a2", "u2", "m2", claude_code.said("Done.")),
        claude_code.user("u3", "a2", "Deploy.", cwd="/srv/app", **PLAN),
        claude_code.answer("a3", "u3", "m3", claude_code.called("c2", command="cd x && git push")),
        claude_code.result("u4", "a3", "c2", **PLAN),
        claude_code.answer("a4", "u4", "m4", claude_code.called("c3", command="eval $X")),
        claude_code.result("u5", "a4", "c3", **PLAN),
        claude_code.answer("a5", "u5", "m5", claude_code.said("Done.")),
    ]
    file = tmp_path / "session.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert refold("import", file, "--store", store).code == 0
    return store


def whatif(
    refold: Refold, store: Path, tmp_path: Path, policy: dict[str, Any], rules: str = "guards"
) -> dict[str, Any]:
    """The verdict of the session under these rules."""
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"schema": "refold/v1", **policy}), encoding="utf-8")
    found = refold("whatif", "@last", "--policy", file, "--only", rules, "--store", store, "-o", "json")
    assert found.out, found.err
    document: dict[str, Any] = json.loads(found.out.splitlines()[0])["whatif"]
    return {**document, "code_of_exit": found.code}


def guard(**keys: Any) -> dict[str, Any]:
    return {"guards": [{"guard": "arguments", "tool": "Bash", **keys}]}


def permissions(**keys: Any) -> dict[str, Any]:
    return {"guards": [{"guard": "permissions", "rules": [keys]}]}


@pytest.mark.parametrize(
    ("policy", "code", "named"),
    [
        pytest.param(permissions(effect="refuse", when={"mode": ["plan"]}), 1, "c2", id="refused in a mode"),
        pytest.param(permissions(effect="refuse", when={"mode": ["acceptEdits"]}), 1, "c1", id="in an earlier mode"),
        pytest.param(permissions(effect="refuse", when={"mode": ["default"]}), 0, "", id="in a mode that never was"),
        pytest.param(permissions(effect="refuse", when={"subagent": True}), 0, "", id="of no subagent"),
        pytest.param(permissions(effect="refuse", when={"server": ["*"]}), 0, "", id="of no server"),
        pytest.param(guard(command=["ls"], when={"mode": ["acceptEdits"]}), 1, "c1", id="the guard, in a mode"),
        pytest.param(guard(command=["git", "push"]), 1, "c2", id="the guard, one of several commands"),
    ],
)  # fmt: skip
def test_the_first_call_that_a_rule_refuses(
    refold: Refold, store: Path, tmp_path: Path, policy: dict[str, Any], code: int, named: str
) -> None:
    """The mode is that of the row before the call; what the record states is known."""
    found = whatif(refold, store, tmp_path, policy)
    assert code == found["code_of_exit"]
    assert named == ((found.get("subject") or {}).get("call", ""))


@pytest.mark.parametrize(
    ("policy", "rules", "reason"),
    [
        pytest.param(guard(command=["curl"]), "guards",
                     "arguments: the rule `curl` cannot judge call c3: eval runs commands that are not in the text",
                     id="the guard"),
        pytest.param(guard(command=["curl"], then="ask"), "guards", "the rule `curl` cannot judge call c3", id="that asks"),
        pytest.param({"approvals": {"chain": [
            {"approver": "arguments", "command": ["curl"], "then": "reject", "else": "approve"}]}}, "approvals",
            "approvals.chain[0]: the rule `curl` cannot judge call c3", id="an approver"),
        pytest.param(permissions(effect="refuse", tool="Bash", command=["ls"], when={"subagent": ["x"]}), "guards", "",
                     id="known to be no subagent"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged(
    refold: Refold, store: Path, tmp_path: Path, policy: dict[str, Any], rules: str, reason: str
) -> None:
    """A script that cannot be read is inconclusive, with the rule and the reason."""
    found = whatif(refold, store, tmp_path, policy, rules)
    assert (125 if reason else 0) == found["code_of_exit"]
    assert any(reason in each for each in found.get("unknown", [])) is bool(reason)


def test_an_approver_never_approves_what_cannot_be_read(refold: Refold, store: Path, tmp_path: Path) -> None:
    """That is known: the run would have asked a user there."""
    links = [{"approver": "arguments", "matches": "ls|push", "then": "approve"},
             {"approver": "arguments", "command": ["curl"], "then": "approve"}, {"approver": "human"}]  # fmt: skip
    found = whatif(refold, store, tmp_path, {"approvals": {"chain": links}}, "approvals")
    assert (1, "diverges", []) == (found["code_of_exit"], found["verdict"], found.get("unknown", []))


def test_the_verdict_names_the_rule(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Conditions in the words of the policy, with the place."""
    found = whatif(refold, store, tmp_path, guard(command=["git", "push"], path=None, then="stop"))
    assert "blocked: Bash `cd x && git push` matches rule `git push` (guards[0])" == found["why"]


def test_rules_counts_by_the_mode_of_the_call(refold: Refold, store: Path, tmp_path: Path) -> None:
    """`rules` and its proposals judge a call in the mode in which it was made."""
    rows = [
        claude_code.user("u1", None, "Go.", permissionMode="plan"),
        claude_code.answer("a1", "u1", "m1", claude_code.called("c1", command="git status")),
        claude_code.result("u2", "a1", "c1", is_error=False),
    ]
    session = tmp_path / "s.jsonl"
    session.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    policy = tmp_path / "rules.yaml"
    rules = "[{effect: permit, command: [git], when: {mode: [plan]}}, {effect: ask, command: [git, status]}]"
    guard = f"- guard: permissions\n  order: first\n  rules: {rules}\n"
    policy.write_text(f"schema: refold/v1\nguards:\n{guard}", encoding="utf-8")
    found = refold("rules", session, "--policy", policy, "--store", store, "-o", "json")
    first, second = (each["hits"] for each in json.loads(found.out)["rules"])
    assert (1, 0, {"git mode plan": 1}) == (first["calls"], second["calls"], second["decided_by"])


@pytest.mark.parametrize(
    ("message", "lifts"),
    [
        ({"content": "Now push."}, True),
        ({"content": "Stop hook feedback:\n- run the tests", "isMeta": True}, False),
        ({"content": "Caveat: a note of the CLI", "isMeta": True}, False),
        ({"content": "<command-name>/model</command-name>"}, False),
        ({"content": "<local-command-stdout>ok</local-command-stdout>"}, False),
        ({"content": "<task-notification><status>completed</status></task-notification>"}, False),
        ({"content": "[Request interrupted by user]"}, False),
    ],
)
def test_until_a_user_speaks(
    refold: Refold, store: Path, tmp_path: Path, message: dict[str, Any], lifts: bool
) -> None:
    """A rule that holds until the next message of a user is not lifted by hooks, notices and commands."""
    content = message.pop("content")
    rows = [
        claude_code.user("u1", None, "Go."),
        claude_code.answer("a1", "u1", "m1", claude_code.called("c1", command="curl x")),
        claude_code.result("u2", "a1", "c1", is_error=False),
        claude_code.answer("a2", "u2", "m2", claude_code.said("Fetched.")),
        claude_code.user("u3", "a2", content, **message),
        claude_code.answer("a3", "u3", "m3", claude_code.called("c2", command="git push")),
        claude_code.result("u4", "a3", "c2", is_error=False),
    ]
    session = tmp_path / "s.jsonl"
    session.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    policy = tmp_path / "rules.yaml"
    rule = "{effect: refuse, command: [git, push], after: {command: [curl]}, until: user_message}"
    policy.write_text(
        f"schema: refold/v1\nguards:\n- guard: permissions\n  rules: [{rule}]\n", encoding="utf-8"
    )
    found = refold("rules", session, "--policy", policy, "--store", store)
    assert (0 if lifts else 1) == found.code, found.out
