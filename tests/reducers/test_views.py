"""What the model sees, word for word."""

import msgspec
import pytest

from refold.reducers.errors import Inconclusive
from refold.reducers.events import Event
from refold.reducers.messages import Message, MessageCall
from refold.reducers.text import TEXTS
from refold.reducers.views import MissingContent, needed, view
from refold.reducers.vocabulary import Role
from support.scenario import Scenario


def contents(scenario: Scenario) -> dict[int, Event]:
    return dict(enumerate(scenario.log, 1))


OPENING = [Message(role=Role.SYSTEM, text="be good"), Message(role=Role.USER, text="do it")]


def test_results_stand_in_call_order() -> None:
    """However they arrive, results follow their answer in the order of its calls."""
    scenario = Scenario()
    scenario.answer("both", ("look", '{"a":1}'), ("act", "{broken"))
    scenario.result("c2", "second")
    scenario.result("c1", "first")
    calls = (MessageCall("c1", "look", '{"a":1}'), MessageCall("c2", "act", "{broken"))
    expected = [
        *OPENING,
        Message(role=Role.ASSISTANT, text="both", calls=calls),
        Message(role=Role.TOOL, text="first", call="c1"),
        Message(role=Role.TOOL, text="second", call="c2"),
    ]
    assert expected == [
        msgspec.structs.replace(message, name=None) for message in view(scenario.state, contents(scenario))
    ]


def test_what_a_person_and_the_harness_say() -> None:
    """A person's message, and the harness's own words, stand where they were said."""
    scenario = Scenario({"end_of_turn": "wait"})
    scenario.answer("well?")
    scenario.say("yes")
    assert [
        *OPENING,
        Message(role=Role.ASSISTANT, text="well?"),
        Message(role=Role.USER, text="yes"),
    ] == list(view(scenario.state, contents(scenario)))
    nudged = Scenario({"end_of_turn": "continue", "texts": {"continue": "Do go on."}})
    nudged.answer("hm")
    assert Message(role=Role.USER, text="Do go on.") == view(nudged.state, contents(nudged))[-1]


def test_a_refusal_is_the_result_of_its_call() -> None:
    """The model is told in the policy's words why a call was not run."""
    scenario = Scenario({"guards": [{"guard": "repetition", "repeats": 0}]})
    scenario.answer("", ("act", "{}"))
    last = view(scenario.state, contents(scenario))[-1]
    assert (Role.TOOL, "c1", TEXTS["refused:repetition"]) == (last.role, last.call, last.text)


def test_what_was_pruned_is_not_seen() -> None:
    """The view is of the window, not of the log."""
    opening = (*OPENING, Message(role=Role.ASSISTANT, text="old"), Message(role=Role.USER, text="new"))
    scenario = Scenario({"history": [{"do": "tail", "last": 1}]}, messages=opening)
    assert [*OPENING, opening[3]] == list(view(scenario.state, contents(scenario)))


def test_only_what_is_seen_is_needed() -> None:
    """A view names the events whose contents it needs, each once, ascending."""
    scenario = Scenario()
    scenario.answer("", ("look", "{}"), ("look", "{}"))
    assert (1, 3) == needed(scenario.state)
    scenario.result("c2")
    scenario.result("c1")
    assert (1, 3, 6, 7) == needed(scenario.state)


@pytest.mark.parametrize("how", ["absent", "erased"])
def test_missing_content(how: str) -> None:
    """Words that are not there are said to be missing, by their event; nothing is made up."""
    scenario = Scenario()
    scenario.answer("", ("look", "{}"))
    have = contents(scenario)
    if how == "absent":
        del have[3]
    else:
        have[3] = msgspec.structs.replace(have[3], content=None)
    with pytest.raises(MissingContent, match="run r1 event 3") as caught:
        view(scenario.state, have)
    assert isinstance(caught.value, Inconclusive)
    assert 3 == caught.value.seq
