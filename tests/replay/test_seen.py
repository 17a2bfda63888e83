"""What a model saw, told as changes from one call to the next: put together again it is what `view` says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.reducers import fold
from refold.reducers.events import Event, ModelRequested
from refold.reducers.state import NEW
from refold.reducers.views import view
from refold.replay.seen import RequestView, Splice, Views, list_splices
from refold.testing.strategies.driver import Driver
from refold.testing.strategies.logs import runs
from support import golden


def view_after(view: list[int], call: RequestView) -> list[int]:
    """The messages of a call, by their places in `Views.shown`, made of the view before it (without its
    `once`).
    """
    made = list(view)
    for splice in call.splices:
        made[splice.place : splice.place + splice.removed] = splice.added
    return made


def views_are_those_of_view(log: list[Event]) -> int:
    """Follow a log; how many calls were compared."""
    views, state, compared = Views(), NEW, 0
    contents: dict[int, Event] = {}
    shown: list[int] = []
    for seq, event in enumerate(log, 1):
        state = fold([event], state)
        contents[seq] = event
        if isinstance(event, ModelRequested):
            call = views.take(state, contents)
            assert call is not None
            shown = view_after(shown, call)
            messages = [views.shown[place].message for place in (*shown, *call.once)]
            assert list(view(state, contents)) == messages
            compared += 1
    return compared


@pytest.mark.parametrize("name", golden.names())
def test_the_calls_of_a_log_saw_what_view_says(name: str) -> None:
    """Pruned, trimmed, summed up and nudged: every view of every recorded log is put together exactly."""
    assert views_are_those_of_view(golden.events(name)) > 0


@given(runs())
def test_the_calls_of_any_log_saw_what_view_says(run: Driver) -> None:
    """Whatever happened in a run, its calls saw what the changes add up to."""
    views_are_those_of_view(run.log)


def test_a_message_stands_once_however_often_it_is_seen() -> None:
    """What is kept of a run's views grows with its messages, and not with the square of its calls."""
    log = golden.events("a_digest_after_256_events")
    views, state = Views(), NEW
    contents: dict[int, Event] = {}
    for seq, event in enumerate(log, 1):
        state, contents[seq] = fold([event], state), event
        if isinstance(event, ModelRequested):
            views.take(state, contents)
    numbers = [each.number for each in views.shown]
    assert len(set(numbers)) == len(numbers)


def test_an_erased_message_is_seen_to_be_gone() -> None:
    """Where the words were erased the message has none, and stays in its place."""
    log = golden.events("two_tools_then_an_answer")
    views, state = Views(), NEW
    contents: dict[int, Event] = {}
    for seq, event in enumerate(log, 1):
        state = fold([event], state)
        contents[seq] = replace(event, content=None) if seq == 1 else event
        if isinstance(event, ModelRequested):
            views.take(state, contents)
    assert views.shown[0].message is None
    assert views.shown[-1].message is not None


@given(st.lists(st.integers(0, 30), unique=True), st.data())
def test_splices_make_one_list_of_the_other(old: list[int], data: st.DataObject) -> None:
    """Whatever went and came, as long as nothing changed places, the splices give the new list."""
    kept = [each for each in old if data.draw(st.booleans())]
    new: list[int] = []
    fresh = iter(range(100, 200))
    for each in [*kept, None]:
        new += [next(fresh) for _ in range(data.draw(st.integers(0, 2)))]
        new += [] if each is None else [each]
    made = list(old)
    for splice in list_splices(0, old, new):
        made[splice.place : splice.place + splice.removed] = splice.added
    assert new == made


def test_what_stays_costs_nothing() -> None:
    """Of two equal views nothing is told, and of one message more only that."""
    assert [] == list(list_splices(0, [1, 2, 3], [1, 2, 3]))
    assert [Splice(3, 0, (4,))] == list(list_splices(0, [1, 2, 3], [1, 2, 3, 4]))
    assert [Splice(1, 1, ()), Splice(2, 0, (4,))] == list(list_splices(0, [1, 2, 3], [1, 3, 4]))
