"""A stream broke, and the model was asked to go on: what it says then goes on, or starts over, and the text
has each word once.
"""

import pytest

from refold.engine import Agent, Reply, ScriptedModel, fail, say
from refold.engine.models.protocol import ModelError
from refold.reducers.events import ModelFailed, ModelResponded
from refold.reducers.text import replaces_partial
from refold.reducers.vocabulary import FailureClass, StopReason
from refold.replay import audit
from refold.store import MemoryStore
from support.clocks import VirtualClock
from support.driving import assert_sound, events_of

pytestmark = pytest.mark.anyio


def broke(text: str) -> ModelError:
    """A stream that ended in the middle of a text."""
    return fail(FailureClass.STREAM_BROKEN, partial_text=text)


@pytest.mark.parametrize(
    ("script", "text", "again"),
    [
        pytest.param(
            [broke("Ordered 100 nuts "), say("for $125.")],
            "Ordered 100 nuts for $125.",
            [False, False],
            id="it goes on",
        ),
        pytest.param(
            [broke("Ordered 100 nuts "), say("Ordered 100 nuts for $125.")],
            "Ordered 100 nuts for $125.",
            [False, True],
            id="it starts over",
        ),
        pytest.param(
            [broke("Ordered 100 nu"), say("\nOrdered 100 nuts for $125.")],
            "\nOrdered 100 nuts for $125.",
            [False, True],
            id="it starts over, in the middle of a word",
        ),
        pytest.param(
            [broke("Ordered 100 nuts"), broke("Ordered 100 nuts for"), say(" $125.")],
            "Ordered 100 nuts for $125.",
            [False, True, False],
            id="it starts over, breaks again, and goes on",
        ),
        pytest.param(
            [broke("Ordered 100"), broke(" nuts"), say("Ordered 100 nuts for $125.")],
            "Ordered 100 nuts for $125.",
            [False, False, True],
            id="it goes on, breaks again, and starts over",
        ),
        pytest.param(
            [broke("No, "), say("No, no.")], "No, No, no.", [False, False], id="so few letters may be chance"
        ),
        pytest.param(
            [broke("Ordered 100 nuts "), say("Ordered 200 nuts.")],
            "Ordered 100 nuts Ordered 200 nuts.",
            [False, False],
            id="it says something else: nothing is taken away",
        ),
    ],
)
async def test_what_had_arrived_is_in_the_text_once(
    script: list[Reply | ModelError], text: str, again: list[bool]
) -> None:
    """One row a rule; the log keeps every piece as it came, and says of each whether it starts over."""
    store = MemoryStore()
    policy = {"stream": {"max": 5}}
    agent = Agent(ScriptedModel(script), store=store, policy=policy, clock=lambda: VirtualClock(jumps=True))
    result = await agent.run("Order.", run_id="r")
    assert ("COMPLETED", text) == (result.state, result.text)
    events = [each for each in await events_of(store, "r") if isinstance(each, ModelFailed | ModelResponded)]
    assert again == [each.replaces_partial for each in events]
    came = [
        each.content.partial_text if isinstance(each, ModelFailed) else each.content.text
        for each in events
        if each.content
    ]
    assert [line.partial_text if isinstance(line, ModelError) else line.text for line in script] == came
    await assert_sound(store, "r")
    assert (await audit(store, "r")).clean


async def test_an_answer_that_was_cut_by_its_length_may_start_over_too() -> None:
    """What `max_tokens` cut is continued; a model that starts over instead has it in the text once."""
    lines = [say("One, two, three", stop=StopReason.MAX_TOKENS), say("One, two, three, four.")]
    result = await Agent(ScriptedModel(lines)).run("Count.")
    assert "One, two, three, four." == result.text


@pytest.mark.parametrize("before", ["", " ", "1234567", " 1234567 "])
def test_little_is_never_repeated(before: str) -> None:
    """Less than eight characters say nothing."""
    assert not replaces_partial(before, before + "and on")
