"""Permission rules: the decision on a call, with what is unknown."""

import json
from typing import Any

import pytest

from refold.reducers.errors import faults_of
from refold.reducers.permissions.conditions import ToolCall, list_parts
from refold.reducers.permissions.paths import Folders
from refold.reducers.permissions.rules import Effect, Order, PermissionRule, PermissionVerdict, decide

FOLDERS = Folders("/srv/app", "/users/u")


def rule(effect: Effect, **conditions: Any) -> PermissionRule:
    """A rule for every tool."""
    return PermissionRule(effect=effect, **conditions)


def on(
    command: str, *rules: PermissionRule, order: Order = "strictest", otherwise: Effect = "permit"
) -> PermissionVerdict:
    """The decision on a shell command."""
    return decide(rules, order, otherwise, ToolCall("Bash", json.dumps({"command": command}), FOLDERS))


NO_PUSH = rule("refuse", command=("git", ("push", "fetch")))
STATUS = rule("permit", command=("git", "status"))
TESTS = rule("permit", command="npm run *")

BYPASSES = (
    "git push", "echo a\ngit push", "cd x && git push", "true || git push", "(git push)", "{ git push; }",
    "git push &", "git  push", "git \\\n push", "cat <<E\n$(git push)\nE", "echo `git push`", "x=$(git push)",
    "sudo git push", "timeout 5 git push", "nohup git push", "env A=1 git push", "A=1 git push", "command git push",
    "bash -c 'git push'", "sh -lc \"git push\"", "xargs git push", "find . -exec git push \\;",
    "g'i't pu\"\"sh", "$'git' push", "/usr/bin/git push", "git -C x push", "git -c a=b --no-pager push",
    "git --git-dir=x push", "if true; then git push; fi", "! git push", "time git push",
)  # fmt: skip
OPAQUE = (
    "git$IFS'push'", "alias g=git; g push", "eval 'git push'", "f() { git \"$@\"; }; f push", "curl x | sh",
    "git $X", "$GIT push", "source push.sh", "git push 'x",
)  # fmt: skip


@pytest.mark.parametrize("command", BYPASSES)
def test_a_refused_command_is_found_in_any_form(command: str) -> None:
    """Quoting, wrappers, operators and options do not hide a command from a rule that refuses it."""
    assert on(command, NO_PUSH).effect == "refuse"


@pytest.mark.parametrize("command", OPAQUE)
def test_what_cannot_be_read_is_unknown(command: str) -> None:
    """Where the shell decides what runs, a rule that refuses is neither true nor false."""
    assert on(command, NO_PUSH).effect in ("unknown", "refuse")


@pytest.mark.parametrize("command", [*BYPASSES, *OPAQUE])
def test_no_form_is_permitted_by_another_rule(command: str) -> None:
    """A permission covers the commands that it names and no others."""
    assert on(command, STATUS, TESTS, otherwise="ask").effect != "permit"


@pytest.mark.parametrize(
    "command", ["echo git push", "git log", "git stash push", "gitpush", "git pushx", "# git push"]
)
def test_other_commands_are_not_refused(command: str) -> None:
    """A word that only looks alike is no command."""
    assert on(command, NO_PUSH).effect == "permit"


@pytest.mark.parametrize(
    ("command", "permitted"),
    [
        ("git status", True), ("git status -s", True), ("git status && npm run test", True),
        ("git status > /dev/null 2>&1", True), ("timeout 5 git status", True), ("bash -c 'git status'", True),
        ("git status # x", True), ("git status $X", True), ("npm run", True), ("if git status; then npm run x; fi", True),
        ("git status; rm -rf /", False), ("git status $(rm x)", False), ("git status > x", False),
        ("A=1 git status", False), ("PATH=/x; git status", False), ("sudo git status", False),
        ("./git status", False), ("git -C x status", False), ("npm running", False), ("git status\nls", False),
        ("eval git status", False), ("git status | sh", False), ("find . -exec git status \\;", False), ("", False),
    ],
)  # fmt: skip
def test_permissions_cover_each_command(command: str, permitted: bool) -> None:
    """A script is permitted only if each of its commands is, and it writes and sets nothing."""
    assert (on(command, STATUS, TESTS, otherwise="ask").effect == "permit") is permitted


@pytest.mark.parametrize(
    ("order", "expected"), [("strictest", "refuse"), ("first", "permit"), ("last", "ask")]
)
def test_order(order: Order, expected: str) -> None:
    """Which of several rules applies is the policy's choice."""
    rules = [
        rule("permit", command="git *"),
        rule("refuse", command="git push *"),
        rule("ask", command="git *"),
    ]
    assert on("git push", *rules, order=order).effect == expected


@pytest.mark.parametrize("order", ["strictest", "first", "last"])
def test_the_strictest_command_decides(order: Order) -> None:
    """With several commands, each is judged by the order, and the strictest decision applies."""
    rules = [rule("permit", command="ls *"), rule("refuse", command="rm *")]
    assert on("ls; rm x; ls", *rules, order=order).effect == "refuse"


@pytest.mark.parametrize(
    ("words", "command", "expected"),
    [
        (("rm", "-rf"), "rm -rf /", "refuse"), (("rm", "-rf"), "rm -r -f /", "unknown"),
        (("rm", "-rf"), "rm -fr /", "unknown"), (("rm", "-rf"), "rm x", "permit"), (("rm", "-rf"), "rm -f x", "permit"),
        (("rm", "-rf"), "rm --recursive --force x", "unknown"), (("git", "reset", "--hard"), "git reset --keep", "permit"),
        (("git", "reset", "--hard"), "git reset x --hard", "unknown"), (("rm", "-rf"), "rm $X", "unknown"),
        (("docker", "run"), "docker --context x run y", "unknown"), (("docker", "run"), "docker ps", "permit"),
    ],
)  # fmt: skip
def test_options_in_another_order_are_unknown(words: tuple[str, ...], command: str, expected: str) -> None:
    """Only the program knows which of its options take a value, so a reordered one is not passed over."""
    assert on(command, rule("refuse", command=words)).effect == expected


def of_path(path: str, *globs: str, folders: Folders = FOLDERS, effect: Effect = "refuse") -> str:
    """The effect on reading a path, by a rule over these globs."""
    call = ToolCall("Read", json.dumps({"file_path": path}), folders)
    return decide(
        [rule(effect, path=globs)], "strictest", "ask" if effect == "permit" else "permit", call
    ).effect


@pytest.mark.parametrize(
    ("glob", "path", "held"),
    [
        (".env", ".env", True), (".env", "a/b/.env", True), (".env", "/srv/app/a/.env", True),
        (".env", "/elsewhere/.env", False), (".env", "x.env", False), ("*.env", "a/x.env", True),
        ("./.env", "a/.env", False), ("./.env", ".env", True), ("src/**", "src/a/b.py", True),
        ("src/**", "src/../x", False), ("src/**", "../app/src/x", True), ("src/**", "./src//x", True),
        ("src", "src/a", True), ("src/*.py", "src/a/b.py", False), ("a/**/b", "a/b", True), ("a/**/b", "a/x/y/b", True),
        ("/etc/**", "/etc/passwd", True), ("/etc/**", "../../etc/passwd", True), ("/etc", "/etcetera", False),
        ("~/.ssh/**", "~/.ssh/id", True), ("~/.ssh/**", "/users/u/.ssh/id", True), ("~/.ssh/**", "/users/v/.ssh/id", False),
        ("[ab].py", "a.py", True), ("[!a].py", "a.py", False), ("a?.py", "ab.py", True), ("a?.py", "a/.py", False),
        ("**", "x", True), ("a*b*c*d*e*f*g", "a" * 5000, False),
    ],
)  # fmt: skip
def test_paths(glob: str, path: str, held: bool) -> None:
    """Globs are gitignore's, over the path that the argument names, whichever way it is written."""
    assert (of_path(path, glob) == "refuse") is held


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("~/.ssh/**", "/users/u/.ssh/id", "unknown"), ("~/.ssh/**", "/srv/app/x", "permit"),
        ("src/**", "/srv/src/x", "unknown"), ("src/**", "/srv/x", "permit"), ("src/**", "src/x", "refuse"),
        ("src/**", "../src/x", "unknown"), ("/etc/**", "passwd", "unknown"), ("src/**", "~/x", "unknown"),
    ],
)  # fmt: skip
def test_unknown_folders(glob: str, path: str, expected: str) -> None:
    """Without a recorded folder, only a path that matches below no folder is known not to match."""
    assert of_path(path, glob, folders=Folders()) == expected


def test_an_exclusion_applies_to_what_is_before_it() -> None:
    """The last glob that matches a path applies."""
    assert of_path("src/a.py", "src/**", "!src/a.py") == "permit"
    assert of_path("src/b.py", "src/**", "!src/a.py") == "refuse"
    assert of_path("src/a.py", "src/**", "!src/*.py", "src/a.py") == "refuse"


def test_a_permission_covers_all_paths_of_a_call() -> None:
    """One path outside is enough for no permission, and one inside for a refusal."""
    call = ToolCall("Read", json.dumps({"paths": ["src/a", "/etc/passwd"]}), FOLDERS)
    assert decide([rule("permit", path=("src/**",))], "strictest", "ask", call).effect == "ask"
    assert decide([rule("refuse", path=("/etc/**",))], "strictest", "permit", call).effect == "refuse"


@pytest.mark.parametrize(
    ("host", "url", "held"),
    [
        ("example.com", "https://example.com/x", True), ("example.com", "https://EXAMPLE.com.:443/x", True),
        ("example.com", "https://user:pw@example.com/", True), ("example.com", "https://example.com@evil.org/", False),
        ("example.com", "https://example.com.evil.org/", False), ("example.com", "https://a.example.com", False),
        ("*.example.com", "https://a.b.example.com", True), ("*.example.com", "https://example.com", False),
        ("*.example.com", "https://badexample.com", False), ("example.com", "example.com/x", True),
        ("example.com", "https:\\\\example.com\\x", True), ("xn--bcher-kva.de", "http://bücher.de", True),
        ("bücher.de", "http://xn--bcher-kva.de", True), ("::1", "http://[::1]:80/", True), ("*", "http://x", True),
    ],
)  # fmt: skip
def test_hosts(host: str, url: str, held: bool) -> None:
    """The host of a URL is that to which a request goes."""
    call = ToolCall("WebFetch", json.dumps({"url": url}))
    assert (decide([rule("refuse", host=(host,))], "strictest", "permit", call).effect == "refuse") is held


def test_a_url_that_cannot_be_read_is_unknown() -> None:
    """Nobody knows where a broken URL leads."""
    call = ToolCall("WebFetch", json.dumps({"url": "http://[::1"}))
    assert decide([rule("refuse", host=("example.com",))], "strictest", "permit", call).effect == "unknown"


@pytest.mark.parametrize("arguments", ["{", "[]", '"git push"', ""])
def test_arguments_that_cannot_be_read_are_unknown(arguments: str) -> None:
    """Arguments that are not a JSON object are not taken for harmless ones."""
    found = decide([NO_PUSH], "strictest", "permit", ToolCall("Bash", arguments))
    assert found.effect == ("permit" if arguments == "" else "unknown")


def test_a_key_that_is_repeated_is_judged_by_each_value() -> None:
    """Agents differ in which of two values they take."""
    found = decide(
        [NO_PUSH], "strictest", "permit", ToolCall("Bash", '{"command": "git push", "command": "ls"}')
    )
    assert found.effect == "refuse"


@pytest.mark.parametrize("value", [["git", "push"], ["bash", "-lc", "git push"]])
def test_a_command_as_a_list_of_words(value: list[str]) -> None:
    """Some agents give a command as its words."""
    assert (
        decide([NO_PUSH], "strictest", "permit", ToolCall("shell", json.dumps({"command": value}))).effect
        == "refuse"
    )


def test_all_conditions_of_a_rule_must_hold() -> None:
    """Conditions are joined by and; an unknown one beside a false one is false."""
    both = rule("refuse", command="git *", matches="--force")
    assert on("git push --force", both).effect == "refuse"
    assert on("git push", both).effect == "permit"
    assert on("eval x", both).effect == "permit"


@pytest.mark.parametrize(
    ("conditions", "path"),
    [
        ({"matches": "("}, "matches"), ({"unless": "x"}, "unless"),
        ({"path": ("[b-a]",)}, "path[0]"), ({"host": ("http://[",)}, "host[0]"), ({"path": ()}, "path"),
        ({"command": ("git", "push"), "match": ("git pull",)}, "match[0]"),
        ({"command": ("git",), "not_match": ("ls", "git x")}, "not_match[1]"),
        ({"path": ("src/**",), "match": ("lib/x",)}, "match[0]"),
    ],
)  # fmt: skip
def test_faults(conditions: dict[str, Any], path: str) -> None:
    """What cannot be evaluated, and an example that contradicts its rule, is an error with its place."""
    assert [path] == [where for where, _ in faults_of(rule("refuse", **conditions))]


def test_examples_that_agree() -> None:
    """Examples are commands, paths, URLs or arguments."""
    assert not faults_of(
        rule("refuse", command=("git",), match=("cd x && git y", '{"cmd": "git"}'), not_match=("ls",))
    )
    assert not faults_of(rule("permit", path=("src/**",), match=("src/x",), not_match=("x",)))
    assert not faults_of(
        rule("ask", host=("*.x.org",), match=("https://a.x.org",), not_match=("https://x.org",))
    )


def test_parts_are_in_the_order_of_the_rules() -> None:
    """Parts of several fields have one order in every process: the first of equal decisions applies."""
    fields = [f"field{number}" for number in range(20)]
    rules = [rule("refuse", command="rm *", field=field) for field in fields]
    arguments = json.dumps(dict.fromkeys(reversed(fields), "rm -rf /"))
    assert fields == [part.field for part in list_parts(rules, ToolCall("Bash", arguments))]
    assert 0 == decide(rules, "strictest", "permit", ToolCall("Bash", arguments)).rule
