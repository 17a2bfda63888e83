"""Whole runs as text: `>>` feeds a fact, the lines below it are the decisions that it must lead to.

A feed is a call of a method of `Scenario`; `>> start` is the beginning, which every transcript has. What
happens is told in the same form, so that a mismatch is one diff of the whole.
"""

from collections.abc import Iterator
from typing import Any

from refold.reducers.vocabulary import Doubt, FailureClass, StopReason, ToolError
from support.scenario import Scenario

WORDS: dict[str, Any] = {
    str(word): word for words in (Doubt, FailureClass, StopReason, ToolError) for word in words
}


def check(scenario: Scenario, transcript: str) -> None:
    """Play the feeds of a transcript, and compare all that happened with all that it says."""
    expected = [line.strip() for line in transcript.strip().splitlines() if line.strip()]
    assert expected == list(_played(scenario, expected))


def _played(scenario: Scenario, expected: list[str]) -> Iterator[str]:
    for line in expected:
        if line.startswith(">>"):
            yield line
            feed = line.removeprefix(">>").strip()
            yield from scenario.last if feed == "start" else eval(f"run.{feed}", {**WORDS, "run": scenario})
