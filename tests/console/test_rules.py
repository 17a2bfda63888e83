"""`refold rules`, and `refold whatif` under permission rules of a policy or of Claude Code's settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from refold.engine import Agent, ScriptedModel, call, say, tool
from support import claude_code


@tool(name="Bash", replay="read_only")
def bash(command: str) -> str:
    """Run a command."""
    if command.startswith("fail"):
        raise ValueError(command)
    return "ok"


def ran(store: Path, name: str, *commands: str) -> None:
    """A run in the store whose model runs these commands."""
    script = [*(call("Bash", command=command) for command in commands), say("Done.")]
    Agent(model=ScriptedModel(script), tools=[bash], store=str(store)).run_sync("Task", run_id=name)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Claude Code's settings with a few rules, one of which is never applied."""
    path = tmp_path / "settings.json"
    permissions = {
        "deny": ["Bash(git push *)", "Write(src/**)", "Bash(rm *)"],
        "ask": ["Bash(git commit *)"],
        "allow": ["Bash(git *)"],
    }
    path.write_text(json.dumps({"permissions": permissions}, indent=1), encoding="utf-8")
    return path


def rules(refold: Refold, store: Path, settings: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of `refold rules`."""
    found = refold("rules", *words, "--policy", f"claude:{settings}", "--store", store, "-o", "json")
    return found.code, json.loads(found.out)


def test_what_each_rule_decides(refold: Refold, store: Path, settings: Path) -> None:
    """Each call counts for the rule that decides it, with its result; calls behind a refused one apart."""
    ran(store, "a", "git status", "cd x && git push", "git push; git status", "ls")
    ran(store, "b", "git commit -m x", "fail", "git log")
    code, report = rules(refold, store, settings)
    assert code == 1
    hits = {each["rule"].partition(" (")[0]: each["hits"] for each in report["rules"]}
    push, commit, git = hits["Bash(git push *)"], hits["Bash(git commit *)"], hits["Bash(git *)"]
    assert (1, 1, 1, 1) == (push["calls"], push["runs"], push["succeeded"], push["later"])
    assert (1, 1) == (commit["calls"], commit["succeeded"])
    assert (2, 2, 3) == (git["calls"], git["runs"], sum(git["decided_by"].values()))
    assert push["sample"].startswith("a@e")
    assert (2, 7, 2) == (report["runs"], report["calls"], report["later"])
    assert (1, 1) == (report["unruled"], report["refused_runs"])
    assert 0 == hits["Bash(rm *)"]["calls"]


def test_the_table(refold: Refold, store: Path, settings: Path) -> None:
    """A row for each rule that decides a call; rules that never do, and notes, are named below it."""
    ran(store, "a", "git push", "git push")
    out = refold("rules", "a", "--policy", f"claude:{settings}", "--store", store).out
    assert "RULE" == out.split()[0]
    assert f"Bash(git push *) ({settings}:4)" in out
    assert "refused       1 call in 1 run\n" in out
    assert "not evidence  1 call after a refused call of the run" in out
    assert f"never hit     Bash(rm *) ({settings}:6)" in out
    assert "Claude Code never applies it; write Edit(src/**)" in out


@pytest.mark.parametrize(("command", "code"), [("ls", 0), ("eval x", 125), ("rm x", 1)])
def test_exit_codes(refold: Refold, store: Path, settings: Path, command: str, code: int) -> None:
    """0 if the rules stop no call, 125 if they cannot judge one, 1 if they stop one."""
    ran(store, "a", command)
    found, report = rules(refold, store, settings, "a")
    assert code == found
    assert ({"eval runs commands that are not in the text": 1} if code == 125 else {}) == report["unknown"]


def test_whatif_names_the_rule_of_the_settings(refold: Refold, store: Path, settings: Path) -> None:
    """The verdict names the call, and the rule as its author wrote it, with file and line."""
    ran(store, "a", "git status", "cd x && git push")
    found = refold("whatif", "a", "--policy", f"claude:{settings}", "--store", store)
    assert found.code == 1
    assert f"by rule Bash(git push *) ({settings}:4)" in found.out
    ran(store, "b", "git commit -m x")
    asked = refold("whatif", "b", "--policy", f"claude:{settings}", "--store", store)
    assert f"by rule Bash(git commit *) ({settings}:9)" in asked.out


def test_whatif_keeps_the_rest_of_the_recorded_policy(refold: Refold, store: Path, settings: Path) -> None:
    """Settings have rules only: a run that they do not stop agrees, whatever its policy was."""
    ran(store, "a", "git status", "ls")
    assert 0 == refold("whatif", "a", "--policy", f"claude:{settings}", "--store", store).code


@pytest.mark.parametrize("command", ["eval x", "$X", "curl x | sh", 'bash -c "$X"'])
def test_whatif_is_inconclusive_about_opaque_commands(
    refold: Refold, store: Path, settings: Path, command: str
) -> None:
    """A command that cannot be read is neither refused nor permitted: 125, with the rule and the reason."""
    ran(store, "a", command)
    found = refold("whatif", "a", "--policy", f"claude:{settings}", "--store", store)
    assert found.code == 125
    assert "cannot judge call c1" in found.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ('{"permissions": {}}', "has no permission rules"),
        ('{"permissions": {"deny": "x"}}', "permissions.deny: expected a list of rules"),
    ],
)
def test_settings_that_cannot_be_used(
    refold: Refold, store: Path, settings: Path, text: str, said: str
) -> None:
    """The error names the file, the place and what is expected."""
    ran(store, "a", "ls")
    settings.write_text(text, encoding="utf-8")
    for verb in ("rules", "whatif"):
        found = refold(verb, "a", "--policy", f"claude:{settings}", "--store", store)
        assert (2, True, True) == (found.code, said in found.err, str(settings) in found.err)
    missing = refold("rules", "a", "--policy", "claude:none.json", "--store", store)
    assert "none.json: cannot be read" in missing.err


def test_a_policy_without_permission_rules(refold: Refold, store: Path) -> None:
    """The command needs a guard that it can ask."""
    ran(store, "a", "ls")
    found = refold("rules", "a", "--policy", "guardrails", "--store", store)
    assert (2, True) == (found.code, "expected one guard 'permissions'" in found.err)


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """A folder with a session of Claude Code that pushes, and a file that is no transcript."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    rows = [
        claude_code.user("u1", None, "Deploy."),
        claude_code.answer("a1", "u1", "m1", claude_code.called("c1", command="cd x && git push")),
        claude_code.result("u2", "a1", "c1"),
    ]
    (folder / "session.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "notes.txt").write_text("No transcript.", encoding="utf-8")
    return folder


def test_transcripts_in_place_of_runs(refold: Refold, store: Path, settings: Path, sessions: Path) -> None:
    """A path is imported first, once, into a store that need not exist; then it is asked about."""
    words = (sessions, "--policy", f"claude:{settings}", "--store", store)
    first, second = refold("whatif", *words), refold("whatif", *words)
    assert (1, 1) == (first.code, second.code)
    assert first.out == second.out
    assert f"by rule Bash(git push *) ({settings}:4)" in first.out
    assert "1 run, 0 events added" in second.err
    assert "Claude Code never applies it" in first.err
    assert "refused    1 call in 1 run" in refold("rules", *words).out


def test_a_path_without_a_transcript(refold: Refold, store: Path, settings: Path, tmp_path: Path) -> None:
    """A path that leads to no transcript is an error, and not a question about nothing."""
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "missing"):
        found = refold("whatif", path, "--policy", f"claude:{settings}", "--store", store)
        assert (2, True) == (found.code, str(path) in found.err)


def test_one_file_that_cannot_be_read(refold: Refold, store: Path, settings: Path, sessions: Path) -> None:
    """The others are asked about; the file is named, and the exit code is not that of a clean run."""
    (sessions / "bad.jsonl").write_text("garbage", encoding="utf-8")
    settings.write_text('{"permissions": {"deny": ["Bash(curl *)"]}}', encoding="utf-8")
    for verb in ("whatif", "rules"):
        found = refold(verb, sessions, "--policy", f"claude:{settings}", "--store", store)
        assert (4, True) == (found.code, "bad.jsonl" in found.err)


def test_rows_that_cannot_be_read_may_hold_calls(
    refold: Refold, store: Path, settings: Path, sessions: Path
) -> None:
    """A refused call may be in a row that was lost, so that no rule is hit is no evidence."""
    file = sessions / "session.jsonl"
    first, pushes, result = file.read_text(encoding="utf-8").splitlines()
    harmless = pushes.replace("cd x && git push", "git status").replace("a1", "a0").replace("m1", "m0")
    file.write_text("\n".join([first, harmless, pushes[:150], result]), encoding="utf-8")
    for verb in ("whatif", "rules"):
        found = refold(verb, sessions, "--policy", f"claude:{settings}", "--store", store)
        assert (125, True) == (found.code, "a line is not JSON (not_json)" in found.out), found.out
    touched = refold("touched", "@last", "--store", store)
    assert (125, True) == (touched.code, "a line is not JSON (not_json)" in touched.out), touched.out


@pytest.mark.parametrize("rule", ["bash(git push *)", "WebFetch(domain:x.com)"])
def test_rules_about_no_tool_of_the_runs(refold: Refold, store: Path, settings: Path, rule: str) -> None:
    """Rules that fit no tool find nothing, which is no agreement."""
    ran(store, "a", "git push")
    settings.write_text(json.dumps({"permissions": {"deny": [rule]}}), encoding="utf-8")
    for verb in ("whatif", "rules"):
        found = refold(verb, "a", "--policy", f"claude:{settings}", "--store", store)
        assert 125 == found.code, found.out
