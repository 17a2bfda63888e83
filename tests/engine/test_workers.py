"""Workers take runs that want an engine, and parents whose child runs have ended."""

from collections.abc import AsyncIterator, Collection, Sequence

import anyio
import pytest

from refold.engine import Agent, ScriptedModel, Worker, call, say, unattended
from refold.engine.models.script import Line
from refold.engine.worker import WITHOUT_STORE, Failed, News, PutDown, TakenUp
from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import ToolError
from refold.replay import events
from refold.store import MemoryStore
from refold.store.protocol import Head, Lease, Snapshot, Store, StoreUnavailable
from support import virtual
from support.workers import ASK, Plain, World, sound, state_of


def test_a_worker_drives_what_was_left_to_workers() -> None:
    """Queued runs are all driven to their end, once each, no more side by side than the worker was told."""

    async def main() -> None:
        store, world, news = virtual.store(), World(1.0), list[News]()
        for number in range(10):
            await world.agent(store).start("Do it.", run_id=f"r{number}").detach()
        await Worker(store, world.agent(store), concurrency=3, tell=news.append).run(until_idle=True)
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
                tasks.start_soon(Worker(store, world.agent(store), concurrency=4).run)
            await anyio.sleep(100)
            tasks.cancel_scope.cancel()
        assert len(world.done) == len(set(world.done)) == 20

    virtual.in_no_time(main)


def test_a_worker_takes_over_what_another_left() -> None:
    """A worker that is stopped leaves its runs to others at once; what was under way there is in doubt, not
    repeated.
    """

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
    """A run of an agent that this worker does not have is told once a minute, and stays there for another
    worker.
    """

    async def main() -> None:
        store, world, news = virtual.store(), World(), list[News]()
        stranger = Agent(model=Plain(), store=store, name="stranger", clock=virtual.LoopClock)
        await stranger.start("Do it.", run_id="other").detach()
        await world.agent(store).start("Do it.", run_id="r").detach()
        with anyio.move_on_after(90):
            await Worker(store, world.agent(store), tell=news.append).run()
        failed = [each for each in news if isinstance(each, Failed)]
        problem = "run other needs the agent 'stranger', which this worker does not have"
        assert [("other", problem, False)] * 2 == [(each.run, each.problem, each.lost) for each in failed]
        assert await state_of(store, "r") is AgentState.COMPLETED
        assert ("other",) == tuple(await store.due(9))

    virtual.in_no_time(main)


def test_a_deadline_for_which_nobody_stayed_is_kept_by_a_worker() -> None:
    """What the policy says of a person's silence happens when their time is up, though no engine waited for
    it.
    """

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
    """A parent that is taken up while its child is held elsewhere rests until the child has ended: no event a
    second.
    """

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


def test_when_a_child_run_was_answered_elsewhere_its_parent_is_taken_up() -> None:
    """A parent that rests because its child waits for a person goes on, by a worker, when the child has
    ended.
    """

    async def main() -> None:
        store, world = virtual.store(), World()
        begun = boss_of(store, world, call("worker", task="Do it."))
        resting = await begun.start("Have it done.", run_id="r").result()
        assert "a child run waits for an operator" in resting.outcome.reason
        child = await child_of(store)
        answering = unattended(store, child)
        answering.answer({"c1": "approve"})
        await answering.detach()
        await Worker(store, boss_of(store, world)).run(until_idle=True)
        assert [AgentState.COMPLETED] * 2 == [await state_of(store, run) for run in (child, "r")]
        assert [child] == world.done

    virtual.in_no_time(main)


class Away(MemoryStore):
    """Not available for a while: so many calls of each kind fail."""

    def __init__(self, failures: int) -> None:
        super().__init__(now=anyio.current_time)
        self.left = {"take_due": failures, "runs": failures, "snapshot": failures}

    def fail(self, what: str) -> None:
        if self.left[what] > 0:
            self.left[what] -= 1
            raise StoreUnavailable("db", "the server cannot be reached")

    async def take_due(
        self, most: int, *, holder: str, seconds: float = 30.0, skip: Collection[str] = ()
    ) -> Sequence[Lease]:
        self.fail("take_due")
        return await super().take_due(most, holder=holder, seconds=seconds, skip=skip)

    def runs(self, prefix: str = "") -> AsyncIterator[Sequence[tuple[str, Head]]]:
        self.fail("runs")
        return super().runs(prefix)

    async def snapshot(self, run: str, version: str) -> Snapshot | None:
        self.fail("snapshot")
        return await super().snapshot(run, version)


def test_a_worker_goes_on_while_its_store_is_away() -> None:
    """It reports each failure, and drives the run when the store is back, not a minute later."""

    async def main() -> None:
        store, world, news = Away(2), World(), list[News]()
        await world.agent(store).start("Do it.", run_id="r").detach()
        begun = anyio.current_time()
        with anyio.move_on_after(40):
            await Worker(store, world.agent(store), tell=news.append).run()
        assert await state_of(store, "r") is AgentState.COMPLETED
        assert ["", "", "r", "r"] == [each.run for each in news if isinstance(each, Failed)]
        assert [5.0, 5.0] == [each.again for each in news if isinstance(each, Failed) and each.run]
        assert anyio.current_time() - begun <= 40

    virtual.in_no_time(main)


def test_a_worker_whose_store_stays_away_ends() -> None:
    """Its supervisor is to notice."""

    async def main() -> None:
        store, begun = Away(10**6), anyio.current_time()
        with pytest.raises(StoreUnavailable):
            await Worker(store, World().agent(store)).run()
        assert WITHOUT_STORE < anyio.current_time() - begun < WITHOUT_STORE + 10

    virtual.in_no_time(main)
