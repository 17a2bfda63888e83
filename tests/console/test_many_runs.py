"""Questions to many runs at once: on several processes they come to what one comes to, and no run is
hidden.
"""

import gc
import json
import os
import pickle
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from bench.big_run import write as write_big
from console.conftest import Refold
from refold.console import processes, queries, whatif, whatif_question
from refold.console.whatif_question import OtherPolicies
from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.replay import cut
from refold.replay.dispatch import run_task
from refold.replay.shards import Shard, ShardEnd, shards
from refold.store import SqliteStore
from refold.store.scans import open_scan
from support.forging import records_of, write

QUESTIONS = {
    "grep": ["type:tool or type:model"],
    "grep --count": ["type:tool", "--count"],
    "grep --most": ["type:tool", "--most", "7"],
    "stats": [],
    "whatif": ["--set", "limits.step=1"],
}


@tool(replay="read_only")
def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifteen runs, of which three are forks of the first."""
    path = tmp_path_factory.mktemp("many") / "runs.db"
    for number in range(12):
        model = ScriptedModel([call("look", place=f"{number}"), say("Done.")])
        agent = Agent(model=model, tools=[look], store=path, policy={"end_of_turn": "complete"})
        agent.run_sync("Look.", run_id=f"run-{number:02}", seed=number)

    async def forked() -> None:
        async with await SqliteStore.open(path) as store:
            at = await cut(store, "run-00")
            for number in range(3):
                agent = Agent(model=ScriptedModel([say("Done.")]), tools=[look], store=store)
                await agent.fork("run-00", at, fork_id=f"fork-{number}").result()

    anyio.run(forked)
    return path


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((queries, "GREP_SHARD"), (queries, "STATS_SHARD"), (whatif, "SHARD_OF_A_STORE")):
        monkeypatch.setattr(module, name, 20)


def asked(refold: Refold, question: str, store: Path, *words: str) -> Any:
    return refold(question.split(maxsplit=1)[0], *QUESTIONS[question], "--all", "--store", store, *words)


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_two_processes_say_what_one_says(refold: Refold, many: Path, question: str, form: str) -> None:
    """However many processes look, the same is told, in the same order, and events that runs share count
    once.
    """
    alone = asked(refold, question, many, "--jobs", "1", "-o", form)
    shared = asked(refold, question, many, "--jobs", "2", "-o", form)
    assert (alone.code, alone.out, alone.err) == (shared.code, shared.out, shared.err)
    assert alone.out


@pytest.fixture
def damaged(many: Path, tmp_path: Path) -> Path:
    """The same, with a run that cannot be read to its end, and one of a newer refold."""
    path = tmp_path / "runs.db"
    shutil.copy(many, path)

    async def forge() -> None:
        async with await SqliteStore.open(path) as store:
            log = await records_of(store, "run-01")
            await write(store, "broken", [*log[:5], replace(log[5], body=b"{")])
            await write(store, "newer", [*log[:5], replace(log[5], kind="dreamt", body=b"{}")])

    anyio.run(forge)
    return path


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("question", ["grep", "grep --count", "stats", "whatif"])
def test_one_run_that_cannot_be_judged_is_not_hidden(
    refold: Refold, damaged: Path, question: str, jobs: str
) -> None:
    """Among many it is named, with the exit code of the worst: 3 for damage, though others differ or cannot
    be judged.
    """
    ran = asked(refold, question, damaged, "--jobs", jobs)
    said = ran.out + ran.err
    assert 3 == ran.code
    assert "broken" in said
    assert "newer" in said
    assert "written by a newer refold" in said


def dies(shard: Shard) -> Iterator[Any]:
    """What kills a worker, but for where no run-05 is."""
    if "run-05" in shard.runs:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from shard.runs


@pytest.mark.slow
def test_a_part_that_kills_its_worker_takes_no_other_with_it(many: Path) -> None:
    """Real processes: all parts but the one that kills its worker are looked through, and that one is
    named.
    """
    work = shards(many, [(f"run-{number:02}", 20) for number in range(12)], 20)
    with processes.processes(2, work) as workers:
        found = list(run_task(work, workers, dies))
    ended = [each for each in found if isinstance(each, ShardEnd)]
    assert len(work) == len(ended)
    assert [("run-05",)] == [each.shard.runs for each in ended if each.problem]
    told = [each for each in found if not isinstance(each, ShardEnd)]
    assert sorted(set(told)) == sorted(run for shard in work for run in shard.runs if run != "run-05")


def gone(shard: Shard, *_: object, **__: object) -> Iterator[Any]:
    """The store's file goes away under whoever reads it."""
    with open_scan(shard.address + ".gone"):
        yield from ()


@pytest.mark.parametrize(
    ("question", "place"),
    [("grep", "refold.console.queries.look_through"), ("stats", "refold.console.queries.count_all"),
     ("whatif", "refold.console.whatif_question.ask_all")],
)  # fmt: skip
def test_what_could_not_be_looked_at_is_named(
    refold: Refold, many: Path, question: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that nobody finished is named, and the exit code is 4: nothing is known of its runs."""
    monkeypatch.setattr(place, gone)
    ran = asked(refold, question, many)
    assert 4 == ran.code
    assert "the file does not exist" in ran.out + ran.err


def test_of_statistics_it_stands_in_the_document(
    refold: Refold, many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads counts alone reads there what they lack."""
    monkeypatch.setattr("refold.console.queries.count_all", gone)
    told = json.loads(asked(refold, "stats", many, "-o", "json").out)
    assert (1, 0) == (len(told["unread"]), told["counts"]["runs"])


def test_a_long_run_is_told_of_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found in a run of very many events is not held: the first comes before the last was read."""
    path = tmp_path / "runs.db"
    anyio.run(write_big, path, 60)
    work = shards(path, [("bench", 10**9)])
    read = list[int]()

    def task(shard: Shard) -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    with processes.pool(1, gc.freeze) as executor:
        found = run_task(work, executor, task, held=50_000)
        assert (0, [0]) == (next(found), read)
        found.close()


def test_the_policies_are_read_anew_in_each_process() -> None:
    """A question can be sent: what comes back of it is the same question."""
    sent = whatif_question.WhatIfQuestion(OtherPolicies(settings=["limits.step=1"]))
    got = pickle.loads(pickle.dumps(sent))
    assert list(sent.policies) == list(got.policies)
    assert got is pickle.loads(pickle.dumps(sent))


def test_families_come_into_one_part(many: Path) -> None:
    """A fork is looked at where its parent is, so that what they share is known to be counted."""
    runs = [("a", 10), ("f", 10), ("b", 10), ("g", 10)]
    work = shards(many, runs, 10, families={"f": "b", "g": "b"})
    assert [("a",), ("f", "b", "g")] == [shard.runs for shard in work]
