"""A run in nobody's hands can be answered and stopped with its log alone."""

import time
from collections.abc import Sequence

import anyio
import pytest
from anyio.abc import TaskGroup

from refold.engine import Agent, ScriptedModel, Worker, call, halt, say, unattended
from refold.engine.journal import record
from refold.reducers.errors import WrongUse
from refold.reducers.events import ContentErased
from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import ToolError
from refold.replay import events
from refold.store import MemoryStore
from refold.store.protocol import LeaseLost, Stored
from support import virtual
from support.workers import ASK, World, sound, state_of


def test_an_answer_without_an_engine_brings_a_worker() -> None:
    """Whoever has nothing but the log can answer: no model and no tool is needed, and a worker goes on from
    there.
    """

    async def main() -> None:
        store, world = virtual.store(), World()
        await world.agent(store, policy=ASK).start("Do it.", run_id="r").result()
        assert await store.claim("r") is None
        answering = unattended(store, "r")
        answering.answer({"c1": "approve"}, by="night shift")
        assert await answering.detach() == "r"
        assert [] == world.done
        await Worker(store, world.agent(store)).run(until_idle=True)
        assert ["r"] == world.done
        assert await state_of(store, "r") is AgentState.COMPLETED
        assert await sound(store, "r")

    virtual.in_no_time(main)


def test_a_run_that_ended_in_nobodys_hands_can_be_looked_at() -> None:
    """A run whose person ended it without an engine is only told how it stands: by a resumption, and by
    `halt`.
    """

    async def main() -> None:
        store, world = virtual.store(), World()
        await world.agent(store, policy=ASK).start("Do it.", run_id="r").result()
        answering = unattended(store, "r")
        answering.answer({"c1": "terminate"})
        await answering.detach()
        before = await store.head("r")
        with anyio.fail_after(10):
            assert (await world.agent(store).resume("r").result()).outcome.code
            assert (await halt(store, "r")).outcome.code
        assert before == await store.head("r")

    virtual.in_no_time(main)


def test_a_handle_that_was_left_to_a_worker_can_be_used_again() -> None:
    """Whoever detached a run may go on with the same object: it reads the log again, and writes one
    resumption.
    """

    async def main() -> None:
        store, world = virtual.store(), World()
        await world.agent(store, policy=ASK).start("Do it.", run_id="r").result()
        handle = world.agent(store).resume("r")
        handle.answer({"c1": "approve"})
        await handle.detach()
        before = await store.head("r")
        handle.cancel()
        assert (await handle.result()).state is AgentState.CANCELLED
        assert (await store.head("r")).seq <= before.seq + 5
        assert [] == world.done

    virtual.in_no_time(main)


class Between(MemoryStore):
    """An operator answers while a worker, which just leased the run, reads it."""

    armed = False
    tasks: TaskGroup

    async def read_some(self, run: str, seqs: Sequence[int], *, checked: bool = True) -> Sequence[Stored]:
        if self.armed:
            self.armed = False
            answering = unattended(self, run)
            answering.answer({"c1": "approve"})
            self.tasks.start_soon(answering.detach)
            await anyio.sleep(0.1)
        return await super().read_some(run, seqs, checked=checked)


def test_an_answer_that_comes_while_a_worker_looks_is_not_slept_through() -> None:
    """A worker that finds a run resting, and is overtaken by an answer, does not take back what the answer
    asked for.
    """

    async def main() -> None:
        store, world = Between(now=anyio.current_time), World()
        await world.agent(store, policy=ASK).start("Do it.", run_id="r").result()
        await store.wake("r")
        store.armed = True
        async with anyio.create_task_group() as store.tasks:
            with anyio.move_on_after(30):
                await Worker(store, world.agent(store)).run()
        assert await state_of(store, "r") is AgentState.COMPLETED
        assert ["r"] == world.done

    virtual.in_no_time(main)


@pytest.mark.anyio
async def test_only_what_is_new_or_was_said_can_be_left_to_a_worker() -> None:
    """A run that is driven here, or of which nothing is to be recorded, cannot be detached."""
    store, world = MemoryStore(), World()
    run = world.agent(store).start("Do it.", run_id="r")
    await run.result()
    with pytest.raises(WrongUse, match="run r: nothing to record, or this engine drives it already"):
        await run.detach()
    with pytest.raises(WrongUse, match="nothing to record"):
        await world.agent(store).resume("r").detach()
    late = unattended(store, "r")
    late.send("Hello?")
    await late.detach()
    assert await state_of(store, "r") is AgentState.COMPLETED


@pytest.mark.anyio
async def test_a_message_for_a_run_that_waits_for_none_is_refused_though_it_was_not_read_yet() -> None:
    """A message for a run that asks about calls is refused when it is recorded; nothing is written."""
    store, world = MemoryStore(), World()
    await world.agent(store, policy=ASK).start("Do it.", run_id="r").result()
    before = await store.head("r")
    saying = unattended(store, "r")
    saying.send("Hello?")
    with pytest.raises(WrongUse, match="run r waits for approval of calls c1"):
        await saying.detach()
    assert before.seq <= (await store.head("r")).seq <= before.seq + 1  # the resumption, at most
    assert await sound(store, "r")


def test_a_run_is_stopped_from_outside_at_once() -> None:
    """`halt` ends a run that another engine drives, settles what it had in flight as in doubt, and that
    engine stops.
    """

    async def main() -> None:
        store, world = virtual.store(), World(10_000)
        lost: list[str] = []

        async def drive() -> None:
            try:
                await world.agent(store).start("Do it.", run_id="r").result()
            except LeaseLost as error:
                lost.append(error.run)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive)
            await anyio.sleep(5)
            result = await halt(store, "r", "it does harm", by="night shift")
            assert anyio.current_time() < 6
        assert (AgentState.CANCELLED, "cancelled by night shift") == (result.state, result.outcome.reason)
        assert ["r"] == lost == world.done
        told = [event async for _, event in events(store, "r") if getattr(event, "error", None)]
        assert [ToolError.IN_DOUBT] == [getattr(event, "error", None) for event in told]
        assert await sound(store, "r")
        assert (await halt(store, "r", "again")).state is AgentState.CANCELLED

    virtual.in_no_time(main)


def test_a_child_run_is_stopped_with_its_parent() -> None:
    """`halt` ends the runs that a run waits for too."""

    async def main() -> None:
        store, world = virtual.store(), World(10_000)
        boss = Agent(
            model=ScriptedModel([call("worker", task="Do it."), say("Done.")]),
            tools=[world.agent(store).as_tool()],
            store=store,
            name="boss",
            clock=virtual.LoopClock,
        )

        async def drive() -> None:
            with pytest.raises(LeaseLost):
                await boss.start("Have it done.", run_id="r").result()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive)
            await anyio.sleep(5)
            await halt(store, "r")
        ended = {run: await state_of(store, run) async for chunk in store.runs() for run, _ in chunk}
        assert len(ended) == 2
        assert {AgentState.CANCELLED} == set(ended.values())
        assert all([await sound(store, run) for run in ended])

    virtual.in_no_time(main)


@pytest.mark.anyio
async def test_a_run_whose_words_were_erased_can_be_stopped() -> None:
    """`halt` needs no word of the log: where the task was erased, the run is cancelled, and the result says
    what is gone.
    """
    store, world = MemoryStore(), World()
    await world.agent(store, policy=ASK).start("Do it.", run_id="r").result()
    lease = await store.lease("r", holder="somebody")
    head = await store.head("r")
    notice = ContentErased(at=time.time_ns(), seqs=(1,), by="ann", why="a name")
    await store.erase("r", head.seq, lease, [1], record(notice, notice.at, b""))
    await store.release(lease)
    result = await halt(store, "r")
    assert (AgentState.CANCELLED, (), 1) == (result.state, result.messages, result.erased)
