"""An engine that is cut off at any moment, and by any means, gives its run back."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from refold.engine import Agent, Run, RunResult, ScriptedModel, call, say, tool
from refold.store import MemoryStore
from refold.store.protocol import Lease, Store
from support.driving import assert_sound

pytestmark = pytest.mark.anyio

TURNS = 60
"""More turns of the event loop than the run takes."""


@tool(replay="read_only")
async def look() -> str:
    """Look."""
    return "a door"


class Slow(MemoryStore):
    """Takes its time to take a run back."""

    async def release(self, lease: Lease, after: float | None = None) -> None:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        await super().release(lease, after)
        await anyio.lowlevel.checkpoint()


def started(store: Store) -> Run:
    agent = Agent(model=ScriptedModel([call("look"), say("Done.")]), tools=[look], store=store)
    return agent.start("Do it.", run_id="r")


async def assert_given_back(store: Store) -> None:
    """Whoever wants the run can have it now, and its log is sound."""
    claim = await store.claim("r")
    assert claim is None or not claim.holder
    if (await store.head("r")).seq:
        await assert_sound(store, "r")


Tasks = set["asyncio.Task[Any]"]

WHOM: list[Callable[[Tasks, Tasks], Tasks]] = [
    lambda _, waiting: waiting,
    lambda working, waiting: working - waiting,
    lambda working, waiting: working | waiting,
]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.filterwarnings("ignore:coroutine")  # anyio's tasks that never began
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "times",
    [
        pytest.param(1, id="once"),
        pytest.param(2, id="twice", marks=pytest.mark.slow),
        pytest.param(1000, id="until it is over", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("whom", WHOM, ids=["who waits", "who works", "all, as a loop does that ends"])
async def test_tasks_that_are_cancelled(whom: Callable[[Tasks, Tasks], Tasks], times: int) -> None:
    """Whichever tasks are cancelled, from whatever turn of the loop on, so many times: no lease is left, and
    no task.
    """
    for turns in range(TURNS):
        store, before = Slow(), asyncio.all_tasks()
        waiter = asyncio.create_task(started(store).result())
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiter.done():
            break
        for _ in range(times):
            if waiter.done():
                break
            for task in whom(asyncio.all_tasks() - before, {waiter}):
                task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([waiter], timeout=5)
        assert waiter.done()
        await asyncio.sleep(0)  # for the engine's own task to be gone
        assert before == asyncio.all_tasks()
        await assert_given_back(store)
    else:
        raise AssertionError("the run did not get to its end")
    assert "COMPLETED" == (await waiter).state
    gc.collect()  # coroutines that never began complain here, and in no other test


async def test_a_scope_that_is_cancelled() -> None:
    """At whatever turn of the loop the scope is cancelled in which a run is waited for, no lease is left."""
    for turns in range(TURNS):
        store, results = Slow(), list[RunResult]()

        async def wait(store: Store, results: list[RunResult]) -> None:
            results.append(await started(store).result())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, store, results)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await assert_given_back(store)
        if results:
            return
    raise AssertionError("the run did not get to its end")


class Mute(MemoryStore):
    """Never answers who gives a run back."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = anyio.Event()

    async def release(self, lease: Lease, after: float | None = None) -> None:
        self.asked.set()
        await anyio.sleep_forever()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_store_that_takes_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for as long as it has to answer, and no longer, however often the engine is cancelled
    meanwhile.
    """
    monkeypatch.setattr("refold.engine.tenure._LAST_WORD", 0.1)
    store, before, begun = Mute(), asyncio.all_tasks(), anyio.Event()

    @tool(replay="read_only")
    async def stay() -> str:
        """Stay."""
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    agent = Agent(model=ScriptedModel([call("stay")]), tools=[stay], store=store)
    waiter = asyncio.create_task(agent.start("Do it.", run_id="r").result())
    with anyio.fail_after(5):
        await begun.wait()
        waiter.cancel()
        await store.asked.wait()
        while not waiter.done():
            for task in asyncio.all_tasks() - before:
                task.cancel()
            await asyncio.sleep(0)
    assert waiter.cancelled()
