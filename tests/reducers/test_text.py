"""Texts: cleaning, the output cap, placeholders, exact numbers, the estimate."""

import pytest

from refold.reducers.estimate import chars4
from refold.reducers.messages import Message, MessageCall
from refold.reducers.numbers import nano, scaled
from refold.reducers.text import Cut, clean, cut_output, size_of
from refold.reducers.texts import render
from refold.reducers.vocabulary import Role


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
    ("output", "maximum", "expected"),
    [
        pytest.param("abcd", 5, Cut("abcd", 4), id="one below the cap"),
        pytest.param("abcde", 5, Cut("abcde", 5), id="equal to the cap is untouched"),
        pytest.param("abcdef", 5, Cut("ab|def", 6, cut=True), id="one above: half, and the bigger half last"),
        pytest.param("abcdefgh", 4, Cut("ab|gh", 8, cut=True), id="even"),
        pytest.param("abc", 1, Cut("|c", 3, cut=True), id="a cap of one byte"),
        pytest.param("", 1, Cut("", 0), id="nothing"),
        pytest.param("x" * 20000, None, Cut("x" * 20000, 20000), id="no cap"),
        pytest.param("éé", 4, Cut("éé", 4), id="bytes are counted, not characters"),
        pytest.param("ééé", 4, Cut("é|é", 6, cut=True), id="between characters"),
        pytest.param("ééé", 5, Cut("é|é", 6, cut=True), id="half a character is dropped from the tail"),
        pytest.param("aéééa", 5, Cut("a|éa", 8, cut=True), id="and from the head"),
        pytest.param("😀😀", 7, Cut("|😀", 8, cut=True), id="four bytes do not fit three"),
        pytest.param("😀😀", 3, Cut("|", 8, cut=True), id="no character fits"),
    ],
)
def test_cut_output(output: str, maximum: int | None, expected: Cut) -> None:
    """Above the cap the first and last half stay, cut between characters, with the text between."""
    assert expected == cut_output(output, maximum, "|", "look")


def test_the_marker_names_tool_and_size() -> None:
    """What stands between says which tool it was and how much it had said; it does not count."""
    assert Cut("a[look 4]d", 4, cut=True) == cut_output("abcd", 2, "[{tool} {size}]", "look")


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


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        pytest.param(Message(role=Role.USER), 0, id="nothing"),
        pytest.param(Message(role=Role.USER, text="abcd"), 1, id="four characters"),
        pytest.param(Message(role=Role.USER, text="abcde"), 2, id="rounded up"),
        pytest.param(Message(role=Role.USER, text="😀😀😀😀"), 1, id="characters, not bytes"),
        pytest.param(Message(role=Role.ASSISTANT, text="ab", reasoning="cd"), 1, id="text and reasoning"),
        pytest.param(
            Message(role=Role.ASSISTANT, calls=(MessageCall("c1", "look", '{"a":1}'),)),
            3,
            id="names and arguments",
        ),
    ],
)
def test_chars4(message: Message, tokens: int) -> None:
    """A quarter of the characters of text, reasoning, call names and arguments, rounded up."""
    assert tokens == chars4(message)
