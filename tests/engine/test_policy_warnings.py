"""What an agent says of a policy before a run starts: refusals, and warnings once."""

import logging

import pytest

from refold.engine import Agent, ScriptedModel, say
from refold.reducers import PolicyError

SHORT = {"history": [{"do": "tail", "last": 2}]}


def test_a_warning_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many runs an agent starts, it says of its policy only once what is surely not meant so."""
    agent = Agent(model=ScriptedModel([say("one"), say("two")]), policy=SHORT)
    with caplog.at_level(logging.WARNING, logger="refold.policy"):
        agent.run_sync("go")
        agent.run_sync("go")
    (said,) = caplog.messages
    assert said.startswith("warning: history[0].last: 2 messages are very few")


def test_a_policy_as_meant_is_not_talked_about(caplog: pytest.LogCaptureFixture) -> None:
    """Without anything to say, nothing is said."""
    Agent(model=ScriptedModel([say("one")])).run_sync("go")
    assert [] == [record for record in caplog.records if record.name == "refold.policy"]


def test_a_window_that_cannot_hold_the_task_does_not_start() -> None:
    """The task is known when a run starts, and what cannot work with it is refused before the first event."""
    agent = Agent(model=ScriptedModel([say("one")]), policy={"history": [{"do": "token_tail", "budget": 10}]})
    agent.start("t" * 40)
    with pytest.raises(PolicyError, match=r"history\[0\]\.budget: 10 tokens cannot hold the task"):
        agent.start("t" * 41)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param([{"type": "step", "value": 2}], 1, id="steps do not flow down"),
        pytest.param([{"type": "token", "value": 1000}], 0, id="tokens do"),
    ],
)
def test_agents_that_hand_on_in_a_circle(
    limits: list[dict[str, object]], expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a limit that flows down such a family could grow without end, and that is said."""
    agent = Agent(model=ScriptedModel([say("done")]), name="a", policy={"limits": limits})
    agent.add_handoffs(agent)
    with caplog.at_level(logging.WARNING, logger="refold.policy"):
        agent.run_sync("go")
    assert expected == sum("hand on a task in a cycle" in said for said in caplog.messages)
