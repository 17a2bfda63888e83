"""Whatever a source says is in the log: what no item takes is beside it, without anybody listing what there
may be. `ImporterConformance` has the same law of a text that stands for another.
"""

import pytest

from support.transcripts import FILES, WRITTEN, imported
from support.unknown_keys import lost_of


@pytest.mark.parametrize("file", [*FILES, *WRITTEN])
def test_a_key_that_nobody_has_heard_of_is_in_the_log(file: str) -> None:
    """A key that a version to come adds, to any object that the transcript has, is found again in the log."""
    assert not lost_of(file, imported(file).format)
