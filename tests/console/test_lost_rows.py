"""Rows that a repair of a store's file lost, of each table but the events: which run is stuck, and who says
so.
"""

import json
from pathlib import Path

import anyio
import pytest

from console.conftest import Refold
from refold.engine import Agent, ScriptedModel, Worker, call, say, tool
from refold.engine.worker import News, PutDown
from refold.reducers.machine import AgentState
from refold.store import SqliteStore
from refold.store.protocol import Snapshot
from support.edited import edited

STUCK = {"left"}
"""The runs that are to go on: the others have ended, or wait for a person."""


@tool(replay="read_only")
def look(at: int) -> str:
    """Look at something."""
    return f"seen {at}"


def agent(policy: dict[str, object] | None = None) -> Agent:
    script = [call("look", at=1), say("Done.")]
    return Agent(ScriptedModel(script), tools=[look], name="looker", policy=policy)


@pytest.fixture
def store(tmp_path: Path, refold: Refold) -> Path:
    """Runs that ended, wait for a person, and are left to workers; sealed, and with a snapshot."""
    path = tmp_path / "runs.db"

    async def main() -> None:
        ask: dict[str, object] = {"approvals": {"chain": [{"approver": "human"}]}}
        async with await SqliteStore.open(path) as opened:
            await Agent(ScriptedModel([say("Done.")]), store=opened).start("Look.", run_id="ended").result()
            waiting = Agent(ScriptedModel([call("look", at=1)]), tools=[look], policy=ask, store=opened)
            await waiting.start("Look.", run_id="waiting").result()
            left = Agent(ScriptedModel([]), tools=[look], name="looker", store=opened)
            await left.start("Look.", run_id="left").detach()
            await opened.save_snapshot("ended", Snapshot(seq=2, version="old", data=b"{}"))

    anyio.run(main)
    refold("keygen", tmp_path / "key")
    assert 0 == refold("seal", "--key", tmp_path / "key", "--store", path).code
    return path


def standings(refold: Refold, store: Path) -> dict[str, str]:
    found = json.loads(refold("ls", "-o", "json", "--store", store).out)
    return {each["run"]: each["engine"]["standing"] for each in found if each["engine"]}


async def worked(path: Path) -> dict[str, AgentState]:
    """What a worker put down, and in which state."""
    news = list[News]()
    await Worker(path, agent(), tell=news.append).run(until_idle=True)
    return {each.run: each.result.state for each in news if isinstance(each, PutDown)}


def test_no_claim_is_left(refold: Refold, store: Path) -> None:
    """A run that wants an engine and has lost its claim is listed as lost, and a worker drives it to its end;
    no other is.
    """
    assert {"left": "queued"} == standings(refold, store)
    edited(store, "DELETE FROM claim")
    assert dict.fromkeys(STUCK, "lost") == standings(refold, store)
    assert ["left"] == [
        each["run"]
        for each in json.loads(refold("ls", "--state", "lost", "-o", "json", "--store", store).out)
    ]
    assert {"left": AgentState.COMPLETED} == anyio.run(worked, store)
    assert {} == standings(refold, store)
    assert 0 == refold("verify", "--all", "--store", store).code


def test_no_snapshot_is_left(refold: Refold, store: Path) -> None:
    """A snapshot is a cache: without any, everything is as it was, and the run goes on."""
    edited(store, "DELETE FROM snapshot")
    assert 0 == refold("verify", "--all", "--store", store).code
    assert {"left": AgentState.COMPLETED} == anyio.run(worked, store)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_run_is_gone_from_the_list(number: int, refold: Refold, store: Path) -> None:
    """Events of a run that is not listed any more are found by `verify`, `audit` and `ls`: exit code 3."""
    edited(store, f"DELETE FROM run WHERE number = {number}")
    for words in (("verify", "--all"), ("audit", "--all"), ("ls",)):
        ran = refold(*words, "--store", store)
        assert (3, True) == (ran.code, "belongs to no run" in ran.out + ran.err), words


@pytest.mark.parametrize(
    "statement", ["DELETE FROM seal", "DELETE FROM sealed_head", "DELETE FROM sealed_head WHERE place = 2"]
)
def test_no_seal_is_left(statement: str, refold: Refold, store: Path, tmp_path: Path) -> None:
    """Without its seals, or what they cover, nothing is called sealed: with a key, `verify` does not end with
    exit code 0.
    """
    edited(store, statement)
    assert refold("verify", "--all", "--key", tmp_path / "key.pub", "--store", store).code in (3, 125)
