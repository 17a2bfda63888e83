"""Every way in which a run ends.

After each ending the log is whole, audits clean, and each stream was said to be finished exactly once.
"""

from typing import Any

import anyio
import anyio.from_thread
import pytest

from refold.engine import Agent, ScriptedModel, call, fail, say, tool
from refold.engine.models.script import Line
from refold.engine.updates import Update
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass, StopReason
from refold.store import MemoryStore
from support.clocks import VirtualClock
from support.driving import assert_each_stream_finished_once, assert_sound, told, watch

pytestmark = pytest.mark.anyio


@tool(replay="read_only")
async def look(path: str) -> str:
    """Look."""
    return f"{path} is there"


STEPS = {"limits": [{"type": "step", "value": 2}]}
LOOK = call("look", path="a")

ENDINGS: list[Any] = [
    pytest.param([say("All done.")], {}, "COMPLETED", "end_turn", "All done.", "answer", id="an answer"),
    pytest.param([LOOK, say("Seen.")], {}, "COMPLETED", "end_turn", "Seen.", "answer", id="after a tool"),
    pytest.param(
        [say("All d", stop=StopReason.MAX_TOKENS)],
        {"truncation": None},
        "COMPLETED",
        "truncated",
        "All d",
        "answer",
        id="an answer cut at the output limit",
    ),
    pytest.param([say("  ")], {}, "COMPLETED", "empty", "", "none", id="nothing"),
    pytest.param([LOOK, LOOK], STEPS, "MAX_STEPS", "step_limit", "", "none", id="steps"),
    pytest.param(
        [say("Long.", usage=Usage(input=90, output=10))],
        {"limits": [{"type": "token", "value": 100}]},
        "BUDGET_EXCEEDED",
        "token_budget",
        "Long.",
        "partial",
        id="tokens",
    ),
    pytest.param(
        [say("Dear.", cost_nanousd=2_000_000)],
        {"limits": [{"type": "cost", "value": 0.002}]},
        "BUDGET_EXCEEDED",
        "cost_limit",
        "Dear.",
        "partial",
        id="money",
    ),
    pytest.param(
        [LOOK],
        {"limits": [{"type": "message", "value": 3}]},
        "BUDGET_EXCEEDED",
        "message_limit",
        "",
        "none",
        id="messages",
    ),
    pytest.param(
        [fail(FailureClass.AUTH)],
        {},
        "ERROR",
        "provider:auth",
        "",
        "none",
        id="a failure that no retry mends",
    ),
    pytest.param(
        [fail(), fail()],
        {"retry": {"attempts": 2}},
        "ERROR",
        "provider:overloaded",
        "",
        "none",
        id="one failure too many",
    ),
    pytest.param(
        [fail(FailureClass.CONTEXT_OVERFLOW)],
        {},
        "ERROR",
        "context_overflow",
        "",
        "none",
        id="more than the model takes",
    ),
    pytest.param(
        [say("I c", stop=StopReason.CONTENT_FILTER)],
        {},
        "ERROR",
        "content_filter",
        "I c",
        "partial",
        id="the provider's filter",
    ),
    pytest.param(
        [LOOK, LOOK],
        {"guards": [{"guard": "repetition", "repeats": 1}]},
        "ERROR",
        "repetition",
        "",
        "none",
        id="a guard",
    ),
]


@pytest.mark.parametrize(("script", "policy", "state", "code", "text", "source"), ENDINGS)
async def test_a_run_ends(
    script: list[Line], policy: dict[str, Any], state: str, code: str, text: str, source: str
) -> None:
    """A run ends in the state, for the reason and with the text that its row says."""
    model, store = ScriptedModel(script), MemoryStore()
    agent = Agent(
        model=model, tools=[look], policy=policy, store=store, clock=lambda: VirtualClock(jumps=True)
    )
    run, seen = agent.start("Do it.", seed=1), list[Update]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, run, seen)
        result = await run.result()
    model.done()
    outcome = result.outcome
    assert (state, code, text, source) == (result.state, outcome.code, outcome.text, outcome.source)
    assert (await store.head(run.id)).seq == outcome.seq == run.state.seq
    assert list(range(1, outcome.seq + 1)) == told(seen)
    assert_each_stream_finished_once(seen)
    await assert_sound(store, run.id)
