"""The embedded model's answers, read while they are written."""

import json
from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from refold.engine.models import local
from refold.engine.models.protocol import CallDelta, Delta, TextDelta


def pieces(text: str, cuts: list[int]) -> Iterator[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return (text[a:b] for a, b in pairwise(places))


def read(text: str, cuts: list[int]) -> tuple[local.AnswerReader, list[Delta]]:
    reader = local.AnswerReader()
    return reader, [delta for piece in pieces(text, cuts) for delta in reader.feed(piece)]


CUTS = st.lists(st.integers(0, 10_000))


@given(text=st.text(), cuts=CUTS, ascii_only=st.booleans())
def test_a_text_is_the_same_however_it_arrives(text: str, cuts: list[int], *, ascii_only: bool) -> None:
    """The deltas of an answer, cut anywhere, join to its text."""
    reader, deltas = read(json.dumps({"answer": text}, ensure_ascii=ascii_only), cuts)
    assert text == reader.text == "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert reader.closed
    assert reader.tool is None


VALUES = st.none() | st.integers() | st.text() | st.lists(st.text(), max_size=3)


@given(
    arguments=st.dictionaries(st.text(), VALUES, max_size=5),
    name=st.text(min_size=1),
    cuts=CUTS,
    indent=st.none() | st.just(2),
)
def test_arguments_are_kept_byte_for_byte(
    arguments: object, name: str, cuts: list[int], indent: int | None
) -> None:
    """The arguments of a call, cut anywhere, are the very text that was written."""
    text = json.dumps(arguments, indent=indent)
    reader, deltas = read(f'{{ "tool": {json.dumps(name)},\n"arguments": {text} }}', cuts)
    assert (name, text, True) == (reader.tool, reader.arguments, reader.closed)
    assert (name, text) == (
        "".join(delta.name for delta in deltas if isinstance(delta, CallDelta)),
        "".join(delta.arguments for delta in deltas if isinstance(delta, CallDelta)),
    )


@given(text=st.text(), length=st.integers(0, 200))
def test_a_cut_answer_is_a_beginning(text: str, length: int) -> None:
    """What is read of an answer that breaks off is a beginning of it, and not said to be whole too early."""
    whole = json.dumps({"answer": text})
    reader, _ = read(whole[:length], [])
    assert text.startswith(reader.text)
    assert reader.closed == (length >= len(whole) - 1)


@given(text=st.text(alphabet=st.sampled_from('{}[]"\\:,tolanswerugmd 0é\ud83d\ude00')), cuts=CUTS)
def test_reading_never_raises(text: str, cuts: list[int]) -> None:
    """No text at all makes the reader raise, and what it reads can be written as UTF-8."""
    for start in ("", '{"answer": "', '{"tool": "x", "arguments": '):
        reader, _ = read(start + text, cuts)
        if "\ud83d" not in text and "\ude00" not in text:
            (reader.text + reader.arguments).encode()


def test_a_lone_surrogate_is_replaced() -> None:
    """An escaped half of a character becomes U+FFFD; a pair in two pieces becomes the character."""
    assert read('{"answer": "\\ud83d!"}', [])[0].text == "\ufffd!"
    assert read('{"answer": "\\ud83d\\ude00"}', list(range(40)))[0].text == "\N{GRINNING FACE}"
