"""Imported runs: the end of a source that shows no request, under any policy; and how a run goes on from
there.
"""

from typing import Any

import pytest

from refold.reducers import composition
from refold.reducers.composition import observed
from refold.reducers.events import ContextObserved, InputReceived, ToolReturned
from refold.reducers.evolution import state_digest
from refold.reducers.folds import decode_snapshot, encode_snapshot
from refold.reducers.machine import AgentState
from support.scenario import SALT, Scenario

ENDS = [
    "state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done",
    "state_changed from=RUNNING to=WAITING_FOR_INPUT trigger=ask code=no_request",
]


def ended(policy: dict[str, Any]) -> tuple[Scenario, list[str]]:
    """A run whose source ends with a result, and what was decided on that."""
    scenario = Scenario(policy)
    scenario.answer("I look", ("look", "{}"))
    fact = ToolReturned(at=scenario.at, call="c1", no_request=True)
    return scenario, scenario.feed(composition.returned(scenario.state, fact, "ok", "look", "", SALT))


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({"preset": "observed"}, id="none"),
        pytest.param({"limits": [{"type": "step", "value": 1}]}, id="steps"),
        pytest.param({"limits": [{"type": "message", "value": 4}]}, id="messages"),
        pytest.param(
            {"limits": [{"type": "token", "measure": "estimate", "value": 9}]}, id="tokens of a view"
        ),
        pytest.param({"limits": [{"type": "step", "value": 1}], "grace": {}}, id="a last word"),
        pytest.param(
            {"history": [{"do": "drop_oldest", "fraction": 0.5, "when": {"messages": 2}}]}, id="history"
        ),
        pytest.param({"preset": "inspect-iterative"}, id="a nudge"),
    ],
)
def test_nothing_is_judged_of_a_request_that_was_not_made(policy: dict[str, Any]) -> None:
    """After the last fact of such a source the machine waits, whatever the policy has for the next
    request.
    """
    _, decisions = ended(policy)
    assert ENDS == decisions


def test_a_message_goes_on() -> None:
    """A person's message is answered with a request, as after any other wait."""
    scenario, _ = ended({"preset": "observed"})
    scenario.say("go on")
    assert scenario.state.request is not None
    assert not scenario.state.no_request


def test_what_the_source_shows_later_goes_on() -> None:
    """A source that grew has its run go on: the model was asked."""
    scenario, _ = ended({"preset": "observed"})
    fact = ContextObserved(at=scenario.at, continues=True)
    scenario.feed(observed(scenario.state, fact, (), SALT))
    assert scenario.state.request is not None
    assert not scenario.state.no_request


def test_a_message_at_the_end_is_not_asked_about() -> None:
    """A person's message that nothing followed is in the window, and the machine waits again."""
    scenario, _ = ended({"preset": "observed"})
    fact = InputReceived(at=scenario.at, no_request=True)
    scenario.feed(composition.received(scenario.state, fact, "and?", SALT))
    assert AgentState.WAITING_FOR_INPUT is scenario.state.agent_state
    assert scenario.state.no_request
    assert ("user", "and?") == scenario.seen()[-1]


def test_the_end_is_remembered() -> None:
    """A snapshot keeps it, and a digest of the state tells it."""
    scenario, _ = ended({"preset": "observed"})
    other = Scenario({"preset": "observed"})
    other.answer("I look", ("look", "{}"))
    data = encode_snapshot(scenario.state)
    assert data is not None
    assert scenario.state == decode_snapshot(data)
    assert state_digest(scenario.state).state != state_digest(other.state).state
