"""Shell scripts as the commands that they run: what is found, what is unknown, and what is opaque."""

import shlex

import pytest

from refold.reducers.permissions.shell import MAX_BYTES, read_script, read_words


def commands(script: str) -> list[str]:
    """The commands of a script, one text each; an unknown word is `…`."""
    found = read_script(script).commands
    return [" ".join("…" if word is None else word for word in each.words) for each in found]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("git push", ["git push"], id="one"),
        pytest.param("a; b && c || d | e & f\ng", list("abcdefg"), id="operators"),
        pytest.param("(a; (b))", ["a", "b"], id="subshells"),
        pytest.param("{ a; }", ["a"], id="a group"),
        pytest.param("if a; then b; else c; fi", ["a", "b", "c"], id="if"),
        pytest.param("for x in 1 2; do a; done; while b; do c; done", ["a", "b", "c"], id="loops"),
        pytest.param("case x in y) a;; *) b;; esac", ["a", "b"], id="case"),
        pytest.param("f() { a; }; f", ["a", "f"], id="a function"),
        pytest.param("! a", ["a"], id="negated"),
        pytest.param('a $(b) `c` "$(d)"', ["a … … …", "b", "c", "d"], id="substitutions"),
        pytest.param("a <(b) >(c)", ["a … …", "b", "c"], id="process substitutions"),
        pytest.param("a $(( $(c) + 1 ))", ["a …", "c"], id="in expansions"),
        pytest.param("a <<E\n$(b)\nE", ["a", "b"], id="a heredoc"),
        pytest.param("a <<'E'\n$(b)\nE", ["a"], id="a quoted heredoc"),
        pytest.param('a <<< "$(b)"', ["a", "b"], id="a here-string"),
        pytest.param("x=$(a)", ["a"], id="an assignment"),
        pytest.param("export x=$(a)", ["export", "a"], id="a declaration"),
        pytest.param("a # b", ["a"], id="a comment"),
        pytest.param("", [], id="nothing"),
        pytest.param("g'i't \"pu\"sh", ["git push"], id="quotes inside words"),
        pytest.param(r"g\it pu\sh", ["git push"], id="backslashes"),
        pytest.param("$'g\\x69t' $'\\u0070ush'", ["git push"], id="ANSI-C quotes"),
        pytest.param("git \\\n  push", ["git push"], id="a continued line"),
        pytest.param("git\tpush", ["git push"], id="a tab"),
        pytest.param("écho ü\u00a0x 'é' \"日\" && é=1", ["écho ü\u00a0x é 日", "é=1"], id="other alphabets"),
        pytest.param("a \"b  c\" 'd e'", ["a b  c d e"], id="blanks in quotes"),
        pytest.param('a "\\$x \\" \\n"', ['a $x " \\n'], id="escapes in double quotes"),
        pytest.param('a $x "$y" *.py {b,c} ~/z', ["a … … … … ~/z"], id="what the shell expands"),
    ],
)
def test_commands(script: str, expected: list[str]) -> None:
    """Every command is found, with its words as the shell would pass them."""
    assert expected == commands(script)
    assert read_script(script).opaque == ""


@pytest.mark.parametrize(
    ("script", "inner"),
    [
        ("bash -c 'git push'", "git push"),
        ("sh -lc 'git push'", "git push"),
        ("bash -e -c 'bash -c \"git push\"'", "git push"),
        ("env git push", "git push"),
        ("env -i -u HOME A=1 git push", "git push"),
        ("timeout -k 5 10 git push", "git push"),
        ("timeout --signal=KILL 10s git push", "git push"),
        ("sudo -nu root git push", "git push"),
        ("nohup nice -n 5 git push", "git push"),
        ("time -p git push", "git push"),
        ("command git push", "git push"),
        ("exec -a x git push", "git push"),
        ("xargs -n1 -P 4 git push", "git push …"),
        ("xargs -I{} git push {} now", "git push … now"),
        ("xargs -I % git push %", "git push …"),
        ("find . -name x -exec git push {} ';'", "git push …"),
        ("find . -execdir git push {} +", "git push …"),
        ("stdbuf -oL git push", "git push"),
    ],
)
def test_wrappers(script: str, inner: str) -> None:
    """The command that a wrapper runs is found, behind the wrapper itself."""
    assert inner == commands(script)[-1]
    assert len(commands(script)) > 1
    assert read_script(script).opaque == ""


@pytest.mark.parametrize(
    "script",
    [
        "eval 'git push'", "source x", ". x", "alias g=git", "trap 'git push' EXIT", "$GIT push", "git$IFS'push'",
        "curl x | sh", "bash -s", "bash -", "bash -c \"$X\"", "bash -c", "env -S 'git push'", "env $X git push",
        "sudo -Z git push", "timeout $X git push", "xargs -Q git push", "watch git push", "parallel git push",
        "su -c 'git push'", "find . $X", "find . -exec $X {} ';'", "git push 'x", "if true", "((", "a\0b",
        "bash --rcfile x", "a" * (MAX_BYTES + 1), "(" * 5000,
    ],
)  # fmt: skip
def test_opaque(script: str) -> None:
    """Commands that cannot be read are not passed over: the script says that it has some, and why."""
    assert read_script(script).opaque


@pytest.mark.parametrize(
    ("script", "writes"),
    [
        ("a > b", ("b",)),
        ("a >> b 2>&1", ("b",)),
        ("a &> /dev/null < c", ("/dev/null",)),
        ("a > $X", (None,)),
        ("cat > b <<E\nx\nE", ("b",)),
        ("a 2>&1 >&2", ()),
    ],
)
def test_redirections(script: str, writes: tuple[str | None, ...]) -> None:
    """Files that redirections write are known, whichever command they belong to."""
    assert writes == read_script(script).writes


@pytest.mark.parametrize(
    "script", ["A=1", "A=1 b", "export A=1", "env A=1 b", "read A", "printf -v A x", "unset A"]
)
def test_assignments(script: str) -> None:
    """A variable that is set may change what later commands do."""
    assert read_script(script).assigns


def test_words_without_a_shell() -> None:
    """A list of words is one command: nothing in it is shell syntax."""
    assert read_words(("git", "push;", "$X")).commands[0].words == ("git", "push;", "$X")
    assert read_words(("bash", "-lc", "git push; ls")).commands[-1].words == ("ls",)


def test_nesting_is_bounded() -> None:
    """Scripts inside one another, and subshells, are read up to a bound."""
    script = "git push"
    for _ in range(8):
        script = f"bash -c {shlex.quote(script)}"
    assert read_script(script).opaque
    assert read_script("(" * 1000 + "a" + ")" * 1000).opaque
