"""Commands, paths and hosts in rules over arguments: as a guard, and as an approver."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers import parse
from refold.reducers.approvals import Match
from refold.reducers.errors import PolicyError
from refold.reducers.events import CallRefused, PolicyAmended
from refold.reducers.guards.approvals import word_of
from refold.reducers.named_tools import find_unmatched_names
from refold.reducers.permissions.paths import Folders
from refold.reducers.permissions.shell import installed_grammar
from support.scenario import Scenario

FOLDERS = {"cwd": "/srv/app", "home": "/users/u"}
PUSH = {"command": ["git", ["push", "fetch"]]}


def made(policy: dict[str, Any], arguments: dict[str, Any], labels: dict[str, str] | None = None) -> Scenario:
    """A run whose model makes one call of `act`."""
    scenario = Scenario(policy, labels=FOLDERS if labels is None else labels)
    scenario.answer("", ("act", json.dumps(arguments)))
    return scenario


def guard(**keys: Any) -> dict[str, Any]:
    return {"guards": [{"guard": "arguments", **keys}]}


def chain(*links: dict[str, Any]) -> dict[str, Any]:
    return {"approvals": {"chain": list(links)}}


def outcome(scenario: Scenario) -> str:
    """What became of the call: the code of its refusal, `asked`, or `runs`."""
    for event in scenario.log:
        if isinstance(event, CallRefused):
            return event.code
    return "asked" if scenario.state.approval else "runs"


@pytest.mark.parametrize(
    ("keys", "arguments", "expected"),
    [
        pytest.param(PUSH, {"command": "cd x && git push"}, "arguments", id="one of several commands"),
        pytest.param(PUSH, {"command": "git stash push"}, "runs", id="another subcommand"),
        pytest.param(PUSH, {"cmd": ["git", "-C", "x", "push"]}, "arguments", id="a list of words"),
        pytest.param(PUSH, {"command": "eval $X"}, "arguments_unknown", id="a command that cannot be read"),
        pytest.param({"command": "npm run *"}, {"command": "npm run test"}, "arguments", id="a glob"),
        pytest.param({"path": ["~/.ssh/**"]}, {"file_path": "../../users/u/.ssh/id"}, "arguments", id="a path"),
        pytest.param({"path": [".env", "!a/.env"]}, {"path": "a/.env"}, "runs", id="an excluded path"),
        pytest.param({"host": ["*.example.com"]}, {"url": "https://a.example.com./x"}, "arguments", id="a host"),
        pytest.param({"host": ["example.com"]}, {"url": "https://example.com@evil.net"}, "runs", id="another host"),
        pytest.param({"path": ["src/**"], "matches": "TODO"}, {"path": "src/a", "text": "x"}, "runs", id="not both"),
        pytest.param({"path": ["src/**"], "matches": "TODO"}, {"path": "src/a", "text": "TODO"}, "arguments", id="both"),
        pytest.param({**PUSH, "field": "run"}, {"run": "git push", "command": "ls"}, "arguments", id="a field"),
        pytest.param({**PUSH, "tool": ["x", "a*"]}, {"command": "git push"}, "arguments", id="globs of tools"),
        pytest.param({**PUSH, "tool": ["x", "y"]}, {"command": "git push"}, "runs", id="other tools"),
    ],
)  # fmt: skip
def test_the_guard_refuses(keys: dict[str, Any], arguments: dict[str, Any], expected: str) -> None:
    """All conditions must hold, for any part of the call; what cannot be read has a code of its own."""
    assert expected == outcome(made(guard(**keys), arguments))


APPROVED = ("git status", "git status -s && git status")
OTHERS = (
    "git status; rm x", "git status > x", "A=1 git status", "eval $X", "$X", "git $X", "git status $(rm x)", "sudo git status",
    "git status |sh", "'", "",
)  # fmt: skip


@pytest.mark.parametrize(
    ("command", "approved"), [*((each, True) for each in APPROVED), *((each, False) for each in OTHERS)]
)
def test_the_approver_approves(command: str, approved: bool) -> None:
    """To approve, the rule must cover all commands of a script; one that cannot be read is never approved."""
    rule = {"approver": "arguments", "command": ["git", "status"], "then": "approve", "else": "reject"}
    assert approved is (outcome(made(chain(rule), {"command": command})) == "runs")


@pytest.mark.parametrize(
    ("then", "otherwise", "command", "expected"),
    [
        pytest.param("reject", "approve", "ls; git push", "rejected", id="rejects any part"),
        pytest.param("reject", "approve", "eval $X", "approval_unknown", id="rejects what it cannot read"),
        pytest.param("terminate", "approve", "eval $X", "terminated", id="ends the run at what it cannot read"),
        pytest.param("escalate", "approve", "eval $X", "asked", id="asks about what it cannot read"),
        pytest.param("escalate", "approve", "ls", "runs", id="asks about nothing else"),
        pytest.param("approve", "escalate", "git push; ls", "asked", id="approves no part alone"),
        pytest.param("escalate", "reject", "git push; ls", "rejected", id="escalates no part alone where others are rejected"),
        pytest.param("escalate", "reject", "git push", "asked", id="escalates all where others are rejected"),
    ],
)  # fmt: skip
def test_the_decisions_of_an_approver(then: str, otherwise: str, command: str, expected: str) -> None:
    """The less strict decision needs every part of the call, the stricter one any part."""
    rule = {"approver": "arguments", **PUSH, "then": then, "else": otherwise}
    assert expected == outcome(made(chain(rule, {"approver": "human"}), {"command": command}))


@pytest.mark.parametrize(
    ("keys", "arguments", "text"),
    [
        ({}, {"command": "git push"}, "skipped: the arguments match the rule `git push|fetch`, so this call was not run."),
        ({"say": "The release job pushes."}, {"command": "git push"}, "skipped: The release job pushes."),
        ({"say": "No."}, {"command": "eval $X"},
         "skipped: the rule `git push|fetch` cannot judge this call (eval runs commands that are not in the text). "
         "Write it as a plain command."),
    ],
)  # fmt: skip
def test_what_the_model_gets(keys: dict[str, Any], arguments: dict[str, Any], text: str) -> None:
    """The author's reason, or the rule; and why it cannot judge a call. Guard and approver agree on it."""
    scenario = made(guard(**PUSH, **keys), arguments)
    assert [text] == texts(scenario)
    if keys:
        rule = {"approver": "arguments", **PUSH, **keys, "then": "reject", "else": "approve"}
        assert [text] == texts(made(chain(rule), arguments))


def texts(scenario: Scenario) -> list[str]:
    refusals = [event for event in scenario.log if isinstance(event, CallRefused)]
    return [text for event in refusals if event.content for text in event.content.texts]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("git push", "blocked: the arguments of call c1 match the rule `git push|fetch`"),
        ("eval $X", "blocked: the rule `git push|fetch` cannot judge call c1: eval runs commands that are not in the text"),
    ],
)  # fmt: skip
def test_why_the_run_ends(command: str, reason: str) -> None:
    """The end of the run names the call, the rule, and what could not be read."""
    scenario = made(guard(**PUSH, then="stop"), {"command": command})
    assert scenario.state.outcome is not None
    assert reason == scenario.state.outcome.reason


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({}, "matches: expected one or more of command, path, host, matches, when, got none"),
        ({"unless": "x", "path": ["a"]}, "unless: needs 'matches', which it restricts"),
        ({"matches": "a", "unless": ".*"}, 'unless: it matches any text, so the rule would never match; got ".*"'),
        ({"field": "x", "when": {"mode": ["plan"]}}, "field: needs a condition that reads it: command, path, host or matches"),
        ({"path": []}, "path: expected at least one entry; remove the key for no condition"),
        ({"host": ["a b"]}, 'host[0]: expected a host, as example.com or *.example.com; got "a b"'),
        ({"when": {}}, "when: expected one or more of mode, subagent, server, got none"),
        ({"when": {"server": ["mcp__git__*"]}}, "when.server[0]: expected the name of a server, as 'git', got 'mcp__git__*'"),
        ({**PUSH, "match": ["git pull"]}, 'match[0]: "git pull" does not match this rule'),
        ({**PUSH, "not_match": ["ls; git push"]}, 'not_match[0]: "ls; git push" matches this rule'),
        ({**PUSH, "grammar": "bash 0.0.1"},
         f"grammar: recorded with the shell grammar bash 0.0.1, and {installed_grammar()} is installed"),
    ],
)  # fmt: skip
def test_rules_that_cannot_work(keys: dict[str, Any], problem: str) -> None:
    """Guard and approver refuse them alike, with place, value and what is expected."""
    with pytest.raises(PolicyError) as caught:
        parse(guard(**keys))
    assert f"guards[0].{problem}" == str(caught.value)
    with pytest.raises(PolicyError) as caught:
        parse(chain({"approver": "arguments", "then": "reject", "else": "approve", **keys}))
    assert f"approvals.chain[0].{problem}" == str(caught.value)


def test_examples_of_a_rule_that_approves_are_strict() -> None:
    """An example of a rule that approves must be covered completely."""
    rule = {"approver": "arguments", "command": ["ls"], "then": "approve", "not_match": ["ls; rm x"]}
    parse(chain({**rule, "match": ["ls a"]}))
    with pytest.raises(PolicyError, match=r"match\[0\]"):
        parse(chain({**rule, "match": ["ls; rm x"]}))


def test_the_grammar_is_recorded_where_commands_are_read() -> None:
    """Only rules over commands depend on it."""
    policy = parse(
        {**guard(**PUSH), **chain({"approver": "arguments", **PUSH, "then": "reject"}, {"approver": "human"})}
    )
    assert installed_grammar() == policy.guards[0]["grammar"]
    assert policy.approvals is not None
    assert installed_grammar() == msgspec.to_builtins(policy.approvals.chain[0])["grammar"]
    assert not parse(guard(path=["a"])).guards[0]["grammar"]
    assert parse(msgspec.to_builtins(policy)) == policy


@pytest.mark.parametrize("place", ["guard", "approver"])
def test_another_grammar_is_blind(place: str) -> None:
    """A rule recorded with another version of the grammar lets no call run, and says so."""
    policy = guard(**PUSH) if place == "guard" else chain({"approver": "arguments", **PUSH, "then": "reject"})
    parsed = parse(policy)
    text = msgspec.json.encode(parsed).decode().replace(installed_grammar(), "bash 0.0.1")
    other = msgspec.json.decode(text, type=type(parsed))
    scenario = Scenario()
    scenario.feed(PolicyAmended(at=scenario.at, policy=other))
    scenario.answer("", ("act", '{"command": "ls"}'))
    (watch,) = scenario.state.guards
    assert (
        watch.blind == f"recorded with the shell grammar bash 0.0.1, and {installed_grammar()} is installed"
    )
    assert "guard_failed" in scenario.last[-1]


def test_a_path_needs_the_recorded_folders() -> None:
    """Without a working directory, a path that may be inside is neither refused as such nor let through."""
    rule = guard(path=["/srv/app/secret"])
    assert outcome(made(rule, {"path": "secret"})) == "arguments"
    assert outcome(made(rule, {"path": "secret"}, labels={})) == "arguments_unknown"


def test_plain_rules_keep_no_more_than_before() -> None:
    """The state of a rule without these conditions has no folders: its digests in old logs stay."""
    scenario = made(guard(matches="x"), {"command": "y"})
    assert b'{"said":{"c1":[[0,"approve"],[1,"approve"]]}}' == msgspec.json.encode(
        scenario.state.guards[0].own
    )


def test_a_field_that_no_tool_has_is_reported() -> None:
    """The checks of names know the rules over commands."""
    scenario = Scenario()
    tools = [
        msgspec.structs.replace(tool, schema='{"properties": {"cmd": {}}}')
        for tool in scenario.state.setup.tools
    ]
    found = [str(each) for each in find_unmatched_names(parse(guard(**PUSH, field="cmb")), tools)]
    assert [
        "guards[0].field: \"cmb\" is not a field of any tool that this rule applies to; did you mean 'cmd'?"
    ] == found


COMMANDS = st.sampled_from(
    ["git status", "git push", "eval $X", "cd a", "x=1", "ls > f", "echo $(git push)", "'", ""]
)


@given(COMMANDS, COMMANDS, st.sampled_from(["; ", " && ", "\n", " | "]))
def test_more_commands_are_never_approved_by_less(one: str, other: str, between: str) -> None:
    """A rule that approves a script approves its commands; one that rejects a part rejects the script."""
    folders = Folders(**FOLDERS)
    approve = Match(command=("git", "status"), then="approve")
    reject = Match(command=("git", "push"), then="reject", otherwise="approve")

    def word(rule: Match, command: str) -> str:
        return word_of(rule, "bash", json.dumps({"command": command}), folders)

    if word(approve, one + between + other) == "approve":
        assert "approve" in (word(approve, one), word(approve, other))
    if word(reject, one) == "reject" and "'" not in one:
        assert word(reject, one + between + other) == "reject"
