"""The language of questions to a state: what it means, what it refuses, what it proves."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.reducers.machine import AgentState
from refold.reducers.messages import Usage
from refold.reducers.state import NEW, RunState, Spent
from refold.replay.queries.expression_nodes import Field, Flag, Minus, Node, Not, Number, Pair, Text, kind_of
from refold.replay.queries.expressions import Expression, parse
from refold.replay.queries.questions import BadQuestion
from refold.replay.queries.state_fields import FIELDS, FLAGS, NUMBERS, TEXTS
from refold.replay.reader import NO_GUARDS, event_of, folded
from support.queried import driven, kept
from support.setups import setup_of
from support.strategies import Driver

STATE = RunState(
    setup=setup_of(run="r1", model="m-1"),
    seq=12,
    at=90_000_000_000,
    fact_at=90_000_000_000,
    agent_state=AgentState.WAITING_FOR_TOOL,
    spent=Spent(steps=3, calls=4, cost_nanousd=1_500_000_001, usage=Usage(input=10, output=5)),
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        pytest.param("spent_usd > 1.5", True, id="a nano-dollar more"),
        pytest.param("spent_usd > 1.500000001", False, id="to the nano-dollar"),
        pytest.param("spent_usd == 1.500000001", True, id="exactly"),
        pytest.param("spent_usd >= 1.5000000011", False, id="below a nano-dollar"),
        pytest.param("0.1 + 0.2 == 0.3", True, id="no binary fraction"),
        pytest.param("spent_usd > 1.0 and steps >= 3", True, id="and"),
        pytest.param("spent_usd > 2 or steps >= 3", True, id="or"),
        pytest.param("steps > 3 or steps > 2 and calls > 5", False, id="and binds more than or"),
        pytest.param("(steps > 3 or steps > 2) and calls > 3", True, id="parentheses"),
        pytest.param("not steps > 3", True, id="not binds less than a comparison"),
        pytest.param("not not ended", False, id="twice not"),
        pytest.param("not ended and steps == 3", True, id="not binds more than and"),
        pytest.param("tokens == input_tokens + output_tokens", True, id="sum"),
        pytest.param("2 * steps - 1 == 5", True, id="product before sum"),
        pytest.param("calls - steps - 1 == 0", True, id="from the left"),
        pytest.param("-steps + 3 == 0", True, id="minus"),
        pytest.param("tokens * 0.1 == 1.5", True, id="digits add up in a product"),
        pytest.param("elapsed == 90", True, id="seconds"),
        pytest.param("elapsed > 89.999999999", True, id="to the nanosecond"),
        pytest.param('agent_state == "WAITING_FOR_TOOL"', True, id="text"),
        pytest.param("agent_state != 'RUNNING'", True, id="other marks"),
        pytest.param(r"""model == "m\"1" """, False, id="a mark in a text"),
        pytest.param('outcome == ""', True, id="a word that is not there"),
        pytest.param("ended == false", True, id="flags"),
        pytest.param("ended != asked_model", False, id="flags of the state"),
        pytest.param("true or ended", True, id="true"),
        pytest.param('"a" == "a"', True, id="two texts"),
    ],
)
def test_what_a_question_means(text: str, holds: bool) -> None:
    """A question has this answer in a known state."""
    assert holds is parse(text).holds(STATE)


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        pytest.param("stps > 3", 1, "no field 'stps' (did you mean steps?)", id="a name"),
        pytest.param("steps > 3 and spent > 1", 15, "there are agent_state", id="all names"),
        pytest.param("steps", 1, "answered with yes or no", id="a number is no answer"),
        pytest.param("agent_state", 1, "answered with yes or no", id="a text is no answer"),
        pytest.param("steps = 3", 7, "write ==", id="one equals sign"),
        pytest.param("agent_state > 3", 13, "a text is compared with a number", id="types"),
        pytest.param('agent_state > "A"', 13, "a text has no order", id="order of texts"),
        pytest.param("ended < true", 7, "a flag has no order", id="order of flags"),
        pytest.param("1 < steps < 3", 11, "one comparison at a time", id="a chain"),
        pytest.param("steps > 1 and 3", 15, "this is a number", id="and of a number"),
        pytest.param("3 or ended", 1, "this is a number", id="or of a number"),
        pytest.param("not steps", 5, "this is a number", id="not of a number"),
        pytest.param("-ended", 2, "this is a flag", id="minus of a flag"),
        pytest.param("steps + ended > 1", 7, "there is a flag", id="sum of a flag"),
        pytest.param("(steps > 1", 1, "has no )", id="an open parenthesis"),
        pytest.param("steps > 1)", 10, "expected and, or, or the end", id="a closed one"),
        pytest.param("steps > 1 steps", 11, "expected and, or, or the end", id="two questions"),
        pytest.param("", 1, "expected a number", id="nothing"),
        pytest.param("steps >", 8, "at its end", id="half a comparison"),
        pytest.param("steps > and", 9, "expected a number", id="a word of the language"),
        pytest.param('model == "m', 10, "no word of the language", id="an open quotation mark"),
        pytest.param("steps ** 2 > 1", 8, "expected a number", id="a sign of Python"),
        pytest.param("steps.real > 1", 6, "no word of the language", id="an attribute"),
        pytest.param("__import__('os')", 1, "no field '__import__'", id="a call"),
        pytest.param("(" * 60 + "ended" + ")" * 60, 42, "nested more than", id="deep parentheses"),
        pytest.param("not " * 60 + "ended", 165, "nested more than", id="deep negations"),
        pytest.param("ended or " * 180 + "ended", 1351, "more than 300 words", id="many words"),
        pytest.param("ended" + " " * 2000, 2001, "more than 2000 characters", id="many characters"),
    ],
)
def test_what_is_refused(text: str, at: int, said: str) -> None:
    """A question that means nothing is refused with the place of the mistake, and with the way out."""
    with pytest.raises(BadQuestion) as error:
        parse(text)
    assert at == error.value.at
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "lasts"),
    [
        pytest.param("spent_usd > 1.0", True, id="what never falls is more"),
        pytest.param("spent_usd >= 1.0 and tokens > 5", True, id="both"),
        pytest.param("spent_usd >= 1.0 or ended", True, id="one of them"),
        pytest.param("1.0 < spent_usd", True, id="the other way round"),
        pytest.param("not spent_usd < 1", True, id="not less"),
        pytest.param("spent_usd + 0.5 * tokens - 3 > 2", True, id="sums and shares"),
        pytest.param("-2 * tokens < -7", True, id="a negative share"),
        pytest.param("0 * steps > 1", True, id="nothing of it"),
        pytest.param("2 > 1", True, id="what never changes"),
        pytest.param('"a" != "b"', True, id="texts that never change"),
        pytest.param("ended", True, id="the end"),
        pytest.param("not ended", False, id="before the end"),
        pytest.param("spent_usd < 1.0", False, id="less"),
        pytest.param("spent_usd == 1.0", False, id="just as much"),
        pytest.param("steps > 3", False, id="steps may be given back"),
        pytest.param("window_tokens > 3", False, id="the window may shrink"),
        pytest.param("tokens > calls", False, id="both rise"),
        pytest.param("tokens * calls > 3", False, id="a product of both"),
        pytest.param("tokens - calls > 3", False, id="a difference of both"),
        pytest.param('agent_state == "COMPLETED"', False, id="a text"),
        pytest.param("ended == true", False, id="an equality proves nothing"),
        pytest.param("spent_usd > 1 and steps > 1", False, id="one that may go back"),
    ],
)
def test_what_is_proved_to_last(text: str, lasts: bool) -> None:
    """It is known beforehand of which questions the answer can never go back to no."""
    assert lasts is parse(text).lasts


@given(driver=driven())
def test_what_is_said_to_rise_never_falls(driver: Driver) -> None:
    """Along every log, a field that is said to rise does."""
    rising = [field for field in FIELDS.values() if getattr(field, "rises", False)]
    assert {"seq", "elapsed", "spent_usd", "ended"} <= {field.name for field in rising}
    state = NEW
    last: dict[str, Any] = {field.name: field.of(NEW) for field in rising}
    for stored in kept(driver.log):
        state = folded(state, stored, event_of(stored), NO_GUARDS)
        now: dict[str, Any] = {field.name: field.of(state) for field in rising}
        if state.seq > 1:
            assert [] == [name for name in now if now[name] < last[name]]
        last = now


@given(driver=driven())
def test_every_field_has_a_value_of_its_type(driver: Driver) -> None:
    """In every state each field says an integer, a text or a flag."""
    for state in driver.states[:20]:
        assert {int} == {type(field.of(state)) for field in NUMBERS.values()}
        assert {str} == {type(field.of(state)) for field in TEXTS.values()}
        assert {bool} == {type(field.of(state)) for field in FLAGS.values()}


AMOUNTS: st.SearchStrategy[Node] = st.one_of(
    st.builds(Number, st.integers(0, 10**6), st.integers(0, 4)), st.sampled_from(sorted(NUMBERS)).map(Field)
)
NUMERIC: st.SearchStrategy[Node] = st.recursive(
    AMOUNTS,
    lambda inner: st.one_of(
        st.builds(Minus, inner), st.builds(Pair, st.sampled_from(["+", "-", "*"]), inner, inner)
    ),
    max_leaves=4,
)
WORDS: st.SearchStrategy[Node] = st.one_of(
    st.text(max_size=5).map(Text), st.sampled_from(sorted(TEXTS)).map(Field)
)
COMPARED: st.SearchStrategy[Node] = st.one_of(
    st.builds(Pair, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMERIC, NUMERIC),
    st.builds(Pair, st.sampled_from(["==", "!="]), WORDS, WORDS),
    st.booleans().map(Flag),
    st.sampled_from(sorted(FLAGS)).map(Field),
)
QUESTIONS: st.SearchStrategy[Node] = st.recursive(
    COMPARED,
    lambda inner: st.one_of(
        st.builds(Not, inner), st.builds(Pair, st.sampled_from(["and", "or", "==", "!="]), inner, inner)
    ),
    max_leaves=4,
)


@given(tree=QUESTIONS)
def test_what_is_written_is_read_again(tree: Node) -> None:
    """A question that was written out parses to itself."""
    assert tree == parse(str(Expression(tree))).tree


@given(text=st.text(max_size=30) | st.text(alphabet="12.steps<>=()-+*andorq'\" ", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever is typed is a question, or a `BadQuestion` whose place is in the text."""
    place = 1
    try:
        assert str(parse(text)) == str(parse(str(parse(text))))
    except BadQuestion as error:
        place = error.at
    assert 1 <= place <= len(text) + 1


def naive(node: Node, state: RunState) -> Any:
    """What a question means, by exact fractions and Python's own operators."""
    match node:
        case Number(value=value, digits=digits):
            return Fraction(value, 10**digits)
        case Text(value=value) | Flag(value=value):
            return value
        case Field(name=name) if name in NUMBERS:
            return Fraction(NUMBERS[name].of(state), 10 ** NUMBERS[name].digits)
        case Field(name=name):
            return FIELDS[name].of(state)
        case Not(of=of):
            return not naive(of, state)
        case Minus(of=of):
            return -naive(of, state)
        case Pair(sign=sign, left=left, right=right):
            one, other = naive(left, state), naive(right, state)
            return {
                "or": lambda: one or other, "and": lambda: one and other, "==": lambda: one == other,
                "!=": lambda: one != other, "<": lambda: one < other, "<=": lambda: one <= other,
                ">": lambda: one > other, ">=": lambda: one >= other, "+": lambda: one + other,
                "-": lambda: one - other, "*": lambda: one * other,
            }[sign]()  # fmt: skip


@given(tree=QUESTIONS, steps=st.integers(0, 10**6), cost=st.integers(0, 10**12), at=st.integers(0, 10**12))
def test_a_question_agrees_with_a_naive_one(tree: Node, steps: int, cost: int, at: int) -> None:
    """What was compiled gives the answer that exact arithmetic gives."""
    spent = Spent(steps=steps, requests=steps, cost_nanousd=cost)
    state = replace(STATE, spent=spent, at=at)
    assert "flag" == kind_of(tree)
    assert naive(tree, state) is Expression(tree).holds(state)


@given(tree=QUESTIONS, driver=driven())
def test_what_is_proved_to_last_does(tree: Node, driver: Driver) -> None:
    """A question of which it is proved that it stays true is never taken back, in any log."""
    question = Expression(tree)
    if not question.lasts:
        return
    answers = [question.holds(state) for state in driver.states]
    assert sorted(answers) == answers
