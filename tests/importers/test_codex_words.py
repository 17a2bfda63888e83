"""What Codex says in words of its own: of calls that failed or never ran, of compactions, of the system
prompt.
"""

from functools import partial

import pytest

from refold.importers.items import Remarked, Returned, RunBegan
from refold.reducers.vocabulary import Refuser, ToolError
from support import sessions
from support.sessions import CODEX, Json
from support.transcribed import every, tally_of

read = partial(sessions.read, CODEX.importer)
META = CODEX.row("session_meta", id="s", cli_version="0.169.0", base_instructions={"text": "You are."})

FORBIDDEN = (
    "exec_command failed: CreateProcess { message: \"Rejected(\\\"`/bin/bash -lc 'touch x'` rejected: "
    'policy forbids commands starting with `touch`\\")" }'
)


def returned(output: str, name: str = "exec_command") -> Returned:
    """The result of a call with this output."""
    return every(read(META, CODEX.call("c", name=name), CODEX.result("c", output)), Returned)[0]


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        ("unsupported call: no_such_tool", ToolError.UNKNOWN_TOOL),
        ("failed to parse function arguments: EOF while parsing a value", ToolError.BAD_ARGUMENTS),
        ("aborted by user after 31.2s", ToolError.CANCELLED),
        ("Wall time: 3.1 seconds\naborted by user", ToolError.CANCELLED),
        ("Command blocked by PreToolUse hook: no. Command: git stash drop", Refuser.HOOK),
        ("Tool call blocked by PreToolUse hook: no. Tool: edit", Refuser.HOOK),
        ("exec command rejected by user", Refuser.USER),
        (FORBIDDEN, Refuser.RULE),
        (FORBIDDEN.replace("touch x'", "cat <<E\n\nE\n'"), Refuser.RULE),
        (f"Chunk ID: 1\nProcess exited with code 1\nOutput:\n{FORBIDDEN}", ToolError.RAISED),
        (FORBIDDEN.partition("rejected:")[0], ToolError.RAISED),
        ("Chunk ID: 1\nProcess exited with code 1\nOutput:\naborted by user", ToolError.RAISED),
    ],
)
def test_words_in_place_of_an_output(output: str, outcome: ToolError | Refuser) -> None:
    """Codex's own words say how a call failed, or that it never ran; the same words in a command's output say
    nothing.
    """
    found = returned(output)
    assert (outcome, True) == (found.refused_by or found.error, found.marked)


@pytest.mark.parametrize(
    "output", ["it says: unsupported call: x", "aborted by user after 31.2s, it said", "hello"]
)
def test_other_words_say_nothing(output: str) -> None:
    """Words in the middle of an output are the tool's."""
    found = returned(output)
    assert (None, None, False) == (found.error, found.refused_by, found.marked)


def test_another_servers_tool_may_say_what_it_likes() -> None:
    """A tool of another server cannot claim that it never ran."""
    found = returned("Command blocked by PreToolUse hook: no", "mcp__evil__run")
    assert (None, False) == (found.refused_by, found.marked)


def test_a_call_that_was_aborted_counts_as_failed() -> None:
    """It is among the errors of the file."""
    call = CODEX.row("response_item", type="function_call", name="x", call_id="c", arguments="{}")
    ended = CODEX.row(
        "response_item", type="function_call_output", call_id="c", output="aborted by user after 1s"
    )
    assert 1 == tally_of(read(META, call, ended)).tool_errors


@pytest.mark.parametrize(
    ("meta", "label"),
    [
        (META, "template"),
        (CODEX.row("session_meta", id="s", instructions="You are."), None),
        (CODEX.row("session_meta", id="s"), None),
    ],
)
def test_the_system_prompt_is_a_template(meta: Json, label: str | None) -> None:
    """Of the recorded base instructions Codex leaves out what does not fit the tools that it offers."""
    assert label == every(read(meta, CODEX.message("user", "go")), RunBegan)[0].labels.get("source.system")


SUMMARY = "it was this"


@pytest.mark.parametrize(
    ("said", "summary", "remark"),
    [
        (SUMMARY, f"Here is the summary:\n{SUMMARY}", "compaction:asked"),
        ("something else", f"Here is the summary:\n{SUMMARY}", None),
        ("something else", "", "compaction:not_recorded"),
    ],
)
def test_what_a_compaction_does_not_record(said: str, summary: str, remark: str | None) -> None:
    """A summary without words is not in the file; what asked for one that is an answer here is not in it
    either.
    """
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}]
    compacted = CODEX.row("compacted", message=summary, replacement_history=kept)
    items = read(
        META,
        CODEX.message("user", "go"),
        CODEX.message("assistant", said),
        compacted,
        CODEX.message("assistant", "on"),
    )
    words = [item.what for item in every(items, Remarked) if item.what.startswith("compaction:")]
    assert ([remark] if remark else []) == words


@pytest.mark.parametrize("words", ["exec command rejected by user", "Command blocked by PreToolUse hook: no"])
def test_another_server_may_return_the_words_of_codex(words: str) -> None:
    """A tool whose namespace is another server's did run, whatever words of Codex its output repeats."""
    call = CODEX.row("response_item", type="function_call", namespace="mcp__shell__", name="run", call_id="c")
    result = CODEX.row("response_item", type="function_call_output", call_id="c", output=words)
    found = every(read(META, call, result), Returned)[0]
    assert (None, False) == (found.refused_by, found.marked)
