"""Laws of reading shell scripts, held against Bash itself."""

import json
import os
import shlex
import shutil
import subprocess
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from refold.reducers.permissions.conditions import ToolCall
from refold.reducers.permissions.rules import PermissionRule, decide
from refold.reducers.permissions.shell import Command, read_script

BASH = shutil.which("bash")
_NUMBERS = count()
REAL = ("env", "timeout", "nohup", "nice", "xargs", "bash")
STUBS = ("git", "npm", "ls", "rm", "make")

_WORD = st.sampled_from(["push", "status", "-f", "a b", "x;y", "$HOME", "*", "'", '"', "run", "--", "\\"])
_QUOTED = st.builds(shlex.quote, _WORD) | st.sampled_from(
    ["$X", '"$X"', "*.py", "{a,b}", "~/x", "$(ls)", "`ls`", '"$(git x)"', "$'a\\tb'", "p\\ush", 'pu"sh"']
)
_SIMPLE = st.builds(
    lambda name, words: " ".join([name, *words]),
    st.sampled_from([*STUBS, "g'i't", "g\\it", '"ls"', "$G", "$'git'"]),
    st.lists(_QUOTED, max_size=3),
)


def _wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    wrapper = st.sampled_from(["env A=1", "timeout 5", "nohup", "nice -n 1", "command", "exec", "! ", "A=1"])
    pair = st.sampled_from([" && ", " || ", "; ", " | ", "\n", " & "])
    return st.one_of(
        st.builds(lambda one, other: f"{one} {other}", wrapper, _SIMPLE),
        st.builds(lambda one, operator, other: f"{one}{operator}{other}", inner, pair, inner),
        st.builds(lambda one: f"( {one} )", inner),
        st.builds(lambda one: f"{{ {one}\n}}", inner),
        st.builds(lambda one: f"if true; then {one}\nfi", inner),
        st.builds(lambda one: f"f() {{ {one}\n}}; f", inner),
        st.builds(lambda one: f"bash -c {shlex.quote(one)}", inner),
        st.builds(lambda one: f"for x in 1; do {one}\ndone", inner),
        st.builds(lambda one: f"echo $({one}\n)", inner),
        st.builds(lambda one: f"cat <<E\n$({one}\n)\nE", inner),
        st.builds(lambda one: f"{one} > /dev/null 2>&1", inner),
        st.builds(lambda one: f"echo a | xargs {one}", _SIMPLE),
    )


SCRIPTS = st.recursive(_SIMPLE, _wrapped, max_leaves=5)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a PATH in which every command only notes how it was called."""
    folder = tmp_path_factory.mktemp("sandbox")
    programs = folder / "bin"
    programs.mkdir()
    for name in (*STUBS, "cat"):
        stub = programs / name
        # A file for each call: the commands of a pipeline run at the same time.
        stub.write_text(f'#!{BASH}\nprintf "%s\\0" "{name}" "$@" > "$LOG/$$"\n')
        stub.chmod(0o755)
    for name in REAL:
        os.symlink(str(shutil.which(name)), programs / name)
    return folder


def run(script: str, sandbox: Path) -> list[list[str]]:
    """The stub commands that Bash runs for a script, with their arguments."""
    log = sandbox / f"log-{next(_NUMBERS)}"  # a command in the background may outlive its script
    log.mkdir()
    environment = {"PATH": str(sandbox / "bin"), "LOG": str(log), "HOME": "/h", "X": "1 2", "G": "git"}
    subprocess.run(
        [str(BASH), "-c", f"{script}\nwait"], cwd=sandbox, env=environment, capture_output=True, check=False,
        timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    texts = [called.read_text(encoding="utf-8", errors="replace") for called in log.iterdir()]
    return [text.split("\0")[:-1] for text in texts if text.endswith("\0")]


def accounts_for(command: Command, words: list[str]) -> bool:
    """Whether a command that was read may have run with these words: an unknown word stands for any."""
    # An unquoted `~` stays as it is written; the shell puts the home there.
    words = [f"~/{word[3:]}" if word.startswith("/h/") else word for word in words]
    known = command.words
    if None not in known:
        return list(known) == words
    before = known[: known.index(None)]
    return list(before) == words[: len(before)]


@pytest.mark.skipif(BASH is None, reason="needs bash")
@given(script=SCRIPTS)
@example(script="git push")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
def test_every_command_that_bash_runs_is_read(script: str, sandbox: Path) -> None:
    """What Bash runs is among the commands of the script, or the script is opaque."""
    read = read_script(script)
    for words in run(script, sandbox):
        if words[0] != "cat":
            assert read.opaque or any(accounts_for(each, words) for each in read.commands), (words, read)


@given(script=SCRIPTS, more=SCRIPTS, operator=st.sampled_from([" && ", "; ", "\n", " | ", " & ", " || "]))
def test_more_text_never_permits_more(script: str, more: str, operator: str) -> None:
    """If a script is not permitted, it is not with another one behind or before it."""
    rules = [
        PermissionRule(effect="permit", command=("git", ("status", "push"))),
        PermissionRule(effect="permit", command="ls *"),
        PermissionRule(effect="permit", command="echo *"),
    ]

    def permitted(command: str) -> bool:
        call = ToolCall("Bash", json.dumps({"command": command}))
        return decide(rules, "strictest", "ask", call).effect == "permit"

    if not permitted(script):
        assert not permitted(f"{script}{operator}{more}")
        assert not permitted(f"{more}{operator}{script}")


@given(
    script=st.text(max_size=200)
    | st.lists(st.sampled_from(list("$(){}[]<>|&;'\"`\\\n =a")), max_size=60).map("".join)
)
@example(
    script="\xba\x97\x1b\n{\U000652649\xe2\xe1\xb3\x1b\xed\U000395fa\U000d3546l\U000f53a8\xd4:[\U0003a3b0"
)
def test_reading_is_total(script: str) -> None:
    """Any text is read, in the same way each time."""
    read_script.cache_clear()
    first = read_script(script)
    read_script.cache_clear()
    assert first == read_script(script)
    call = ToolCall("Bash", json.dumps({"command": script}))
    assert decide([PermissionRule(effect="refuse", command=("git", "push"))], "strictest", "permit", call)
