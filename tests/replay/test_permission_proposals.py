"""Proposed permissions: which commands get one, which never do, and that they are as small as they can be."""

import json
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.guards.permissions import Permissions
from refold.reducers.permissions.conditions import ToolCall
from refold.reducers.permissions.paths import Folders
from refold.reducers.permissions.rules import PermissionRule
from refold.replay.permissions.calls import CallResult, Judged, JudgedCall, JudgedRun, RuleList
from refold.replay.permissions.proposals import Proposal, propose_rules

RULES = RuleList("x", Permissions(rules=(PermissionRule(effect="refuse", tool="Never"),)), has_default=False)


def made(
    tool: str, outcome: str = "no rule", result: CallResult = CallResult.SUCCEEDED, **given: str
) -> JudgedCall:
    """A call that no rule decides."""
    return JudgedCall(
        run="r", seq=2, at=0, id="c", tool=tool, arguments=json.dumps(given), made=ToolCall(tool, json.dumps(given), Folders("/w", "/h")),
        judged=(Judged(outcome=outcome),), result=result,  # type: ignore[arg-type]
    )  # fmt: skip


def proposed(*calls: JudgedCall) -> Proposal:
    """What is proposed for the calls of a run."""
    return propose_rules([JudgedRun(lists=(RULES,), calls=list(calls))])


COMMANDS = [
    ("git status", ("git", "status")),
    ("git status && ls -la", ("git", "status"), ("ls",)),
    ("npm run build", ("npm", "run", "build")),
    ("npm test -- -x", ("npm", "test")),
    ("cargo test | tail -3", ("cargo", "test"), ("tail",)),
    ("(cd a; pytest -q)", ("cd",), ("pytest",)),
    ("bash -c 'ls x'", ("ls",)),
]
NEVER = [
    "python x.py", "python3 -c 1", "sh x.sh", "node x", "eval x", "$X", "curl x | sh", "npx x",
    "sudo ls", "env X=1 ls", "find . -delete", "rm -rf x", "git push", "git push --force", "git -C x status",
    "npm run", "cargo run", "docker run x", "./x.sh", "/bin/ls", "ls > file", "X=1 ls", "git", "git $X", "((", "dd of=x",
    "git reset --hard", "git clean -fd", "make x", "awk 1", "sed -i s/a/b/ x", "ls; python x", "uv run x",
    "python3.11 x", "node18 x", "sqlite3 x", "tar xf x", "cp a b", "npm config set a b", "go generate ./...", "uvx x",
    "truncate -s0 x", "mkfs.ext4 x", "rg --pre sh x", "claude -p x", "hg push", "git checkout .", "git branch x",
    "gh pr merge 3", "cargo install x", "just x", "kubectl exec x",
]  # fmt: skip


@pytest.mark.parametrize(("command", "expected"), [(command, set(rest)) for command, *rest in COMMANDS])
def test_commands_with_a_permission(command: str, expected: set[tuple[str, ...]]) -> None:
    """The program, with its subcommand if it has subcommands."""
    found = proposed(made("Bash", command=command))
    assert expected == {rule.command for rule in found.rules}
    assert (1, {}) == (found.permitted, dict(found.left_out))


@pytest.mark.parametrize("command", NEVER)
def test_commands_that_never_get_one(command: str) -> None:
    """Interpreters, opaque scripts, destructive commands, redirections, programs by path."""
    found = proposed(made("Bash", command=command))
    assert ([], 0, 1) == (found.rules, found.permitted, sum(found.left_out.values()))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (made("Read", file_path="/w/a"), {"path": ("./**",)}),
        (made("Edit", file_path="a"), {"path": ("./**",)}),
        (made("Read", file_path="/etc/passwd"), None),
        (made("Read", file_path="../x"), None),
        (made("Read", file_path="~/x"), None),
        (made("WebFetch", url="https://x.com/a"), {"host": ("x.com",)}),
        (made("WebFetch", url="https://[x"), None),
        (made("mcp__a__b", text="x"), None),
        (made("TodoWrite", text="x"), {}),
        (made("Bash"), None),
        (made("Write", content="x"), None),
    ],
)
def test_other_tools(call: JudgedCall, expected: dict[str, tuple[str, ...]] | None) -> None:
    """Paths in the session's directory, exact hosts, and tools that neither run code nor write."""
    found = proposed(call)
    if expected is None:
        assert ([], 1) == (found.rules, sum(found.left_out.values()))
    else:
        assert [PermissionRule(effect="permit", tool=call.tool, **expected)] == found.rules  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcome", "result"),
    [("no rule", CallResult.FAILED), ("no rule", CallResult.USER), ("refuse", CallResult.SUCCEEDED),
     ("permit", CallResult.SUCCEEDED), ("no rule", CallResult.UNMARKED)],
)  # fmt: skip
def test_calls_that_need_none(outcome: str, result: CallResult) -> None:
    """Only calls that are known to have succeeded, and that no rule decides."""
    assert [] == proposed(made("Bash", outcome, result, command="ls")).rules


@given(st.lists(st.sampled_from([*[row[0] for row in COMMANDS], *NEVER]), min_size=1, max_size=5))
def test_the_list_is_minimal(commands: list[str]) -> None:
    """Each proposed rule is needed: without it fewer calls would run."""
    calls = [made("Bash", command=command) for command in commands]
    found = proposed(*calls)
    assert len(commands) == found.permitted + sum(found.left_out.values())
    for fewer in combinations(found.rules, max(len(found.rules) - 1, 0)):
        guard = Permissions(rules=(*RULES.guard.rules, *fewer))
        left = propose_rules([JudgedRun(lists=(RuleList("y", guard, has_default=False),), calls=calls)])
        assert not found.rules or left.rules
