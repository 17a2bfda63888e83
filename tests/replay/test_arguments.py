"""What a person reads of a call: the tool and its main argument, head and tail kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.replay.kinds.arguments import (
    brief,
    elide,
    format_call,
    format_full_call,
    format_partial_call,
    main_argument,
    partial_argument,
    sole_argument,
)

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("arguments", "main"),
    [
        pytest.param('{"command":"git checkout main","description":"Switch to main branch"}', "git checkout main", id="a command before its description"),
        pytest.param('{"security_risk":"LOW","summary":"Build a URL","command":"SESSION_URL=\\"$X\\""}', 'SESSION_URL="$X"', id="a command that stands last"),
        pytest.param('{"cmd":"rg -n \\"class Document\\"","workdir":"/repo","yield_time_ms":1000}', 'rg -n "class Document"', id="cmd"),
        pytest.param('{"command":["bash","-lc","git status && ls"],"timeout":5}', "git status && ls", id="what a shell is to run"),
        pytest.param('{"command":["/bin/bash","-c","ls"]}', "ls", id="a shell by its path"),
        pytest.param('{"command":["ls","-la"]}', "ls -la", id="words without a shell"),
        pytest.param('{"command":"view","path":"/src/parser.c","view_range":[650,700]}', "view /src/parser.c", id="an editor's word, with its file"),
        pytest.param('{"command":"str_replace","path":"/a.c","old_str":"x","new_str":"y"}', "str_replace /a.c", id="an editor that writes"),
        pytest.param('{"command":"ls"}', "ls", id="a word that is all"),
        pytest.param('{"command":"make test","path":"/repo"}', "make test", id="a command line needs no file"),
        pytest.param('{"replace_all":false,"file_path":"/docs/a.md","old_string":"x","new_string":"y"}', "/docs/a.md", id="a file"),
        pytest.param('{"path":"src/main.rs","edits":[{"oldText":"a","newText":"b"}]}', "src/main.rs", id="a path before what changes"),
        pytest.param('{"code":"28,Why","explanation":"Add it.","filePath":"jokes.csv"}', "jokes.csv", id="a file before what stands in it"),
        pytest.param('{"pattern":"IsLogsOnly","path":"/repo","output_mode":"content","-B":2}', "IsLogsOnly", id="what is sought before where"),
        pytest.param('{"url":"https://example.org/a","prompt":"What is it?"}', "https://example.org/a", id="an address"),
        pytest.param('{"query":"arXiv 2025"}', "arXiv 2025", id="a query"),
        pytest.param('{"code":"print(1)\\nprint(2)"}', "print(1)\nprint(2)", id="code, whole"),
        pytest.param('{"subagent_type":"code-reviewer","prompt":"Review all of it.","description":"Review"}', "Review", id="a task by its title"),
        pytest.param('{"explanation":"Add a joke.","input":"*** Begin Patch"}', "Add a joke.", id="the first text"),
        pytest.param('{"amount":200,"user_id":"mia_li_3668"}', "mia_li_3668", id="the first text, behind a number"),
        pytest.param('{"input":"{\\"command\\":[\\"ls\\"]}"}', "ls", id="all arguments as the text of one"),
        pytest.param('{"command":"","path":"a.md"}', "a.md", id="an empty one says nothing"),
        pytest.param('{"command":7,"path":"a.md"}', "a.md", id="nor does a number by that name"),
        pytest.param('{"n":5}', '{"n":5}', id="no text"),
        pytest.param('{"todos":[{"status":"done","content":"Task 1"},{"content":"Task 2"},{}]}', "Task 1, and 2 more", id="a list of tasks"),
        pytest.param('{"questions":[{"header":"Pick","question":"Which?","options":[{"label":"A"}]}]}', "Which?", id="one question"),
        pytest.param('{"changes":[{"old":"a","new":"b"}]}', "a", id="things without a name that is known"),
        pytest.param('{"todo":{"id":4,"content":"Task 1"}}', "Task 1", id="one thing"),
        pytest.param('{"filter":{"state":"open"}}', '{"filter":{"state":"open"}}', id="what is nobody's name"),
        pytest.param('{"rows":[[1],{"content":"a"}]}', '{"rows":[[1],{"content":"a"}]}', id="a list of anything"),
        pytest.param("{}", "", id="nothing"),
        pytest.param("", "", id="no text at all"),
        pytest.param("null", "null", id="no object"),
        pytest.param('"ls"', '"ls"', id="a bare text"),
        pytest.param('{"command":"git add', '{"command":"git add', id="cut off"),
        pytest.param(r'{"pattern":"\d"}', r'{"pattern":"\d"}', id="an escape that JSON does not know"),
        pytest.param(DEEP, DEEP, id="nested without end"),
        pytest.param('{"command":"\\u001b[2Jls \\u202e"}', "\x1b[2Jls \u202e", id="what turns a line round is kept: who shows it escapes it"),
    ],
)  # fmt: skip
def test_main_argument(arguments: str, main: str) -> None:
    """One row a rule; the arguments are such as models wrote."""
    assert main == main_argument(arguments)


@pytest.mark.parametrize(
    ("arguments", "sole"),
    [
        pytest.param('{"command":"ls"}', "ls", id="the only one"),
        pytest.param('{"command":"ls","timeout":5}', '{"command":"ls","timeout":5}', id="one of two"),
        pytest.param('{"n":5}', '{"n":5}', id="no text"),
        pytest.param("{", "{", id="no JSON"),
    ],
)
def test_sole_argument(arguments: str, sole: str) -> None:
    """Nothing that the model wrote is left out where all of it is to be shown."""
    assert sole == sole_argument(arguments)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("git add .", "git add .", id="short"),
        pytest.param("git   add\n\t.", "git add .", id="white space is made single"),
        pytest.param("git add src/one.py src/two.py src/three.py && git push", "git add src/o…e.py && git push", id="something of each command"),
        pytest.param("x" * 10_000, "x" * 18 + " … " + "x" * 9, id="no space in it"),
        pytest.param("a" + " " * 10_000 + "b", "a b", id="nothing but space between"),
        pytest.param("a " * 20_000, "a a a a a a a a a … a a a a a", id="one too long to be split"),
    ],
)  # fmt: skip
def test_elided(text: str, shown: str) -> None:
    """Of a long text the middle is missing, and it fits."""
    assert shown == elide(text, 30)


@given(text=st.text(), most=st.integers(8, 200))
def test_it_is_one_line_and_fits(text: str, most: int) -> None:
    """Whatever is elided or cut fits, and has no line end; what is short is there whole."""
    for shown in (elide(text, most), brief(text, most)):
        assert len(shown) <= most
        assert 1 >= len(shown.splitlines())
        assert " ".join(text.split()) == shown or "…" in shown


@given(
    arguments=st.text() | st.dictionaries(st.text(), st.text() | st.integers() | st.none()).map(json.dumps)
)
def test_every_call_has_a_line(arguments: str) -> None:
    """Whatever a model writes has a line, and never its JSON around a text that could be shown instead."""
    line = format_call("Bash", arguments, 80)
    assert line.startswith("Bash")
    assert not line.startswith('Bash  {"command": "')


def test_erased_arguments_are_said_to_be() -> None:
    """A call whose arguments were erased is still a call."""
    assert "Bash  (erased)" == format_call("Bash", None, 80)


@pytest.mark.parametrize(
    ("begun", "main"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param('{"comm', "", id="half a name"),
        pytest.param('{"command": ', "", id="no value yet"),
        pytest.param('{"command": "git pu', "git pu", id="half a command"),
        pytest.param('{"command": "echo \\', "echo", id="half an escape"),
        pytest.param('{"command": "echo \\\\', "echo \\", id="a whole one"),
        pytest.param('{"command": "caf\\u00', "caf", id="half a character"),
        pytest.param('{"description": "Push.", "comm', "Push.", id="what is whole, before half a name"),
        pytest.param('{"description": "Push.", "command": "git', "git", id="the main argument, once it has begun"),
        pytest.param('{"command": ["ls", "-l', "ls -l", id="a list"),
        pytest.param('{"a": {"b": [1, "}', "", id="what is within"),
        pytest.param("what is no object", "", id="no object"),
        pytest.param('{"content": "' + "x" * 100_000, "x" * 3987, id="of a long one its beginning"),
    ],
)  # fmt: skip
def test_a_call_that_is_still_written(begun: str, main: str) -> None:
    """It is read as far as it is there, and is never shown as JSON that was cut."""
    assert main == partial_argument(begun).rstrip()
    assert f"Bash  {elide(main, 40)}".rstrip() == format_partial_call("Bash", begun, 40)


@given(text=st.text(), cut=st.integers(0, 400))
def test_what_has_begun_is_the_beginning(text: str, cut: int) -> None:
    """Wherever the arguments are cut, what is read of them is what stands there in the end, up to there."""
    whole = json.dumps({"command": text})
    begun = partial_argument(whole[:cut])
    assert text.startswith(begun) or begun == whole


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param('{"order": "A2", "cents": 1500}', "refund  A2, cents=1500", id="the others by name"),
        pytest.param('{"cents": 1500}', 'refund  {"cents": 1500}', id="one number"),
        pytest.param(None, "refund  (erased)", id="erased"),
        pytest.param("{", "refund  {", id="no JSON"),
    ],
)
def test_who_decides_reads_all_arguments(arguments: str | None, shown: str) -> None:
    """An amount is not hidden behind the order that it is for."""
    assert shown == format_full_call("refund", arguments, 60)
