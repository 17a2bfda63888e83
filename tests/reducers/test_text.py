"""Texts: cleaning, the output cap, thinking, previews, placeholders, exact numbers."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.text import (
    TextCut,
    blank_outside_think,
    clean,
    cut_output,
    hours_minutes_seconds,
    label,
    preview_length,
    render,
    size_of,
    without_thinking,
)
from refold.reducers.vocabulary import nano, scaled

Unit = Literal["bytes", "chars"]
Keep = Literal["head_tail", "head"]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        pytest.param("plain", "plain", id="nothing to clean"),
        pytest.param("é😀", "é😀", id="characters beyond ASCII stay"),
        pytest.param("a\ud800b", "a\ufffdb", id="a lone high surrogate"),
        pytest.param("\udfff", "\ufffd", id="a lone low surrogate"),
        pytest.param("\udc00\ud800😀", "\ufffd\ufffd😀", id="a pair the wrong way round"),
    ],
)
def test_clean(text: str, cleaned: str) -> None:
    """Lone surrogates become U+FFFD, and nothing else changes."""
    assert cleaned == clean(text)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("  Ann\n Lee ", "Ann Lee", id="one line"),
        pytest.param("A\x00\u200bnn", "Ann", id="printable"),
        pytest.param("x" * 100, "x" * 100, id="as long as may be"),
        pytest.param("x" * 101, "x" * 100, id="longer"),
    ],
)
def test_label(name: str, said: str) -> None:
    """Who somebody is, is said in one line of at most 100 printable characters."""
    assert said == label(name)


@pytest.mark.parametrize(
    ("output", "maximum", "expected"),
    [
        pytest.param("abcd", 5, TextCut("abcd", 4), id="one below the cap"),
        pytest.param("abcde", 5, TextCut("abcde", 5), id="equal to the cap is untouched"),
        pytest.param(
            "abcdef", 5, TextCut("ab|def", 6, cut=True), id="one above: half, and the bigger half last"
        ),
        pytest.param("abcdefgh", 4, TextCut("ab|gh", 8, cut=True), id="even"),
        pytest.param("abc", 1, TextCut("|c", 3, cut=True), id="a cap of one byte"),
        pytest.param("", 1, TextCut("", 0), id="nothing"),
        pytest.param("x" * 20000, None, TextCut("x" * 20000, 20000), id="no cap"),
        pytest.param("éé", 4, TextCut("éé", 4), id="bytes are counted, not characters"),
        pytest.param("ééé", 4, TextCut("é|é", 6, cut=True), id="between characters"),
        pytest.param("ééé", 5, TextCut("é|é", 6, cut=True), id="half a character is dropped from the tail"),
        pytest.param("aéééa", 5, TextCut("a|éa", 8, cut=True), id="and from the head"),
        pytest.param("😀😀", 7, TextCut("|😀", 8, cut=True), id="four bytes do not fit three"),
        pytest.param("😀😀", 3, TextCut("|", 8, cut=True), id="no character fits"),
    ],
)
def test_cut_output(output: str, maximum: int | None, expected: TextCut) -> None:
    """Above the cap the first and last half stay, cut between characters, with the text between."""
    capped = cut_output(output, maximum, "|", "look")
    assert expected == capped
    assert capped.cut is (output != capped.text)


@pytest.mark.parametrize(
    ("output", "maximum", "unit", "keep", "expected"),
    [
        pytest.param("ééé", 4, "chars", "head_tail", TextCut("ééé", 6), id="one character below the cap"),
        pytest.param("éééé", 4, "chars", "head_tail", TextCut("éééé", 8), id="equal to the cap"),
        pytest.param(
            "éabéc", 4, "chars", "head_tail", TextCut("éa|éc", 7, cut=True), id="one character above"
        ),
        pytest.param(
            "abcdef", 5, "chars", "head_tail", TextCut("ab|def", 6, cut=True), id="the bigger half last"
        ),
        pytest.param("abc", 1, "chars", "head_tail", TextCut("|c", 3, cut=True), id="a cap of one character"),
        pytest.param("abc", 4, "chars", "head", TextCut("abc", 3), id="head, one below"),
        pytest.param("abcd", 4, "chars", "head", TextCut("abcd", 4), id="head, equal"),
        pytest.param(
            "abcde", 4, "chars", "head", TextCut("abcd|", 5, cut=True), id="head, one above, then the text"
        ),
        pytest.param(
            "éééé", 3, "chars", "head", TextCut("ééé|", 8, cut=True), id="head, the size is in bytes"
        ),
        pytest.param("éé", 3, "bytes", "head", TextCut("é|", 4, cut=True), id="head, between characters"),
        pytest.param("abcde", 4, "bytes", "head", TextCut("abcd|", 5, cut=True), id="head in bytes"),
        pytest.param("éa", 3, "bytes", "head", TextCut("éa", 3), id="head in bytes, equal"),
    ],
)
def test_units_and_ends(output: str, maximum: int, unit: Unit, keep: Keep, expected: TextCut) -> None:
    """The cap counts bytes or characters, and keeps head and tail or the head only."""
    assert expected == cut_output(output, maximum, "|", "look", unit, keep)


@given(
    output=st.text(max_size=30),
    maximum=st.integers(1, 30),
    unit=st.sampled_from(("bytes", "chars")),
    keep=st.sampled_from(("head_tail", "head")),
)
def test_never_above_the_cap(output: str, maximum: int, unit: Unit, keep: Keep) -> None:
    """What stays is a beginning and an end of the output, within the cap and less than a character short of
    it.
    """
    capped = cut_output(output, maximum, "\0", "look", unit, keep)
    length = size_of if unit == "bytes" else len
    if length(output) <= maximum:
        assert TextCut(output, size_of(output)) == capped
        return
    head, _, tail = capped.text.rpartition("\0") if keep == "head" else _halves(output, capped.text)
    assert output.startswith(head)
    assert output.endswith(tail)
    kept = length(head + tail)
    assert kept <= maximum
    assert kept == maximum if unit == "chars" else kept > maximum - 7
    assert cut_output(head + tail, maximum, "\0", "look", unit, keep).text == head + tail


def _halves(output: str, cut: str) -> tuple[str, str, str]:
    # The output may hold the mark itself: the one that separates a beginning from an end is meant.
    for place, character in enumerate(cut):
        head, tail = cut[:place], cut[place + 1 :]
        if character == "\0" and output.startswith(head) and output.endswith(tail):
            return head, character, tail
    raise AssertionError(cut)


def test_the_marker_names_tool_and_size() -> None:
    """What stands between says which tool it was and how much it had said; it does not count."""
    assert TextCut("a[look 4]d", 4, cut=True) == cut_output("abcd", 2, "[{tool} {size}]", "look")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("plain", "plain", id="no thinking"),
        pytest.param("<think>a</think>b", "b", id="before the answer"),
        pytest.param("a<think>b\nc</think>d<think>e</think>f", "adf", id="each, over lines"),
        pytest.param("a<think>b", "a", id="unclosed: to the end"),
        pytest.param("<think>a</think>b<think>c", "b", id="the last one unclosed"),
        pytest.param("a</think>b", "a</think>b", id="never opened"),
        pytest.param("<think></think>", "", id="empty"),
        pytest.param("<thinking>a</thinking>", "<thinking>a</thinking>", id="another mark"),
        pytest.param("<think>a<think>b</think>c", "c", id="up to the next end"),
    ],
)
def test_without_thinking(text: str, left: str) -> None:
    """What stands between the marks of thinking goes, marks and all; what is not closed goes to the end."""
    assert left == without_thinking(text)


@pytest.mark.parametrize(
    ("text", "nothing"),
    [
        pytest.param("", True, id="no text"),
        pytest.param(" \n\t\u3000", True, id="white space"),
        pytest.param(" <think>a</think>\n", True, id="thinking and white space"),
        pytest.param("<think>a", True, id="thinking that never ends"),
        pytest.param("<think>a</think>.", False, id="one character after it"),
        pytest.param("a", False, id="one character"),
    ],
)
def test_hollow(text: str, nothing: bool) -> None:
    """An answer is hollow when white space is all that is left of it without its thinking."""
    assert nothing is blank_outside_think(text)


@pytest.mark.parametrize(
    ("nanoseconds", "said"),
    [
        pytest.param(0, "00:00:00", id="zero"),
        pytest.param(999_999_999, "00:00:00", id="one nanosecond short of a second"),
        pytest.param(10**9, "00:00:01", id="a second"),
        pytest.param(59_600_000_000, "00:00:59", id="toward zero, no sixty seconds"),
        pytest.param(60 * 10**9, "00:01:00", id="a minute"),
        pytest.param(3600 * 10**9 - 1, "00:59:59", id="one nanosecond short of an hour"),
        pytest.param(3600 * 10**9, "01:00:00", id="an hour"),
        pytest.param(86_400 * 10**9, "24:00:00", id="a day is no new beginning"),
        pytest.param((360_000 + 61) * 10**9, "100:01:01", id="more than two digits of hours"),
    ],
)
def test_hours_minutes_seconds(nanoseconds: int, said: str) -> None:
    """Whole seconds toward zero, at least two digits each, hours not wrapped at 24."""
    assert said == hours_minutes_seconds(nanoseconds)


@pytest.mark.parametrize(
    ("text", "chars", "lines", "length"),
    [
        pytest.param("abcd", 5, 2, 4, id="neither cuts"),
        pytest.param("abcde", 5, 2, 5, id="exactly so many characters"),
        pytest.param("abcdef", 5, 2, 5, id="one character more"),
        pytest.param("a\nb\nc", 9, 3, 5, id="one newline short"),
        pytest.param("a\nb\n", 9, 2, 4, id="exactly so many newlines"),
        pytest.param("a\nb\nc", 9, 2, 4, id="up to and including the newline"),
        pytest.param("a\nb\nc", 4, 2, 4, id="the newline is the last character"),
        pytest.param("a\nb\nc", 3, 2, 3, id="characters are fewer"),
        pytest.param("\n\n\n", 9, 1, 1, id="empty lines"),
        pytest.param("", 5, 2, 0, id="nothing"),
    ],
)
def test_preview_length(text: str, chars: int, lines: int, length: int) -> None:
    """A preview ends after so many characters or so many newlines, whichever comes first."""
    assert length == preview_length(text, chars, lines)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        pytest.param("abc", 3, id="ascii"),
        pytest.param("é", 2, id="two bytes"),
        pytest.param("😀", 4, id="four"),
    ],
)
def test_size_of(text: str, size: int) -> None:
    """Sizes are UTF-8 bytes."""
    assert size == size_of(text)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{a} and {b}", "1 and two", id="filled"),
        pytest.param("{a}{a}", "11", id="twice"),
        pytest.param("{c}", "{c}", id="an unknown name stays"),
        pytest.param("{", "{", id="a lone brace"),
        pytest.param("{a", "{a", id="never closed"),
        pytest.param("a}", "a}", id="never opened"),
        pytest.param("{{a}}", "{1}", id="doubled braces are no escape"),
        pytest.param("{}", "{}", id="no name"),
        pytest.param("{tricky}", "{a}", id="a value is not scanned again"),
        pytest.param("{a.__class__}", "{a.__class__}", id="no attribute is reached"),
        pytest.param("{x {a}", "{x 1", id="an open brace before a name"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_render(template: str, expected: str) -> None:
    """Known placeholders are filled once; everything else stays as it is."""
    assert expected == render(template, {"a": 1, "b": "two", "tricky": "{a}"})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(0.1, 100_000_000, id="0.1 is exact"),
        pytest.param(1, 10**9, id="whole"),
        pytest.param(0, 0, id="zero"),
        pytest.param(1e-9, 1, id="one"),
        pytest.param(5e-10, 1, id="half up"),
        pytest.param(4.9e-10, 0, id="below half down"),
        pytest.param(10**30, 10**39, id="as large as you like"),
        pytest.param(1.000000001, 1_000_000_001, id="the last digit"),
    ],
)
def test_nano(value: float, expected: int) -> None:
    """Seconds and dollars become integers by their decimal text, half up."""
    assert expected == nano(value)


def test_scaled() -> None:
    """A share of a span is its floor, never the whole span."""
    assert [0, 5, 9] == [scaled(share, 10) for share in (0, 1 << 63, (1 << 64) - 1)]
