"""The requests of a run, made by going on from the last one: each is what going through the whole window
makes.
"""

import sys
from collections.abc import Sequence
from itertools import accumulate
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.engine.conversation import Conversation, hash_request, request_for
from refold.engine.journal import Journal
from refold.engine.models.protocol import KeptMessages, Messages
from refold.engine.result import result_of
from refold.engine.tenure import Tenure
from refold.reducers.events import Event, HistoryPruned, ModelRequested, Opening, PolicyAmended
from refold.reducers.evolution import evolve
from refold.reducers.messages import Message, MessageCall, Size
from refold.reducers.state import NEW, RunState
from refold.reducers.text import TEXTS
from refold.reducers.views import MissingContent, needed_to_go_on, view
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, Window, extend
from refold.store import MemoryStore
from refold.testing.strategies.driver import Driver
from refold.testing.strategies.logs import runs
from support import golden
from support.scenario import Scenario
from support.strategies import scaled

ANYTHING = ModelRequested(step=1, attempt=1, view="", messages=(), input_tokens=0)


def states_of(log: Sequence[Event]) -> list[RunState]:
    """The state after each event."""
    return list(accumulate(log, evolve, initial=NEW))[1:]


def said_in(log: Sequence[Event]) -> dict[int, Event]:
    return dict(enumerate(log, 1))


def agree(conversation: Conversation, state: RunState, contents: dict[int, Event]) -> None:
    """The request and its digest are those of a conversation that begins here."""
    wanted = state.request.event if state.request else ANYTHING
    whole, request = request_for(wanted, state, contents), conversation.request(wanted, state, contents)
    assert whole == request
    assert view(state, contents) == tuple(request.messages)
    assert hash_request(wanted, state, whole) == conversation.sent(wanted, state, request)


@pytest.mark.parametrize("name", golden.names())
def test_it_is_right_after_every_event_of_a_log(name: str) -> None:
    """Pruned, trimmed, summed up, nudged, forked and amended: the requests of every recorded log are made
    exactly.
    """
    conversation, log = Conversation(), golden.events(name)
    for state in states_of(log):
        agree(conversation, state, said_in(log))


@given(runs(), st.lists(st.integers(0, 10**6), max_size=20), st.data())
def test_it_is_right_after_every_event_of_any_run(run: Driver, more: list[int], data: st.DataObject) -> None:
    """Whatever happens in a run, asked after each event or now and then, and also if it goes back to an older
    state.
    """
    if more and not run.state.ended:
        policy = run.state.policy
        texts = {key: f"other: {text}" for key, text in {**TEXTS, **policy.texts}.items()}
        run.feed(PolicyAmended(at=run.at, policy=replace(policy, texts=texts), by="ann"))
        for choice in more:
            run.step(choice)
    always, sometimes = Conversation(), Conversation()
    states, contents = states_of(run.log), said_in(run.log)
    for state in states:
        agree(always, state, contents)
    for place in data.draw(st.lists(st.integers(0, len(states) - 1), max_size=9)):
        agree(sometimes, states[place], contents)


@given(runs())
def test_a_kept_request_does_not_change(run: Driver) -> None:
    """What a model was shown stays what it was, whatever the run's later requests show."""
    conversation = Conversation()
    kept: list[tuple[Sequence[Message], tuple[Message, ...]]] = []
    for state in states_of(run.log):
        messages = conversation.messages(state, said_in(run.log))
        kept.append((messages, tuple(messages)))
    assert all(then == now for now, then in kept)


@given(runs(), st.data())
def test_words_that_are_gone_are_missed(run: Driver, data: st.DataObject) -> None:
    """Where `view` misses words so does a conversation, and it is right again once they are not needed any
    more.
    """
    conversation, contents = Conversation(), said_in(run.log)
    del contents[data.draw(st.integers(1, len(run.log)))]
    for state in states_of(run.log):
        try:
            expected = view(state, contents)
        except MissingContent as error:
            with pytest.raises(MissingContent, match=str(error)):
                conversation.messages(state, contents)
        else:
            assert expected == conversation.messages(state, contents)


MESSAGES = tuple(Message(role=Role.USER, text=str(number)) for number in range(300))
ID, NAME = st.sampled_from("abc"), st.sampled_from("tu")
CALLS = st.lists(st.builds(MessageCall, ID, NAME, st.just("")), max_size=2).map(tuple)
TORN = st.builds(Message, role=st.just(Role.ASSISTANT), calls=CALLS) | st.builds(
    Message, role=st.just(Role.TOOL), call=ID, name=st.none() | NAME
)


def follow(pool: Sequence[Message], windows: Sequence[Sequence[int]]) -> None:
    """Show these messages of the pool, by their places, in one window after the other."""
    conversation = Conversation()
    opening = golden.events("two_tools_then_an_answer")[0]
    contents: dict[int, Event] = {1: replace(opening, content=Opening(messages=tuple(pool)))}
    refs = [
        MessageRef(
            number=part + 1, role=message.role, seq=1, part=part, unit=1, size=Size(), call=message.call
        )
        for part, message in enumerate(pool)
    ]
    for window in windows:
        shown = [refs[place] for place in dict.fromkeys(window)]
        agree(conversation, replace(NEW, window=extend(Window(), shown)), contents)


@settings(max_examples=scaled(200))
@given(st.lists(TORN, min_size=9, max_size=9), st.lists(st.lists(st.integers(0, 8), max_size=9), max_size=9))
def test_it_is_right_for_windows_that_no_run_has(pool: list[Message], windows: list[list[int]]) -> None:
    """In a forged log calls may share an id, and units be torn: the requests are those of `view` all the
    same.
    """
    follow(pool, windows)


def unit(number: int, hidden: int) -> list[Message]:
    """A reply with three calls, and the results of all but so many."""
    made = [MessageCall(f"{number}.{place}", f"tool{place}", "") for place in range(3)]
    reply = Message(role=Role.ASSISTANT, text=str(number), calls=tuple(made), provider_data="x")
    return [reply, *[Message(role=Role.TOOL, call=call.id) for call in made[hidden:]]]


@settings(max_examples=scaled(100))
@given(
    st.lists(st.integers(0, 3), min_size=9, max_size=9),
    st.lists(st.sets(st.integers(0, 8)), max_size=9),
    st.data(),
)
def test_it_is_right_whatever_units_leave_and_come(
    hidden: list[int], windows: list[set[int]], data: st.DataObject
) -> None:
    """Units may leave a window wherever they stand in it, and come back; so may parts of one."""
    pool, places = list[Message](), list[list[int]]()
    for number, count in enumerate(hidden):
        places.append(list(range(len(pool), len(pool) + 4 - count)))
        pool += unit(number, count)
    shown = [[place for number in sorted(window) for place in places[number]] for window in windows]
    parts = [data.draw(st.integers(0, 3)) for _ in shown]
    follow(pool, [window[: len(window) - part] for window, part in zip(shown, parts, strict=True)])


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(100, 400), st.integers(0, 400)), max_size=6))
def test_it_is_right_for_windows_of_many_chunks(cuts: list[tuple[int, int, int]]) -> None:
    """A long window grows, and loses messages in front, behind or anywhere: only its first chunks may be
    taken unseen.
    """
    windows = [[place for place in range(begin, end) if place != hole] for begin, end, hole in cuts]
    follow([Message(role=Role.USER, text=str(number)) for number in range(400)], windows)


TWICE = [
    pytest.param([[0, 1], [0, 1, 2, 3], [2, 3], []], id="two replies of one id, and they leave in turn"),
    pytest.param([[0], [0, 2, 3], [0, 3]], id="a call that has no result, and one of its id that has"),
    pytest.param([[0, 1], [3], [3, 2]], id="a result that stays without its reply"),
]


@pytest.mark.parametrize("windows", TWICE)
def test_calls_that_share_an_id_are_told_apart(windows: list[list[int]]) -> None:
    """What is shown of a call goes by the window that it stands in, not by what had its id before."""
    reply = Message(role=Role.ASSISTANT, calls=(MessageCall("a", "t", ""),))
    other = Message(role=Role.ASSISTANT, calls=(MessageCall("a", "u", ""),))
    result = Message(role=Role.TOOL, call="a")
    follow([reply, result, other, result], windows)


def test_a_view_that_failed_half_way_leaves_nothing_behind() -> None:
    """Words that are missed while the whole window is gone through spoil no later request."""
    opening = golden.events("two_tools_then_an_answer")[0]
    contents: dict[int, Event] = {1: replace(opening, content=Opening(messages=MESSAGES[:4]))}
    one, two, three, four = [
        MessageRef(number=part + 1, role=Role.ASSISTANT, seq=1, part=part, unit=part + 1, size=Size())
        for part in range(4)
    ]
    gone = replace(four, number=5, seq=2)
    conversation = Conversation()
    agree(conversation, replace(NEW, window=extend(Window(), (one, two, three))), contents)
    with pytest.raises(MissingContent):
        conversation.messages(replace(NEW, window=extend(Window(), (two, four, three, gone))), contents)
    agree(conversation, replace(NEW, window=extend(Window(), (two, four, three))), contents)


def test_it_looks_at_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that only grew, or that lost units and grew, is not gone through."""
    scenario = Scenario({"history": [{"do": "tail", "last": 4}], "limits": [{"type": "step", "value": None}]})
    conversation = Conversation()
    monkeypatch.setattr(Conversation, "_rebuild", None)
    for _ in range(9):
        agree(conversation, scenario.state, said_in(scenario.log))
        scenario.step("look", "look")
    assert scenario.events(HistoryPruned)


def calls_of_a_step(window: int) -> int:
    """How many functions, Python's and C's, are called for a request of so many messages, two of them new."""
    conversation, texts = Conversation(), [Message(role=Role.USER, text="x")] * (window + 2)
    contents: dict[int, Event] = {}
    contents[1] = replace(
        golden.events("two_tools_then_an_answer")[0], content=Opening(messages=tuple(texts))
    )
    refs = [
        MessageRef(number=part + 1, role=Role.USER, seq=1, part=part, unit=part + 1, size=Size())
        for part in range(window + 2)
    ]
    grown = [extend(Window(), refs[:window])]
    grown.append(extend(grown[0], refs[window:]))
    before, after = [replace(NEW, window=shown) for shown in grown]
    conversation.sent(ANYTHING, before, conversation.request(ANYTHING, before, contents))
    called = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal called
        called += event in {"call", "c_call"}

    profile = sys.getprofile()
    sys.setprofile(count)
    try:
        conversation.sent(ANYTHING, after, conversation.request(ANYTHING, after, contents))
    finally:
        sys.setprofile(profile)
    return called


def test_a_request_costs_what_is_new_in_it() -> None:
    """A window of 20,000 messages takes as many calls as one of 100 to show two more."""
    assert calls_of_a_step(100) == calls_of_a_step(100 + 128 * 155)


@given(st.lists(st.integers(0, 5), max_size=8), st.integers(0, 300), st.data())
def test_a_list_that_lost_messages_has_the_heads_of_the_others(
    own: list[int], count: int, data: st.DataObject
) -> None:
    """However a list of messages came about, its heads are those of the messages in it."""
    kept = KeptMessages()
    for message in MESSAGES[:count]:
        kept.add(message)
    kept.head(data.draw(st.integers(0, count)))
    begin = data.draw(st.integers(0, count))
    end = data.draw(st.integers(begin, count))
    left, again = kept.without(begin, end), KeptMessages()
    for message in MESSAGES[:begin] + MESSAGES[end:count]:
        again.add(message)
    for upto in (data.draw(st.integers(0, len(left.messages))), len(left.messages)):
        assert again.head(upto) == left.head(upto)


@given(st.integers(0, 4), st.integers(0, 3), st.data())
def test_messages_are_read_as_a_tuple_is(lasting: int, own: int, data: st.DataObject) -> None:
    """Length, order, places from either end, slices, equality and hash are those of a tuple of the same
    messages.
    """
    kept = KeptMessages()
    for message in MESSAGES[:lasting]:
        kept.add(message)
    plain, messages = MESSAGES[: lasting + own], Messages(kept, MESSAGES[lasting : lasting + own])
    kept.add(MESSAGES[299])
    assert plain == tuple(messages)
    assert plain == messages
    assert (len(plain), hash(plain), repr(plain)) == (len(messages), hash(messages), repr(messages))
    place, cut = data.draw(st.integers(-9, 9)), data.draw(st.slices(8))
    assert plain[cut] == messages[cut]
    if -len(plain) <= place < len(plain):
        assert plain[place] == messages[place]
    else:
        with pytest.raises(IndexError):
            messages[place]
    assert list(plain) != messages


@pytest.mark.parametrize("last", [4, 40])
def test_the_words_that_are_kept_follow_the_window(last: int) -> None:
    """However long a pruned run goes on, no more is kept than its window needs, a quarter of that and a
    few.
    """
    scenario = Scenario(
        {"history": [{"do": "tail", "last": last}], "limits": [{"type": "step", "value": None}]}
    )
    store = MemoryStore()
    journal, before = Journal(store, "r1", Tenure(store, "r1", 1.0)), NEW
    most = 0
    for _ in range(200):
        journal.keep(before, scenario.state, scenario.log[before.seq :])
        assert view(scenario.state, journal.contents) == journal.conversation.messages(
            scenario.state, journal.contents
        )
        most = max(most, len(needed_to_go_on(scenario.state)))
        assert len(journal.contents) <= most * 5 // 4 + 40
        assert len(journal.conversation._names) <= last + 2
        before = scenario.state
        scenario.step("look", text="I look.")


def test_a_result_has_the_messages_of_view() -> None:
    """A run that stops and goes on shows in its results what the next request would."""
    scenario = Scenario({"end_of_turn": "wait"})
    conversation, words = Conversation(), dict[int, Event]()
    for answer in ("one", "two"):
        scenario.answer(answer)
        words |= said_in(scenario.log)
        assert result_of(scenario.state, words) == result_of(scenario.state, words, conversation.messages)
        scenario.say("And now?")
