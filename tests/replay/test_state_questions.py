"""Questions about the state: what is proved of them, and what the fields promise."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.state import NEW
from refold.replay.queries.conditions import BadQuestion, Beside, Between, Every, Is, Node, Not, Says, Some
from refold.replay.queries.language import Question
from refold.replay.queries.rows import FLAGS, NUMBERS, STATE_FIELDS, STATES, TEXTS, state_question
from refold.replay.reader import NO_GUARDS, event_of, fold_event
from refold.testing.strategies.driver import Driver
from support.queried import driven, kept


@pytest.mark.parametrize(
    ("text", "lasts"),
    [
        pytest.param("spent_usd > 1.0", True, id="what never falls is more"),
        pytest.param("spent_usd >= 1.0 and tokens > 5", True, id="both"),
        pytest.param("spent_usd >= 1.0 or ended", True, id="one of them"),
        pytest.param("not spent_usd < 1", True, id="not less"),
        pytest.param("not (spent_usd < 1 or -ended)", True, id="none of both"),
        pytest.param("ended", True, id="the end"),
        pytest.param("ended == true", True, id="the end, compared"),
        pytest.param("ended != false", True, id="the end, contrariwise"),
        pytest.param("not ended", False, id="before the end"),
        pytest.param("ended:false", False, id="before the end, compared"),
        pytest.param("spent_usd < 1.0", False, id="less"),
        pytest.param("spent_usd == 1.0", False, id="just as much"),
        pytest.param("spent_usd != 1.0", False, id="more, or less"),
        pytest.param("steps > 3", False, id="steps may be given back"),
        pytest.param("window_tokens > 3", False, id="the window may shrink"),
        pytest.param("tokens > calls", False, id="both rise"),
        pytest.param('agent_state == "COMPLETED"', False, id="a text"),
        pytest.param("spent_usd > 1 and steps > 1", False, id="one that may go back"),
    ],
)
def test_what_is_proved_to_last(text: str, lasts: bool) -> None:
    """It is known beforehand of which questions the answer can never go back to no."""
    assert lasts is state_question(text).lasts


@pytest.mark.parametrize("text", ["", "   "])
def test_nothing_is_no_question(text: str) -> None:
    """Of a state something must be asked: what is always true is found at the first event, and says
    nothing.
    """
    with pytest.raises(BadQuestion):
        state_question(text)


@given(driver=driven())
def test_what_is_said_to_rise_never_falls(driver: Driver) -> None:
    """Along every log, a field that is said to rise does."""
    rising = [field for field in STATE_FIELDS.values() if getattr(field, "rises", False)]
    assert {"seq", "elapsed", "spent_usd", "ended"} <= {field.name for field in rising}
    state = NEW
    last: dict[str, Any] = {field.name: field.of(NEW) for field in rising}
    for stored in kept(driver.log):
        state = fold_event(state, stored, event_of(stored), NO_GUARDS)
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


CONDITIONS: st.SearchStrategy[Node] = st.one_of(
    st.builds(Between, st.sampled_from(sorted(NUMBERS)), st.integers(0, 9), st.none() | st.integers(9, 20)),
    st.builds(Between, st.sampled_from(sorted(NUMBERS)), st.none(), st.integers(0, 20)),
    st.builds(
        Beside, st.sampled_from(sorted(NUMBERS)), st.sampled_from(["<", ">=", "=="]), st.just((1, 0)), st.sampled_from(sorted(NUMBERS))
    ),
    st.builds(Is, st.sampled_from(sorted(TEXTS)), st.sampled_from(["RUNNING", "ERROR", "x"])),
    st.builds(Says, st.sampled_from(sorted(FLAGS)), st.booleans()),
)  # fmt: skip
TREES: st.SearchStrategy[Node] = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(Every, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Some, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)


@given(tree=TREES, driver=driven())
def test_what_is_proved_to_last_does(tree: Node, driver: Driver) -> None:
    """A question of which it is proved that it stays true is never taken back, in any log."""
    question = Question("", tree, STATES)
    if not question.lasts:
        return
    answers = [question.matches(state) for state in driver.states]
    assert sorted(answers) == answers
