"""A result is told as a success where its source says so, and nowhere else: words that the model was shown
say nothing.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import pytest

from refold.importers.registry import FORMATS, importer
from refold.importers.source import Source, is_archive
from refold.importers.transcript import Transcript
from refold.reducers.events import ToolReturned
from refold.replay import known
from support.transcripts import FILES, WRITTEN, imported, path_of, salts
from support.unknown_keys import values_of, written

Json = Any
MOST = 400_000
"""Bytes of a file that is read again and again."""


class Mark(NamedTuple):
    """What says that calls did well: a key, here with another value, or without any; `of`: in objects that
    have this, only.
    """

    name: str
    value: Json = None
    of: tuple[str, str] | None = None


ERROR: Json = {"type": "unknown", "message": "no"}
MARKS: dict[str, tuple[Mark, ...]] = {
    **dict.fromkeys(("atif", "grok_cli", "openai_messages", "swe_agent", "tau_bench", "who_when"), ()),
    "amp": (Mark("status"),),
    "claude_code": (Mark("is_error", True, ("type", "tool_result")),),
    "codex": (Mark("exit_code"), Mark("success")),
    "copilot_cli": (Mark("success"),),
    "droid": (Mark("is_error", True, ("type", "tool_result")),),
    "gemini_cli": (Mark("status"),),
    "inspect": (Mark("error", ERROR, ("event", "tool")), Mark("error", ERROR, ("role", "tool"))),
    "kimi_cli": (Mark("is_error"),),
    "langfuse": (Mark("level", None, ("type", "TOOL")),),
    "mini_swe_agent": (Mark("returncode"),),
    "openai_agents": (Mark("ended_at"),),
    "opencode": (Mark("status"),),
    "openhands": (Mark("is_error"), Mark("exit_code"), Mark("observation", "mcp")),
    "otel": (Mark("end_time"),),
    "pi": (Mark("isError"),),
    "pydantic_ai": (Mark("outcome", "retried"),),
    "qwen_code": (Mark("status"),),
}
"""What of a format is no word to the model, and tells a success."""
HEADS = re.compile(r"(Exit code: |Process exited with code |<returncode>\s*)-?\d+")
"""Where formats without a field for it have the code of a command."""
SEVERAL = {"langfuse": (Mark("type", "SPAN", ("type", "TOOL")),)}
"""Whose results stand in the next prompt, too."""
SHORT = [
    file
    for file in (*FILES, *WRITTEN)
    if imported(file).bytes < MOST and not is_archive(path_of(file).read_bytes()[:4])
]


def unsaid(value: Json, marks: tuple[Mark, ...]) -> Json:
    """The value, JSON text in it too, where nothing tells a success any more."""
    if isinstance(value, str):
        inner = _inner(value)
        return HEADS.sub("", value) if inner is None else json.dumps(unsaid(inner, marks))
    if isinstance(value, list):
        return [unsaid(each, marks) for each in cast("Sequence[Json]", value)]
    if not isinstance(value, dict):
        return value
    told = cast("Mapping[str, Json]", value)
    left = {name: unsaid(each, marks) for name, each in told.items()}
    for name, other, of in marks:
        if (left.get(of[0]) == of[1]) if of else isinstance(left.get(name), str | bool | int):
            left |= {name: other}
    return {name: each for name, each in left.items() if each is not None or told[name] is None}


def _inner(text: str) -> Json:
    try:
        return json.loads(text) if text[:1] in ("{", "[") else None
    except ValueError:
        return None


def ended(source: Source, format: str) -> Counter[str]:  # noqa: A002
    """How the calls of a source ended by its logs, and how often: as `known` tells it."""
    runs = Transcript(source, importer(format)).runs()
    events = [each.event for run in runs for group in run.derive(salts) for each in group]
    return Counter(known.outcome(event) for event in events if isinstance(event, ToolReturned))


def test_of_each_format_it_is_known_what_marks_a_success() -> None:
    """A format that is added says here by what it marks a call that did well."""
    assert sorted(MARKS) == sorted(FORMATS)


@pytest.mark.parametrize("file", SHORT)
def test_without_its_mark_no_result_is_a_success(file: str) -> None:
    """What differs from a success only in that nothing but its words says so is none, in any format."""
    format_ = imported(file).format
    with path_of(file).open("rb") as opened:
        values = values_of(Source.opened(file, opened))
    for marks in filter(None, (MARKS[format_], SEVERAL.get(format_))) if MARKS[format_] else ((),):
        found = ended(written(file, [unsaid(each, marks) for each in values]), format_)
        assert 0 == found["ok"], found


def test_there_are_successes() -> None:
    """Of each format that marks them some are told."""
    found = Counter[str]()
    for file in SHORT:
        with path_of(file).open("rb") as opened:
            found[imported(file).format] += ended(Source.opened(file, opened), imported(file).format)["ok"]
    assert {name for name, marks in MARKS.items() if marks} == {
        name for name, count in found.items() if count
    }
