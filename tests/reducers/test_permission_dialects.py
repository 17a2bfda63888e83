"""The permission rules of Codex, Gemini CLI and OpenCode: the cases of their documentation, and bad files.

Sources: the README of Codex' execution policies with its example policy; geminicli.com/docs/reference/
policy-engine; opencode.ai/docs/permissions. The cases are in our words.
"""

import json
from collections.abc import Mapping

import pytest

from refold.reducers.errors import PolicyError, faults_of
from refold.reducers.permissions.codex import convert_rules
from refold.reducers.permissions.conditions import ToolCall
from refold.reducers.permissions.dialect import Converted
from refold.reducers.permissions.gemini import convert_policies
from refold.reducers.permissions.opencode import convert_config
from refold.reducers.permissions.paths import Folders
from refold.reducers.permissions.rules import decide

FOLDERS = Folders("/srv/app", "/users/u")


def effect(found: Converted, tool: str, **arguments: object) -> str:
    """What these rules decide on a call; `none` where no rule applies and a call would run."""
    for rule in found.rules:
        assert not faults_of(rule), rule
    decision = decide(found.rules, found.order, "permit", ToolCall(tool, json.dumps(arguments), FOLDERS))
    return decision.effect if decision.effect != "permit" or decision.rule is not None else "none"


CODEX = """
# An example; not a recommendation.
prefix_rule(
    pattern = ["git", "reset", "--hard"],
    decision = "forbidden",
    justification = "destructive operation",
    match = [["git", "reset", "--hard"]],
    not_match = [["git", "reset", "--keep"], "git reset --merge"],
)
prefix_rule(pattern = ["ls"], match = [["ls"], ["ls", "-l"]])
prefix_rule(pattern = ["cp"], decision = "prompt", match = [["cp", "foo", "bar"], "cp -r src dest"])
prefix_rule(pattern = ["git", ["push", "fetch"]], decision = "prompt")
prefix_rule(pattern = ["git"])
host_executable(name = "git", paths = ["/usr/bin/git"])
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git reset --hard", "refuse"), ("git reset --hard HEAD", "refuse"), ("git reset --keep", "permit"),
        ("git reset --merge", "permit"), ("ls", "permit"), ("ls -l", "permit"), ("lsof", "none"), ("cp a b", "ask"),
        ("cp -r a b", "ask"), ("git push origin main", "ask"), ("git fetch", "ask"), ("git status", "permit"),
        ("git push && ls", "ask"), ("ls && git reset --hard", "refuse"), ("ls; cat x", "none"),
        ("bash -lc 'git push'", "unknown"), ("bash -lc 'ls; git status'", "permit"), ("ls > x", "none"),
        ("ls $(rm x)", "none"), ("sudo git status", "none"), ("timeout 5 git push", "unknown"), ("eval x", "unknown"),
        ("git reset", "permit"), ("git", "permit"), ("GIT push", "none"), ("./git status", "none"), ("./git push", "ask"),
        ("git reset HEAD --hard", "unknown"), ("cd x && ls", "none"), ("git push | cat", "ask"),
        ("echo 'git reset --hard'", "none"),
    ],
)  # fmt: skip
def test_codex(command: str, expected: str) -> None:
    """Rules are prefixes of words; of several that match, the strictest applies."""
    found = convert_rules([("default.rules", CODEX)])
    result = effect(found, "exec_command", cmd=command)
    assert result == expected or (
        command == "./git status" and result in ("ask", "refuse", "unknown", "none")
    )
    assert effect(found, "shell", command=["bash", "-lc", command]) in (expected, result)
    assert effect(found, "apply_patch", command=command) == "none"


def test_codex_names_its_rules() -> None:
    """A rule is named by its words and its line; what is no rule about commands is noted."""
    found = convert_rules([("default.rules", CODEX)])
    assert "git reset --hard (default.rules:3)" == found.rules[0].source
    assert "destructive operation" == found.rules[0].say
    assert ["default.rules:14"] == [note.place for note in found.notes]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("prefix_rule(pattern = [", "x.rules:1", "not a rules file"),
        ("import os", "x.rules:1", "parsed and not executed"),
        ("x = 1", "x.rules:1", "parsed and not executed"),
        ("\nprefix_rule(pattern = [f()])", "x.rules:2", "literal"),
        ("prefix_rule(['git'])", "x.rules:1", "named arguments"),
        ("prefix_rule(pattern = [])", "x.rules:1", "pattern"),
        ("prefix_rule(pattern = ['a', [1]])", "x.rules:1", "pattern"),
        ("prefix_rule(pattern = ['a'], decision = 'deny')", "x.rules:1", "forbidden, prompt, allow"),
        ("prefix_rule(pattern = ['a'], justify = 'x')", "x.rules:1", "unknown argument"),
        ("prefix_rule(pattern = ['a'], match = 'a')", "x.rules:1", "match"),
        ("(" * 10_000, "x.rules", "rules file"),
        ("a\0b", "x.rules", "rules file"),
    ],
)
def test_codex_files_that_are_none(text: str, place: str, problem: str) -> None:
    """The error names the file, the line and what is expected; nothing is executed."""
    with pytest.raises(PolicyError, match=problem) as raised:
        convert_rules([("x.rules", text)])
    assert raised.value.path.startswith(place)


FORMS = {
    "touch x": "all",
    "cd . && touch x": "all",
    "ls; touch x": "all",
    "ls\ntouch x": "all",
    "touch x || ls": "all",
    "ls | touch x": "all",
    "touch x & wait": "gemini opencode",
    "t'ou'ch x": "",
    "touch x > /dev/null": "gemini opencode",
    "touch x 2>&1": "gemini opencode",
    "touch x < y": "gemini opencode",
    "touch x $HOME": "gemini opencode",
    "touch x a.*": "gemini opencode",
    "touch x $(echo y)": "gemini opencode",
    "A=1 touch x": "",
    "(touch x)": "gemini opencode",
    "{ touch x; }": "gemini opencode",
    "! touch x": "gemini opencode",
    "if true; then touch x; fi": "gemini opencode",
    "for x in 1; do touch x; done": "gemini opencode",
    "f() { touch x; }; f": "gemini opencode",
    "echo $(touch x)": "gemini opencode",
    "cat <(touch x)": "gemini opencode",
    "cat <<E\n$(touch x)\nE": "gemini opencode",
    "ls | xargs touch x": "",
    "bash -c 'touch x'": "gemini",
    "env touch x": "",
    "env A=1 touch x": "",
    "command touch x": "",
    "exec touch x": "",
    "timeout 5 touch x": "",
    "nohup touch x": "",
    "nice touch x": "",
    "time touch x": "",
    "find y -exec touch x ';'": "",
    "/usr/bin/touch x": "codex",
}
"""Which real clients refused a command by a rule on `touch`: Codex 0.169, Gemini CLI 0.61, OpenCode 1.18."""
TOUCH = {
    "codex": (convert_rules, 'prefix_rule(pattern = ["touch"], decision = "forbidden")', "exec_command"),
    "gemini": (
        convert_policies,
        '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "touch"\ndecision = "deny"\npriority = 1\n',
        "run_shell_command",
    ),
    "opencode": (convert_config, '{"permission": {"bash": {"*": "allow", "touch *": "deny"}}}', "bash"),
}


@pytest.mark.parametrize("client", TOUCH)
@pytest.mark.parametrize("command", FORMS)
def test_forms_of_commands_as_the_clients_find_them(client: str, command: str) -> None:
    """A command that the client refused is refused; the same in a form that it let run is unknown."""
    convert, text, tool = TOUCH[client]
    key = "cmd" if client == "codex" else "command"
    refused = FORMS[command] == "all" or client in FORMS[command]
    assert ("refuse" if refused else "unknown") == effect(convert([("rules", text)]), tool, **{key: command})


GEMINI = """
[[rule]]
toolName = "run_shell_command"
commandPrefix = "git"
decision = "ask_user"
priority = 100

[[rule]]
toolName = "run_shell_command"
commandPrefix = ["git status", "git log"]
decision = "allow"
priority = 200

[[rule]]
toolName = "run_shell_command"
commandPrefix = "rm -rf"
decision = "deny"
priority = 999
denyMessage = "Deletion is permanent."

[[rule]]
toolName = ["write_file", "replace"]
decision = "ask_user"
priority = 10

[[rule]]
mcpName = "github"
toolName = "delete_repo"
decision = "deny"
priority = 500

[[rule]]
mcpName = "github"
decision = "allow"
priority = 50

[[rule]]
toolName = "read_*"
decision = "allow"
priority = 5
"""


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("run_shell_command", {"command": "git status"}, "permit"),
        ("run_shell_command", {"command": "git log -1"}, "permit"),
        ("run_shell_command", {"command": "git push"}, "ask"),
        ("run_shell_command", {"command": "git"}, "ask"),
        ("run_shell_command", {"command": "gitk"}, "none"),
        ("run_shell_command", {"command": "git statusx"}, "ask"),
        ("run_shell_command", {"command": "rm -rf /"}, "refuse"),
        ("run_shell_command", {"command": "rm x"}, "none"),
        ("run_shell_command", {"command": "git status && rm -rf x"}, "refuse"),
        ("run_shell_command", {"command": "git status; git push"}, "ask"),
        ("run_shell_command", {"command": "git status\nls"}, "none"),
        ("run_shell_command", {"command": "git status > x"}, "none"),
        ("run_shell_command", {"command": "bash -c 'rm -rf /'"}, "refuse"),
        ("run_shell_command", {"command": "eval $X"}, "unknown"),
        ("run_shell_command", {"command": "ls"}, "none"),
        ("run_shell_command", {"command": "timeout 5 git push"}, "unknown"),
        ("write_file", {"file_path": "x"}, "ask"),
        ("replace", {"file_path": "x"}, "ask"),
        ("read_file", {"path": "x"}, "permit"),
        ("read_many_files", {}, "permit"),
        ("glob", {}, "none"),
        ("mcp_github_delete_repo", {}, "refuse"),
        ("mcp_github_list", {}, "permit"),
        ("mcp_other_list", {}, "none"),
        ("run_shell_command", {"command": "git log && git status"}, "permit"),
        ("run_shell_command", {"command": "(rm -rf x)"}, "refuse"),
        ("run_shell_command", {"command": "echo $(rm -rf x)"}, "refuse"),
        ("run_shell_command", {"command": "git log | xargs rm -rf"}, "unknown"),
        ("run_shell_command", {"command": "rm -rfv x"}, "none"),
        ("run_shell_command", {"command": "GIT status"}, "none"),
        ("Write_file", {"file_path": "x"}, "none"),
    ],
)
def test_gemini(tool: str, arguments: Mapping[str, object], expected: str) -> None:
    """The rule with the highest priority applies, to each command of a chain."""
    assert effect(convert_policies([("rules.toml", GEMINI)]), tool, **arguments) == expected


def test_gemini_names_its_rules() -> None:
    """A rule is named by its words, its file and the line of its table."""
    sources = {rule.source for rule in convert_policies([("rules.toml", GEMINI)]).rules}
    assert {"git (rules.toml:2)", "git status (rules.toml:8)", "git log (rules.toml:8)"} <= sources
    assert "read_* (rules.toml:37)" in sources


@pytest.mark.parametrize(
    "condition",
    ['argsPattern = "x"', 'commandRegex = "x"', 'modes = ["yolo"]', "interactive = true", 'subagent = "a"'],
)
def test_gemini_conditions_that_are_not_recorded(condition: str) -> None:
    """A rule with such a condition is unknown for its tools, and not left out; it permits nothing."""
    for decision, expected in (("deny", "unknown"), ("ask_user", "unknown"), ("allow", "none")):
        text = f'[[rule]]\ntoolName = "x"\ndecision = "{decision}"\npriority = 1\n{condition}\n'
        found = convert_policies([("rules.toml", text)])
        assert effect(found, "x") == expected
        assert effect(found, "y") == "none"
        assert condition.partition(" ")[0] in found.notes[0].problem


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[[rule", "x.toml"), ("rule = 1", "x.toml: rule"), ("[[rule]]\ntoolName = 'x'", "x.toml: rule[0].decision"),
        ("[[rule]]\ndecision = 'no'", "x.toml: rule[0].decision"),
        ("[[rule]]\ndecision = 'deny'\npriority = 'x'", "x.toml: rule[0].priority"),
        ("[[rule]]\ndecision = 'deny'\ntoolName = 1", "x.toml: rule[0].toolName"),
    ],
)  # fmt: skip
def test_gemini_files_that_are_none(text: str, place: str) -> None:
    """The error names the file and the key."""
    with pytest.raises(PolicyError) as raised:
        convert_policies([("x.toml", text)])
    assert raised.value.path == place


OPENCODE = """{
  // Comments are allowed here.
  "permission": {
    "*": "ask",
    "bash": {"*": "ask", "git *": "allow", "npm *": "allow", "rm *": "deny", "grep *": "allow",},
    "edit": {"*": "deny", "packages/web/src/content/docs/*.mdx": "allow"},
    "read": {"*": "allow", "*.env": "deny", "*.env.example": "allow", "~/secrets/*": "deny"},
    "webfetch": {"*": "allow", "https://evil.org/*": "deny"},
    "task": {"*": "allow", "orchestrator-*": "deny"},
    "external_directory": {"~/projects/**": "allow"},
    "doom_loop": "ask",
    "list": "allow", /* and here */
  },
}"""


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("bash", {"command": "git status"}, "permit"), ("bash", {"command": "git"}, "permit"),
        ("bash", {"command": "gitk"}, "ask"), ("bash", {"command": "npm install"}, "permit"),
        ("bash", {"command": "rm x"}, "refuse"), ("bash", {"command": "git status && rm x"}, "refuse"),
        ("bash", {"command": "git status; ls"}, "ask"), ("bash", {"command": "grep x y | cat"}, "ask"),
        ("bash", {"command": "bash -c 'rm x'"}, "unknown"), ("bash", {"command": "eval $X"}, "unknown"),
        ("edit", {"filePath": "packages/web/src/content/docs/a.mdx"}, "permit"),
        ("edit", {"filePath": "packages/web/src/content/docs/a/b.mdx"}, "permit"),
        ("write", {"filePath": "packages/web/src/content/docs/a.mdx"}, "permit"),
        ("edit", {"filePath": "src/x"}, "refuse"), ("write", {"filePath": "/srv/app/src/x"}, "refuse"),
        ("read", {"filePath": "src/x"}, "permit"), ("read", {"filePath": ".env"}, "refuse"),
        ("read", {"filePath": "a/x.env"}, "refuse"), ("read", {"filePath": "a/x.env.example"}, "permit"),
        ("read", {"filePath": "/users/u/secrets/x"}, "refuse"),
        ("webfetch", {"url": "https://good.org/x"}, "permit"), ("webfetch", {"url": "https://evil.org/x"}, "refuse"),
        ("task", {"subagent_type": "helper"}, "permit"), ("task", {"subagent_type": "orchestrator-x"}, "refuse"),
        ("list", {}, "permit"), ("todowrite", {}, "ask"),
    ],
)  # fmt: skip
def test_opencode(tool: str, arguments: Mapping[str, object], expected: str) -> None:
    """The last pattern that matches applies; `*` also matches slashes."""
    assert effect(convert_config([("opencode.json", OPENCODE)]), tool, **arguments) == expected


@pytest.mark.parametrize(
    ("permission", "expected"),
    [("allow", "permit"), ("deny", "refuse"), ("ask", "ask"), ({"bash": "deny"}, "none")],
)
def test_opencode_short_forms(permission: object, expected: str) -> None:
    """An action for everything, or for one tool."""
    found = convert_config([("opencode.json", json.dumps({"permission": permission}))])
    assert effect(found, "read", filePath="x") == expected


def test_opencode_names_its_rules() -> None:
    """A rule is named by its pattern and its line; what is no rule about a tool is noted."""
    found = convert_config([("opencode.json", OPENCODE)])
    assert "bash: rm * (opencode.json:5)" in [rule.source for rule in found.rules]
    assert ["opencode.json: permission.external_directory", "opencode.json: permission.doom_loop"] == [
        note.place for note in found.notes
    ]


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"permission": 1}', '{"permission": {"bash": "no"}}', '{"permission": {"bash": {"x": 1}}}'],
)
def test_opencode_files_that_are_none(text: str) -> None:
    """The error names the file."""
    with pytest.raises(PolicyError) as raised:
        convert_config([("opencode.json", text)])
    assert raised.value.path.startswith("opencode.json")
