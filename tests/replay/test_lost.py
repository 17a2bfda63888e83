"""What an import could not read, as what-ifs tell of it: a sentence for each code that there is."""

import re
from pathlib import Path

import pytest

from refold import importers
from refold.replay.source_words import LOST, SAID_ALL_THE_SAME, describe_loss

FOLDER = Path(importers.__file__).parent
_CODE = re.compile(
    r"""(?:diagnose|problem)\(\s*"([a-z_]+)"|Unread\([^)]*?code="([a-z_]+)"|Noise\([^)]*?what="([a-z_]+)"[^)]*?problem="""
)
CODES = {
    next(filter(None, found))
    for path in FOLDER.rglob("*.py")
    for found in _CODE.findall(path.read_text(encoding="utf-8"))
}


def test_every_code_has_a_sentence() -> None:
    """Whatever an importer may diagnose, a person is told of in words, unless nothing is lost by it."""
    assert {"cut", "no_span", "too_deep", "result_without_call"} <= CODES, "else this would show nothing"
    assert set() == CODES - set(LOST) - SAID_ALL_THE_SAME


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param(
            "requests_missing",
            "it counts more model requests than it contains (requests_missing)",
            id="known",
        ),
        pytest.param("of_tomorrow", "it was not read completely (of_tomorrow)", id="of a later version"),
    ],
)
def test_what_is_said(code: str, said: str) -> None:
    """The sentence, and behind it the code, by which a program knows it."""
    assert f"data of the source may be missing: {said}" == describe_loss(code)
