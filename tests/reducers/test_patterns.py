"""Regular expressions that a policy may have, and those that it may not."""

import re

import pytest

from refold.reducers.failures import OVERFLOW_PATTERNS, overflows
from refold.reducers.patterns import problem_of, reach


@pytest.mark.parametrize(
    "pattern",
    [
        r"AC-\d+",
        r"[\w.+-]+@[\w-]+\.[\w.]+",
        r"(context|token) (length|limit)",
        r"(?:foo|bar)?",
        r"(?:ab){3}",
        r"(?:ab)+",
        r"(?i:secret)\s*[:=]\s*",
        r"[*+{}|()]+",
        r"\(a|a\)+",
        r"(?P<key>sk-[a-z]{20,40})",
        r"x{2}",
        r"a{,3}b",
        r"(\w+)(=\w+)(;\w+)(,\w+)",
        r"(?P<a>\w+)=(?P<b>\w+);(?P<c>\w+)",
        r"(\d+: )?(\w+): (.*)",
        "(a+|b+|c+)(d+|e+)",
        "(?:sk|pk|rk)_(?:live|test)_[a-z]+",
        r"(?:password|secret|token)s?\s*(?:=|:|=>)\s*\S{8,40}",
        r"\d{4}[- ]?\d{4}[- ]?\d{4}[- ]?\d{4}",
    ],
)
def test_ordinary_patterns_are_taken(pattern: str) -> None:
    """What people write to find something is no danger, and is taken."""
    assert problem_of(pattern) == ""


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a|a)*b",
        "(?:a|aa)+$",
        "(?:a|b|ab)*c",
        "(?:aa?)+b",
        "(?:a?){50}b",
        "(?:a|a){1,30}b",
        r"(?:\w|\d)+@corp",
        "((a*)b)*",
        "(?:(?:a|b)c)+",
        "(?P<x>a|b)+",
    ],
)
def test_what_could_search_without_end_is_refused(pattern: str) -> None:
    """A repetition of something that matches one text in several ways is refused."""
    assert "a repetition of what varies itself" in problem_of(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        ".*.*.*x",
        "a*a*a*a*b",
        r"\w+\s*\w+\s*=\w+",
        "(.*)(.*)(.*)x",
        "(?:a*)(a*)(?P<x>a*)b",
        "(.*(.*(.*)))x",
        "(.*.*|b)(.*)x",
        "(b|.*)(c|.*).*x",
        pytest.param(".*a.*a.*b", id="what stands between is taken by what is repeated"),
        pytest.param(".*(a.*)(a.*)b", id="the same in groups"),
        pytest.param("[a-z]+x[a-z]+x[a-z]+1", id="a class takes it"),
        pytest.param("(?i)a*A(a*)Aa*b", id="in another case"),
        pytest.param("a{0,500}a{0,500}a{0,500}b", id="an end so far off is none"),
        pytest.param("a?" * 30 + "a" * 30, id="what may be missing, many times"),
        pytest.param("a*(=)?a*(=)?a*b", id="what stands between may be missing"),
        pytest.param("a*(=|a)a*(=|a)a*b", id="one of what may stand between is taken"),
        pytest.param("(?:a|a)" * 30 + "b", id="a choice, many times"),
        pytest.param("(?:ab)?" * 30 + "ab" * 30, id="the same of groups"),
    ],
)
def test_many_endless_repetitions_side_by_side_are_refused(pattern: str) -> None:
    """Repetitions without an end that follow each other directly are refused, but where they do no harm."""
    assert "more than 2 repetitions without an end" in problem_of(pattern)
    assert problem_of(pattern, side_by_side=None) == ""


def test_an_escape_that_a_file_took_for_itself() -> None:
    r"""`"\brm"` is a backspace to YAML, JSON and TOML, and would never be found: it is refused, with the way out."""
    assert "'\\b' in single quotes" in problem_of("\brm -r")
    assert problem_of(r"\brm -r") == ""


def test_no_expression_at_all() -> None:
    """What is no regular expression is said to be none."""
    assert problem_of("(").startswith("no regular expression: ")


@pytest.mark.parametrize(
    ("pattern", "characters"),
    [
        pytest.param("context.?length", 4000, id="no repetition"),
        pytest.param("too long: .* tokens", 4000, id="one"),
        pytest.param("too .* of .* tokens", 512, id="two"),
        pytest.param(".*.*.*x", 107, id="three"),
        pytest.param(".*a" * 9 + "b", 6, id="many"),
    ],
)
def test_the_more_a_pattern_may_try_the_less_is_searched_at_once(pattern: str, characters: int) -> None:
    """Length times time is bounded: characters to the power of what is tried from each place are 2^27 at most."""
    assert abs(characters - reach(pattern, 4000)) <= characters // 16


def test_known_patterns_of_overflows_search_as_much_as_ever() -> None:
    """The bound takes nothing from the patterns that come along."""
    assert {4000} == {reach(pattern, 4000) for pattern in OVERFLOW_PATTERNS}


def test_an_overflow_is_told_by_hostile_words_in_bounded_time() -> None:
    """A policy's pattern of many repetitions comes to an end on words made for it, and finds what stands in front."""
    pattern = ".*a" * 9 + "b"
    assert not overflows("a" * 4000, [pattern])
    assert overflows("a" * 9 + "b", [".*a.*a.*b"])
    assert overflows("x" * 3000 + "context length", OVERFLOW_PATTERNS)
    assert re.search(pattern, "a" * 9 + "b")
