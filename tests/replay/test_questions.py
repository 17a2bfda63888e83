"""The language of questions: one table that every implementation of it must agree with, and its laws."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.replay.queries.conditions import (
    MOST_CHARACTERS,
    BadQuestion,
    Beside,
    Between,
    Every,
    Fits,
    Holds,
    Is,
    Like,
    Node,
    Not,
    Says,
    Some,
    Test,
    conditions,
    format_query,
)
from refold.replay.queries.language import Vocabulary, parse
from refold.replay.queries.rows import EVENTS, FIELDS, STATES, FlatEvent


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: str
    matches: list[int]


class Mistake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: str
    at: int


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rows: list[Any]
    cases: list[Case]
    mistakes: list[Mistake]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    events: Part
    states: Part


TABLE = msgspec.json.decode(Path(__file__).with_name("question_cases.json").read_bytes(), type=Table)
EVENT_ROWS = msgspec.convert(TABLE.events.rows, list[FlatEvent])
OF_ROWS: Vocabulary[dict[str, Any]] = Vocabulary(STATES.fields, lambda row, name: row[name])


@pytest.mark.parametrize("case", TABLE.events.cases, ids=lambda case: case.question or "nothing")
def test_what_a_question_about_events_means(case: Case) -> None:
    """The answer is yes for these events, and for no other."""
    asked = parse(case.question, EVENTS)
    assert case.matches == [row.seq for row in EVENT_ROWS if asked.matches(row)]


@pytest.mark.parametrize("case", TABLE.states.cases, ids=lambda case: case.question or "nothing")
def test_what_a_question_about_states_means(case: Case) -> None:
    """The answer is yes for these states, and for no other."""
    asked = parse(case.question, OF_ROWS)
    assert case.matches == [row["seq"] for row in TABLE.states.rows if asked.matches(row)]


@pytest.mark.parametrize(
    ("about", "mistake"),
    [
        *((EVENTS, mistake) for mistake in TABLE.events.mistakes),
        *((STATES, mistake) for mistake in TABLE.states.mistakes),
    ],
    ids=lambda each: each.question[:40] if isinstance(each, Mistake) else "",
)
def test_what_is_refused(about: Vocabulary[Any], mistake: Mistake) -> None:
    """A question that means nothing is refused at its first mistake."""
    with pytest.raises(BadQuestion) as error:
        parse(mistake.question, about)
    assert mistake.at == error.value.at


def test_everything_is_in_the_table() -> None:
    """No field of an event and no kind of condition is without a case: whoever passes the table has the whole
    language.
    """
    asked = [parse(case.question, EVENTS) for case in TABLE.events.cases]
    assert set(FIELDS) == {name for each in asked for name in each.names}
    assert set(FIELDS) == set(FlatEvent.__struct_fields__)
    used = {type(test) for each in asked for test, _ in conditions(each.tree)}
    assert {Is, Like, Holds, Fits, Between, Beside, Says} == used


@pytest.mark.parametrize(
    ("about", "text", "said"),
    [
        pytest.param(EVENTS, "naem:bash", "did you mean name?", id="the nearest field"),
        pytest.param(EVENTS, "type:user", "did you mean person?", id="what others call a person"),
        pytest.param(EVENTS, "type:Assistant", "did you mean model?", id="what others call a model"),
        pytest.param(EVENTS, "tool:bash", "did you mean name?", id="what others call a field"),
        pytest.param(EVENTS, "naem:bash", ", elapsed, error, ", id="all fields"),
        pytest.param(EVENTS, "x" * (MOST_CHARACTERS + 1), f"more than {MOST_CHARACTERS} characters", id="too long"),
        pytest.param(EVENTS, "text~a(?!b)", "with a separate condition, -text~PATTERN", id="look-around"),
        pytest.param(EVENTS, r"text~a\z", r"\z matches an end of the whole text", id="an end of the text, of a line"),
        pytest.param(EVENTS, "rm -rf", 'write "-rf" to search for this text, or -text:rf', id="a minus before a text"),
        pytest.param(EVENTS, "tokens>x", "at character 8, 'x'", id="the place"),
        pytest.param(EVENTS, "turn:20..10", "turn can never be in 20..10", id="a range the wrong way round"),
        pytest.param(EVENTS, "tokens:30.5", "tokens can never be 30.5", id="a half of what is whole"),
        pytest.param(EVENTS, "(type:tool", "unmatched (", id="an open parenthesis"),
        pytest.param(EVENTS, "a )", "to search for it, quote it", id="a parenthesis that closes nothing"),
        pytest.param(STATES, "steps = 3", "compare it with a value, for example with ==", id="one equals sign"),
        pytest.param(STATES, "stps > 3", "did you mean steps?", id="the nearest field of a state"),
        pytest.param(STATES, "agent_state:DONE", "expected BUDGET_EXCEEDED, CANCELLED", id="all states"),
    ],
)  # fmt: skip
def test_what_a_mistake_says(about: Vocabulary[Any], text: str, said: str) -> None:
    """The error names what is wrong, where, and the way out."""
    with pytest.raises(BadQuestion) as error:
        parse(text, about)
    assert said in str(error.value)


WORDS = st.text(min_size=1, max_size=8)
AMOUNTS = st.integers(0, 10**22)
WORDY = sorted(name for name, field in FIELDS.items() if field.kind == "words")
NUMBERS = sorted(name for name, field in FIELDS.items() if field.kind == "number")
GLOBS = st.from_regex(r'[^\s"*()]{0,4}\*[^\s"()]{0,4}', fullmatch=True)
PATTERNS = st.text(max_size=6).map(re.escape).filter(bool)
FACTORS = st.tuples(st.integers(0, 999), st.integers(0, 3))


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
    st.builds(
        Beside,
        st.sampled_from(NUMBERS),
        st.sampled_from(["<", "<=", ">", ">=", "=="]),
        FACTORS,
        st.sampled_from(NUMBERS),
    ),
    st.builds(Says, st.just("error"), st.booleans()),
)
TREES: st.SearchStrategy[Node] = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(Every, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Some, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)  # fmt: skip


@given(tree=TREES)
def test_what_is_written_is_read_again(tree: Node) -> None:
    """A question that was written out parses to itself."""
    assert tree == parse(format_query(tree, FIELDS), EVENTS).tree


@given(text=st.text(max_size=30) | st.text(alphabet='ab:~<>=."-\\ or*()notand19', max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever is typed is a question that is written as it means, or a `BadQuestion` whose place is in the
    text.
    """
    abouts: tuple[Vocabulary[Any], ...] = (EVENTS, STATES)
    for about in abouts:
        place = 1
        try:
            asked = parse(text, about)
            assert asked.tree == parse(str(asked), about).tree
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
            so = value.lower() in (row.text or "").lower()
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
    assert naive(terms, row) is parse(typed, EVENTS).matches(row)
    if terms:
        assert (naive(terms, row) or naive(others, row)) is parse(f"{typed} or {other}", EVENTS).matches(row)


@pytest.mark.parametrize("before", [0, 4000, 4096, 100_000])
@pytest.mark.parametrize("pattern", ["needle [0-9]+$", "(a*)*needle", "^x*(a|aa)+needle|^needle"])
def test_a_long_line_is_searched_to_its_end(pattern: str, before: int) -> None:
    """A pattern is found wherever it stands in a long line, in linear time whatever it repeats."""
    row = msgspec.structs.replace(EVENT_ROWS[0], text=f"one\n{'a' * before}needle 42\nthree")
    typed = parse(f'text~"{pattern}"', EVENTS)
    assert typed.matches(row)
    assert not typed.matches(msgspec.structs.replace(row, text="nee\ndle 42"))


def test_a_line_begins_and_ends_once() -> None:
    """`^` and `$` are the ends of a line, and no match goes beyond one."""
    row = msgspec.structs.replace(EVENT_ROWS[0], text="one two\nthree")
    asked = {r"^three": True, r"two$": True, r"^two": False, r"two\sthree": False, r"two[^x]three": False}
    assert asked == {each: parse(f'text~"{each}"', EVENTS).matches(row) for each in asked}


def test_a_pattern_of_two_endless_repetitions_ends() -> None:
    """What a model wrote cannot make a person's pattern search for ever."""
    assert not parse(r'text~"a+b+c"', EVENTS).matches(EVENT_ROWS[0])
    row = msgspec.structs.replace(EVENT_ROWS[0], text="ab" * 100_000)
    assert not parse(r'text~"a+b+c"', EVENTS).matches(row)
