"""Many runs at once over one file."""

from pathlib import Path

import anyio
import pytest

from refold.engine import Agent, CallContext, ScriptedModel, call, say, tool
from refold.reducers.machine import AgentState
from refold.replay import audit, verify
from refold.store import SqliteStore

pytestmark = pytest.mark.anyio

RUNS = 64


@tool
async def act(context: CallContext) -> str:
    """Change something."""
    await anyio.lowlevel.checkpoint()
    return context.run


async def test_sixty_four_runs_at_once_share_a_store(tmp_path: Path) -> None:
    """Each of 64 runs that go on side by side ends, gets its own results, and has a log that verifies and
    audits.
    """
    ended: dict[str, AgentState] = {}
    async with await SqliteStore.open(tmp_path / "runs.db") as store:

        async def drive(run: str) -> None:
            script = [call("act"), call("act"), say("Done.")]
            agent = Agent(model=ScriptedModel(script), tools=[act], store=store)
            result = await agent.start("Do it.", run_id=run).result()
            ended[run] = result.state
            assert [run, run] == [message.text for message in result.messages if message.call is not None]

        async with anyio.create_task_group() as tasks:
            for number in range(RUNS):
                tasks.start_soon(drive, f"r{number}")
        assert {AgentState.COMPLETED} == set(ended.values())
        for run in ended:
            assert (await verify(store, run)).whole
            assert not (await audit(store, run)).differences
        assert () == tuple(await store.due(RUNS))
    assert len(ended) == RUNS
