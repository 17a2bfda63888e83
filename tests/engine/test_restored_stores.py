"""Engines whose store was restored from a backup under them: none adds to the restored log what it decided
from events that are lost.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from refold.engine import Agent, ModelRequest, Reply, ScriptedModel, call, say
from refold.engine.journal import Overtaken
from refold.engine.models.protocol import Delta
from refold.reducers.machine import AgentState
from refold.store import MemoryStore, open_store
from refold.store.protocol import Conflict, LeaseLost, Store
from refold.store.testing import records, take
from support import runs, virtual
from support.backups import address_in, backup, replace, restore
from support.driving import assert_sound
from support.postgres import FAST, PostgresServer
from support.workers import ASK


class Gated:
    """A model that calls a tool twice, then ends; its n-th response waits until `gates[n]` opens."""

    name = "gated"
    priced = False

    def __init__(self) -> None:
        self.asked = 0
        self.reached = [anyio.Event() for _ in range(3)]
        self.gates = [anyio.Event() for _ in range(3)]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        number, self.asked = self.asked, self.asked + 1
        self.reached[number].set()
        await self.gates[number].wait()
        yield say("Done.") if number == 2 else call("look", path=f"{number}")

    async def aclose(self) -> None:
        """Nothing to let go of."""


class Engine:
    """One engine that drives one run; `ended` is its result or its error."""

    def __init__(self, store: Store, run: str) -> None:
        self.run, self.model, self.ended = run, Gated(), list[object]()
        self._agent = Agent(model=self.model, tools=[runs.look], store=store)

    async def drive(self) -> None:
        try:
            self.ended.append((await self._agent.start("Look.", run_id=self.run).result()).state)
        except (Conflict, LeaseLost, Overtaken) as error:
            self.ended.append(error)

    async def reach(self, number: int) -> None:
        """Let it go on until it waits for its n-th response."""
        for gate in self.model.gates[:number]:
            gate.set()
        await self.model.reached[number].wait()

    def finish(self) -> None:
        for gate in self.model.gates:
            gate.set()


async def take_up(store: Store, run: str, *, take_over: bool = False) -> AgentState:
    """Another engine drives the run to its end."""
    model = Gated()
    for gate in model.gates:
        gate.set()
    agent = Agent(model=model, tools=[runs.look], store=store)
    return (await agent.resume(run, take_over=take_over).result()).state


async def restored_under(
    engines: dict[str, Engine], store: Store, swap: Callable[[str], Awaitable[None]]
) -> None:
    """Drive runs. After the backup `ahead` goes on and `late` begins; then `taken` is taken over."""
    lease = await take(store, "bare")
    await store.append("bare", 0, lease, records(3))
    dead = await store.lease("dead", holder="elsewhere:1::a", seconds=0.1)
    await store.append("dead", 0, dead, records(1))
    async with anyio.create_task_group() as tasks:
        for run in ("ahead", "level", "taken"):
            tasks.start_soon(engines[run].drive)
            await engines[run].reach(1)
        await swap("backup")
        tasks.start_soon(engines["late"].drive)
        await engines["late"].reach(1)
        await engines["ahead"].reach(2)
        await store.append("bare", 3, lease, records(2))
        before = await store.head("ahead")
        await swap("restore")
        assert ((await store.head("bare")).seq, (await store.head("late")).seq) == (3, 0)
        assert (await store.head("ahead")).seq < before.seq
        assert "dead" in await store.due(9)  # its lease ended while there was no store
        # The restored store has the tokens of the backup: a lease of that time is one again.
        await store.renew(lease)
        with pytest.raises(Conflict, match="run bare is at event 3, not 5"):
            await store.append("bare", 5, lease, records(1))
        assert AgentState.COMPLETED is await take_up(store, "taken", take_over=True)
        for engine in engines.values():
            engine.finish()
    fresh = await store.lease("bare", holder="elsewhere:1::b", over=lease.token)
    assert fresh.token > lease.token
    with pytest.raises(LeaseLost):
        await store.append("bare", 3, lease, records(1))


@pytest.mark.slow
def test_engines_go_on_over_a_restored_store(tmp_path: Path) -> None:
    """An engine that wrote since the backup stops, and so does one whose run was taken over or is lost. One
    that wrote nothing since goes on. Nothing of what is lost is in the restored log.
    """
    old, new = PostgresServer(FAST), PostgresServer(FAST)

    async def swap(what: str) -> None:
        if what == "backup":
            await anyio.to_thread.run_sync(backup, old, tmp_path / "dump")
        else:
            await anyio.to_thread.run_sync(restore, new, tmp_path / "dump")
            await anyio.to_thread.run_sync(replace, old, new)

    async def main() -> None:
        address = address_in(old)
        async with await open_store(address) as store:
            engines = {run: Engine(store, run) for run in ("ahead", "level", "taken", "late")}
            await restored_under(engines, store, swap)
            ended = {run: engine.ended[0] for run, engine in engines.items()}
            assert AgentState.COMPLETED is ended["level"]
            assert isinstance(ended["ahead"], Overtaken)
            assert "no longer has events that this engine wrote" in str(ended["ahead"])
            assert isinstance(ended["taken"], LeaseLost)
            assert isinstance(ended["late"], LeaseLost)
            # It was given back, so any engine may go on where the backup ends.
            assert AgentState.COMPLETED is await take_up(store, "ahead")
            for run in ("ahead", "level", "taken"):
                await assert_sound(store, run)

    try:
        old.start()
        new.start()
        anyio.run(main)
    finally:
        old.remove()
        new.remove()


def set_back(store: MemoryStore, to: MemoryStore) -> None:
    """Give a store the contents of another, as a restored backup on which other engines went on."""
    vars(store).clear()
    vars(store).update(vars(to))


def waiting(store: Store, what: str, policy: dict[str, Any]) -> Agent:
    return Agent(
        model=ScriptedModel([call("act", what=what), say("Done.")]),
        tools=[runs.act],
        policy=policy,
        store=store,
        clock=virtual.LoopClock,
    )


def test_an_engine_that_waited_finds_another_history_of_the_same_length() -> None:
    """An engine that stays for the time of a person, without its lease, does not add its decision to a log
    that has other events up to the same number.
    """
    policy = {"approvals": {"chain": [{"approver": "human", "timeout": 50, "on_timeout": "approve"}]}}

    async def main() -> None:
        store, other = virtual.store(), virtual.store()
        await waiting(other, "other", ASK).start("Do it.", run_id="r").result()
        found = list[Overtaken]()

        async def drive() -> None:
            try:
                await waiting(store, "this", policy).start("Do it.", run_id="r").result()
            except Overtaken as error:
                found.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive)
            await anyio.sleep(10)
            assert (await store.head("r")).seq == (await other.head("r")).seq
            assert (await store.head("r")).hash != (await other.head("r")).hash
            set_back(store, other)
        assert [True] == [error.set_back for error in found]
        await assert_sound(store, "r")

    virtual.in_no_time(main)


def test_a_run_that_goes_on_later_reads_the_restored_log() -> None:
    """A run object that is driven again goes on from the log that is there, also if it is as long as its
    own.
    """

    async def main() -> None:
        store, other = virtual.store(), virtual.store()
        await waiting(other, "other", ASK).start("Do it.", run_id="r").result()
        run = waiting(store, "this", ASK).start("Do it.", run_id="r")
        await run.result()
        set_back(store, other)
        run.answer({"c1": "approve"})
        await run.result()
        await assert_sound(store, "r")
        texts = [event.content for event in (await _events(store)) if event.kind == "tool_returned"]
        assert texts
        assert b"other" in (texts[0] or b"")

    virtual.in_no_time(main)


async def _events(store: Store) -> list[Any]:
    return [event async for chunk in store.read("r") for event in chunk]
