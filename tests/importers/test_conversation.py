"""The conversation behind the readers: what stays of it after a cut, and what a run begins with that forks
from another.
"""

from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.importers.derivation.gap import conversations
from refold.importers.derivation.units import units_of
from refold.importers.items import Item, Place, Prompted, RunBegan, Unread
from refold.importers.session_rows import (
    ALL,
    BEGINNING,
    Cut,
    Forked,
    cut_to_summary,
    drop_orphan_results,
    list_ranges,
    since,
)
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role
from support.told import answered, began, reply, result, returned, said, system, user

HEAD = replace(began(system("You are.")), cuts=None)
TALK = [
    replace(item, row=row)
    for row, item in enumerate(
        (
            said("one"),
            answered("a", "c1:ls", "c2:cat"),
            returned("c1", "x"),
            returned("c2", "y"),
            said("two"),
        ),
        1,
    )
]
SUMMARY = Place("cut").message("S", "harness")


cut = partial(Cut, position="cut", why="compaction")


def texts(messages: Iterable[Message]) -> list[str]:
    """What each says, a result behind its call."""
    return [message.text for message in messages]


def prompts(*items: Item) -> list[list[str]]:
    """What each prompt among the items shows, once cuts are told as such."""
    return [texts(item.messages) for item in conversations(items) if isinstance(item, Prompted)]


@pytest.mark.parametrize(
    ("how", "shown"),
    [
        pytest.param(cut(joins=(SUMMARY,)), ["S"], id="a summary alone"),
        pytest.param(cut_to_summary(Place("cut"), "S", tail=since(5)), ["S", "two"], id="and what came since a row"),
        pytest.param(cut(head=list_ranges([BEGINNING]), joins=(SUMMARY,)), ["You are.", "S"], id="behind the beginning"),
        pytest.param(cut(head=list_ranges([0, 1]), joins=(SUMMARY,), tail=list_ranges([5])), ["You are.", "one", "S", "two"], id="between"),
        pytest.param(cut(tail=list_ranges([2, 4]), between=True), ["a", "x", "y"], id="from one row to another"),
        pytest.param(cut(tail=list_ranges([2, 3])), ["a", "x"], id="no call whose result left"),
        pytest.param(cut(tail=list_ranges([3, 5])), ["two"], id="no result whose call left"),
        pytest.param(cut(why="rollback", turns=1, head=ALL), ["You are.", "one", "a", "x", "y"], id="one turn back"),
        pytest.param(cut(why="rollback", turns=2, head=ALL), ["You are."], id="all turns back"),
        pytest.param(cut(why="rollback", turns=9, head=ALL), ["You are."], id="more turns than there were"),
        pytest.param(
            cut(head=ALL, cleared={"c2": "gone"}), ["You are.", "one", "a", "x", "gone", "two"], id="a result cleared"
        ),
    ],
)  # fmt: skip
def test_a_cut_leaves(how: Cut, shown: list[str]) -> None:
    """One row a way to say what stays."""
    assert [shown] == prompts(HEAD, *TALK, how)


def test_a_call_whose_result_left_leaves_with_it() -> None:
    """Of an answer that stays, the calls stay whose results do."""
    (prompt,) = [
        item
        for item in conversations([HEAD, *TALK, cut(tail=list_ranges([2, 3]))])
        if isinstance(item, Prompted)
    ]
    assert ["c1"] == [call.id for call in prompt.messages[0].calls]


def test_a_cut_cuts_what_the_cut_before_it_left() -> None:
    """What a summary replaced does not come back, and a summary without a row is named by no later cut."""
    first, second = (
        cut_to_summary(Place("cut"), name, tail=since(row)) for name, row in (("S1", 5), ("S2", 1))
    )
    assert [["S1", "two"], ["S2", "two", "three"]] == prompts(
        HEAD, *TALK, first, replace(said("three"), row=6), second
    )


def test_what_was_cleared_before_is_no_cut() -> None:
    """Where no result is cleared that was not, the conversation is the same, and nothing is told."""
    clearing = cut(head=ALL, cleared={"c2": "gone"})
    assert 1 == len(prompts(HEAD, *TALK, clearing, clearing))
    assert [] == prompts(HEAD, *TALK, cut(head=ALL, cleared={"c9": "gone"}))


def test_a_fork_begins_with_what_was_said_up_to_it() -> None:
    """Whatever the run goes on with, and whatever cuts it later."""
    fork, later = Forked(position="fork", key="branch"), [said("three"), cut(joins=(SUMMARY,))]
    branch = replace(began(), key="branch", parent="k")
    _, first = [
        item for item in conversations([HEAD, *TALK, fork, *later, branch]) if isinstance(item, RunBegan)
    ]
    assert ["You are.", "one", "a", "x", "y", "two"] == texts(first.messages)


@given(cuts=st.integers(0, 3), more=st.booleans())
def test_texts_are_held_while_a_cut_may_come(cuts: int, *, more: bool) -> None:
    """A run that says how many cuts come is told them as one that says nothing; one too many, of a file that
    grew meanwhile, is unread: nothing is held that it could cut.
    """
    items = [*TALK, *[cut(why="rollback", turns=1, head=ALL)] * cuts]
    assert prompts(HEAD, *items) == prompts(replace(HEAD, cuts=cuts + more), *items)
    last = [*conversations([replace(HEAD, cuts=cuts), *items, cut()])][-1]
    assert isinstance(last, Unread)


def test_a_result_without_any_call_is_left_out() -> None:
    """A result for which no call is open is in no prompt that a cut leaves; two calls of one id wait for two
    results.
    """
    loose, repeated = result("c1", "r"), reply("", "c1")
    assert () == drop_orphan_results((loose,))
    assert (repeated, loose) == drop_orphan_results((repeated, loose, loose))
    assert (user("go"), repeated, repeated, loose, loose) == drop_orphan_results(
        (user("go"), repeated, repeated, loose, loose)
    )


@pytest.mark.parametrize(
    ("results", "names"),
    [
        pytest.param([("b", None), ("a", None)], ["ls", "cat"], id="by id"),
        pytest.param([("", "cat"), ("", "ls")], ["ls", "cat"], id="without ids by tool"),
        pytest.param([("", None), ("x", None)], ["ls", "cat"], id="else in their order"),
        pytest.param([("a", None), ("a", None)], ["ls", "cat"], id="of one id in their order"),
    ],
)
def test_results_stand_in_the_order_of_their_calls(
    results: list[tuple[str, str | None]], names: list[str]
) -> None:
    """Each is found by its id, else by its tool, else by its place; and has the name of its call's tool."""
    asks = Message(role=Role.ASSISTANT, calls=(MessageCall("a", "ls", "{}"), MessageCall("b", "cat", "{}")))
    given = [Message(role=Role.TOOL, text="", call=call, name=name) for call, name in results]
    (unit,) = units_of([asks, *given])
    assert (names, ["0", "1"]) == (
        [each.name for each in unit.messages[1:]],
        [each.call for each in unit.messages[1:]],
    )
