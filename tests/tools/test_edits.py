"""Replacing one piece of a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.engine.tools.files import EditError, occurrences, replace_once

SMALL = st.text(alphabet="ab\n", max_size=12)


@pytest.mark.parametrize(
    ("text", "old", "new", "expected", "line"),
    [
        pytest.param("one\ntwo\n", "two", "2", "one\n2\n", 2, id="in the second line"),
        pytest.param("one\ntwo\n", "one\n", "", "two\n", 1, id="to nothing"),
        pytest.param("a{0}\\1", "{0}", "\\g<0>", "a\\g<0>\\1", 1, id="nothing has a meaning of its own"),
    ],
)
def test_edits(text: str, old: str, new: str, expected: str, line: int) -> None:
    """One row a rule; the id says the rule."""
    assert (expected, line) == replace_once(text, old, new)


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        pytest.param("aaa", "aa", "b", "occurs 2 times", id="overlapping"),
        pytest.param("a\na\na", "a", "b", "occurs 3 times", id="thrice"),
        pytest.param("a", "", "b", "is empty", id="empty"),
        pytest.param("a", "a", "a", "are the same", id="nothing to do"),
        pytest.param("a", "b", "c", "does not occur; read the file", id="absent"),
        pytest.param("a\r\nb", "a\nb", "c", r"lines of this file end in \\r\\n", id="other line ends"),
        pytest.param("a b", "  a b ", "c", "other space around it", id="other space"),
    ],
)
def test_refused_edits(text: str, old: str, new: str, message: str) -> None:
    """One row a mistake: the message says what it is."""
    with pytest.raises(EditError, match=message):
        replace_once(text, old, new)


@given(text=SMALL, old=st.text(alphabet="ab\n", min_size=1, max_size=4), new=SMALL)
def test_an_edit_changes_its_place_and_nothing_else(text: str, old: str, new: str) -> None:
    """An edit happens exactly if the piece occurs once; what is before and after it stays."""
    count = sum(text.startswith(old, at) for at in range(len(text)))
    assert count == occurrences(text, old)
    if count != 1 or old == new:
        with pytest.raises(EditError):
            replace_once(text, old, new)
        return
    before, after = text.split(old)
    assert (before + new + after, before.count("\n") + 1) == replace_once(text, old, new)
