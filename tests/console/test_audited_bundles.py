"""`refold audit` of bundles that somebody changed: what is wrong is told as `verify` tells it, and no run
hides another.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from console.conftest import Refold, look
from refold.engine import Agent, ScriptedModel, call, say
from refold.replay.bulk import audit_shard
from refold.replay.cuts import cut
from refold.replay.shards import Shard
from refold.store import SqliteStore
from refold.store.packer import pack
from support.bundles import Members, listed, members_of, zipped

RUN = "runs/000001.jsonl"


@pytest.fixture
def bundle(refold: Refold, store: Path, finished: str, limited: str, tmp_path: Path) -> Path:
    """A bundle of two runs, aa11 first."""
    path = tmp_path / "b.zip"
    assert 0 == refold("pack", "aa11", "aa22", "--store", store, "--out", path).code
    return path


def edited(members: Members, name: str = RUN, word: bytes = b"look") -> Members:
    assert word in members[name]
    return {**members, name: members[name].replace(word, word[::-1])}


def renamed(members: Members) -> Members:
    return {name.replace("000001", "000009"): data for name, data in members.items()}


def of_zip(change: Callable[[Members], Members]) -> Callable[[Path], object]:
    return lambda path: zipped(path, change(members_of(path)))


def of_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


CHANGES = [
    pytest.param(of_zip(edited), id="a word"),
    pytest.param(of_zip(lambda members: listed(edited(members))), id="a word, its sum computed anew"),
    pytest.param(of_zip(lambda members: listed({**members, RUN: b"{}\n"})), id="no events"),
    pytest.param(of_zip(lambda members: edited(members, "README.txt", b"refold")), id="what people read"),
    pytest.param(of_zip(renamed), id="renamed"),
    pytest.param(of_bytes(lambda data: data[:-10]), id="cut short"),
    pytest.param(of_bytes(lambda data: data[: len(data) // 2]), id="cut in half"),
    pytest.param(of_bytes(lambda data: data + data), id="doubled"),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_was_changed_is_damage(
    change: Callable[[Path], object], jobs: str, refold: Refold, bundle: Path, tmp_path: Path
) -> None:
    """The exit code is 3, as that of `verify`, with its sentence; the certificate is not clean, and nobody
    speaks of a bug.
    """
    change(bundle)
    verified, paper = refold("verify", bundle, "-o", "json"), tmp_path / "paper.json"
    for more in ([], ["-o", "json"], ["--certificate", paper]):
        ran = refold("audit", bundle, "--jobs", jobs, *more)
        assert (3, 3, "") == (verified.code, ran.code, ran.err)
        assert json.loads(verified.out)["problem"] in ran.out
    assert 3 == refold("verify", paper).code
    assert "NOT ALL" in ran.out


def test_the_other_runs_are_judged(refold: Refold, bundle: Path) -> None:
    """The run in which a word was changed is named as damaged; that of the other nothing is wrong is said as
    before.
    """
    zipped(bundle, edited(members_of(bundle)))
    rows = [json.loads(each) for each in refold("audit", bundle, "-o", "json").out.splitlines()]
    told = {row["run"]: row for row in rows if "run" in row}
    assert ({"aa11", "aa22"}, True) == (set(told), "run aa11 event" in told["aa11"]["damaged"])
    assert 0 < told["aa22"]["decisions"]


def test_what_is_not_of_one_run_stands_beside_them(refold: Refold, bundle: Path) -> None:
    """Where something else than a run was changed, the bundle is named, and its runs keep their verdicts."""
    zipped(bundle, edited(members_of(bundle), "README.txt", b"refold"))
    rows = [json.loads(each) for each in refold("audit", bundle, "-o", "json").out.splitlines()]
    assert ["aa11", "aa22", None] == [row.get("run") for row in rows]
    assert (str(bundle), True) == (rows[-1]["bundle"], "README.txt" in rows[-1]["damaged"])
    said = refold("audit", bundle).out
    assert f"bundle {bundle}: DAMAGED" in said
    assert "NOT ALL" in said


@pytest.mark.anyio
async def test_a_fork_of_what_was_changed(store: Path, tmp_path: Path) -> None:
    """In a bundle, too, what was edited in a run was edited in what was forked from it."""
    path = tmp_path / "fork.zip"
    async with await SqliteStore.open(store) as opened:
        script = [call("look", path="a"), say("Done.")]
        await (
            Agent(model=ScriptedModel(script), tools=[look], store=opened).start("Look.", run_id="a").result()
        )
        forked = Agent(model=ScriptedModel([say("Done.")]), tools=[look], store=opened)
        await forked.fork("a", await cut(opened, "a"), fork_id="b").result()
        await pack(opened, ["a", "b"], path)
    assert {"clean"} == {each.verdict for each in audit_shard(Shard(address=str(path)))}
    zipped(path, listed(edited(members_of(path))))
    found = {each.run: each.verdict for each in audit_shard(Shard(address=str(path)))}
    assert ("damaged", "damaged") == (found["a"], found["b"])
