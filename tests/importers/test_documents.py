"""Half a JSON document is read up to where it breaks off."""

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers.documents import ANY, decode_beginning, decode_truncated, document
from refold.importers.fields import JSON
from refold.importers.source import BadTranscript, Source

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.text(max_size=4), VALUES, min_size=1, max_size=4) | st.lists(
    VALUES, min_size=1
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(
            '{"a": [1, 2], "b": {"c": tr', {"a": [1, 2], "b": {}}, id="a value is kept when it is whole"
        ),
        pytest.param('{"a": 12', {}, id="a number may have gone on"),
        pytest.param('{"a": 12,', {"a": 12}, id="a comma ends a number"),
        pytest.param('{"a": "x', {}, id="half a text is none"),
        pytest.param('{"a": "x\\', {}, id="a cut escape"),
        pytest.param(
            '{"a": "\\"]}", "b": [[1], [2', {"a": '"]}', "b": [[1], []]}, id="brackets in a text open nothing"
        ),
        pytest.param('[{"a": NaN}, 1', [{"a": None}], id="NaN is read, though JSON has none"),
        pytest.param('{"a": 1} {"b": 2}', {"a": 1}, id="what stands behind the end is not read"),
        pytest.param('{"a": 1, oops', {"a": 1}, id="damage ends it too"),
    ],
)
def test_reads_up_to_the_cut(text: str, value: object) -> None:
    """What was whole before the cut is there, and nothing else."""
    found = decode_truncated(text.encode())
    assert found is not None
    assert found.problem
    assert value == _without_nan(found.value)


@pytest.mark.parametrize("text", ["", "   ", "12", '"text', "nul", "<html>", "\x00\x01"])
def test_what_is_no_document_has_no_beginning(text: str) -> None:
    """A number, a text or rubbish is not built upon."""
    assert decode_truncated(text.encode()) is None
    with pytest.raises(BadTranscript):
        document(Source.of("t", b"<html>" + text.encode()))


@pytest.mark.parametrize(
    ("text", "elements", "value"),
    [
        pytest.param(
            '{"m": [{"r": "user"}, {"r": "x"',
            ("m",),
            {"m": [{"r": "user"}]},
            id="the cut element is left out",
        ),
        pytest.param('{"m": [{"r": "user"}, {"r": "x", "y": 1}]', ("m",), None, id="a whole one is not"),
        pytest.param(
            '{"s": [{"m": [{"a": 1}, {"b": [2',
            ("s", ANY, "m"),
            {"s": [{"m": [{"a": 1}]}]},
            id="under any index",
        ),
        pytest.param('[{"a": 1}, {"a": 2', (), [{"a": 1}], id="the document itself may be the list"),
    ],
)
def test_elements_count_whole_or_not_at_all(text: str, elements: tuple[str, ...], value: object) -> None:
    """Half a message is no message: of the lists that a format names, the open element goes."""
    found = decode_truncated(text.encode(), elements)
    assert found is not None
    expected = {"m": [{"r": "user"}, {"r": "x", "y": 1}]} if value is None else value
    assert expected == found.value


def test_nesting_is_bounded() -> None:
    """A million brackets are a cut, no crash."""
    found = decode_truncated(b"[" * 1_000_000)
    assert found is not None
    assert "levels deep" in found.problem


@given(value=DOCUMENTS, data=st.data())
def test_a_cut_document_is_a_beginning_of_the_whole(value: Any, data: st.DataObject) -> None:
    """Cut at any byte, it says nothing that the whole one does not say there."""
    text = json.dumps(value).encode()
    cut = data.draw(st.integers(0, len(text)))
    found = decode_truncated(text[:cut])
    if found is not None:
        assert _begins(found.value, json.loads(text))
        assert found.read <= cut


@given(value=DOCUMENTS)
def test_a_whole_document_is_read_whole(value: Any) -> None:
    """With nothing missing the scanner agrees with the decoder, and has no problem to tell."""
    text = json.dumps(value).encode()
    found = decode_truncated(text)
    assert found is not None
    assert ("", json.loads(text)) == (found.problem, found.value)
    assert decode_beginning(Source.of("t", text)) == found.value


@given(data=st.binary(max_size=60))
def test_any_bytes_have_an_answer(data: bytes) -> None:
    """Nothing raises but `BadTranscript`."""
    decode_truncated(data)
    with contextlib.suppress(BadTranscript):
        document(Source.of("t", data))


def _begins(part: JSON, whole: JSON) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _begins(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(_begins, part, whole))
    return part == whole


def _without_nan(value: JSON) -> JSON:
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
