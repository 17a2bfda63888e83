"""What people are shown of arguments: everything but secrets."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.secrets import REDACTED, SECRET, redacted


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param('{"path": "a", "n": 1}', '{"path":"a","n":1}', id="nothing secret"),
        pytest.param('{"Password": "x", "API_KEY": {"a": 1}}', '{"Password":"[REDACTED]","API_KEY":"[REDACTED]"}', id="any case, any value"),
        pytest.param('{"a": [{"b": [{"token": 1}]}]}', '{"a":[{"b":[{"token":"[REDACTED]"}]}]}', id="any depth, lists too"),
        pytest.param('[{"content": "x"}]', '[{"content":"[REDACTED]"}]', id="a list"),
        pytest.param('{"params": "{\\"file_text\\": \\"x\\"}"}', '{"params":"{\\"file_text\\":\\"[REDACTED]\\"}"}', id="JSON in a text"),
        pytest.param('{"a": "[{\\"token\\": 1}]"}', '{"a":"[{\\"token\\":\\"[REDACTED]\\"}]"}', id="a list in a text"),
        pytest.param('{"a": "[draft] hello"}', '{"a":"[draft] hello"}', id="a text that only begins so"),
        pytest.param('{"a": 1.50, "b": 1e999, "c": 123456789012345678901234567890}', '{"a":1.50,"b":1e999,"c":123456789012345678901234567890}', id="numbers as written"),
        pytest.param('{"tokens": "x"}', '{"tokens":"x"}', id="another word"),
        pytest.param('{"a": {"token": 1}, "a": 2}', '{"a":2}', id="what a later key hides"),
        pytest.param('{"password": "x', "[REDACTED]", id="what cannot be read"),
        pytest.param("[" * 100_000, "[REDACTED]", id="what is too deep"),
        pytest.param("", "{}", id="nothing at all"),
        pytest.param('{"a": "\\ud800"}', '{"a":"\ufffd"}', id="half a character"),
    ],
)  # fmt: skip
def test_redaction(arguments: str, expected: str) -> None:
    """The values of secret keys are hidden, and nothing else is."""
    assert expected == redacted(arguments)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(plain=PLAIN, key=st.sampled_from(sorted(SECRET)), upper=st.booleans(), depth=st.integers(0, 3))
def test_a_secret_is_nowhere_in_what_is_shown(plain: Any, key: str, depth: int, *, upper: bool) -> None:
    """However deep, in lists, objects or JSON texts, whatever the case; and hiding twice is hiding once."""
    hidden: Any = {key.upper() if upper else key: ["s3cret", plain], "beside": plain}
    for level in range(depth):
        hidden = [[hidden], {"inner": hidden}, json.dumps(hidden)][level % 3]
    shown_ = redacted(json.dumps({"all": hidden}))
    assert "s3cret" not in shown_
    assert REDACTED in shown_
    assert shown_ == redacted(shown_)
