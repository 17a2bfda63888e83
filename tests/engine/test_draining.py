"""A worker that is to stop leaves its runs between two steps, so that a deployment puts no call in doubt."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from refold.engine import Agent, CallContext, ModelRequest, Reply, Worker, calls, say, tool, unattended
from refold.engine.models.protocol import Delta, ModelError
from refold.engine.worker import HandedOver, News, PutDown, TakenUp
from refold.reducers.errors import WrongUse
from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import FailureClass, Role
from refold.replay import events
from refold.store.protocol import Store, StoreUnavailable
from support import virtual
from support.workers import ASK, sound, state_of


class Slow:
    """A model that asks for two calls, twice, and takes its time."""

    name = "slow"
    priced = False

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked, self.refuses = seconds, 0, False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        self.asked += 1
        await anyio.sleep(self.seconds)
        steps = sum(message.role is Role.ASSISTANT for message in request.messages)
        yield say("Done.") if steps == 2 else calls(("act", {"what": "a"}), ("act", {"what": "b"}))

    async def aclose(self) -> None:
        """Nothing to let go of."""


class Place:
    """A store, and workers whose tools note what they did."""

    def __init__(
        self, *, model: float = 4.0, tool: float = 3.0, policy: dict[str, Any] | None = None
    ) -> None:
        self.store, self.model, self.seconds = virtual.store(), Slow(model), tool
        self.began, self.ended, self.policy = list[str](), list[str](), policy

    def agent(self) -> Agent:
        @tool
        async def act(context: CallContext, what: str) -> str:
            self.began.append(f"{context.run} {context.call}")
            await anyio.sleep(self.seconds)
            self.ended.append(f"{context.run} {context.call}")
            return what

        return Agent(
            model=self.model,
            tools=[act],
            store=self.store,
            name="worker",
            clock=virtual.LoopClock,
            policy=self.policy,
        )

    def boss(self) -> Agent:
        script = Boss()
        return Agent(
            model=script,
            tools=[self.agent().as_tool()],
            store=self.store,
            name="boss",
            clock=virtual.LoopClock,
        )


class Boss(Slow):
    """A model that has its task done by another agent."""

    name = "boss"

    def __init__(self) -> None:
        super().__init__(0.5)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        await anyio.sleep(self.seconds)
        over = any(message.role is Role.TOOL for message in request.messages)
        yield say("All done.") if over else calls(("worker", {"task": "Do it."}))


async def drained(store: Store, agent: Agent, after: float, seconds: float, **options: Any) -> list[News]:
    """What a worker tells that is to stop after a while."""
    news = list[News]()
    worker = Worker(store, agent, tell=news.append, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await anyio.sleep(after)
        worker.drain(seconds)
        begun = anyio.current_time()
    assert anyio.current_time() - begun <= seconds + 0.01
    return news


async def in_doubt(store: Store, run: str) -> list[str]:
    """The calls whose outcome was unknown at any time."""
    told = [event async for _, event in events(store, run)]
    return [call for event in told for call in getattr(event, "in_doubt", ())]


@pytest.mark.parametrize("after", [0.5 * half for half in range(39)])
def test_a_drain_at_any_instant_repeats_nothing(after: float) -> None:
    """Whenever a worker is told to stop: each call runs once, each response is asked for once, no call is in
    doubt, and the next worker completes the run.
    """

    async def main() -> None:
        place = Place()
        await place.agent().start("Do it.", run_id="r").detach()
        told = await drained(place.store, place.agent(), after, 30)
        assert set(place.began) == set(place.ended)
        began, ended = len(place.began), await state_of(place.store, "r")
        kinds = [TakenUp, PutDown if ended.terminal else HandedOver] if after else []
        assert kinds == [type(each) for each in told]
        assert {()} >= {each.calls for each in told if isinstance(each, HandedOver)}
        begun = anyio.current_time()
        await Worker(place.store, place.agent()).run(until_idle=True)
        assert anyio.current_time() - begun <= 3 * 4 + 2 * 3  # taken at once, not when a lease expires
        assert await state_of(place.store, "r") is AgentState.COMPLETED
        assert 4 == len(place.began) == len(set(place.began)) >= began
        assert 3 == place.model.asked
        assert [] == await in_doubt(place.store, "r")
        assert await sound(place.store, "r")

    virtual.in_no_time(main)


def test_nothing_begins_in_a_drain() -> None:
    """The response that arrives is kept, and its calls are left to the next worker."""

    async def main() -> None:
        place = Place()
        await place.agent().start("Do it.", run_id="r").detach()
        (_, left) = await drained(place.store, place.agent(), 1, 30)
        assert [] == place.began
        kinds = [type(event).__name__ async for _, event in events(place.store, "r")]
        assert ["RunResumed", "RunResumed", "ModelResponded"] == kinds[2:5]
        assert left == HandedOver("r", len(kinds))
        assert ("r",) == tuple(await place.store.due(9))

    virtual.in_no_time(main)


def test_a_call_that_takes_longer_than_the_drain() -> None:
    """It is cut off when the time is up and named; its outcome is unknown, and it is not repeated."""

    async def main() -> None:
        place = Place(tool=100)
        await place.agent().start("Do it.", run_id="r").detach()
        told = await drained(place.store, place.agent(), 5, 10)
        assert [("r", ("c1", "c2"))] == [
            (each.run, each.calls) for each in told if isinstance(each, HandedOver)
        ]
        place.seconds = 0
        await Worker(place.store, place.agent()).run(until_idle=True)
        assert ["c1", "c2"] == await in_doubt(place.store, "r")
        assert 4 == len(place.began) == len(set(place.began))
        assert await state_of(place.store, "r") is AgentState.COMPLETED
        assert await sound(place.store, "r")

    virtual.in_no_time(main)


def test_a_request_that_takes_longer_than_the_drain() -> None:
    """It is dropped and made again: no call began."""

    async def main() -> None:
        place = Place(model=100)
        await place.agent().start("Do it.", run_id="r").detach()
        await drained(place.store, place.agent(), 5, 10)
        await Worker(place.store, place.agent()).run(until_idle=True)
        assert 4 == place.model.asked
        assert [] == await in_doubt(place.store, "r")
        assert await sound(place.store, "r")

    virtual.in_no_time(main)


def test_no_run_is_taken_in_a_drain() -> None:
    """Queued runs stay where they are, though there is room, and a later drain cannot extend the first."""

    async def main() -> None:
        place = Place()
        await place.agent().start("Do it.", run_id="r").detach()
        worker = Worker(place.store, place.agent())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await anyio.sleep(4.5)
            worker.drain(1)
            worker.drain(50)
            assert (True, 1) == (worker.draining, worker.driving)
            await place.agent().start("Do it.", run_id="s").detach()
            began = anyio.current_time()
        assert anyio.current_time() - began <= 1
        assert (await place.store.head("s")).seq == 2
        assert {"r", "s"} == set(await place.store.due(9))

    virtual.in_no_time(main)


def test_a_timer_is_left_at_once() -> None:
    """A run that only waits for its back-off is left to others, who make the request when its time comes."""

    async def main() -> None:
        place = Place(policy={"retry": {"attempts": 3, "initial": 60, "max": 60}})
        await place.agent().start("Do it.", run_id="r").detach()
        stream, place.model.stream = place.model.stream, failing  # type: ignore[method-assign]
        told = await drained(place.store, place.agent(), 5, 30)
        assert isinstance(told[-1], HandedOver)
        assert 6 > anyio.current_time()
        place.model.stream = stream  # type: ignore[method-assign]
        assert () == tuple(await place.store.due(9))
        with anyio.move_on_after(100):
            await Worker(place.store, place.agent()).run()
        assert await state_of(place.store, "r") is AgentState.COMPLETED

    virtual.in_no_time(main)


async def failing(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
    await anyio.sleep(1)
    if place_is_down():
        raise ModelError(FailureClass.OVERLOADED, "down")
    yield say("")


def place_is_down() -> bool:
    return True


@pytest.mark.parametrize("after", [0.5 * half for half in range(1, 40, 3)])
def test_a_drain_of_a_run_and_its_child(after: float) -> None:
    """Both are left between two steps, and no call of either is repeated or in doubt."""

    async def main() -> None:
        place = Place()
        await place.boss().start("Have it done.", run_id="r").detach()
        await drained(place.store, place.boss(), after, 30)
        assert set(place.began) == set(place.ended)
        await Worker(place.store, place.boss()).run(until_idle=True)
        runs = [run async for chunk in place.store.runs() for run, _ in chunk]
        assert 2 == len(runs)
        for run in runs:
            assert await state_of(place.store, run) is AgentState.COMPLETED
            assert [] == await in_doubt(place.store, run)
            assert await sound(place.store, run)
        assert 4 == len(place.began) == len(set(place.began))

    virtual.in_no_time(main)


def test_a_run_whose_child_is_elsewhere_does_not_hold_up_a_drain() -> None:
    """A parent that only waits for another engine is left at once."""

    async def main() -> None:
        place = Place()
        place.policy = ASK
        await place.boss().start("Have it done.", run_id="r").result()
        (child,) = [run async for chunk in place.store.runs() for run, _ in chunk if run != "r"]
        await place.store.lease(child, holder="elsewhere:1::a", seconds=1000)
        await place.store.wake("r")
        began = anyio.current_time()
        await drained(place.store, place.boss(), 5, 30)
        assert anyio.current_time() - began < 10

    virtual.in_no_time(main)


def test_a_run_that_waits_for_a_person_is_put_down_as_such() -> None:
    """A drain changes nothing in what is told about it, and leaves nothing for a worker to do."""

    async def main() -> None:
        place = Place(policy=ASK)
        await place.agent().start("Do it.", run_id="r").detach()
        told = await drained(place.store, place.agent(), 1, 30)
        assert [TakenUp, PutDown] == [type(each) for each in told]
        assert () == tuple(await place.store.due(9))
        answering = unattended(place.store, "r")
        answering.answer({"c1": "approve", "c2": "approve"})
        await answering.detach()

    virtual.in_no_time(main)


def test_a_paused_run_says_that_it_waits_for_a_worker() -> None:
    """`result()` returns, the run is not over, and an agent resumes it."""

    async def main() -> None:
        place = Place()
        run = place.agent().start("Do it.", run_id="r")
        async with run:
            await anyio.sleep(1)
            run.pause()
            result = await run.result()
        assert "the run waits for a worker" == result.outcome.reason
        assert AgentState.COMPLETED is (await place.agent().resume("r").result()).state
        assert [] == await in_doubt(place.store, "r")

    virtual.in_no_time(main)


def test_a_store_that_fails_in_a_drain() -> None:
    """Its error is told, and the drain ends."""

    async def main() -> None:
        place, news = Place(), list[News]()
        await place.agent().start("Do it.", run_id="r").detach()
        worker = Worker(place.store, place.agent(), tell=news.append)

        async def fails(*_: object) -> None:
            raise StoreUnavailable("runs.db", "gone")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await anyio.sleep(5)
            worker.drain(30)
            place.store.append = fails  # type: ignore[method-assign, assignment]
        assert "store runs.db: gone" == getattr(news[-1], "problem", "")

    virtual.in_no_time(main)


def test_a_store_that_hangs_does_not_hold_up_a_drain() -> None:
    """A search for runs that gets no answer ends with the drain."""

    async def main() -> None:
        place = Place()
        worker = Worker(place.store, place.agent())

        async def hangs(*_: object, **__: object) -> None:
            await anyio.sleep_forever()

        place.store.take_due = hangs  # type: ignore[method-assign, assignment]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await anyio.sleep(5)
            worker.drain(10)
        assert 15 == anyio.current_time()

    virtual.in_no_time(main)


def test_no_concurrency() -> None:
    """A worker that could drive nothing is refused."""
    with pytest.raises(WrongUse, match="concurrency: expected 1 or more, got 0"):
        Worker("runs.db", Place().agent(), concurrency=0)
