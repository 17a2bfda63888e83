"""Command lines: where they are split, which verb each command has, and what a short form keeps."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.asking import within
from refold.replay.kinds.arguments import effect_of, elide, short_argument
from refold.replay.kinds.commands import Part, find_change, shorten, split, verb

RESET = "git fetch origin soph/do-not-truncate-names && git reset --hard origin/soph/do-not-truncate-names && git log --oneline -3"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        pytest.param("ls", ["ls"], id="one command"),
        pytest.param("a && b || c | d; e & f", ["a", "b", "c", "d", "e", "f"], id="every sign"),
        pytest.param("cd x\ngit push", ["cd x", "git push"], id="lines"),
        pytest.param("git push \\\n --force", ["git push \\ --force"], id="a line that goes on"),
        pytest.param("git commit -m 'a; b && c'", ["git commit -m 'a; b && c'"], id="single quotes"),
        pytest.param('echo "a \\" | b" | cat', ['echo "a \\" | b"', "cat"], id="double quotes"),
        pytest.param("make 2>&1 | tail", ["make 2>&1", "tail"], id="a redirection is no sign"),
        pytest.param("make &> log; ls", ["make &> log", "ls"], id="of both streams"),
        pytest.param("cat > f <<'EOF'\nrm -rf /\nEOF\ngit push", ["cat > f <<'EOF'", "git push"], id="a here-document"),
        pytest.param("cat <<EOF\nnever ends", ["cat <<EOF"], id="one without an end"),
        pytest.param("# first\nls", ["ls"], id="a comment"),
        pytest.param("a \x0b && b \x0b \n c\x0b \td", ["a", "b", "c d"], id="other white space"),
        pytest.param("echo 'open; ls", ["echo 'open", "ls"], id="a quote that is not closed"),
        pytest.param("", [], id="nothing"),
    ],
)  # fmt: skip
def test_split(line: str, parts: list[str]) -> None:
    """One row a rule of where a command ends."""
    assert parts == [part.text for part in split(line)]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        pytest.param("rm -rf /tmp/x", "rm", id="a program"),
        pytest.param("/usr/bin/rm x", "rm", id="by its path"),
        pytest.param("git -C /a/b reset --hard", "git reset", id="options before the subcommand"),
        pytest.param("FOO=1 sudo -E git push", "git push", id="behind what starts it"),
        pytest.param("timeout 30 npm install", "npm install", id="with a time"),
        pytest.param("git", "git", id="no subcommand"),
        pytest.param("FOO=1", "", id="an assignment only"),
    ],
)
def test_verb(part: str, expected: str) -> None:
    """One row a rule of what a command does."""
    assert expected == verb(part)


@pytest.mark.parametrize("most", [60, 70, 100, 400])
@pytest.mark.parametrize("joint", [" && ", "; ", " | ", "\n"])
def test_the_verb_in_the_middle_is_kept(joint: str, most: int) -> None:
    """A short form of a command line has the verb of its middle command, whatever joins them and however they
    are written.
    """
    line = RESET.replace(" && ", joint)
    shown = short_argument(f'{{"command": {line!r}}}'.replace("'", '"'), most)
    assert "git fetch" in shown
    assert "git reset --hard" in shown
    assert len(shown) <= most


def test_it_stays_shortened_the_same_way() -> None:
    """Shortening a short form again keeps the verbs: a wide list and a narrow one are made of the same
    text.
    """
    once = elide(RESET, 100)
    assert all(each in elide(once, 60) for each in ("git fetch", "git reset", "git log"))


VERBS = st.sampled_from(["git push", "git reset", "rm", "curl", "npm install", "python"])
ARGUMENTS = st.text(alphabet="abcdefghij/-._ ", max_size=60).map(str.strip)


@given(
    commands=st.lists(st.tuples(VERBS, ARGUMENTS), min_size=1, max_size=6),
    joint=st.sampled_from([" && ", " | ", "; "]),
    most=st.integers(110, 200),
)
def test_each_command_keeps_its_verb(commands: list[tuple[str, str]], joint: str, most: int) -> None:
    """Where there is room for all verbs, a short form has each of them in order, and it fits."""
    line = joint.join(f"{said} {rest}".strip() for said, rest in commands)
    shown = elide(line, most)
    assert len(shown) <= most
    assert [said for said, _ in commands] == [verb(part.text) for part in split(shown)]


@given(
    parts=st.lists(st.tuples(st.sampled_from([" && ", "; ", "|"]), st.text(min_size=1)), min_size=1),
    most=st.integers(8, 200),
)
def test_it_fits(parts: list[tuple[str, str]], most: int) -> None:
    """However many commands there are, the short form is not longer than asked."""
    assert len(shorten([Part(*each) for each in parts], most)) <= most


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        pytest.param("rm -rf x", "rm", id="a program that changes files"),
        pytest.param("git push", "git push", id="a subcommand"),
        pytest.param("git status", None, id="a subcommand that reads"),
        pytest.param("git bisect run", "", id="a subcommand that is not known"),
        pytest.param("python a.py", "", id="an interpreter may do anything"),
        pytest.param("sed -n 1,5p a", None, id="sed reads"),
        pytest.param("sed -i s/a/b/ a", "sed", id="sed in place"),
        pytest.param("find . -name x -delete", "find", id="find that deletes"),
        pytest.param("git branch -D old", "git branch -D", id="a branch is deleted"),
        pytest.param("echo hi > a.txt", "> a.txt", id="into a file"),
        pytest.param("echo hi >> a.txt", "> a.txt", id="at the end of a file"),
        pytest.param("ls 2>/dev/null", None, id="into nothing"),
        pytest.param("ls 2>&1", None, id="into another stream"),
        pytest.param("grep '->' a.c", None, id="a sign within quotes"),
        pytest.param("FOO=1", None, id="an assignment"),
        pytest.param('echo \\"a "b > c"', None, id="an escaped quotation mark opens nothing"),
        pytest.param("sudo -n 5 rm x", "rm", id="behind options of what starts it"),
        pytest.param("git stash list", None, id="a word with which it only reads"),
        pytest.param("echo $(rm x)", "", id="a command within a command is not looked into"),
        pytest.param("cat <(rm x)", "", id="nor one whose output is read as a file"),
        pytest.param("grep '$(x)' a", None, id="what only looks like one"),
    ],
)
def test_changed_by(part: str, changed: str | None) -> None:
    """One row a rule: what a command changes, None for nothing, "" where that is unknown."""
    assert changed == find_change(part)


def test_commands_that_read_go_first_where_there_is_no_room() -> None:
    """Where not all verbs fit, what changed something stays."""
    assert all(each in elide(RESET, 40) for each in ("git fetch", "git reset", "git log"))
    assert ["git fetch…", "git reset…", "…"] == [part.text for part in split(elide(RESET, 30))]


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "what"),
    [
        pytest.param("Edit", "{}", "changes", ("Edit",), id="an editor"),
        pytest.param("Edit", None, "changes", ("Edit",), id="an editor whose arguments were erased"),
        pytest.param("Read", "{}", "none", (), id="a reader"),
        pytest.param("Bash", '{"command": "cd x && git push\\nrm y"}', "changes", ("git push", "rm"), id="a shell, all that it changes"),
        pytest.param("Bash", '{"command": "ls | head"}', "none", (), id="a shell that only reads"),
        pytest.param("Bash", '{"command": "ls && make test"}', "unknown", (), id="one part that is not known"),
        pytest.param("Bash", None, "unknown", (), id="a shell whose command was erased"),
        pytest.param("Bash", "{}", "unknown", (), id="a shell without a command"),
        pytest.param("str_replace_editor", '{"command": "view", "path": "a"}', "none", (), id="an editor that shows"),
        pytest.param("str_replace_editor", '{"command": "create", "path": "a"}', "changes", ("str_replace_editor",), id="one that writes"),
        pytest.param("cancel_reservation", "{}", "unknown", (), id="a name proves nothing"),
        pytest.param("get_user", "{}", "unknown", (), id="nor does a name that sounds harmless"),
    ],
)  # fmt: skip
def test_effect_of(name: str, arguments: str | None, kind: str, what: tuple[str, ...]) -> None:
    """One row a rule: what a call changes, if it ran."""
    assert (kind, what) == ((found := effect_of(name, arguments)).kind, found.what)


def test_what_was_declared_read_only_changes_nothing() -> None:
    """The declaration of a tool counts before its name."""
    assert "none" == effect_of("delete_file", "{}", read_only=True).kind


FULL = 20_000  # characters of a command that are looked at


@pytest.mark.parametrize(
    "unit", [" ", "\t", "\x0b", " \x0b", "\n", '\\"', '"', "'", "\\'", "'\\'\\\"", "a;", "a;rm;", "& ", "<<a ", "> ", "! ", "A=1 ", "timeout 1 "]
)  # fmt: skip
@pytest.mark.parametrize("shape", ["echo a{}b", "echo '{}", 'echo "{}', "{}"])
def test_a_hostile_command_line(unit: str, shape: str) -> None:
    """The longest command line that is read whole takes no time that grows with its square, whatever it
    repeats.
    """
    line = shape.format(unit * (FULL // len(unit)))[:FULL]
    with within(10):
        parts = split(line)
        elide(line, 100)
        find_change(line)
        for part in parts:
            verb(part.text)
        effect_of("Bash", json.dumps({"command": line}))
