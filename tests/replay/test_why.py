"""`why`: what every limit and guard saw at an event, and said, those that allowed it too."""

from typing import Any

import pytest

from refold.engine import Agent, tool
from refold.engine.models.script import ScriptedModel, call, say
from refold.reducers.errors import WrongUse
from refold.reducers.events import kind_of
from refold.replay import Opinion, events, why
from refold.store import MemoryStore

pytestmark = pytest.mark.anyio

POLICY: dict[str, Any] = {
    "limits": [{"type": "step", "value": 3}, {"type": "token", "value": None}],
    "guards": [{"guard": "repetition", "repeats": 1}, {"guard": "errors", "rounds": 2}],
}


@tool(replay="read_only")
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


async def recorded(policy: dict[str, Any], *replies: Any) -> tuple[MemoryStore, str, list[str]]:
    """A run of these answers: its store, its id, and the kinds of its events in order."""
    store = MemoryStore()
    run = Agent(model=ScriptedModel(list(replies)), tools=[look], policy=policy, store=store).start("Look.")
    await run.result()
    return store, run.id, [kind_of(event) async for _, event in events(store, run.id)]


def said(opinions: tuple[Opinion, ...]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.place, one.who, one.said) for one in opinions]


async def test_of_a_fact_all_that_was_asked() -> None:
    """Of an answer: each limit and guard that was asked on it, in the order of checks, with what it said."""
    store, run, kinds = await recorded(
        POLICY, call("look", where="a"), call("look", where="a"), say("It is not there.")
    )
    second = [seq for seq, kind in enumerate(kinds, 1) if kind == "model_responded"][1]
    found = await why(store, run, second)
    assert (second, second, "model_responded") == (found.seq, found.fact, found.kind)
    assert ("response", "limit:token", ("unlimited",)) in said(found.opinions)
    assert ("on_repetition", "repetition", ("stop:repetition",)) in said(found.opinions)
    stop = next(one for one in found.opinions if one.who == "repetition")
    assert {"repeats": 1, "allowed": 1} == stop.measured
    assert ("guard_tripped", "call_refused", "state_changed") == found.decisions


async def test_those_that_allowed_it_are_there() -> None:
    """A guard that had nothing to say is listed as having allowed it, with its own memory."""
    store, run, kinds = await recorded(POLICY, call("look", where="a"), say("Done."))
    found = await why(store, run, kinds.index("model_responded") + 1)
    allowed = next(one for one in found.opinions if one.who == "repetition")
    assert (("allowed",), 1) == (allowed.said, allowed.version)
    assert allowed.own


async def test_of_a_decision_what_was_asked_before_it() -> None:
    """Of a decision only what was asked before it was made; a limit says how much was used of what."""
    store, run, kinds = await recorded(POLICY, *[call("look", where=str(n)) for n in range(3)])
    tripped = kinds.index("limit_reached") + 1
    found = await why(store, run, tripped)
    assert "tool_returned" == found.fact_kind
    step = next(one for one in found.opinions if one.who == "limit:step")
    assert (("reached",), {"used": 3, "op": ">=", "unit": "steps", "value": 3}) == (step.said, step.measured)
    assert all(one.before <= tripped - found.fact - 1 for one in found.opinions)
    assert len(found.opinions) <= len((await why(store, run, found.fact)).opinions)


async def test_a_guard_that_is_not_installed_is_named() -> None:
    """Of a guard that is not there it is said that nothing is known, and the others are asked."""
    store, run, kinds = await recorded(POLICY, say("Done."))
    found = await why(store, run, kinds.index("model_responded") + 1, registry={})
    assert {("blind: not installed",)} == {one.said for one in found.opinions if one.who == "repetition"}


async def test_a_run_that_is_not_there() -> None:
    """A run that the store does not have is refused by name."""
    with pytest.raises(WrongUse, match="no run 'nobody'"):
        await why(MemoryStore(), "nobody")
