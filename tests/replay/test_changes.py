"""What events change of a state, told field by field: nothing is lost on the way from one state to the
next.
"""

from collections.abc import Mapping
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers import fold
from refold.reducers.events import Event, PolicyAmended
from refold.reducers.state import NEW, Batch, CallState, RunState, Spent
from refold.reducers.vocabulary import Cause
from refold.replay.why import state_changes
from refold.testing.strategies.driver import Driver
from refold.testing.strategies.logs import runs
from support import golden
from support.state_fields import applied, fields_of

CHANGES = import_module("refold.replay.why")
BROUGHT = ("setup.policy", "setup.tools")  # told by the event that brought them: no state knows which


def told(fields: Mapping[str, str]) -> dict[str, str]:
    return {path: value for path, value in fields.items() if path not in BROUGHT}


def changes_add_up(log: list[Event]) -> None:
    state, fields = NEW, fields_of(NEW)
    for event in log:
        after = fold([event], state)
        fields = applied(fields, state_changes(state, after))
        assert told(fields_of(after)) == told(fields)
        state = after


@pytest.mark.parametrize("name", golden.names())
def test_the_changes_of_a_log_add_up_to_its_states(name: str) -> None:
    """Applied one after the other from the start, the changes give the fields of every state of the log."""
    changes_add_up(golden.events(name))


@given(runs())
def test_the_changes_of_any_log_add_up(run: Driver) -> None:
    """Whatever happened in a run, its changes give the fields of every state."""
    changes_add_up(run.log)


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        pytest.param(NEW, NEW, {}, id="nothing changed"),
        pytest.param(NEW, RunState(seq=5, at=7), {}, id="its place in the log is no change"),
        pytest.param(
            RunState(spent=Spent(steps=1)),
            RunState(spent=Spent(steps=2)),
            {"spent.steps": "2"},
            id="a number",
        ),
        pytest.param(
            RunState(spent=Spent(steps=1, calls=1)),
            RunState(spent=Spent(calls=1)),
            {"spent.steps": None},
            id="back to its default: it is gone",
        ),
        pytest.param(RunState(model="m"), RunState(model="n"), {"model": '"n"'}, id="a text, as JSON"),
        pytest.param(
            RunState(batch=Batch(seq=3, number=3, calls=(CallState(id="c1", name="x", position=0),))),
            NEW,
            {"batch": None},
            id="what goes as a whole goes with all that was below it",
        ),
        pytest.param(
            NEW,
            RunState(spent=Spent(tally={Cause.GUARD: {"a.b": 1}})),
            {"spent.tally.guard.a\\.b": "1"},
            id="a dot in a key is not one of the path",
        ),
    ],
)
def test_what_is_told(before: RunState, after: RunState, changes: dict[str, str | None]) -> None:
    """One row a rule; the id says the rule."""
    assert changes == state_changes(before, after)


def test_a_long_list_is_told_by_its_length() -> None:
    """What may shift with every event is not written out at every event."""
    many = {f"guard{place}": place for place in range(CHANGES._MOST + 1)}
    some, others = (
        RunState(spent=Spent(tally={Cause.GUARD: tally})) for tally in (many, {**many, "guard0": 99})
    )
    assert {"spent.tally.guard": '"13 entries"'} == state_changes(NEW, some)
    assert {} == state_changes(some, others)


def test_the_policy_is_told_by_its_event() -> None:
    """An amended policy is a change, and says in which event it stands."""
    log = golden.events("two_tools_then_an_answer")[:3]
    state = fold(log)
    policy = state.policy.__class__(end_of_turn="wait")
    after = fold([PolicyAmended(at=state.at, policy=policy, by="ann")], state)
    assert "4" == state_changes(state, after)["setup.policy"]


@given(st.dictionaries(st.text("ab.\\", max_size=4), st.integers(1, 3), max_size=4), st.data())
def test_no_key_is_mistaken_for_another(tally: dict[str, int], data: st.DataObject) -> None:
    """Keys with dots and strokes in them come and go without touching their neighbours."""
    other = data.draw(
        st.dictionaries(st.sampled_from([*tally, "a", "a.b", "b"]), st.integers(1, 3), max_size=4)
    )
    before, after = (RunState(spent=Spent(tally={Cause.GUARD: each})) for each in (tally, other))
    assert fields_of(after) == applied(fields_of(before), state_changes(before, after))
