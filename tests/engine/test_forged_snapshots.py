"""A snapshot is a cache that anybody with the file can edit: what it says against the log, no engine goes
by.
"""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.engine.journal import SNAPSHOT_EVERY
from refold.engine.models.script import Line
from refold.engine.result import RunResult
from refold.reducers.events import PolicyAmended
from refold.reducers.parser import parse
from refold.reducers.state import RunState, Setup
from refold.replay import audit, state_at
from refold.store import SqliteStore

pytestmark = pytest.mark.anyio

STEPS = 100
POLICY: dict[str, Any] = {
    "limits": [{"type": "step", "value": STEPS + 2, "scope": "run"}, {"type": "token", "value": 10**9}],
    "history": [{"do": "tail", "last": 10}],
    "guards": [{"guard": "errors", "rounds": 50}],
    "end_of_turn": "wait",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


Forge = Callable[[dict[str, Any]], None]


@tool(replay="read_only")
async def look(fails: bool = False) -> str:
    """Look."""
    if fails:
        raise OSError("it is dark")
    return "there"


def agent(path: Path, *script: Line) -> Agent:
    return Agent(
        model=ScriptedModel(script), tools=[look], store=path, policy=POLICY, settings={"top_p": 0.5}
    )


async def waiting(path: Path) -> None:
    """A run of more than 256 events that waits for a message, with two steps left."""
    script = [call("look", fails=step > STEPS - 5) for step in range(STEPS)]
    async with agent(path, *script[:-1], say("And?")).start(
        "Do it.", run_id="r", labels={"team": "a"}
    ) as run:
        await run.result()


def forged(path: Path, forge: Forge) -> None:
    """Edit the state that the file keeps beside the log."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (data,) = connection.execute("SELECT data FROM snapshot").fetchone()
        said = msgspec.json.decode(data)
        forge(said)
        connection.execute("UPDATE snapshot SET data = ?", (msgspec.json.encode(said),))


async def gone_on(path: Path) -> tuple[RunState, RunResult]:
    """Another engine answers the run, whose model would never stop by itself: its state and its end."""
    run = agent(path, *[call("look") for _ in range(9)]).resume("r")
    run.send("Go on.")
    result = await run.result()
    return run.state, result


async def assert_as_the_log_says(path: Path) -> None:
    state, result = await gone_on(path)
    async with await SqliteStore.open(path, readonly=True) as store:
        folded, _ = await state_at(store, "r")
        assert folded == state
        assert (await audit(store, "r")).clean
    assert "MAX_STEPS" == result.state


_OTHER: dict[str, Any] = {
    "run": "s",
    "rules": 2,
    "policy": {},
    "model": "another",
    "address": "https://example.org",
    "price": "0/0",
    "settings": {},
    "tools": [],
    "at": 7,
    "format": 2,
    "unknown": ["usage"],
    "messages": [{"role": "user", "unit": 0, "size": {}}],
    "labels": {"a": "b"},
    "environment": ["limits.time: REFOLD_TIME_LIMIT"],
    "versions": {"refold": "9"},
    "guards": {"repetition": 9},
    "task": 3,
    "worker": "h:1:2",
    "no_request": True,
    "content": {"messages": []},
    "seed": 1,
    "agent": "another",
    "parent": {"run": "boss", "call": "c1"},
    "context": 9,
}


@pytest.mark.parametrize("field", Setup.__struct_fields__)
async def test_what_a_run_was_started_with_is_read_from_its_log(tmp_path: Path, field: str) -> None:
    """Whatever the snapshot says of policy, model, tools and the rest, the run goes on as it was begun."""
    path = tmp_path / "runs.db"
    await waiting(path)
    forged(path, lambda said: said["state"]["setup"].update({field: _OTHER[field]}))
    await assert_as_the_log_says(path)


def _no_limit(said: dict[str, Any]) -> None:
    said["state"]["setup"]["policy"]["limits"] = [{"type": "step", "value": None}]


def _no_guard(said: dict[str, Any]) -> None:
    said["state"]["setup"]["policy"]["guards"], said["guards"] = [], []


def _fewer_steps(said: dict[str, Any]) -> None:
    said["state"]["spent"]["steps"] = 1


def _another_end(said: dict[str, Any]) -> None:
    said["state"]["agent_state"] = "COMPLETED"


def _no_errors_seen(said: dict[str, Any]) -> None:
    said["guards"][0]["own"] = {"count": -40}


def _blind(said: dict[str, Any]) -> None:
    said["guards"][0]["blind"] = "content erased or not read"


def _lighter(said: dict[str, Any]) -> None:
    for chunk in said["state"]["window"]["chunks"]:
        for ref in chunk["refs"]:
            ref["size"] |= {"tokens": 0, "chars": 0}


def _other_words(said: dict[str, Any]) -> None:
    task, answer, *_ = [ref for chunk in said["state"]["window"]["chunks"] for ref in chunk["refs"]]
    task["seq"] = answer["seq"]


@pytest.mark.parametrize(
    "forge",
    [_no_limit, _no_guard, _fewer_steps, _another_end, _no_errors_seen, _blind, _lighter, _other_words],
)
async def test_what_has_happened_since_is_held_against_the_digest_in_the_log(
    tmp_path: Path, forge: Forge
) -> None:
    """A snapshot whose counts, guards or window are not those that the log has a digest of is thrown away."""
    path = tmp_path / "runs.db"
    await waiting(path)
    forged(path, forge)
    await assert_as_the_log_says(path)


async def _as_it_is(path: Path) -> str:
    return "r"


async def _forked(path: Path) -> str:
    script = [call("look") for _ in range(STEPS - 1)]
    policy = {**POLICY, "limits": []}
    agent = Agent(model=ScriptedModel([*script, say("And?")]), tools=[look], store=path, policy=policy)
    await agent.fork("r", 2, fork_id="f").result()
    return "f"


async def _amended(path: Path) -> str:
    run = agent(path, *[call("look") for _ in range(STEPS - 1)], say("And?")).resume("r")
    run.put(PolicyAmended(at=2 * 10**18, policy=parse({**POLICY, "limits": []})))
    run.send("Go on.")
    await run.result()
    return "r"


@pytest.mark.parametrize("continues", [_as_it_is, _forked, _amended])
async def test_a_snapshot_that_nobody_edited_is_used(
    tmp_path: Path, continues: Callable[[Path], Awaitable[str]]
) -> None:
    """Opening from a snapshot reads a few events by their numbers and kinds, and not the log from its
    first.
    """
    path, read = tmp_path / "runs.db", list[int]()

    class Watched(SqliteStore):
        def read(self, run: str, after: int = 0, upto: int | None = None, *, checked: bool = True) -> Any:
            read.append(after)
            return super().read(run, after, upto, checked=checked)

    await waiting(path)
    name = await continues(path)
    async with await Watched.open(path) as store:
        run = agent(path, say("Bye.")).resume(name, store=store)
        run.send("Enough.")
        await run.result()
        assert read
        assert all(after > SNAPSHOT_EVERY for after in read)
        folded, _ = await state_at(store, name)
        assert folded == run.state
