"""Rows of a kind that an importer does not know: what may be a call in them leaves no rule over calls
judged.
"""

import pytest

from refold.importers.registry import FORMATS
from refold.replay.whatif.verdict import Verdict
from support.transcripts import FILES, WRITTEN, imported
from support.unknown_rows import ROWS, judged


def test_each_format_says_where_its_rows_stand() -> None:
    """For each format it is known where a row can be inserted."""
    assert set(FORMATS) == set(ROWS)


@pytest.mark.parametrize("file", [*FILES, *WRITTEN])
def test_a_call_in_a_row_of_an_unknown_kind_leaves_no_rule_judged(file: str) -> None:
    """With a call in a row of an unknown kind the what-if of a rule against it never agrees, and the row is
    in a log.
    """
    found = list(judged(file, imported(file).format))
    assert [] == [each for each in found if each.verdict in (None, Verdict.AGREE)]


@pytest.mark.parametrize("format", sorted({*FORMATS} - {"openai_messages"}))
def test_a_row_is_inserted_into_each_format(format: str) -> None:  # noqa: A002
    """The table of places fits the transcripts: a row has a place in at least one of each format."""
    assert any(list(judged(file, format)) for file in [*FILES, *WRITTEN] if imported(file).format == format)
