"""What recoveries have in common: each has a count of its own, which begins anew with its scope."""

from typing import Any

import pytest

from refold.reducers.vocabulary import FailureClass, StopReason
from support.scenario import Scenario

CUT = StopReason.MAX_TOKENS
BROKEN = FailureClass.STREAM_BROKEN

# Off unless a test says otherwise: one recovery at a time.
QUIET: dict[str, Any] = {"stream": None, "retry": {"jitter": {"add": 0}}}


@pytest.mark.parametrize(
    ("scope", "again_in_turn", "again_in_fork"),
    [
        pytest.param("turn", True, True, id="turn"),
        pytest.param("run", False, True, id="run"),
        pytest.param("lineage", False, False, id="lineage"),
    ],
)
@pytest.mark.parametrize("knob", ["truncation", "stream", "overflow"])
def test_scopes_of_recoveries(knob: str, scope: str, again_in_turn: bool, again_in_fork: bool) -> None:
    """A count begins anew with its scope: with a person's message, with a fork, or never."""
    policy = {
        **QUIET,
        "end_of_turn": "wait",
        "overflow": {"do": [{"do": "tail", "last": 1}], "max": 1, "scope": scope},
        "truncation": {"max": 1, "scope": scope} if knob == "truncation" else None,
        "stream": {"max": 1, "scope": scope} if knob == "stream" else None,
    }

    def recover(scenario: Scenario) -> bool:
        if knob == "overflow":
            scenario.step()
            scenario.fail(FailureClass.CONTEXT_OVERFLOW)
        elif knob == "stream":
            scenario.fail(BROKEN)
            if scenario.state.backoff:
                scenario.clock(100)
        else:
            scenario.answer("half", stop=CUT)
        return scenario.state.request is not None

    for ways in (["turn"], ["fork"]):
        scenario = Scenario(policy)
        assert recover(scenario)
        scenario.answer("done")
        if ways == ["turn"]:
            scenario.say("again")
            assert again_in_turn == recover(scenario)
        else:
            scenario.say("again")
            scenario.fork()
            assert again_in_fork == recover(scenario)


def test_stream_and_truncation_have_counts_of_their_own() -> None:
    """A broken stream uses up no truncation recovery, nor the other way round."""
    scenario = Scenario({**QUIET, "stream": {"max": 1}, "truncation": {"max": 1}})
    scenario.fail(BROKEN, partial="a")
    scenario.clock(1)
    scenario.answer("b", stop=CUT)
    assert scenario.state.request is not None
    scenario.answer("c")
    assert ("end_turn", "answer", "abc") == scenario.outcome()
