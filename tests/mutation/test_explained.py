"""The list of mutants that no test can notice names lines that are there."""

from pathlib import Path

import pytest

from mutation.run import EXPLAINED, ROOT, module_path

ENTRIES = [
    line
    for line in EXPLAINED.read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_explained_mutant_is_of_a_line_that_is_there(entry: str) -> None:
    """The line before the change stands in the module: a reason for one that is gone explains nothing."""
    module, _, change = entry.partition(": ")
    lines = Path(ROOT, module_path(module)).read_text(encoding="utf-8").splitlines()
    assert change.partition(" => ")[0] in [line.strip() for line in lines]
