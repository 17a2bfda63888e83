"""Ids that a source repeats: whoever wants to hide a call from an audit gives its row the id of another."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from refold.importers.derivation.gap import conversations
from refold.importers.fields import JSON, rows, table
from refold.importers.items import Answered, Prompted, Remarked, RunBegan, RunEnded, Unread
from refold.importers.registry import importer
from refold.importers.source import BadTranscript, Source
from refold.replay.source_words import SAID_ALL_THE_SAME
from support.claude_code import answer, called, ending, read, result, said, user
from support.sessions import told
from support.transcripts import imported, path_of

FILES = [
    "claude_code/tiny-1.0.jsonl",
    "claude_code/small-rejected-write.jsonl",
    "copilot_cli/written-session.jsonl",
    "droid/written-session.jsonl",
    "kimi_cli/written-wire.jsonl",
    "langfuse/pydantic-ai-tools-2025-12-04.trace.json",
    "openai_agents/generated-guardrail-max-turns.jsonl",
    "openhands/v1-events.jsonl",
    "otel/generated-pydantic-ai-spans.json",
    "pi/tool-call-v3.jsonl",
    "qwen_code/written-session.jsonl",
]
"""One or two of each format that has ids of rows, messages or calls."""

_ID = re.compile(r"(?i)(^|_|[a-z])(uu)?id$")
Place = tuple[str | int, ...]


def ids(value: JSON, at: Place = ()) -> Iterator[tuple[Place, str]]:
    """The ids in a document, and where each stands."""
    if isinstance(value, dict):
        for key, inner in table(value).items():
            if isinstance(inner, str) and inner and _ID.search(key) and not key.startswith("parent"):
                yield (*at, key), inner
            yield from ids(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(rows(value)):
            yield from ids(inner, (*at, index))


def repeated(document: Any) -> Iterator[tuple[Place, Any]]:
    """The document, with each id in turn made that of the first, and of the one before it, of its kind."""
    kinds: dict[Place, list[tuple[Place, str]]] = defaultdict(list)
    for place, found in ids(document):
        kinds[tuple("*" if isinstance(step, int) else step for step in place)].append((place, found))
    for listed in kinds.values():
        for number, (place, own) in enumerate(listed):
            for other in {listed[0][1], listed[number - 1][1]} - {own} if number else ():
                changed = deepcopy(document)
                inner = changed
                for step in place[:-1]:
                    inner = inner[step]
                inner[place[-1]] = other
                yield place, changed


def calls(format_: str, document: Any, *, lines: bool) -> tuple[set[tuple[str, str]], bool]:
    """The calls of the runs in a document, by name and arguments, and whether something of it is said to be
    lost.
    """
    text = "\n".join(map(json.dumps, document)) if lines else json.dumps(document)
    found, lost = set[tuple[str, str]](), False
    try:
        for item in conversations(importer(format_).items(Source.of("t", text.encode()))):
            match item:
                case Answered():
                    found |= {(call.name, call.arguments) for call in item.calls}
                case RunBegan() | Prompted():
                    found |= {(call.name, call.arguments) for said in item.messages for call in said.calls}
                case Unread():
                    lost = lost or item.code not in SAID_ALL_THE_SAME
                case _:
                    pass
    except BadTranscript:
        lost = True
    return found, lost


@pytest.mark.parametrize("file", FILES)
def test_a_repeated_id_never_hides_a_call(file: str) -> None:
    """Whichever id stands twice, each call is a call still, or something of the run is said to be lost."""
    with path_of(file).open("rb") as opened:
        text = Source.opened(file, opened).whole().decode()
    lines = file.endswith("jsonl")
    document = [json.loads(line) for line in text.splitlines() if line.strip()] if lines else json.loads(text)
    format_ = imported(file).format
    all_calls, _ = calls(format_, document, lines=lines)
    assert all_calls
    hidden: list[tuple[Place, set[tuple[str, str]]]] = []
    for place, changed in repeated(document):
        found, lost = calls(format_, changed, lines=lines)
        if not (lost or all_calls <= found):
            hidden.append((place, all_calls - found))
    assert [] == hidden


def test_a_row_with_an_id_of_another_is_told_beside_it() -> None:
    """A row that has the id of an earlier one and another message is read, and said to be odd; a copy of it
    is not.
    """
    items = read(
        user("u", None, "go"),
        answer("a", "u", "r1", said("I look.")),
        answer("a", "u", "r2", called("t", command="rm -rf /")),
        result("u", "a", "t"),
        answer("b", "u", "r3", said("done"), stop_reason="end_turn"),
        answer("b", "u", "r3", said("done"), stop_reason="end_turn") | {"cwd": "/elsewhere"},
    )
    assert [
        ("Said", "go"),
        ("Answered", "I look."),
        ("Unread", ""),
        ("Answered", ""),
        ("Unread", ""),
        ("Returned", "done"),
        ("Answered", "done"),
        ("Remarked", "repeated"),
    ] == told(items)
    assert ["id_repeated"] * 2 == [item.code for item in items if isinstance(item, Unread)]
    assert "finished" == ending(items).end


def test_a_call_that_a_streaming_row_repeats_is_one() -> None:
    """Rows below one parent that repeat the call of the row before them, under ids of their own, are one
    answer.
    """
    session: dict[str, Any] = {"sessionId": "session-5f0c"}
    items = read(
        user("u", None, "go") | session,
        answer("a", "u", "r1", said("I look.")) | session,
        answer("b", "u", "r2", called("t1")) | session,
        _also(answer("c", "u", "r3", called("t1")), called("t2")) | session,
        result("d", "c", "t1") | session,
        result("e", "d", "t2") | session,
        answer("f", "e", "r4", called("t3")) | session,
        _also(answer("g", "e", "r5", called("t3")), called("t4")) | session,
    )
    (began,) = [item for item in items if isinstance(item, RunBegan)]
    asked = [[call.id for call in item.calls] for item in items if isinstance(item, Answered)]
    assert ("iflow", [["t1", "t2"], ["t3", "t4"]]) == (began.agent, asked)
    assert [] == [item for item in items if isinstance(item, Remarked)]


def test_an_id_that_a_later_call_has_again_is_another_call() -> None:
    """A call whose id an answered call had, or that asks something else under the id of one that waits, is a
    call.
    """
    for second, between in ((called("t"), [result("b", "a", "t")]), (called("t", command="rm -rf /"), [])):
        items = read(
            user("u", None, "go"),
            answer("a", "u", "r1", called("t")),
            *between,
            answer("c", "b" if between else "a", "r2", second),
        )
        assert 2 == sum(len(item.calls) for item in items if isinstance(item, Answered))
        assert 1 == sum(isinstance(item, RunEnded) for item in items)


def _also(row: dict[str, Any], *blocks: Any) -> dict[str, Any]:
    """A row with further blocks in its message."""
    message = {**row["message"], "content": [*row["message"]["content"], *blocks]}
    return {**row, "message": message}
