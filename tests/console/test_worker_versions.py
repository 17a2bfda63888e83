"""Workers of two versions over one store: what an old one does with the runs of a new one."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import pytest

from console import laborious
from console.conftest import Refold, Started
from console.test_worker import TOOLS, listed, queued, until
from refold.engine import Worker
from refold.engine import agent as engine_agent
from refold.engine.worker import News, PutDown, Skipped, TakenUp
from refold.reducers.guards import BUILTIN
from refold.reducers.machine import AgentState
from refold.reducers.rules import order
from refold.store.protocol import Record, Store
from support import virtual
from support.workers import World, state_of

ROOT = Path(__file__).parents[2]
NEWER = order.RULES + 1


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))
    monkeypatch.setenv("GATE", str(tmp_path / "gate"))


@pytest.fixture
def newer() -> Iterator[pytest.MonkeyPatch]:
    """This process as a later version, whose rules have another number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "VERSIONS", MappingProxyType({**order.VERSIONS, NEWER: order.decide}))
        patch.setattr(engine_agent, "RULES", NEWER)
        yield patch


async def written(store: Store, run: str) -> tuple[object, ...]:
    """What a worker could change of a run that it does not drive."""
    claim = await store.claim(run)
    assert claim is not None
    return await store.head(run), claim.holder, claim.seconds <= 0


async def told_by(worker_of: Any, store: Store, world: World, seconds: float = 300) -> list[News]:
    """What a worker tells in some minutes."""
    news = list[News]()
    with anyio.move_on_after(seconds):
        await worker_of(store, world.agent(store), tell=news.append).run()
    return news


async def by_newer_rules(store: Store, world: World, newer: pytest.MonkeyPatch) -> None:
    await world.agent(store).start("Do it.", run_id="new").detach()
    newer.undo()


async def an_approval_in_newer_rules(store: Store, world: World, newer: pytest.MonkeyPatch) -> None:
    """One that rests: an old worker would set when it is due."""
    await (
        world.agent(store, policy={"approvals": {"chain": [{"approver": "human", "timeout": 999}]}})
        .start("Do it.", run_id="new")
        .result()
    )
    await store.wake("new")
    newer.undo()


async def of_an_unknown_kind(store: Store, world: World, newer: pytest.MonkeyPatch) -> None:
    await world.agent(store).start("Do it.", run_id="new").detach()
    head = await store.head("new")
    lease = await store.lease("new", holder="later:1::a")
    body = json.dumps({"kind": "dreamt", "at": 2**62}).encode()
    await store.append("new", head.seq, lease, [Record(at=2**62, kind="dreamt", body=body)])
    await store.release(lease, 0.0)
    newer.undo()


async def begun_by_an_unknown_field(store: Store, world: World, newer: pytest.MonkeyPatch) -> None:
    newer.undo()
    await world.agent(store).start("Do it.", run_id="old").detach()
    (opened,) = await store.read_some("old", [1])
    body = json.loads(opened.body)
    body["run"], body["dreams"] = "new", True
    lease = await store.lease("new", holder="later:1::a")
    first = Record(at=opened.at, kind=opened.kind, body=json.dumps(body).encode(), content=opened.content)
    await store.append("new", 0, lease, [first])
    await store.release(lease, 0.0)


@pytest.mark.parametrize(
    "made",
    [by_newer_rules, an_approval_in_newer_rules, of_an_unknown_kind, begun_by_an_unknown_field],
    ids=lambda made: made.__name__.replace("_", " "),
)
def test_a_newer_run_is_left_alone(made: Any, newer: pytest.MonkeyPatch) -> None:
    """An old worker reports it once, gives it back at once, writes nothing, and drives its own runs."""

    async def main() -> None:
        store, world = virtual.store(), World()
        await made(store, world, newer)
        await world.agent(store).start("Do it.", run_id="own").detach()
        before = await written(store, "new")
        news = await told_by(Worker, store, world)
        skipped = [each for each in news if isinstance(each, Skipped)]
        assert ["new"] == [each.run for each in skipped]
        assert "written by a newer refold; install that version" in skipped[0].problem
        assert before == await written(store, "new")
        assert await state_of(store, "own") is AgentState.COMPLETED
        assert ("new",) == tuple(await store.due(9))

    virtual.in_no_time(main)


def test_the_newer_worker_drives_both(newer: pytest.MonkeyPatch) -> None:
    """The rules of an old run are those that it was started under."""

    async def main() -> None:
        store, world = virtual.store(), World()
        await world.agent(store).start("Do it.", run_id="new").detach()
        newer.setattr(engine_agent, "RULES", order.RULES)
        await world.agent(store).start("Do it.", run_id="old").detach()
        await Worker(store, world.agent(store)).run(until_idle=True)
        assert [AgentState.COMPLETED] * 2 == [await state_of(store, run) for run in ("old", "new")]

    virtual.in_no_time(main)


def test_a_newer_run_without_a_claim_is_not_queued(newer: pytest.MonkeyPatch) -> None:
    """What an old worker finds lost at its start, it leaves to a worker that understands it."""

    async def main() -> None:
        store, world = virtual.store(), World()
        await by_newer_rules(store, world, newer)
        lease = await store.lease("new", holder="later:1::a")
        await store.release(lease)
        assert await store.claim("new") is None
        assert [] == await told_by(Worker, store, world)
        assert await store.claim("new") is None

    virtual.in_no_time(main)


def test_a_run_with_a_guard_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left alone in the same way, and told once."""

    async def main() -> None:
        store, world = virtual.store(), World()
        policy = {"guards": [{"guard": "repetition"}]}
        await world.agent(store, policy=policy).start("Do it.", run_id="new").detach()
        before = await written(store, "new")
        bare = {kind: guard for kind, guard in BUILTIN.items() if kind != "repetition"}
        monkeypatch.setattr("refold.engine.worker.installed_guards", lambda: bare)
        news = await told_by(Worker, store, world)
        assert [("new", "run new: its guard repetition is not installed; install the original version")] == [
            (each.run, each.problem) for each in news if isinstance(each, Skipped)
        ]
        assert before == await written(store, "new")
        monkeypatch.undo()
        news = await told_by(Worker, store, world)
        assert [TakenUp, PutDown] == [type(each) for each in news]

    virtual.in_no_time(main)


@pytest.fixture
def later(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that runs a later version: a copy of the sources with other rules."""
    copied = tmp_path / "later"
    shutil.copytree(ROOT / "reducers", copied / "reducers", ignore=shutil.ignore_patterns("__pycache__"))
    rules = copied / "reducers" / "refold" / "reducers" / "rules" / "order.py"
    text = rules.read_text(encoding="utf-8")
    text, first = re.subn(r"^RULES = \d+$", f"RULES = {NEWER}", text, flags=re.MULTILINE)
    text, second = re.subn(r"\{RULES: decide\}", f"{{{order.RULES}: decide, RULES: decide}}", text)
    assert (1, 1) == (first, second)
    rules.write_text(text, encoding="utf-8")
    about = copied / "reducers" / "refold-99.0.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: refold\nVersion: 99.0.0\n", encoding="utf-8"
    )
    return {**os.environ, "PYTHONPATH": str(copied / "reducers")}


@pytest.mark.slow
def test_two_versions(
    started: Started, refold: Refold, store: Path, tmp_path: Path, later: Mapping[str, str]
) -> None:
    """Two processes over one file: the old one leaves the newer run alone and drives its own, and the new
    one, started afterwards, drives the rest.
    """
    (tmp_path / "gate").touch()
    queued(store, "old-1", "old-2")
    recorded = started("run", "Work.", "--detach", "--label", "by=later", *TOOLS, env=later)
    assert recorded.stdout is not None
    new = recorded.stdout.readline().strip()
    assert 0 == recorded.wait(20)
    before = listed(refold, store)[new]
    old = started("worker", "-o", "json", *TOOLS)
    assert old.stdout is not None
    news = [next(json.loads(line) for line in old.stdout if line.startswith("{")) for _ in range(5)]
    (skipped,) = [line for line in news if line["type"] == "skipped"]
    assert (new, f"run {new} event 2: decision rules version {NEWER}: written by a newer refold") == (
        skipped["run"],
        skipped["problem"].partition("; ")[0],
    )
    assert {"old-1", "old-2"} == {line["run"] for line in news if line["type"] == "put_down"}
    assert before == listed(refold, store)[new]
    queued(store, "old-3")
    until(lambda: listed(refold, store)["old-3"]["agent_state"] == "COMPLETED")
    newest = started("worker", "-o", "json", *TOOLS, env=later)
    assert newest.stdout is not None
    news = [next(json.loads(line) for line in newest.stdout if line.startswith("{")) for _ in range(2)]
    assert [("taken_up", new), ("put_down", new)] == [(line["type"], line["run"]) for line in news]
    queued(store, "old-4")
    until(lambda: listed(refold, store)["old-4"]["agent_state"] == "COMPLETED")
    assert (newest.pid, new) in laborious.effects()
    assert {old.pid, newest.pid} >= {process for process, _ in laborious.effects()}
