"""The pattern language: what it refuses, how it differs from Python's, and that a text of any length is
searched.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.errors import PolicyError
from refold.reducers.failures import OVERFLOW_PATTERNS, overflows
from refold.reducers.patterns import (
    MOST_INSTRUCTIONS,
    UNLESS,
    compiled,
    find_first,
    find_in_lines,
    occurs,
    problem_of,
    quote,
)


@pytest.mark.parametrize(
    "pattern",
    [
        r"AC-\d+",
        r"[\w.+-]+@[\w-]+\.[\w.]+",
        r"(?i:secret)\s*[:=]\s*",
        r"[*+{}|()]+",
        r"(?P<key>sk-[a-z]{20,40})",
        r"[{,3}] \{,3} \\C",
        r"\pL+\x{20ac}\z",
        r"\brm\s+-(\w*r\w*f|\w*f\w*r)",
        r"(curl|wget)\b.*\|\s*(ba)?sh",
        pytest.param("(a+)+$", id="what a backtracking engine would try without end"),
        pytest.param("(.*)(.*)(.*)(.*)x", id="as many repetitions side by side as you like"),
        *OVERFLOW_PATTERNS,
    ],
)
def test_patterns_that_are_taken(pattern: str) -> None:
    """Every pattern that RE2 can search is fit, however often it repeats what."""
    assert problem_of(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        pytest.param("a(?!b)", f"look-around is not part of the pattern language: (?!…); {UNLESS}", id="ahead"),
        pytest.param("(?<=a)b", f"look-around is not part of the pattern language: (?<=…); {UNLESS}", id="behind"),
        pytest.param(r"(a)\1", r"the backreference \1 is not part of the pattern language", id="a backreference"),
        pytest.param(r"a\Z", r"\Z is not part of the pattern language; the end of a text is \z", id="Python's end"),
        pytest.param(r"\u20ac", r"\u is not part of the pattern language; a character by its number is \x{20ac}", id="\\u"),
        pytest.param("a{,3}b", "{,3} is not a repetition here; write {0,3}, {3} or {3,}", id="a repetition without a least"),
        pytest.param("a{03}b", "{03} is not a repetition here; write {0,3}, {3} or {3,}", id="a number that begins with 0"),
        pytest.param("a{99999999999}", "{99999999999} is not a repetition here; write {0,3}, {3} or {3,}", id="a huge one"),
        pytest.param(r"a\Cb", r"\C is not part of the pattern language: it would match part of a character", id="a byte"),
        pytest.param("(", "not a valid RE2 pattern: missing ): (", id="no pattern at all"),
        pytest.param("a++", "not a valid RE2 pattern: bad repetition operator: ++", id="possessive"),
        pytest.param("a{1001}", "not a valid RE2 pattern: invalid repetition size: {1001}", id="a large repetition"),
        pytest.param("a\ud800", "it contains an unpaired surrogate, which no text has", id="half a character"),
    ],
)  # fmt: skip
def test_patterns_that_are_refused(pattern: str, problem: str) -> None:
    """What RE2 does not have, or would read otherwise than Python, is refused with the way out."""
    assert problem == problem_of(pattern, UNLESS)


@pytest.mark.parametrize("pattern", [".{0,1000}", r"\pL{100}", r"(\pL{100}){10}"])
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    """The cost of a search is bounded by the size of the compiled pattern, so a pattern has a largest
    size.
    """
    assert re.search(f"too large|at most {MOST_INSTRUCTIONS:,}", problem_of(pattern))


def test_an_escape_that_a_file_took_for_itself() -> None:
    r"""`"\brm"` is a backspace to YAML, JSON and TOML, and would never be found: it is refused, with the way
    out.
    """
    assert "'\\b' in single quotes" in problem_of("\brm -r")
    assert problem_of(r"\brm -r") == ""


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        pytest.param(r"\w", "é", False, id="\\w is ASCII"),
        pytest.param(r"\d", "٣", False, id="\\d is ASCII"),
        pytest.param(r"\s", "\u00a0", False, id="\\s is ASCII"),
        pytest.param(r"\s", "\v", False, id="a vertical tab is no \\s"),
        pytest.param(r"\brm", "érm", True, id="\\b is the edge of an ASCII word"),
        pytest.param(r"\pL", "é", True, id="a letter of any script"),
        pytest.param("push$", "git push\n", False, id="$ is the very end"),
        pytest.param("(?m)push$", "git push\nls", True, id="or that of a line"),
        pytest.param("a.b", "a\nb", False, id=". is no line end"),
        pytest.param("(?s)a.b", "a\nb", True, id="or it is"),
        pytest.param("(?i)É", "é", True, id="any case, of any script"),
        pytest.param("a.b", "a\ud800b", True, id="half a surrogate pair is a character"),
        pytest.param("needle", "x" * 5_000_000 + "needle", True, id="a text of any length"),
        pytest.param(r"(\w+\s*)+needle", "x " * 500_000, False, id="hostile to a backtracking engine"),
    ],
)
def test_how_the_language_is_searched(pattern: str, text: str, found: bool) -> None:
    """Where RE2 and Python's `re` differ, it is as docs/reference/policy.md says."""
    assert found is occurs(pattern, [text])


PIECES = st.sampled_from(
    [*r"ab0-_ .^|", r"\d", r"\w", r"\s", r"\b", r"\.", r"\S", r"\W", "[a-c]", "[^a-c]", "[b-]", "$"]
)
PATTERNS = st.recursive(
    st.lists(PIECES, min_size=1, max_size=5).map("".join),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?"])).map(lambda p: f"({p[0]}){p[1]}"),
        st.tuples(inner, inner).map(lambda p: f"(?:{p[0]}|{p[1]})"),
        st.tuples(inner, inner).map("".join),
        inner.map(lambda each: f"(?i:{each})"),
    ),
    max_leaves=6,
)  # fmt: skip
TEXTS = st.text(alphabet="abcABC019-_ .\n\t", max_size=12).map(lambda text: text.rstrip("\n"))


@given(pattern=PATTERNS, text=TEXTS)
def test_python_agrees(pattern: str, text: str) -> None:
    """In ASCII, before a line end at the very end, a pattern that both know is found by both or by
    neither.
    """
    if problem_of(pattern):
        return
    found = re.search(pattern, text)
    assert (found is not None) is occurs(pattern, [text])
    engine = compiled(pattern)
    match = engine.search(text) if engine else None
    assert (found and found.span()) == (match and match.span())


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        pytest.param(["git push"], True, id="found"),
        pytest.param(["git pull"], False, id="not found"),
        pytest.param([], False, id="nothing to search"),
        pytest.param(["git push --dry-run"], False, id="found, and excused by the same text"),
        pytest.param(["git push", "--dry-run"], True, id="another text excuses nothing"),
        pytest.param(["git push --dry-run", "git push"], True, id="nor an excused text another"),
    ],
)
def test_unless(texts: list[str], said: bool) -> None:
    """A text counts if it holds the pattern and does not itself hold the other one."""
    assert said is occurs("git push", texts, "--dry-run")


@pytest.mark.parametrize(
    ("pattern", "unless", "text", "said"),
    [
        pytest.param("(", None, "x", None, id="no pattern"),
        pytest.param("(", "x", "x", False, id="no pattern, but excused whatever it finds"),
        pytest.param("(", "y", "x", None, id="no pattern, and not excused"),
        pytest.param("x", "(", "x", None, id="no excuse, where there is something to excuse"),
        pytest.param("y", "(", "x", False, id="no excuse, and nothing to excuse"),
    ],
)
def test_an_unfit_pattern_is_unknown(pattern: str, unless: str | None, text: str, said: bool | None) -> None:
    """A forged policy raises nothing: what its patterns would find is unknown, where it makes a
    difference.
    """
    assert said is occurs(pattern, [text], unless)


@given(
    pattern=st.sampled_from(["a", "b", "("]),
    unless=st.sampled_from([None, "a", "b", "("]),
    texts=st.lists(st.text("abc", max_size=3), max_size=3),
    more=st.text("abc", max_size=3),
)
def test_one_more_text_never_takes_a_match_away(
    pattern: str, unless: str | None, texts: list[str], more: str
) -> None:
    """Each text is judged alone: however many there are, one that matches is enough, and stays so."""
    before, after = occurs(pattern, texts, unless), occurs(pattern, [*texts, more], unless)
    assert after is True or before is not True
    assert after is not False or before is False


@pytest.mark.parametrize(
    ("pattern", "text", "spans"),
    [
        pytest.param("^a.*b$", "aéb\naxc\naab", [(0, 3), (8, 11)], id="the ends of a line, in characters"),
        pytest.param("x*", "axxbx", [(1, 3), (4, 5)], id="no empty match"),
        pytest.param("a[^b]c", "a\nc", [], id="never beyond a line"),
        pytest.param("a|b", "", [], id="nothing"),
        pytest.param("a", "\ud800a", [(1, 2)], id="behind half a surrogate pair"),
    ],
)
def test_places_in_lines(pattern: str, text: str, spans: list[tuple[int, int]]) -> None:
    """All matches in the lines of a text, first to last."""
    assert spans == list(find_in_lines(pattern, text))


def test_all_matches_of_a_hostile_line_cost_no_square_of_it() -> None:
    """Where each match makes the search read the rest of the line again, the rest of it becomes one match
    after a while.
    """
    line = "a" * 100_000
    spans = list(find_in_lines("a.*b|a", f"{line}\nxa\n"))
    assert len(spans) < 10_000
    assert [(line_end := len(line)), (line_end + 2, line_end + 3)] == [spans[-2][1], spans[-1]]


def test_a_quoted_pattern_is_one_short_line() -> None:
    """A pattern of many lines, or of thousands of characters, does not fill the sentence that names it."""
    assert "`a b`" == quote("a\n  b")
    assert len(quote("a" * 5000)) < 210
    assert None is find_first("a", "b")


def test_an_overflow_is_told_by_hostile_words() -> None:
    """A policy's pattern of many repetitions comes to an end on words made for it, in any case; 4,000
    characters count.
    """
    pattern = ".*a" * 9 + "b"
    assert not overflows("a" * 4000, [pattern])
    assert overflows("A" * 9 + "b", [pattern])
    assert overflows("x" * 3000 + "Context Length", OVERFLOW_PATTERNS)
    assert not overflows("x" * 4000 + "context length", OVERFLOW_PATTERNS)
    with pytest.raises(PolicyError, match="not a valid RE2 pattern"):
        overflows("x", ["("])
