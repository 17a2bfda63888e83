"""Other texts in a fork or an amendment: the words in which messages were shown before stay, or nobody can judge the log."""

from collections.abc import Mapping
from typing import Any

import pytest

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.engine.models.script import Line
from refold.reducers.errors import WrongUse
from refold.reducers.events import PolicyAmended
from refold.reducers.parsing import parse
from refold.reducers.policy import Policy
from refold.replay import audit, cut, verify
from refold.store import MemoryStore
from support.clocks import VirtualClock

pytestmark = pytest.mark.anyio

SHORTENING: dict[str, list[dict[str, Any]]] = {
    "trimmed": [{"do": "trim_messages", "cap": 30, "roles": ["user", "assistant", "tool"], "last": 20}],
    "aged": [{"do": "age_results", "keep_last": 2, "soft": {"over": 100, "head": 10, "tail": 10}}],
    "cleared": [{"do": "age_results", "keep_last": 2, "hard": {"over": 100}}],
    "preview": [{"do": "preview_results", "tokens": 20, "chars": 30, "lines": 2}],
    "digest": [{"do": "digest", "keep_last": 2, "per_message": 40, "total": 400, "when": {"messages": 5}}],
    "summary": [{"do": "summarise", "keep_first": 1, "keep_last": 2, "when": {"messages": 6}}],
    "compacted": [{"do": "compact", "budget": 300, "tail_fraction": 0.5, "when": {"messages": 5}}],
}
WORDS = sorted({*SHORTENING, "nudge", "continue"})
RENDERED = {"trimmed", "aged", "cleared", "preview", "digest", "summary"}
"""What is rendered each time that it is shown. A `compacted` has its words in its own event."""


@tool(replay="read_only")
def look(at: int) -> str:
    """Look."""
    return f"At {at} there is " + "something to be seen " * 20


def agent(store: MemoryStore, *lines: Line, policy: Mapping[str, Any] | Policy | None = None) -> Agent:
    return Agent(model=ScriptedModel(lines), store=store, clock=VirtualClock, tools=[look], policy=policy)


def policy(passes: str, **texts: str) -> dict[str, Any]:
    return {"history": SHORTENING[passes], "texts": texts, "end_of_turn": "wait"}


async def shortened(store: MemoryStore, passes: str) -> None:
    """A run that looked around, was shown some of it shorter, and waits for a person."""
    looks: list[Line] = [call("look", at=place) for place in range(4)]
    if passes == "summary":
        looks.insert(3, say("It saw something."))
    result = (
        await agent(store, *looks, say("And?"), *[say("And?")] * 3, policy=policy(passes))
        .start("Look.", run_id="r")
        .result()
    )
    assert "WAITING_FOR_INPUT" == result.state


@pytest.mark.parametrize("key", WORDS)
@pytest.mark.parametrize("passes", SHORTENING)
async def test_other_words_of_what_was_shown_are_refused(passes: str, key: str) -> None:
    """A fork with another text is refused, and names it, where a message is rendered from it; else it goes on soundly."""
    store = MemoryStore()
    await shortened(store, passes)
    other = policy(passes, **{key: "[left out: {removed}{summary}{digest}]"})
    fork = agent(store, *[say("Bye.")] * 3, policy=other).fork(
        "r", await cut(store, "r"), say="Go on.", fork_id="f"
    )
    if key == passes and key in RENDERED:
        with pytest.raises(
            WrongUse, match=rf"other texts for {key}, and messages .* are shown in these words already"
        ):
            await fork.result()
        assert 0 == (await store.head("f")).seq
    else:
        await fork.result()
        assert (await verify(store, "f")).whole
        assert (await audit(store, "f")).clean


async def test_before_anything_was_shortened_any_words_may_be_chosen() -> None:
    """What is shown shorter only after the fork is shown in the fork's own words."""
    store = MemoryStore()
    await shortened(store, "trimmed")
    other = policy("trimmed", trimmed="[...]")
    result = await agent(store, say("Bye."), policy=other).fork("r", 2, fork_id="f").result()
    assert "WAITING_FOR_INPUT" == result.state
    assert (await audit(store, "f")).clean


@pytest.mark.parametrize("key", ["trimmed", "nudge"])
async def test_an_amendment_with_other_words_cannot_be_judged(key: str) -> None:
    """Of a log in which the words of shown messages were changed, an audit says so, and why: not that all is well."""
    store = MemoryStore()
    await shortened(store, "trimmed")
    run = agent(store, *[say("Bye.")] * 3).resume("r")
    run.put(PolicyAmended(at=2 * 10**18, policy=parse(policy("trimmed", **{key: "[...]"}))))
    run.send("Go on.")
    await run.result()
    found = await audit(store, "r")
    assert not found.differences
    assert (key == "nudge") == found.clean
    if key == "trimmed":
        assert "in other words (trimmed) than when it was shortened" in found.unreplayable[0].why
        assert found.unjudged
