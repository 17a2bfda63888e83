"""Long runs are opened from a snapshot, and go on as if the whole log had been folded."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import pytest

from refold.engine import Agent, CallContext, ScriptedModel, call, say, tool
from refold.engine.journal import SNAPSHOT_EVERY
from refold.engine.models.script import Line
from refold.reducers.machine import AgentState
from refold.reducers.views import view
from refold.replay import audit, state_at, verify
from refold.store import MemoryStore
from refold.store.protocol import Snapshot, Stored

pytestmark = pytest.mark.anyio

POLICY: dict[str, Any] = {
    "limits": [{"type": "step", "value": None}],
    "history": [{"do": "tail", "last": 10}],
    "end_of_turn": "wait",
}
STEPS = 150


class Counting(MemoryStore):
    """Counts the events that are read one after the other, and may forget its snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.read_events = 0
        self.snapshots = 0
        self.forgets = False

    def read(
        self, run: str, after: int = 0, upto: int | None = None, *, checked: bool = True
    ) -> AsyncIterator[Sequence[Stored]]:
        return self._counted(super().read(run, after, upto, checked=checked))

    async def _counted(self, chunks: AsyncIterator[Sequence[Stored]]) -> AsyncIterator[Sequence[Stored]]:
        async for chunk in chunks:
            self.read_events += len(chunk)
            yield chunk

    async def save_snapshot(self, run: str, snapshot: Snapshot) -> None:
        self.snapshots += 1
        await super().save_snapshot(run, snapshot)

    async def snapshot(self, run: str, version: str) -> Snapshot | None:
        return None if self.forgets else await super().snapshot(run, version)


@tool(replay="read_only")
async def look(context: CallContext) -> str:
    """Look."""
    return f"{context.call} is there"


def agent(store: MemoryStore, *script: Line) -> Agent:
    return Agent(model=ScriptedModel(script), tools=[look], store=store, policy=POLICY)


async def long_run(store: MemoryStore) -> None:
    script = [call("look") for _ in range(STEPS)]
    await agent(store, *script, say("What next?")).start("Do it.", run_id="r").result()
    for _ in range(5):
        await anyio.lowlevel.checkpoint()


async def test_a_long_run_is_opened_from_its_snapshot() -> None:
    """Of a long log only what came after the snapshot is folded again, and the run goes on soundly."""
    store = Counting()
    await long_run(store)
    assert store.snapshots
    head, store.read_events = await store.head("r"), 0
    run = agent(store, say("Bye.")).resume("r")
    await run.result()
    assert head.seq > 2 * SNAPSHOT_EVERY or head.seq - store.read_events > 0
    assert store.read_events <= SNAPSHOT_EVERY
    run.send("Nothing, thanks.")
    assert (await run.result()).state is AgentState.WAITING_FOR_INPUT
    assert (await verify(store, "r")).whole
    assert not (await audit(store, "r")).differences


async def test_without_its_snapshots_a_run_is_the_same() -> None:
    """A snapshot changes how long opening takes, and nothing else: state and messages are those of the folded
    log.
    """
    store = Counting()
    await long_run(store)
    fast = agent(store, say("Bye.")).resume("r")
    quick = await fast.result()
    store.forgets, store.read_events = True, 0
    slow = agent(store, say("Bye.")).resume("r")
    assert quick == await slow.result()
    assert fast.state == slow.state
    assert store.read_events == (await store.head("r")).seq


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"state": 1, "guards": []}'])
async def test_a_snapshot_that_cannot_be_read_is_passed_over(data: bytes) -> None:
    """Whatever stands where a snapshot should, the run is opened: from its log."""
    store = Counting()
    await long_run(store)
    kept = store._tables.snapshots["r"]
    store._tables.snapshots["r"] = (Snapshot(seq=kept[0].seq, version=kept[0].version, data=data), kept[1])
    assert (await agent(store, say("Bye.")).resume("r").result()).state is AgentState.WAITING_FOR_INPUT


async def test_a_run_that_shows_a_digest_of_older_messages_can_be_resumed() -> None:
    """A digest of messages has no words of its own: those that it stands for are read again."""
    store = MemoryStore()
    policy = {
        "history": [{"do": "digest", "keep_last": 4, "per_message": 60, "total": 900}],
        "end_of_turn": "wait",
        "limits": [{"type": "step", "value": None}],
    }
    script = [call("look") for _ in range(6)]

    def made(*lines: Line) -> Agent:
        return Agent(model=ScriptedModel(lines), tools=[look], store=store, policy=policy)

    before = await made(*script, say("What next?")).start("Do it.", run_id="r").result()
    again = await made(say("Bye.")).resume("r").result()
    assert before.messages == again.messages
    state, words = await state_at(store, "r")
    assert before.messages == view(state, words)
    assert any("TOOL: " in message.text for message in again.messages)
