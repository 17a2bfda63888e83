"""The window by itself: what is appended, taken out or shown shorter counts, weighs and has its digest."""

import pytest

from refold.reducers.messages import Size
from refold.reducers.window import ranges_of, refs, resize
from support.plans import only, window


def test_window_by_hand() -> None:
    """Appending counts, weighs and pins; taking out undoes it; the digest tells two windows apart."""
    full = window("suatat")
    assert (6, 60, ((1, 6),)) == (full.count, full.tokens, full.ranges)
    assert [True, True, False, False, False, False] == [ref.pinned for ref in refs(full)]
    less = only(full, {1, 2, 5, 6})
    assert (4, 40, ((1, 2), (5, 6))) == (less.count, less.tokens, less.ranges)
    assert less.digest != full.digest
    assert only(window("suatat"), {1, 2, 5, 6}).digest == less.digest
    assert window("su").digest == only(full, {1, 2}).digest


def test_a_shorter_message_weighs_less() -> None:
    """A trimmed message keeps its place and changes totals and digest by its own."""
    full = window("sua")
    shorter = resize(full, 3, Size(tokens=4, chars=16, digest="x"))
    assert (3, 24) == (shorter.count, shorter.tokens)
    assert [(3, 4, 16)] == [(ref.number, ref.size.tokens, ref.size.chars) for ref in refs(shorter)[2:]]
    assert full.digest != shorter.digest
    assert full.digest == resize(shorter, 3, Size(tokens=10, digest="3")).digest


@pytest.mark.parametrize(
    ("numbers", "ranges"),
    [
        pytest.param([], (), id="none"),
        pytest.param([1], ((1, 1),), id="one"),
        pytest.param([1, 2, 3, 7], ((1, 3), (7, 7)), id="two ranges"),
        pytest.param([1, 3, 5], ((1, 1), (3, 3), (5, 5)), id="all apart"),
    ],
)
def test_ranges_of(numbers: list[int], ranges: tuple[tuple[int, int], ...]) -> None:
    """Numbers in order become inclusive pairs."""
    assert ranges == ranges_of(numbers)
