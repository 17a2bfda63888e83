"""What the page says of the transcripts under the presets is what is found in them."""

from pathlib import Path

import pytest

from support import whatif_figures

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "what-if.md"


@pytest.mark.slow
@pytest.mark.parametrize("change", whatif_figures.TABLES)
def test_the_page_has_the_figures(change: str) -> None:
    """Each table of the page is what `make whatif-table` prints today."""
    assert whatif_figures.table(change) in PAGE.read_text(encoding="utf-8")
