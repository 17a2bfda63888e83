"""Claude Code's permission rules: the cases of its documentation, and what it ignores.

Source of the cases: Anthropic's documentation of permissions (code.claude.com/docs, Claude Code 2.1), in our
words; where it is silent, reports in the tracker of anthropics/claude-code (36873, 39834, 56816).
"""

import json
from collections.abc import Sequence

import pytest

from refold.reducers.errors import PolicyError, faults_of
from refold.reducers.permissions.claude import convert_settings
from refold.reducers.permissions.conditions import ToolCall
from refold.reducers.permissions.dialect import Converted
from refold.reducers.permissions.paths import Folders
from refold.reducers.permissions.rules import decide

FOLDERS = Folders("/srv/app", "/users/u")


def converted(permissions: object, name: str = "settings.json") -> Converted:
    """The rules of a settings file with these permissions."""
    return convert_settings([(name, json.dumps({"permissions": permissions}, indent=2))])


def effect(permissions: object, tool: str, **arguments: object) -> str:
    """What the rules decide on a call; `ask` where Claude Code has no rule and would ask."""
    rules = converted(permissions).rules
    return decide(rules, "strictest", "ask", ToolCall(tool, json.dumps(arguments), FOLDERS)).effect


def allowed(rule: str, command: str) -> bool:
    """Whether one allow rule permits a command."""
    return effect({"allow": [rule]}, "Bash", command=command) == "permit"


@pytest.mark.parametrize(
    ("rule", "yes", "no"),
    [
        ("Bash", ["anything", "a && b", "eval x"], []),
        ("Bash(*)", ["anything", "a > b"], []),
        ("Bash(npm run build)", ["npm run build"], ["npm run build x", "npm run", "npm run build:dev"]),
        ("Bash(npm run *)", ["npm run build", "npm run test -- -x", "npm run"], ["npm runx", "npm install"]),
        ("Bash(npm run:*)", ["npm run build", "npm run"], ["npm runx"]),
        ("Bash(npm run test:*)", ["npm run test", "npm run test x"], ["npm run test:unit"]),
        ("Bash(ls *)", ["ls -la", "ls"], ["lsof"]),
        ("Bash(ls:*)", ["ls -la", "ls"], ["lsof"]),
        ("Bash(ls*)", ["ls -la", "ls", "lsof"], ["als"]),
        ("Bash(git * main)", ["git checkout main", "git push origin main"], ["git checkout dev", "git main"]),
        ("Bash(* --version)", ["node --version", "a b --version"], ["node --help", "--version"]),
        ("Bash(* --help *)", ["git --help x"], ["git help"]),
        ("Bash(* install)", ["npm install", "brew install"], ["npm install x"]),
        ("Bash(git commit *)", ["git commit -m x", "git commit"], ["git push", "git commits"]),
        ("Bash(ssh * uptime *)", ["ssh host uptime -s"], ["ssh host uptime"]),
        ("Bash(npm test *)", ["npm test", "npm test && npm test x"], ["npm test && rm x", "npm test; rm x"]),
        ("Bash(safe *)", ["safe x"], ["safe x && other", "safe x || other", "safe x | other", "safe x\nother"]),
        ("Bash(git status)", ["timeout 5 git status", "nice git status", "nohup git status", "time git status"], []),
        ("Bash(git status)", [], ["sudo git status", "env A=1 git status", "git status > x", "npx git status"]),
        ("Bash(docker exec *)", ["docker exec a b"], ["docker rm a"]),
        ("Bash(mkdir -p /tmp/claude-*)", ["mkdir -p /tmp/claude-1"], ["mkdir -p /etc"]),
    ],
)  # fmt: skip
def test_allow_rules_over_commands(rule: str, yes: Sequence[str], no: Sequence[str]) -> None:
    """An allow rule covers each part of a chain, with word boundaries before ` *`."""
    assert [(command, True) for command in yes] == [(command, allowed(rule, command)) for command in yes]
    assert [(command, False) for command in no] == [(command, allowed(rule, command)) for command in no]


@pytest.mark.parametrize(
    ("permissions", "command", "expected"),
    [
        ({"deny": ["Bash(aws *)"], "allow": ["Bash(aws s3 ls)"]}, "aws s3 ls", "refuse"),
        ({"ask": ["Bash(git *)"], "allow": ["Bash(git status)"]}, "git status", "ask"),
        ({"deny": ["Bash(git push *)"], "allow": ["Bash"]}, "git push", "refuse"),
        ({"deny": ["Bash(git push *)"], "allow": ["Bash"]}, "git pull", "permit"),
        ({"deny": ["Bash(git push *)"], "ask": ["Bash(git *)"]}, "cd x && git push", "refuse"),
        ({"allow": ["Bash(npm:*)", "Bash(git:*)"], "deny": ["Bash"]}, "git status", "refuse"),
        ({"allow": ["Bash(a *)"], "deny": ["Bash(b *)"]}, "a x && b y", "refuse"),
        ({"allow": ["Bash(a *)", "Bash(b *)"]}, "a x && b y", "permit"),
        ({"allow": ["Bash(a *)"]}, "a x && b y", "ask"),
        ({"deny": ["Bash(curl *)"]}, "bash -c 'curl x'", "unknown"),
        ({"deny": ["Bash(curl *)"]}, "timeout 5 curl x", "refuse"),
        ({"deny": ["Bash(curl *)"]}, "nohup nice curl x > y", "refuse"),
        ({"deny": ["Bash(curl *)"]}, "ls | xargs curl x", "refuse"),
        ({"deny": ["Bash(curl *)"]}, "env curl x", "unknown"),
        ({"deny": ["Bash(curl *)"]}, "(curl x)", "unknown"),
        ({"deny": ["Bash(curl *)"]}, "echo $(curl x)", "unknown"),
        ({"deny": ["Bash(curl *)"]}, "X=1 curl x", "refuse"),
        ({"deny": ["Bash(curl *)"]}, "command curl x", "refuse"),
        ({"deny": ["Read(./.env)"]}, "cat .env", "unknown"),
        ({"deny": ["Read(./.env)"]}, "cd a && head -1 ../.env", "unknown"),
        ({"deny": ["Read(./.env)"]}, "awk 1 .env", "unknown"),
        ({"deny": ["Read(./.env)"]}, "sort .env | base64", "unknown"),
        ({"deny": ["Read(./.env)"]}, "cat config.env", "ask"),
        ({"deny": ["Read(./.env)"]}, "ls .env", "ask"),
        ({"deny": ["Read(~/.ssh/**)"]}, "cat ~/.ssh/id", "unknown"),
        ({"deny": ["Read(**)"]}, "cat x", "unknown"),
        ({"ask": ["Edit(/src/**)"]}, "sed -i s/a/b/ src/x", "unknown"),
        ({"allow": ["Read(./.env)"]}, "cat .env", "ask"),
        ({"deny": ["Bash(curl *)"]}, "/usr/bin/curl x", "unknown"),
        ({"deny": ["Bash(curl *)"]}, "eval $X", "unknown"),
        ({"deny": ["Bash(rm -rf *)"]}, "rm -fr /", "ask"),
        ({"deny": ["Bash(grep * /etc/*)"]}, "grep root /etc/passwd", "refuse"),
        ({}, "ls", "ask"),
    ],
)  # fmt: skip
def test_precedence(permissions: object, command: str, expected: str) -> None:
    """Deny comes before ask, ask before allow; how specific a rule is does not matter."""
    assert effect(permissions, "Bash", command=command) == expected


@pytest.mark.parametrize(
    ("rule", "path", "held"),
    [
        ("Read(./.env)", ".env", True), ("Read(./.env)", "/srv/app/.env", True), ("Read(./.env)", "a/.env", False),
        ("Read(.env)", "a/.env", True), ("Read(*.env)", "a/x.env", True), ("Read(~/.zshrc)", "~/.zshrc", True),
        ("Read(~/.zshrc)", "/users/u/.zshrc", True), ("Read(//etc/hosts)", "/etc/hosts", True),
        ("Read(//etc/**)", "/etc/ssh/key", True), ("Read(/secrets/**)", "secrets/x", True),
        ("Read(/secrets/**)", "/secrets/x", False), ("Read(/src/*.ts)", "src/a/b.ts", False),
        ("Read(**/secrets/**)", "a/secrets/b", True), ("Read(src/)", "src/x", True), ("Read", "/any", True),
    ],
)  # fmt: skip
def test_read_rules(rule: str, path: str, held: bool) -> None:
    """Paths are as in a .gitignore: `//` is the root, `/` the project, `~/` the home, else the directory."""
    assert (effect({"deny": [rule]}, "Read", file_path=path) == "refuse") is held
    assert (effect({"deny": [rule]}, "Grep", path=path) == "refuse") is (held and rule != "Read")
    assert effect({"deny": [rule]}, "Edit", file_path=path) != "refuse"


@pytest.mark.parametrize("tool", ["Edit", "Write", "MultiEdit", "NotebookEdit"])
def test_edit_rules_apply_to_all_tools_that_write(tool: str) -> None:
    """An Edit rule is for every built-in tool that changes files."""
    key = "notebook_path" if tool == "NotebookEdit" else "file_path"
    assert effect({"deny": ["Edit(docs/**)"]}, tool, **{key: "docs/x"}) == "refuse"
    assert effect({"allow": ["Edit(docs/**)"]}, tool, **{key: "src/x"}) == "ask"


@pytest.mark.parametrize(
    ("rule", "tool", "arguments", "held"),
    [
        ("WebFetch(domain:example.com)", "WebFetch", {"url": "https://example.com/x"}, True),
        ("WebFetch(domain:example.com)", "WebFetch", {"url": "https://example.com@evil.org/"}, False),
        ("WebFetch(domain:*.example.com)", "WebFetch", {"url": "https://a.example.com/"}, True),
        ("WebFetch(domain:*)", "WebFetch", {"url": "https://x.org"}, True),
        ("WebFetch", "WebFetch", {"url": "https://x.org"}, True),
        ("mcp__github", "mcp__github__create_issue", {}, True),
        ("mcp__github__*", "mcp__github__create_issue", {}, True),
        ("mcp__github__create_issue", "mcp__github__create_issue", {}, True),
        ("mcp__github__create_issue", "mcp__github__delete", {}, False),
        ("mcp__github", "mcp__githubx__y", {}, False),
        ("Agent(Explore)", "Agent", {"subagent_type": "Explore"}, True),
        ("Agent(Explore)", "Task", {"subagent_type": "Explore"}, True),
        ("Agent(Explore)", "Agent", {"subagent_type": "Plan"}, False),
        ("Task(Plan)", "Task", {"subagent_type": "Plan"}, True),
        ("Skill(deploy *)", "Skill", {"skill": "deploy prod"}, True),
        ("Agent(model:opus)", "Agent", {"model": "opus"}, False),
        ("WebSearch(query:x*)", "WebSearch", {"query": "xyz"}, True),
    ],
)  # fmt: skip
def test_other_tools(rule: str, tool: str, arguments: dict[str, object], held: bool) -> None:
    """Hosts, servers of tools, subagents, skills and parameters."""
    assert (effect({"deny": [rule]}, tool, **arguments) == "refuse") is held


@pytest.mark.parametrize(
    ("rule", "instead"),
    [("Write(docs/**)", "Edit(docs/**)"), ("Glob(src/**)", "Read(src/**)"), ("NotebookEdit(a)", "Edit(a)"),
     ("MultiEdit(a)", "Edit(a)"), ("Grep(a)", "Read(a)")],
)  # fmt: skip
def test_rules_that_are_never_applied(rule: str, instead: str) -> None:
    """Path rules of other tools are accepted and never consulted: no rule here, and what to write."""
    found = converted({"deny": [rule]})
    assert found.rules == ()
    assert instead in found.notes[0].problem


def test_notes() -> None:
    """What a settings file says beside rules is named, with what it means here."""
    found = converted({"defaultMode": "auto", "alow": [], "deny": ["Bash", "(", "Read(/)", "WebFetch(x)"]})
    notes = {note.place: note.problem for note in found.notes}
    assert "do not record" in notes["settings.json: defaultMode"]
    assert "allow" in notes["settings.json: alow"]
    assert "hidden from the model" in notes["settings.json:6"]
    assert "expected Tool or Tool(specifier)" in notes["settings.json:7"]
    assert "cannot be judged" in notes["settings.json:9"]
    assert len(notes) == 5
    sources = [rule.source.partition(" (")[0] for rule in found.rules]
    assert ["Bash", "Read(/)", "in a shell command: Read(/)", "WebFetch(x)"] == sources
    unknown = decide(found.rules, "strictest", "permit", ToolCall("WebFetch", "{}"))
    assert ("unknown", 3) == (unknown.effect, unknown.rule)


def test_layers_are_joined() -> None:
    """The rules of all files apply, by effect and not by file; each is named with its file and line."""
    layers = [
        ("user.json", '{"permissions": {"allow": [\n"Bash(git *)"]}}'),
        ("project.json", '{"permissions": {"deny": ["Bash(git push *)"]}}'),
    ]
    rules = convert_settings(layers).rules
    assert ["Bash(git push *) (project.json:1)", "Bash(git *) (user.json:2)"] == [
        rule.source for rule in rules
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{ // x\n}", "Claude Code reads JSON without comments"), ("[]", "expected a JSON object"),
        ('{"permissions": []}', "expected an object"), ('{"permissions": {"deny": "Bash"}}', "expected a list"),
        ('{"permissions": {"deny": [1]}}', "expected a rule"), ("", "is not valid JSON"), ("[" * 100_000, "nested|not valid"),
    ],
)  # fmt: skip
def test_files_that_are_no_settings(text: str, problem: str) -> None:
    """An error names the file, the place and what is expected."""
    with pytest.raises(PolicyError, match=problem) as raised:
        convert_settings([("settings.json", text)])
    assert raised.value.path.startswith("settings.json")


@pytest.mark.parametrize(
    "rule", ["(" * 1000, "Bash(" + "*" * 1000 + ")", "Read(" + "[" * 1000 + ")", "Bash(\\)", "a" * 10_000]
)
def test_hostile_rules(rule: str) -> None:
    """A rule of any length is converted or noted, and never an error of the program."""
    found = converted({"deny": [rule]})
    assert len(found.rules) + len(found.notes) >= 1
    for each in found.rules:
        faults_of(each)
        decide([each], "strictest", "permit", ToolCall("Bash", '{"command": "ls"}'))
