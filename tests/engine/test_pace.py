"""Runs of one event loop go on a few at a time, so that everything else that lives there comes to its
turn.
"""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from refold.engine import Agent, ScriptedModel, say
from refold.engine.tasks import AT_ONCE, Pace, pace
from refold.store import MemoryStore

MANY = 10 * AT_ONCE


@pytest.mark.anyio
async def test_many_runs_go_on_a_few_at_a_time() -> None:
    """No turn of the loop has more runs that go on than it may, and none goes on twice before all others did
    once.
    """
    its, turns = Pace(), [list[int]()]

    async def go_on(run: int) -> None:
        async with its.joined():
            turns[-1].append(run)
            await anyio.lowlevel.checkpoint()  # it writes
            await its.turn()
            turns[-1].append(run)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        for run in range(MANY):
            tasks.start_soon(go_on, run)
        while sum(map(len, turns)) < 2 * MANY:
            await anyio.lowlevel.checkpoint()
            turns.append([])
    # A turn of the loop as it is seen here may be the end of one and the beginning of the next.
    assert max(map(len, turns)) <= 2 * AT_ONCE
    order = [run for turn in turns for run in turn]
    assert set(range(MANY)) <= set(order[: MANY + 2 * AT_ONCE])
    assert 0 == its.runs


def test_few_runs_do_not_wait() -> None:
    """As long as there are no more runs than may go on at once, none gives up its turn."""
    its = Pace()
    its.runs = AT_ONCE
    with pytest.raises(StopIteration):
        its.turn().send(None)


@pytest.mark.anyio
async def test_a_run_that_is_stopped_while_it_waits_holds_nobody_up() -> None:
    """What is cancelled before its turn leaves the others theirs."""
    its, gone = Pace(), list[int]()

    async def go_on(run: int) -> None:
        async with its.joined():
            gone.append(run)

    its.runs = MANY
    async with anyio.create_task_group() as others, anyio.create_task_group() as tasks:
        for run in range(MANY):
            (tasks if run % 2 else others).start_soon(go_on, run)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert set(range(0, MANY, 2)) <= set(gone)
    assert MANY == its.runs


@pytest.mark.anyio
async def test_runs_of_one_loop_have_one_pace() -> None:
    """Many runs of several agents end, and the loop's pace counts none of them any more."""
    agents = [Agent(model=ScriptedModel([say("Done.")]), store=MemoryStore()) for _ in range(3 * AT_ONCE)]
    seen = list[int]()

    async def run(agent: Agent) -> None:
        async with agent.start("Do it.") as run:
            async for _ in run.updates():
                seen.append(pace().runs)
            assert "COMPLETED" == (await run.result()).state

    async with anyio.create_task_group() as tasks:
        for agent in agents:
            tasks.start_soon(run, agent)
    assert (3 * AT_ONCE, 0) == (max(seen), pace().runs)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_turns_go_on_where_all_tasks_were_cancelled(anyio_backend: str) -> None:
    """Also that which gives the turns, before it has begun: who comes later starts it anew."""
    its, others = Pace(), asyncio.all_tasks()
    its.runs = MANY
    waiting = asyncio.create_task(its.turn())
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - others:
        task.cancel()
    await asyncio.sleep(0.01)
    assert waiting.done()
    with anyio.fail_after(2):
        for _ in range(3 * AT_ONCE):
            await its.turn()
