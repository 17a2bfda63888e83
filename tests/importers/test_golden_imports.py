"""The derived logs of every transcript: that they stand, are what they were, and show what the sources'
models saw.
"""

from pathlib import Path

import pytest

from refold.importers import session_rows, transcript
from refold.importers.derivation.derivation import Fit
from refold.importers.source import Source
from support import prompt_figures
from support.transcripts import FILES, FOLDER, WRITTEN, imported, path_of, read

LARGER = (
    "claude_code/microcompaction.jsonl",
    "codex/finished-0.114.jsonl",
    "gemini_cli/jsonl-0.40.jsonl",
    "pi/large-session-v1.jsonl",
    "tau_bench/gpt-4o-airline.runs-28-37.json",
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "transcripts.md"


def golden() -> dict[str, str]:
    """The digests that were written down.

    See tests/transcripts/README.md for when to write them anew, by hand.
    """
    rows = (FOLDER / "golden.tsv").read_text(encoding="utf-8").splitlines()
    return dict(row.split("\t") for row in rows)


@pytest.mark.parametrize("file", FILES + WRITTEN)
def test_the_derived_logs_audit_clean(file: str) -> None:
    """Every decision of every derived log follows from its facts, and no fact was refused a place."""
    found = imported(file)
    assert [] == [audit for audit in found.audits if not audit.clean]
    assert "no_place" not in {problem.code for problem in found.problems}
    assert (
        len(found.audits) >= found.counts.runs
    )  # those that a call of another began are none of the source's own


@pytest.mark.parametrize("file", FILES)
def test_the_derived_logs_are_what_they_were(file: str) -> None:
    """What is derived of a transcript does not change unnoticed: its digest is the one that was written
    down.
    """
    assert golden()[file] == imported(file).digest


@pytest.mark.parametrize("file", LARGER)
def test_a_file_that_is_not_held_says_the_same(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file whose rows and items are too many to be held, and so are read anew, the same log is
    derived.
    """
    monkeypatch.setattr(session_rows, "MOST_HELD", 1000)
    monkeypatch.setattr(transcript, "MOST_HELD", 1000)
    with path_of(file).open("rb") as opened:
        found = read(Source.opened(file, opened))
    assert (golden()[file], imported(file).counts) == (found.digest, found.counts)


@pytest.mark.parametrize("file", FILES)
def test_recorded_prompts_are_shown(file: str) -> None:
    """Each prompt that a source recorded is what the view shows at its request, once what was observed is
    told.
    """
    found = prompt_figures.measured(file)
    told = Fit()
    for fit in imported(file).fits:
        told = told.plus(fit)
    assert 0 == found.unequal
    assert (told.first, told.equal, told.changed) == (found.first, found.equal, found.changed)


@pytest.mark.slow
def test_the_page_has_these_figures() -> None:
    """The table of the reference page is the one that the figures make today."""
    assert prompt_figures.table() in PAGE.read_text(encoding="utf-8")
