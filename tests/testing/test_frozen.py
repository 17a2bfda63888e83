"""Frozen ids, seeds and instants, and a store for one test."""

from typing import Any

import anyio
import pytest

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.engine.clock import SystemClock, new_run_id
from refold.store import open_store
from refold.testing import FrozenClock, frozen
from refold.testing.clocks import START
from refold.testing.freezing import Frozen


@tool(replay="read_only")
def look() -> str:
    """Look."""
    return "seen"


def agent(**more: Any) -> Agent:
    return Agent(ScriptedModel([call("look"), say("Done.")] * 3), tools=[look], **more)


def heads(store: str, runs: list[str]) -> list[bytes]:
    async def main() -> list[bytes]:
        async with await open_store(store, readonly=True) as opened:
            return [(await opened.head(run)).hash for run in runs]

    return anyio.run(main)


def test_runs_are_the_same_again(
    refold_frozen: Frozen, refold_store: str, tmp_path: Any, monkeypatch: Any
) -> None:
    """With fixed ids, seeds, salts and instants, a log has the same hash every time."""
    monkeypatch.setattr("refold.engine.agent.this_process", lambda: "")
    results = [agent(store=refold_store).run_sync("Look.") for _ in range(2)]
    assert ["run-1", "run-2"] == [result.run for result in results]
    first = heads(refold_store, ["run-1"])
    from refold.testing.freezing import freeze

    with freeze():
        agent(store=str(tmp_path / "other.db")).run_sync("Look.")
    assert first == heads(str(tmp_path / "other.db"), ["run-1"])


def test_time_can_be_moved(refold_frozen: Frozen, refold_store: str) -> None:
    """A run that begins later has later instants."""
    refold_frozen.advance(3600)
    result = agent(store=refold_store).run_sync("Look.")
    assert 3600 * 10**9 <= refold_frozen.start - START
    assert "COMPLETED" == result.state


def test_afterwards_all_is_as_before() -> None:
    """Ids are random again, and the clock is the machine's."""
    assert isinstance(SystemClock(), SystemClock)
    assert new_run_id() != new_run_id()


@pytest.mark.anyio
async def test_a_frozen_clock() -> None:
    """It moves by a millisecond a fact, and to the instants that are waited for."""
    clock = FrozenClock(waits=False)
    assert [START + 1_000_000, START + 2_000_000] == [clock.stamp(), clock.stamp()]
    await clock.sleep_until(START + 10**12)
    assert START + 10**12 == clock.now()
    clock.advance(1)
    assert START + 10**12 + 10**9 == clock.now()
    assert "COMPLETED" == (await agent(clock=frozen()).run("Look.", run_id="r")).state
