"""The language of filters: one table that every implementation of it must agree with, and its laws."""

import re
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.replay.queries.filters import (
    Between,
    Filter,
    Fits,
    Holds,
    Is,
    Like,
    Says,
    Term,
    Test,
    found,
    parse,
)
from refold.replay.queries.questions import MOST_CHARACTERS, BadQuestion
from refold.replay.queries.rows import FIELDS, FlatEvent


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    filter: str
    matches: list[int]


class Mistake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    filter: str
    at: int


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    rows: list[FlatEvent]
    cases: list[Case]
    mistakes: list[Mistake]


TABLE = msgspec.json.decode(
    Path(__file__).with_name("filter_cases.json").read_bytes(), type=Table, strict=True
)


@pytest.mark.parametrize("case", TABLE.cases, ids=lambda case: case.filter or "nothing")
def test_what_a_filter_means(case: Case) -> None:
    """A filter means these rows, and no other."""
    asked = parse(case.filter)
    assert case.matches == [row.seq for row in TABLE.rows if asked.matches(row)]


@pytest.mark.parametrize("mistake", TABLE.mistakes, ids=lambda mistake: mistake.filter)
def test_what_is_refused(mistake: Mistake) -> None:
    """A filter that means nothing is refused at its first mistake."""
    with pytest.raises(BadQuestion) as error:
        parse(mistake.filter)
    assert mistake.at == error.value.at


def test_every_field_is_in_the_table() -> None:
    """No field, and no sign, is without a case: whoever passes the table has the whole language."""
    asked = [parse(case.filter) for case in TABLE.cases]
    used = {getattr(term.test, "field", "text") for each in asked for term in each.terms}
    assert set(FIELDS) == used
    assert set(FIELDS) == set(FlatEvent.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("naem:bash", "did you mean name?", id="the nearest field"),
        pytest.param("naem:bash", ", elapsed, error, ", id="all fields"),
        pytest.param("x" * (MOST_CHARACTERS + 1), f"more than {MOST_CHARACTERS} characters", id="too long"),
        pytest.param("text~(a*)*", "could search a text without end", id="a pattern without an end"),
        pytest.param("rm -rf", 'write "-rf" for this text, or -text:rf', id="a minus before a text"),
        pytest.param("tokens>x", "at character 8, 'x'", id="the place"),
        pytest.param("turn:20..10", "turn is never in 20..10", id="a range the wrong way round"),
        pytest.param("tokens:30.5", "tokens is never 30.5", id="a half of what is whole"),
    ],
)
def test_what_a_mistake_says(text: str, said: str) -> None:
    """The error names what is wrong, where, and the way out."""
    with pytest.raises(BadQuestion) as error:
        parse(text)
    assert said in str(error.value)


WORDS = st.text(min_size=1, max_size=8)
AMOUNTS = st.integers(0, 10**22)
WORDY = sorted(name for name, field in FIELDS.items() if field.kind == "words")
NUMBERS = sorted(name for name, field in FIELDS.items() if field.kind == "number")
GLOBS = st.from_regex(r'[^\s"*]{0,4}\*[^\s"]{0,4}', fullmatch=True)
PATTERNS = st.text(max_size=6).map(re.escape).filter(bool)


def _ranges(low: int | None, high: int | None, name: str) -> Between:
    if low is not None and high is not None:
        low, high = sorted((low, high))
    return Between(name, low, high if low is not None or high is not None else 3)


TESTS: st.SearchStrategy[Test] = st.one_of(
    st.builds(Is, st.sampled_from(WORDY), WORDS),
    st.builds(Like, st.sampled_from([name for name in WORDY if not FIELDS[name].values]), GLOBS),
    st.builds(Holds, WORDS),
    st.builds(Fits, st.sampled_from([*WORDY, "text"]), PATTERNS),
    st.builds(_ranges, st.none() | AMOUNTS, st.none() | AMOUNTS, st.sampled_from(NUMBERS)),
    st.builds(Says, st.just("error"), st.booleans()),
)
TERMS = st.builds(Term, TESTS, st.booleans())
FILTERS = st.lists(st.lists(TERMS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(
    lambda alternatives: Filter(tuple(alternatives))
)


@given(asked=FILTERS)
def test_what_is_written_is_read_again(asked: Filter) -> None:
    """A filter that was written out parses to itself."""
    assert asked == parse(str(asked))


@given(text=st.text(max_size=30) | st.text(alphabet='ab:~<>."-\\ or*name19', max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever is typed is a filter that is written as it means, or a `BadQuestion` whose place is in the text."""
    place = 1
    try:
        asked = parse(text)
        assert asked == parse(str(asked))
    except BadQuestion as error:
        place = error.at
    assert 1 <= place <= len(text) + 1


FEW = st.sampled_from(["a", "A", "ab", "b", "bash", ""])
ROWS = st.builds(
    FlatEvent,
    run=FEW,
    seq=st.integers(0, 9),
    elapsed=st.integers(0, 9),
    turn=st.integers(0, 9),
    kind=FEW,
    type=FEW,
    side=FEW,
    state=FEW,
    model=FEW,
    name=st.lists(FEW, max_size=2).map(tuple),
    error=st.none() | st.booleans(),
    tokens=st.none() | st.integers(0, 9),
    text=st.lists(FEW, max_size=3).map(" ".join),
)


def naive(terms: list[tuple[str, str, str, bool]], row: FlatEvent) -> bool:
    """What a list of terms means, said once more without any parsing: every one of them is so."""
    for name, sign, value, contrary in terms:
        has = getattr(row, name)
        words = [has] if isinstance(has, str) else has if isinstance(has, tuple) else []
        if name == "text":
            so = value.lower() in row.text.lower()
        elif name == "error":
            so = has is not None and has == (value == "true")
        elif words or isinstance(has, str | tuple):
            so = any(word and word.casefold() == value.casefold() for word in words)
        else:
            number = Decimal(value)
            so = has is not None and {
                ":": has == number, "<": has < number, "<=": has <= number, ">": has > number, ">=": has >= number,
            }[sign]  # fmt: skip
        if so is contrary:
            return False
    return True


PLAIN_TERMS = st.one_of(
    st.tuples(st.sampled_from(["run", "model", "name"]), st.just(":"), FEW.filter(bool), st.booleans()),
    st.tuples(st.just("text"), st.just(":"), FEW.filter(bool), st.booleans()),
    st.tuples(st.just("error"), st.just(":"), st.sampled_from(["true", "false"]), st.booleans()),
    st.tuples(
        st.sampled_from(["seq", "turn", "tokens"]),
        st.sampled_from([":", "<", "<=", ">", ">="]),
        st.sampled_from(["0", "1", "4", "4.5", "9"]),
        st.booleans(),
    ),
).filter(lambda term: term[1:3] != (":", "4.5"))  # no whole number is that: it is refused


@given(
    terms=st.lists(PLAIN_TERMS, max_size=4), others=st.lists(PLAIN_TERMS, min_size=1, max_size=2), row=ROWS
)
def test_a_filter_agrees_with_a_naive_one(
    terms: list[tuple[str, str, str, bool]], others: list[tuple[str, str, str, bool]], row: FlatEvent
) -> None:
    """Terms side by side are an and, alternatives an or; each means what it would mean said by itself."""
    typed, other = (
        " ".join(f"{'-' * contrary}{name}{sign}{value}" for name, sign, value, contrary in each)
        for each in (terms, others)
    )
    assert naive(terms, row) is parse(typed).matches(row)
    if terms:
        assert (naive(terms, row) or naive(others, row)) is parse(f"{typed} or {other}").matches(row)


@pytest.mark.parametrize("before", [0, 4000, 4090, 4096, 9000, 100_000])
def test_a_long_line_is_searched_to_its_end(before: int) -> None:
    """Where in a long line a pattern fits makes no difference, and a line begins once."""
    line = "a" * before + "needle 42" + "b" * 5000
    match = found(re.compile(r"needle [0-9]+"), line)
    assert match is not None
    assert "needle 42" == match[0]
    assert (before == 0) is (found(re.compile("^needle"), line) is not None)


def test_a_pattern_of_two_endless_repetitions_ends() -> None:
    """What a model wrote cannot make a person's pattern search for ever."""
    assert not parse(r'text~"a+b+c"').matches(TABLE.rows[0])
    row = msgspec.structs.replace(TABLE.rows[0], text="ab" * 100_000)
    assert not parse(r'text~"a+b+c"').matches(row)
