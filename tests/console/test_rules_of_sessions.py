"""`claude:auto`: the settings of each session by its directory and date; `policy import`; `--propose`."""

import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from console.conftest import Refold
from console.test_rules import ran
from console.test_rules_comparison import write
from refold.console.policy_import import write_rule
from refold.engine.permission_files import read_permissions
from refold.engine.yaml_text import load
from refold.reducers.permissions.rules import PermissionRule
from support import claude_code


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the user's settings, which has none."""
    folder = tmp_path / "config"
    folder.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    return folder


def session(file: Path, cwd: Path | str | None, command: str, day: str = "2026-01-01") -> Path:
    """Write a session that began in a directory and runs a command."""
    rows = [
        claude_code.user("u1", None, "Go."),
        claude_code.answer("a1", "u1", "m1", claude_code.called("c1", command=command)),
        claude_code.result("u2", "a1", "c1"),
    ]
    where = {} if cwd is None else {"cwd": str(cwd)}
    more = {"sessionId": file.stem, "timestamp": f"{day}T00:00:00.000Z", **where}
    file.write_text("\n".join(json.dumps(row | more) for row in rows), encoding="utf-8")
    return file


def project(folder: Path, name: str, **lists: list[str]) -> Path:
    """A project with settings."""
    settings = folder / name / ".claude"
    settings.mkdir(parents=True)
    write(settings / "settings.json", **lists)
    return folder / name


def test_settings_of_each_session(refold: Refold, store: Path, tmp_path: Path, config: Path) -> None:
    """Each session has the rules of its project, and those of the user; what was read is named."""
    write(config / "settings.json", deny=["Bash(curl *)"])
    one = project(tmp_path, "one", deny=["Bash(git push *)"])
    two = project(tmp_path, "two", ask=["Bash(git push *)"])
    (tmp_path / "sessions").mkdir()
    for name, cwd in (("s1", one), ("s2", two)):
        session(tmp_path / "sessions" / f"{name}.jsonl", cwd, "git push")
    words = (tmp_path / "sessions", "--policy", "claude:auto", "--store", store)
    found = refold("rules", *words)
    assert 1 == found.code
    assert f"Bash(git push *) ({one}/.claude/settings.json:4)  refuse" in found.out
    assert f"Bash(git push *) ({two}/.claude/settings.json:4)  ask" in found.out
    assert f"never hit  Bash(curl *) ({config}/settings.json:4)" in found.out
    assert f"read {config}/settings.json" in found.err
    verdicts = refold("whatif", *words)
    assert 1 == verdicts.code
    assert "by rule Bash(git push *)" in refold("whatif", tmp_path / "sessions" / "s1.jsonl", *words[1:]).out


@pytest.mark.parametrize(
    ("cwd", "why"), [(None, "is not recorded"), ("/no/such/folder", "does not exist here")]
)
def test_settings_that_cannot_be_found(
    refold: Refold, store: Path, tmp_path: Path, cwd: str | None, why: str
) -> None:
    """A session without a directory here is not judged, which is no agreement."""
    file = session(tmp_path / "s.jsonl", cwd, "ls")
    for verb in ("rules", "whatif"):
        found = refold(verb, file, "--policy", "claude:auto", "--store", store)
        assert (125, True) == (found.code, why in found.out + found.err), found.out


def test_a_project_without_rules(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Without rules there is nothing to ask."""
    file = session(tmp_path / "s.jsonl", tmp_path, "ls")
    found = refold("rules", file, "--policy", "claude:auto", "--store", store)
    assert (125, True) == (found.code, "no permission rules are found" in found.out)


def test_settings_as_they_were(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Settings in a git repository are those of the session's date."""
    folder = project(tmp_path, "one", deny=["Bash(git push *)"])
    settings = folder / ".claude" / "settings.json"
    for day, effect in (("2026-01-02", None), ("2026-01-05", "ask"), ("2026-01-08", "allow")):
        if effect:
            write(settings, **{effect: ["Bash(git push *)"]})
        dated = os.environ | {"GIT_COMMITTER_DATE": f"{day}T00:00:00Z", "GIT_AUTHOR_DATE": f"{day}T00:00:00Z"}
        git = ("git", "-C", str(folder), "-c", "user.email=a@b", "-c", "user.name=a")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", day)):
            subprocess.run([*git, *words], check=True, env=dated)
    for day, effect in (("2026-01-03", "refuse"), ("2026-01-06", "ask"), ("2026-01-09", "permit")):
        file = session(tmp_path / f"{effect}.jsonl", folder, "git push", day)
        found = refold("rules", file, "--policy", "claude:auto", "--store", store)
        assert f"Bash(git push *) ({settings}:4)  {effect}" in found.out
        assert f"read {settings} at commit" in found.err


@pytest.mark.parametrize("words", [("--base", "main"), ("--against", "x.yaml")])
def test_sessions_are_not_compared(refold: Refold, store: Path, words: tuple[str, ...]) -> None:
    """The rules of each session are no list that could be compared."""
    found = refold("rules", "--policy", "claude:auto", "--store", store, *words)
    assert (2, True) == (found.code, "name a file to compare" in found.err)


@pytest.mark.parametrize("words", [("--set", "limits.step=1"), ("--policy", "guardrails")])
def test_sessions_stand_alone(refold: Refold, store: Path, words: tuple[str, ...]) -> None:
    """`whatif` has one question for all sessions otherwise."""
    ran(store, "a", "ls")
    found = refold("whatif", "a", "--policy", "claude:auto", *words, "--store", store)
    assert (2, True) == (found.code, "claude:auto stands alone" in found.err)


FILES = {
    "claude": ("settings.json", '{"permissions": {"deny": ["Bash(git push *)", "Read(~/.ssh/**)", "Foo(bar)"],'
               ' "ask": ["WebFetch(domain:x.com)"], "allow": ["Bash(git push origin *)", "mcp__a"]}}'),
    "codex": ("a.rules", 'prefix_rule(pattern=["git", ["push", "fetch"]], decision="forbidden",'
              ' justification="No: \\"never\\"", match=["git push x"], not_match=["git status"])'),
    "gemini": ("a.toml", '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = ["git push", "rm"]\n'
               'decision = "deny"\npriority = 5\n[[rule]]\ntoolName = "x"\nmodes = ["yolo"]\ndecision = "allow"\n'),
    "opencode": ("opencode.json", '{"permission": {"bash": {"*": "ask", "git *": "allow"}, "edit": "deny"}}'),
}  # fmt: skip


@pytest.mark.parametrize("dialect", FILES)
def test_an_imported_policy_has_the_same_rules(refold: Refold, tmp_path: Path, dialect: str) -> None:
    """The written policy is valid, and its guard is the one that the file itself stands for."""
    name, text = FILES[dialect]
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    found = refold("policy", "import", "--from", f"{dialect}:{file}")
    assert 0 == found.code, found.err
    read, notes = read_permissions(Path(f"{dialect}:{file}"))
    data = json.loads(json.dumps(read))
    written = load(found.out)
    defaults = {key: value for key, value in data["guards"][0].items() if key != "rules"}
    assert defaults == {key: value for key, value in written["guards"][0].items() if key != "rules"}
    for rule, converted in zip(written["guards"][0]["rules"], data["guards"][0]["rules"], strict=True):
        assert converted == converted | rule
        assert "forms" not in rule
    policy = tmp_path / "rules.yaml"
    policy.write_text(found.out, encoding="utf-8")
    assert 0 == refold("policy", "check", policy).code
    assert all(note.problem in found.out and note.problem in found.err for note in notes)
    rules = written["guards"][0]["rules"]
    assert all(f"  # {rule['source']}" in found.out and str(file) in rule["source"] for rule in rules)


def test_rules_that_an_import_names(refold: Refold, tmp_path: Path) -> None:
    """Rules that the agent ignores, that never decide, or that cannot be judged."""
    file = write(
        tmp_path / "settings.json",
        deny=["Write(src/**)", "Bash(git *)", "Foo(bar)"],
        allow=["Bash(git push *)"],
        nonsense=["x"],
    )
    found = refold("policy", "import", "--from", f"claude:{file}")
    assert "Claude Code never applies it; write Edit(src/**)" in found.err
    assert "Bash(git push *)" in found.err
    assert "shadowed by Bash(git *)" in found.err
    assert "nonsense: ignored by Claude Code, and so here" in found.err
    assert "cannot be judged: a specifier that is not known here" in found.out
    report = json.loads(refold("policy", "import", "--from", f"claude:{file}", "-o", "json").out)
    assert ("Claude Code 2.1", 3, found.out) == (report["dialect"], report["rules"], report["policy"])


def test_hostile_rules_do_not_leave_their_comment(refold: Refold, tmp_path: Path) -> None:
    """Line breaks and control characters in a rule do not end the comment or the text."""
    hostile = "Bash(x\n  - {effect: permit}\x1b[31m\u2028#)"
    file = write(tmp_path / "settings.json", deny=[hostile])
    out = refold("policy", "import", "--from", f"claude:{file}").out
    (rule,) = load(out)["guards"][0]["rules"]
    assert ("refuse", hostile[5:-1]) == (rule["effect"], rule["command"])
    assert "\x1b" not in out


@pytest.mark.parametrize("source", ["settings.json", "cursor:x", "claude:"])
def test_sources_that_are_none(refold: Refold, source: str) -> None:
    """The error names what is expected."""
    found = refold("policy", "import", "--from", source)
    assert (2, True) == (found.code, "expected" in found.err)


def test_proposed_permissions(refold: Refold, store: Path, tmp_path: Path) -> None:
    """The smallest list under which successful calls would run; never interpreters or opaque ones."""
    ran(
        store,
        "a",
        "git status",
        "git status -s && npm run build",
        "python x.py",
        "eval $X",
        "fail",
        "rm x",
        "ls > y",
    )
    settings = write(tmp_path / "settings.json", deny=["Bash(curl *)"])
    words = ("rules", "--policy", f"claude:{settings}", "--store", store, "--propose")
    report = json.loads(refold(*words, "-o", "json").out)["proposed"]
    assert [["git", "status"], ["npm", "run", "build"]] == [rule["command"] for rule in report["rules"]]
    assert (2, 4) == (report["permitted"], sum(report["left_out"].values()))
    out = refold(*words).out
    assert "proposed: 2 rules, under which 2 calls would have run without a question" in out
    assert '{"effect": "permit", "tool": "Bash", "command": ["git", "status"]}' in out
    assert "python is not known to be harmless" in out


def test_a_written_rule_is_yaml() -> None:
    """Each line of a proposal can stand in a policy file."""
    rule = PermissionRule(effect="permit", tool="a: b", command=("x #", ("'", '"')), say="\u2028é\\")
    assert rule == msgspec.convert(load(f"- {write_rule(rule)}")[0], PermissionRule)


@pytest.mark.parametrize("kind", ["pipe", "folder", "secret", "invalid"])
def test_settings_that_cannot_be_read(
    refold: Refold, store: Path, tmp_path: Path, config: Path, kind: str
) -> None:
    """A session is not judged by the rest of its settings if one file of them cannot be read."""
    write(config / "settings.json", deny=["Bash(curl *)"])
    settings = project(tmp_path, "one", deny=["Bash(x)"]) / ".claude" / "settings.json"
    settings.unlink()
    if kind == "pipe":
        os.mkfifo(settings)
    elif kind == "folder":
        settings.mkdir()
    elif kind == "secret":
        settings.symlink_to("/proc/self/mem")
    else:
        settings.write_text("{", encoding="utf-8")
    file = session(tmp_path / "s.jsonl", tmp_path / "one", "ls")
    for verb in ("rules", "whatif"):
        found = refold(verb, file, "--policy", "claude:auto", "--store", store)
        assert (125, True) == (found.code, str(settings) in found.out + found.err), found.out + found.err


def test_a_hostile_repository_runs_nothing(refold: Refold, store: Path, tmp_path: Path) -> None:
    """The configuration of a repository that a transcript names starts no program."""
    folder = project(tmp_path, "one", deny=["Bash(git push *)"])
    git = ("git", "-C", str(folder), "-c", "user.email=a@b", "-c", "user.name=a")
    (folder / ".gitattributes").write_text("* filter=x diff=x\n", encoding="utf-8")
    dated = os.environ | {"GIT_COMMITTER_DATE": "2025-01-01T00:00:00Z"}
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        subprocess.run([*git, *words], check=True, env=dated)
    marker = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n", encoding="utf-8")
    program.chmod(0o755)
    for key in (
        "filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.textconv", "diff.x.command",
        "core.fsmonitor", "core.pager", "core.sshCommand", "gpg.program", "core.alternateRefsCommand",
        "diff.external",
    ):  # fmt: skip
        subprocess.run([*git, "config", key, str(program)], check=True)
    subprocess.run([*git, "config", "log.showSignature", "true"], check=True)
    settings = folder / ".claude" / "settings.json"
    file = session(tmp_path / "s.jsonl", folder, "git push")
    found = refold("rules", file, "--policy", "claude:auto", "--store", store)
    assert (1, True) == (found.code, "at commit" in found.err), found.err
    against = ("--base", "HEAD", "--store", store)
    assert 0 == refold("rules", "--policy", f"claude:{settings}", *against).code
    assert not marker.exists()


def test_a_check_names_rules_without_effect(refold: Refold, tmp_path: Path) -> None:
    """Rules that another agent ignores, and those that another rule always decides before."""
    file = write(
        tmp_path / "settings.json", deny=["Write(src/**)", "Bash(git *)"], allow=["Bash(git push *)"]
    )
    found = refold("policy", "check", f"claude:{file}")
    assert 0 == found.code
    assert f"warning: {file}:4: Write(src/**): Claude Code never applies it; write Edit(src/**)" in found.out
    rule, by = f"Bash(git push *) ({file}:8)", f"Bash(git *) ({file}:5)"
    assert f"warning: rule {rule} never decides: {by} does" in found.out


@pytest.mark.parametrize("cwd", ["/" + "a" * 5000, ".", "/proc/self", "a\0b"])
def test_directories_that_are_none(
    refold: Refold, store: Path, tmp_path: Path, config: Path, cwd: str
) -> None:
    """One session with a strange directory is not judged; the others are."""
    write(config / "settings.json", deny=["Bash(git push *)"])
    (tmp_path / "sessions").mkdir()
    session(tmp_path / "sessions" / "odd.jsonl", cwd, "git push")
    session(tmp_path / "sessions" / "fine.jsonl", tmp_path, "git push")
    found = refold("rules", tmp_path / "sessions", "--policy", "claude:auto", "--store", store)
    assert (1, True) == (found.code, "refused     1 call in 1 run" in found.out), found.out + found.err
    assert "not judged  1 run" in found.out


def test_settings_that_were_deleted_since(refold: Refold, store: Path, tmp_path: Path, config: Path) -> None:
    """A session may have had rules that are not there any more: it is not judged by the rest."""
    write(config / "settings.json", deny=["Bash(curl *)"])
    folder = project(tmp_path, "one", deny=["Bash(git push *)"])
    git = ("git", "-C", str(folder), "-c", "user.email=a@b", "-c", "user.name=a")
    for words in (
        ("init", "-q"),
        ("add", "-A"),
        ("commit", "-qm", "x"),
        ("rm", "-q", "-r", ".claude"),
        ("commit", "-qm", "y"),
    ):
        subprocess.run([*git, *words], check=True)
    file = session(tmp_path / "s.jsonl", folder, "git push")
    for verb in ("rules", "whatif"):
        found = refold(verb, file, "--policy", "claude:auto", "--store", store)
        assert (125, True) == (found.code, "was deleted" in found.out + found.err), found.out + found.err


@pytest.mark.parametrize(
    ("source", "text"),
    [("claude:~nobody_like_this/x.json", ""), ("codex:{file}", 'prefix_rule(pattern=["x"], decision=["x"])')],
)
def test_files_that_are_no_rules(refold: Refold, tmp_path: Path, source: str, text: str) -> None:
    """Wrong input is an error with its place, and not a fault of refold."""
    file = tmp_path / "x.rules"
    file.write_text(text, encoding="utf-8")
    found = refold("policy", "import", "--from", source.format(file=file))
    assert (2, False) == (found.code, "bug" in found.err), found.err
