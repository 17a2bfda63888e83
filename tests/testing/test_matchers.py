"""Matchers: what is ignored where, and what is refused."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.errors import WrongUse
from refold.testing import Ignore
from refold.testing.matchers import PATTERNS, Matchers

DATES = [
    "2026-11-28",
    "2026-11-28T16:24:12Z",
    "2026-11-28 16:24:12.123+01:00",
    "28 November 2026",
    "November 28, 2026",
    "Nov 28th, 2026",
    "Saturday, 28 Nov 2026",
    "Sat, November 28, 2026",
    "11/28/2026",
    "28.11.2026",
]


@pytest.mark.parametrize("date", DATES)
def test_dates(date: str) -> None:
    """Each usual way to write a day becomes the same."""
    assert "Today is <date>. Be brief." == Matchers(["date"]).text(f"Today is {date}. Be brief.")


@pytest.mark.parametrize(
    "text", ["order 2026-1128", "v1.2.3", "May be", "1/2", "Saturday", "11 of 28", "marching on 3"]
)
def test_no_dates(text: str) -> None:
    """What only resembles one stays."""
    assert text == Matchers(["date"]).text(text)


@pytest.mark.parametrize(
    ("pattern", "before", "after"),
    [
        ("time", "at 16:24:12 UTC", "at <time>"),
        ("uuid", "id 0e6d10e8-1111-4222-8333-444455556666.", "id <uuid>."),
        ("number", "3 of 40.5", "<number> of <number>"),
        ("temporary", "wrote /tmp/pytest-1/x.txt now", "wrote <temporary> now"),
        (r"build-\d+", "of build-17", "of <ignored>"),
    ],
)
def test_patterns(pattern: str, before: str, after: str) -> None:
    """Named patterns and regular expressions."""
    assert after == Matchers([pattern]).text(before)


def test_by_message_and_field() -> None:
    """A matcher may hold for one role, one tool, one field, or one argument."""
    matchers = Matchers(
        [Ignore("number", message="system"), Ignore(field="arguments.id"), Ignore("x", message="price")]
    )
    assert "<number>" == matchers.text("7", message="system")
    assert "7" == matchers.text("7", message="user")
    assert "a <ignored>" == matchers.text("a x", message="tool", name="price")
    assert "a x" == matchers.text("a x", message="tool", name="pay")
    assert '{"id": "<ignored>", "n": 7}' == matchers.arguments('{"id":"r-81","n":7}', name="pay")


def test_used() -> None:
    """Whether anything was ignored is known: only then may lengths differ."""
    matchers = Matchers(["date"])
    matchers.text("no day")
    assert not matchers.used
    matchers.text("2026-11-28")
    assert matchers.used


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda: Matchers(["("]), "expected a regular expression or one of date, time", id="no pattern"
        ),
        pytest.param(Ignore, "this would ignore everything", id="everything"),
        pytest.param(
            lambda: Ignore("x", field="words"), "expected one of text, reasoning, arguments", id="no field"
        ),
        pytest.param(lambda: Matchers(["dates"]), "did you mean 'date'?", id="misspelt"),
        pytest.param(lambda: Matchers("date"), "expected a list, as in ignore=['date']", id="no list"),
    ],
)
def test_refused(make: Any, message: str) -> None:
    """A matcher that cannot be meant is an error at once."""
    with pytest.raises(WrongUse, match=re.escape(message)):
        make()


@given(st.text(), st.sampled_from(sorted(PATTERNS)))
def test_any_text(text: str, pattern: str) -> None:
    """Matching never fails, and twice is as once."""
    once = Matchers([pattern]).text(text)
    assert once == Matchers([pattern]).text(once)
