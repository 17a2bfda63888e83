"""Workers take runs that want an engine; a run in nobody's hands can be answered and stopped with its log alone."""

import time
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from refold.engine import (
    Agent,
    CallContext,
    ModelRequest,
    Reply,
    ScriptedModel,
    Worker,
    call,
    halt,
    say,
    tool,
    unattended,
)
from refold.engine.journal import record
from refold.engine.models.protocol import Delta
from refold.engine.models.script import Line
from refold.engine.worker import Failed, News, PutDown, TakenUp
from refold.reducers.errors import WrongUse
from refold.reducers.events import ContentErased
from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import Role, ToolError
from refold.replay import audit, events, state_at, verify
from refold.store import MemoryStore
from refold.store.protocol import Lease, LeaseLost, Store, StoreUnavailable
from support import virtual


class Plain:
    """A model that calls a tool once, then ends; any number of runs may ask it."""

    name = "plain"
    priced = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        await anyio.lowlevel.checkpoint()
        done = any(message.role is Role.TOOL for message in request.messages)
        yield say("Done.") if done else call("act")

    async def aclose(self) -> None:
        """Nothing to let go of."""


class World:
    """A tool that notes whose call it served, and takes its time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.done: list[str] = []
        self.at_once, self.most = 0, 0
        self.seconds = seconds

    def agent(self, store: Store, policy: dict[str, Any] | None = None) -> Agent:
        @tool
        async def act(context: CallContext) -> str:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.done.append(context.run)
            await anyio.sleep(self.seconds)
            self.at_once -= 1
            return "done"

        return Agent(
            model=Plain(),
            tools=[act],
            store=store,
            name="worker",
            clock=virtual.LoopClock,
            policy=policy,
        )


ASK = {"approvals": {"chain": [{"approver": "human"}]}}


async def sound(store: Store, run: str) -> bool:
    return (await verify(store, run)).whole and not (await audit(store, run)).differences


async def state_of(store: Store, run: str) -> AgentState:
    return (await state_at(store, run))[0].agent_state


def test_a_worker_drives_what_was_left_to_workers() -> None:
    """Queued runs are all driven to their end, once each, no more side by side than the worker was told."""

    async def main() -> None:
        store, world, news = virtual.store(), World(1.0), list[News]()
        for number in range(10):
            await world.agent(store).start("Do it.", run_id=f"r{number}").detach()
        await Worker(store, world.agent(store), at_once=3, tell=news.append).run(until_idle=True)
        assert sorted(f"r{number}" for number in range(10)) == sorted(world.done)
        assert world.most == 3
        assert 10 == sum(isinstance(each, TakenUp) for each in news)
        assert {AgentState.COMPLETED} == {each.result.state for each in news if isinstance(each, PutDown)}
        assert () == tuple(await store.due(10))
        assert all([await sound(store, f"r{number}") for number in range(10)])

    virtual.in_no_time(main)


def test_two_workers_share_the_runs() -> None:
    """However many workers look, each run is driven by one of them."""

    async def main() -> None:
        store, world = virtual.store(), World(5.0)
        for number in range(20):
            await world.agent(store).start("Do it.", run_id=f"r{number}").detach()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(Worker(store, world.agent(store), at_once=4).run)
            await anyio.sleep(100)
            tasks.cancel_scope.cancel()
        assert len(world.done) == len(set(world.done)) == 20

    virtual.in_no_time(main)


def test_a_worker_takes_over_what_another_left() -> None:
    """A worker that is stopped leaves its runs to others at once; what was under way there is in doubt, not repeated."""

    async def main() -> None:
        store, world = virtual.store(), World(50.0)
        await world.agent(store).start("Do it.", run_id="r").detach()
        with anyio.move_on_after(10):
            await Worker(store, world.agent(store)).run()
        began = anyio.current_time()
        await Worker(store, world.agent(store)).run(until_idle=True)
        assert anyio.current_time() - began < 1
        assert ["r"] == world.done
        assert await state_of(store, "r") is AgentState.COMPLETED
        told = [event async for _, event in events(store, "r") if getattr(event, "error", None)]
        assert [ToolError.IN_DOUBT] == [getattr(event, "error", None) for event in told]

    virtual.in_no_time(main)


def test_a_run_that_a_worker_cannot_drive_is_left_to_others_and_holds_up_nobody() -> None:
    """A run of an agent that this worker does not have is told once a minute, and stays there for another worker."""

    async def main() -> None:
        store, world, news = virtual.store(), World(), list[News]()
        stranger = Agent(model=Plain(), store=store, name="stranger", clock=virtual.LoopClock)
        await stranger.start("Do it.", run_id="other").detach()
        await world.agent(store).start("Do it.", run_id="r").detach()
        with anyio.move_on_after(90):
            await Worker(store, world.agent(store), tell=news.append).run()
        failed = [each for each in news if isinstance(each, Failed)]
        problem = "run other is one of the agent 'stranger', which this worker does not have"
        assert [("other", problem, False)] * 2 == [(each.run, each.problem, each.lost) for each in failed]
        assert await state_of(store, "r") is AgentState.COMPLETED
        assert ("other",) == tuple(await store.due(9))

    virtual.in_no_time(main)


def test_a_deadline_for_which_nobody_stayed_is_kept_by_a_worker() -> None:
    """What the policy says of a person's silence happens when their time is up, though no engine waited for it."""

    async def main() -> None:
        store, world = virtual.store(), World()
        human = {"approver": "human", "timeout": 3600, "on_timeout": "reject"}
        waiting = (
            await world.agent(store, policy={"approvals": {"chain": [human]}})
            .start("Do it.", run_id="r")
            .result()
        )
        assert waiting.outcome.reason == "the run waits for approval of c1"
        with anyio.move_on_after(3500):
            await Worker(store, world.agent(store)).run()
        assert await state_of(store, "r") is AgentState.WAITING_FOR_INPUT
        with anyio.move_on_after(200):
            await Worker(store, world.agent(store)).run()
        assert await state_of(store, "r") is AgentState.COMPLETED
        assert [] == world.done

    virtual.in_no_time(main)


def test_an_answer_without_an_engine_brings_a_worker() -> None:
    """Whoever has nothing but the log can answer: no model and no tool is needed, and a worker goes on from there."""

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
    """A run whose person ended it without an engine is only told how it stands: by a resumption, and by `halt`."""

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
    """Whoever detached a run may go on with the same object: it reads the log again, and writes one resumption."""

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
    """Somebody answers just before the next lease is given."""

    armed = False

    async def lease(self, run: str, *, holder: str, seconds: float = 30.0, over: int | None = None) -> Lease:
        if self.armed:
            self.armed = False
            answering = unattended(self, run)
            answering.answer({"c1": "approve"})
            await answering.detach()
        return await super().lease(run, holder=holder, seconds=seconds, over=over)


def test_an_answer_that_comes_while_a_worker_looks_is_not_slept_through() -> None:
    """A worker that finds a run resting, and is overtaken by an answer, does not take back what the answer asked for."""

    async def main() -> None:
        store, world = Between(now=anyio.current_time), World()
        await world.agent(store, policy=ASK).start("Do it.", run_id="r").result()
        await store.wake("r")
        store.armed = True
        await Worker(store, world.agent(store)).run(until_idle=True)
        assert await state_of(store, "r") is AgentState.COMPLETED
        assert ["r"] == world.done

    virtual.in_no_time(main)


class Dying(MemoryStore):
    """Once `dead`, nothing can be given back, or waked: as if the process were killed right there."""

    dead = False

    async def release(self, lease: Lease, after: float | None = None) -> None:
        if self.dead:
            raise StoreUnavailable("runs.db", "killed")
        await super().release(lease, after)

    async def wake(self, run: str) -> None:
        if self.dead:
            raise StoreUnavailable("runs.db", "killed")
        await super().wake(run)


def boss_of(store: Store, world: World, *script: Line) -> Agent:
    return Agent(
        model=ScriptedModel([*script, say("Done.")]),
        tools=[world.agent(store, policy=ASK).as_tool()],
        store=store,
        name="boss",
        clock=virtual.LoopClock,
    )


async def child_of(store: Store) -> str:
    return next(run for run in [run async for chunk in store.runs() for run, _ in chunk] if run != "r")


def test_a_parent_is_taken_up_though_its_childs_engine_was_killed_at_the_very_end() -> None:
    """Whoever finds a child run ended whose engine could tell nobody, tells the parent."""

    async def main() -> None:
        store, world = Dying(now=anyio.current_time), World()
        await boss_of(store, world, call("worker", task="Do it.")).start("Have it done.", run_id="r").result()
        child = await child_of(store)
        answering = unattended(store, child)
        answering.answer({"c1": "approve"})
        await answering.detach()
        store.dead = True
        with pytest.raises(StoreUnavailable):
            await world.agent(store).resume(child).result()
        store.dead = False
        await anyio.sleep(100)
        await Worker(store, boss_of(store, world)).run(until_idle=True)
        assert [AgentState.COMPLETED] * 2 == [await state_of(store, run) for run in (child, "r")]
        assert (None, ()) == (await store.claim("r"), tuple(await store.due(9)))

    virtual.in_no_time(main)


def test_a_parent_whose_child_another_engine_drives_waits_for_that_one() -> None:
    """A parent that is taken up while its child is held elsewhere rests until the child has ended: no event a second."""

    async def main() -> None:
        store, world = virtual.store(), World()
        await boss_of(store, world, call("worker", task="Do it.")).start("Have it done.", run_id="r").result()
        child = await child_of(store)
        lease = await store.lease(child, holder="elsewhere:1::a", seconds=1000)
        await store.wake("r")
        before = (await store.head("r")).seq
        with anyio.move_on_after(300):
            await Worker(store, boss_of(store, world)).run()
        assert (await store.head("r")).seq <= before + 2
        await store.release(lease)
        answering = unattended(store, child)
        answering.answer({"c1": "approve"})
        await answering.detach()
        await Worker(store, boss_of(store, world)).run(until_idle=True)
        assert await state_of(store, "r") is AgentState.COMPLETED

    virtual.in_no_time(main)


@pytest.mark.anyio
async def test_only_what_is_new_or_was_said_can_be_left_to_a_worker() -> None:
    """A run that is driven here, or of which nothing is to be recorded, cannot be detached."""
    store, world = MemoryStore(), World()
    run = world.agent(store).start("Do it.", run_id="r")
    await run.result()
    with pytest.raises(WrongUse, match="run r: there is nothing to record, or it is driven here already"):
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
    with pytest.raises(WrongUse, match="run r asks whether calls c1 may run"):
        await saying.detach()
    assert before.seq <= (await store.head("r")).seq <= before.seq + 1  # the resumption, at most
    assert await sound(store, "r")


def test_a_run_is_stopped_from_outside_at_once() -> None:
    """`halt` ends a run that another engine drives, settles what it had in flight as in doubt, and that engine stops."""

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


def test_when_a_child_run_was_answered_elsewhere_its_parent_is_taken_up() -> None:
    """A parent that rests because its child waits for a person goes on, by a worker, when the child has ended."""

    async def main() -> None:
        store, world = virtual.store(), World()
        begun = boss_of(store, world, call("worker", task="Do it."))
        resting = await begun.start("Have it done.", run_id="r").result()
        assert "a child run waits for a person" in resting.outcome.reason
        child = await child_of(store)
        answering = unattended(store, child)
        answering.answer({"c1": "approve"})
        await answering.detach()
        await Worker(store, boss_of(store, world)).run(until_idle=True)
        assert [AgentState.COMPLETED] * 2 == [await state_of(store, run) for run in (child, "r")]
        assert [child] == world.done

    virtual.in_no_time(main)


@pytest.mark.anyio
async def test_a_run_whose_words_were_erased_can_be_stopped() -> None:
    """`halt` needs no word of the log: where the task was erased, the run is cancelled, and the result says what is gone."""
    store, world = MemoryStore(), World()
    await world.agent(store, policy=ASK).start("Do it.", run_id="r").result()
    lease = await store.lease("r", holder="somebody")
    head = await store.head("r")
    notice = ContentErased(at=time.time_ns(), seqs=(1,), by="ann", why="a name")
    await store.erase("r", head.seq, lease, [1], record(notice, notice.at, b""))
    await store.release(lease)
    result = await halt(store, "r")
    assert (AgentState.CANCELLED, (), 1) == (result.state, result.messages, result.erased)
