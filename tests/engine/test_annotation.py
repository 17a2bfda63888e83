"""A note beside a log leaves the run as it was, to whoever was to take it up."""

import pytest

from refold.engine import Agent, ScriptedModel, say
from refold.engine.fork import annotate
from refold.reducers.events import NoteAdded
from refold.reducers.machine import AgentState
from refold.reducers.state import RunState
from refold.replay import audit, events, state_at, verify
from refold.store import MemoryStore
from refold.store.protocol import Held, UnknownRun

pytestmark = pytest.mark.anyio


def note(state: RunState, at: int, salt: bytes) -> NoteAdded:
    return NoteAdded(at=at, by="ann")


async def begun(store: MemoryStore) -> None:
    """A run that is queued, and no more."""
    await Agent(model=ScriptedModel([]), store=store).start("Do it.", run_id="r").detach()


async def wanted(store: MemoryStore) -> tuple[str, bool] | None:
    """Who has the run, and whether it is to be taken up now; None: nobody wants it."""
    claim = await store.claim("r")
    return None if claim is None else (claim.holder, claim.seconds <= 0)


async def test_a_run_that_has_ended() -> None:
    """It has a note more, is as whole as before, and nobody takes it up for that."""
    store = MemoryStore()
    await Agent(model=ScriptedModel([say("Done.")]), store=store).start("Do it.", run_id="r").result()
    before, _ = await state_at(store, "r")
    after = await annotate(store, "r", note)
    assert (AgentState.COMPLETED, before.seq + 1) == (after.agent_state, after.seq)
    assert after == (await state_at(store, "r"))[0]
    assert await wanted(store) is None
    assert (await verify(store, "r")).whole
    assert (await audit(store, "r")).clean
    last = [event async for _, event in events(store, "r")][-1]
    assert isinstance(last, NoteAdded)
    assert last.at >= before.at


async def test_a_run_that_waits_for_a_worker() -> None:
    """The worker still takes it up, and goes on from where it was."""
    store = MemoryStore()
    await begun(store)
    await annotate(store, "r", note)
    assert ("", True) == await wanted(store)
    assert ["r"] == list(await store.due(1))
    result = await Agent(model=ScriptedModel([say("Done.")]), store=store).resume("r").result()
    assert AgentState.COMPLETED == result.state
    assert (await audit(store, "r")).clean


@pytest.mark.parametrize("seconds", [None, 600.0])
async def test_a_run_that_is_to_be_taken_up_later(seconds: float | None) -> None:
    """It stays wanted then: not sooner, and not never."""
    store = MemoryStore()
    await begun(store)
    await store.release(await store.lease("r", holder="far:1:x"), seconds)
    await annotate(store, "r", note)
    claim = await store.claim("r")
    assert (seconds is None) == (claim is None)
    assert claim is None or 500 < claim.seconds <= 600


async def test_a_run_that_an_engine_has() -> None:
    """Nothing is written, and the engine keeps it."""
    store = MemoryStore()
    await begun(store)
    head = await store.head("r")
    await store.lease("r", holder="far:1:x", seconds=90)
    with pytest.raises(Held):
        await annotate(store, "r", note)
    assert ("far:1:x", False) == await wanted(store)
    assert head == await store.head("r")


async def test_a_note_that_cannot_be_made() -> None:
    """Nothing is written, and the run is left as it was."""

    def refused(state: RunState, at: int, salt: bytes) -> NoteAdded:
        raise ValueError("no")

    store = MemoryStore()
    await begun(store)
    head = await store.head("r")
    with pytest.raises(ValueError, match="no"):
        await annotate(store, "r", refused)
    assert (("", True), head) == (await wanted(store), await store.head("r"))


async def test_no_such_run() -> None:
    """A run that is not there does not come to be by a note about it."""
    store = MemoryStore()
    with pytest.raises(UnknownRun):
        await annotate(store, "r", note)
    assert await wanted(store) is None
