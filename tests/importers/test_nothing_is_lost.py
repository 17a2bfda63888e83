"""Whatever a source says is in the log: what no item takes is beside it, without anybody listing what there
may be.
"""

import pytest

from support.other_texts import untold
from support.transcripts import FILES, WRITTEN, imported
from support.unknown_keys import lost_of

SMALL = [
    "claude_code/edge-cases.jsonl",
    "claude_code/tiny-1.0.jsonl",
    "codex/schema-drift.jsonl",
    "gemini_cli/jsonl-0.40.jsonl",
    "inspect/tool-call-error-old.json",
    "mini_swe_agent/generated-uncaught-exception.traj.json",
    "openai_agents/generated-guardrail-max-turns.jsonl",
    "openhands/v0-interactions.json",
    "pi/compaction-v3.jsonl",
    "pydantic_ai/generated-messages.json",
    "swe_agent/history-only.traj",
]
"""Of other formats one each, or two, in which no text is long."""


@pytest.mark.parametrize("file", [*FILES, *WRITTEN])
def test_a_key_that_nobody_has_heard_of_is_in_the_log(file: str) -> None:
    """A key that a version to come adds, to any object that the transcript has, is found again in the log."""
    assert not lost_of(file, imported(file).format)


@pytest.mark.parametrize("file", [*SMALL, *WRITTEN])
def test_no_text_is_taken_and_not_told(file: str) -> None:
    """Whatever stands for a text that is known to the importer, a text or none, an item says it, or it is
    left.
    """
    assert not untold(file, imported(file).format)
