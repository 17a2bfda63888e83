"""An imported run is evidence: no command and no engine decides anything in it, and a fork of it is one's
own.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from console.conftest import Refold
from refold.engine import Agent, RunImported, ScriptedModel, Worker, halt, say, unattended
from refold.replay import cut
from refold.store import SqliteStore

WAITS = [{"role": "user", "content": "Look."}, {"role": "assistant", "content": "At what?"}]
CALLS = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
]


@pytest.fixture(
    params=[WAITS, CALLS, WAITS[:1], [*CALLS, {"role": "tool", "tool_call_id": "a", "content": "."}]]
)
def imported(request: pytest.FixtureRequest, refold: Refold, store: Path, tmp_path: Path) -> str:
    """A run of somebody else's agent: it waits, has a call open, or was asked."""
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(request.param))
    assert 0 == refold("import", file, "--store", store).code
    return str(json.loads(refold("ls", "--store", store, "-o", "json").out)[0]["run"])


def standing(refold: Refold, store: Path) -> list[dict[str, Any]]:
    """What the store says of its runs: heads, and who has them or is to take them up."""
    found: list[dict[str, Any]] = json.loads(refold("ls", "--store", store, "-o", "json").out)
    return found


def in_store(store: Path, act: Callable[[SqliteStore], Awaitable[object]]) -> object:
    async def main() -> object:
        async with await SqliteStore.open(store) as opened:
            return await act(opened)

    return anyio.run(main)


@pytest.mark.parametrize(
    "words",
    [
        ["cancel", "--why", "it is late"],
        ["resume"],
        ["resume", "--message", "Go on."],
        ["resume", "--detach"],
        ["approve", "--all"],
        ["reject", "--all", "--terminate"],
        ["edit", "c1", "--arguments", "{}"],
    ],
    ids=" ".join,
)
def test_nothing_is_decided_in_it(refold: Refold, store: Path, imported: str, words: list[str]) -> None:
    """A command that would answer, stop or drive it is wrong use, says to fork it, and leaves the store as it
    was.
    """
    before = standing(refold, store)
    ran = refold(words[0], imported, *words[1:], "--store", store)
    assert 2 == ran.code
    assert f"run {imported} was imported (openai_messages)" in ran.err
    assert f"`refold fork {imported}`" in ran.err
    assert before == standing(refold, store)


def test_no_worker_takes_it_up(refold: Refold, store: Path, imported: str) -> None:
    """Not even when somebody wakes it: the worker finds nothing to do."""
    in_store(store, lambda opened: opened.wake(imported))
    before = standing(refold, store)
    ran = refold("worker", "--until-idle", "--store", store)
    assert (0, "") == (ran.code, ran.out)
    assert before == standing(refold, store)


def test_nobody_is_asked_to_answer_it(refold: Refold, store: Path, imported: str) -> None:
    """What waits for a person lists runs that somebody can answer."""
    assert imported not in refold("doubts", "--all", "--store", store).out
    assert imported not in refold("approvals", "--store", store).out


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda store, run: _agent(store).resume(run).result(), id="Agent.resume"),
        pytest.param(lambda store, run: _agent(store).resume(run, take_over=True).result(), id="take over"),
        pytest.param(lambda store, run: _cancelled(store, run).detach(), id="unattended"),
        pytest.param(halt, id="halt"),
    ],
)
def test_nor_by_python(
    refold: Refold, store: Path, imported: str, act: Callable[[SqliteStore, str], Awaitable[object]]
) -> None:
    """Whoever has the engine is refused as the command is, and the run is nobody's to take up afterwards."""
    before = standing(refold, store)
    with pytest.raises(RunImported, match="continue it in a fork"):
        in_store(store, lambda opened: act(opened, imported))
    assert before == standing(refold, store)


def _agent(store: SqliteStore) -> Agent:
    return Agent(model=ScriptedModel([say("Done.")]), store=store)


def _cancelled(store: SqliteStore, run: str) -> Any:
    left = unattended(store, run)
    left.cancel()
    return left


def test_a_fork_of_it_is_ones_own(refold: Refold, store: Path, imported: str) -> None:
    """It is driven, left to a worker, cancelled: its first event says that it goes on from there."""

    async def fork(opened: SqliteStore) -> None:
        await _agent(opened).fork(imported, await cut(opened, imported), fork_id="ours").detach()
        await Worker(opened, _agent(opened)).run(until_idle=True)

    before = [each for each in standing(refold, store) if each["run"] == imported]
    in_store(store, fork)
    ours, theirs = standing(refold, store)
    assert ("ours", before) == (ours["run"], [theirs])
    assert 0 == refold("cancel", "ours", "--store", store).code
    assert 0 == refold("verify", "ours", "--store", store).code


def test_what_it_says_can_be_erased(refold: Refold, store: Path, imported: str) -> None:
    """It never goes on, so nothing that it says must stay for that, and nobody could end it first."""
    ran = refold("erase", f"{imported}@e1", "--why", "a name", "--yes", "--store", store)
    assert (0, "") == (ran.code, ran.err)
    assert 0 == refold("verify", imported, "--store", store).code


def test_a_run_of_ones_own_cannot_pass_for_imported(
    refold: Refold, store: Path, scripted: Callable[[Sequence[Any]], None]
) -> None:
    """The label by which imported runs are known is refused at the start."""
    scripted([say("Done.")])
    ran = refold("run", "Look.", "--model", "any", "--label", "source.format=codex", "--store", store)
    assert 2 == ran.code
    assert "source.format" in ran.err
