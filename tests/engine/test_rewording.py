"""Other texts in a fork or an amendment: what was shown stays in the words in which it was shown."""

from collections.abc import Mapping
from typing import Any

import pytest

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.engine.models.script import Line
from refold.reducers.events import DECISIONS, ContentErased, Event, PolicyAmended, kind_of
from refold.reducers.messages import Message
from refold.reducers.parser import parse
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.views import MissingContent, message_of, view
from refold.reducers.window import refs
from refold.replay import audit, cut, verify
from refold.replay.reader import state_at
from refold.store import MemoryStore
from support.clocks import VirtualClock
from support.forging import recorded

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
DECIDED = frozenset(map(kind_of, DECISIONS))
OTHER = "[left out: {removed}{summary}{digest}]"


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


async def shown(store: MemoryStore, run: str, upto: int | None = None) -> tuple[RunState, dict[str, Message]]:
    """The state, and how each message of the window looks, by the digest that it has there."""
    state, contents = await state_at(store, run, upto)
    return state, {ref.size.digest: message_of(state, ref, contents) for ref in refs(state.window)}


@pytest.mark.parametrize("key", WORDS)
@pytest.mark.parametrize("passes", SHORTENING)
async def test_a_fork_with_other_texts_shows_what_was_shown_in_the_old_words(passes: str, key: str) -> None:
    """Whatever the fork would say in other words: each message of before has the digest and the words of
    before.
    """
    store = MemoryStore()
    await shortened(store, passes)
    place = await cut(store, "r")
    before, was = await shown(store, "r", place)
    fork = agent(store, *[say("Bye.")] * 3, policy=policy(passes, **{key: OTHER}))
    await fork.fork("r", place, say="Go on.", fork_id="f").result()
    forked, same = await shown(store, "f", place + 1)
    assert OTHER == forked.policy.texts[key]
    assert list(was.items()) == list(same.items())
    after, later = await shown(store, "f")
    whole = {ref.number: ref.size.digest for ref in refs(before.window)}
    stayed = [ref for ref in refs(after.window) if whole.get(ref.number) == ref.size.digest]
    assert stayed
    assert all(was[ref.size.digest] == later[ref.size.digest] for ref in stayed)
    assert (await verify(store, "f")).whole
    assert (await audit(store, "f")).clean


async def test_what_is_shortened_later_is_shown_in_the_new_words() -> None:
    """What is shown shorter only after the fork is shown in the fork's own words."""
    store = MemoryStore()
    await shortened(store, "trimmed")
    other = policy("trimmed", trimmed="[...]")
    result = await agent(store, say("Bye."), policy=other).fork("r", 2, fork_id="f").result()
    assert "WAITING_FOR_INPUT" == result.state
    assert (await audit(store, "f")).clean


@pytest.mark.parametrize("key", ["trimmed", "nudge"])
async def test_an_amendment_with_other_texts_rewords_nothing(key: str) -> None:
    """What was shown stays in its words, the log is judged, and what is shortened from then on has the new
    words.
    """
    store = MemoryStore()
    await shortened(store, "trimmed")
    state, was = await shown(store, "r")
    run = agent(store, say("Bye. " * 100)).resume("r")
    run.put(PolicyAmended(at=2 * 10**18, policy=parse(policy("trimmed", **{key: "[...]"}))))
    run.send("Go on. " * 100)
    await run.result()
    after, now = await shown(store, "r")
    assert "[...]" == after.policy.texts[key]
    assert was == {digest: message for digest, message in now.items() if digest in was}
    assert len(refs(state.window)) == len(was)
    assert (key == "trimmed") == (
        "[...]" in next(m.text for m in now.values() if m.text.startswith("Go on."))
    )
    assert (await audit(store, "r")).clean


async def test_words_of_a_cut_that_are_not_there() -> None:
    """A message whose marker was erased is not shown in other words, and not at all: its event is named."""
    store = MemoryStore()
    await shortened(store, "trimmed")
    state, contents = await state_at(store, "r")
    cut_one = next(ref for ref in refs(state.window) if ref.shown is not None)
    assert cut_one.shown is not None
    left: dict[int, Event] = {seq: event for seq, event in contents.items() if seq != cut_one.shown.seq}
    with pytest.raises(MissingContent) as missing:
        view(state, left)
    assert cut_one.shown.seq == missing.value.seq


@pytest.mark.parametrize("passes", SHORTENING)
async def test_words_of_the_harness_that_were_erased(passes: str) -> None:
    """They are derived again, and agree; the view says which event has them no more."""
    store = MemoryStore()
    await shortened(store, passes)
    log = [stored async for chunk in store.read("r") for stored in chunk]
    said = [stored.seq for stored in log if stored.kind in DECIDED and stored.content is not None]
    notice = ContentErased(at=log[-1].at, seqs=tuple(said), by="ann", why="a name")
    lease = await store.lease("r", holder="ann")
    await store.erase("r", len(log), lease, said, recorded(notice, notice.at))
    assert (await verify(store, "r")).whole
    assert (await audit(store, "r")).clean
    state, contents = await state_at(store, "r")
    with pytest.raises(MissingContent) as missing:
        view(state, contents)
    assert missing.value.seq in said


async def test_words_that_are_erased_while_a_run_waits_are_not_shown_any_more() -> None:
    """An engine that had them in its last request reads the log again, and says what is gone, like one that
    resumes.
    """
    store, model = MemoryStore(), ScriptedModel([say("And?"), say("Well.")])
    run = Agent(model=model, store=store, policy={"end_of_turn": "wait"}).start("My name is Ann.", run_id="r")
    assert "WAITING_FOR_INPUT" == (await run.result()).state
    at, seq = run.state.at, run.state.seq
    notice = ContentErased(at=at, seqs=(1,), by="ann", why="a name")
    lease = await store.lease("r", holder="ann")
    await store.erase("r", seq, lease, [1], recorded(notice, at))
    await store.release(lease)
    run.send("Go on.")
    with pytest.raises(MissingContent, match="run r event 1"):
        await run.result()
    assert 1 == len(model.requests)
