"""A source's own words for what it recorded: none of them can pass for what an import, or a harness, says."""

from typing import Any

import msgspec
import pytest

from refold.importers.fields import add_prefix, known_or
from refold.importers.items import Remarked
from refold.importers.registry import importer
from refold.importers.source import Source
from refold.replay.source_words import is_decision

SPOOFED = ("limit:steps", "prompt:equal", "retry", "x:unequal", "\x1b[2Jgone", "a b", "w" * 100)
FORMATS = ("openai_agents", "inspect", "atif", "openhands", "langfuse")


def documents(word: str) -> dict[str, Any]:
    """A file of each format that has a word for what it recorded."""
    return {
        "openai_agents": {
            "data": [
                {"object": "trace", "id": "t"},
                {"object": "trace.span", "id": "s", "trace_id": "t", "span_data": {"type": word}},
            ]
        },
        "inspect": {
            "version": 2,
            "status": "success",
            "eval": {"model": "m", "task": "t"},
            "samples": [{"id": 1, "epoch": 1, "events": [{"event": word}], "messages": []}],
        },
        "atif": {
            "schema_version": "ATIF-v1.5",
            "agent": {"name": "a"},
            "steps": [
                {"step_id": 1, "source": "agent", "message": "hi"},
                {"step_id": 2, "source": "system", "extra": {"context_management": {"type": word}}},
            ],
        },
        "openhands": [
            {"id": 0, "timestamp": "2025-01-01", "source": "environment", "action": word, "args": {}}
        ],
        "langfuse": {"trace": {"id": "t"}, "observations": [{"id": "o", "type": word}]},
    }


@pytest.mark.parametrize("word", SPOOFED)
@pytest.mark.parametrize("format", FORMATS)
def test_no_word_of_a_source_is_one_of_ours(format: str, word: str) -> None:  # noqa: A002
    """A word that the format does not have is told as unmapped, short and plain, and nobody decided anything
    there.
    """
    source = Source.of("mine", msgspec.json.encode(documents(word)[format]))
    whats = [item.what for item in importer(format).items(source) if isinstance(item, Remarked)]
    assert [what for what in whats if what.startswith("unmapped")]
    assert [] == [what for what in whats if is_decision(what) or len(what) > 60 or not what.isprintable()]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("span", "span"),
        ("novel", "unmapped:novel"),
        ("", "unmapped"),
        ("a:b", "unmapped"),
        ("unequal", "unmapped:unequal"),
        ("w" * 41, "unmapped"),
        ("żółw", "unmapped"),
    ],
)
def test_words(word: str, told: str) -> None:
    """A known word stays; an unknown one is marked, or left out where it is not short and plain."""
    assert told == known_or(word, frozenset({"span"}))
    assert not is_decision(told)


def test_scores_have_names() -> None:
    """A name stands behind its kind, and is no verdict of ours."""
    assert ("score:unequal", "score") == (add_prefix("score", "unequal"), add_prefix("score", "a:unequal"))
    assert not is_decision("score:unequal")
