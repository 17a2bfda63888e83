"""Every command that changes a store does the same in PostgreSQL as in a file."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import anyio
import pytest

from console import paying
from console.conftest import Ran, Refold, public
from refold.engine import Agent, ScriptedModel, call, calls, say
from refold.engine.models.script import Line
from refold.store import open_store
from refold.store.opening import store_address
from support import runs
from support.pairs import SECRET, Pair, fill, with_password
from support.postgres import execute

Scripted = Callable[[Sequence[Line]], None]

TOOLS = ["--tools", "pair_tools:TOOLS"]
WHY = ["--why", "asked to", "--by", "ann"]
TINY = Path(__file__).parents[1] / "transcripts" / "claude_code" / "tiny-1.0.jsonl.zst"


@pytest.fixture(autouse=True)
def _tools(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("pair_tools")
    module.__dict__["TOOLS"] = [runs.look, runs.act, paying.pay]
    monkeypatch.setitem(sys.modules, "pair_tools", module)
    paying.PAID.clear()


@pytest.fixture
def pair(refold: Refold, tmp_path: Path, postgres: str) -> Iterator[Pair[Ran]]:
    """A file and a schema with the same runs, to change. Afterwards both are sound, and have no password."""
    file, address = str(tmp_path / "runs.db"), with_password(postgres)
    fill(file)
    fill(address)
    made = Pair(refold, file, address, store_address(address).shown)
    yield made
    assert 0 == made.run("verify", "--all").code
    assert 0 == made.run("audit", "--all").code
    rows = execute(postgres, "SELECT body || coalesce(content, '') FROM {s}.event")
    assert not [row for (row,) in rows if SECRET in str(row)]


def own(pair: Pair[Ran], run: str) -> None:
    """The log of a run is the same in both, whatever its times."""
    assert 0 == pair.run("export", run).code


def test_calls_are_approved(pair: Pair[Ran], scripted: Scripted) -> None:
    """A call that waits is approved, and the run goes on to its end."""
    scripted([say("Painted.")])
    assert 0 == pair.run("approve", "r3", "c1", *WHY, *TOOLS).code
    own(pair, "r3")
    assert 0 == pair.run("approvals").code


def test_calls_are_rejected_or_edited(pair: Pair[Ran], scripted: Scripted) -> None:
    """So is one that is rejected, or approved with other arguments, and left to a worker."""
    assert (
        0
        == pair.run(
            "edit", "r3", "c1", "--arguments", '{"what": "sand"}', "--by", "ann", "--detach", *TOOLS
        ).code
    )
    scripted([call("act", what="paint again")])
    ran = pair.run("worker", "--until-idle", *TOOLS)
    assert (0, True) == (ran.code, "r3" in ran.out), ran
    scripted([say("Never mind.")])
    assert 0 == pair.run("reject", "r3", "c2", *WHY, *TOOLS).code
    own(pair, "r3")


def test_a_fork_is_left_to_a_worker(pair: Pair[Ran], scripted: Scripted) -> None:
    """`fork --detach` records it; `worker --until-idle` finds it and drives it."""
    scripted([calls(("look", {"path": "b"}), ("look", {"path": "c"})), say("Elsewhere.")])
    ran = pair.run("fork", "r2@e2", "--say", "Look elsewhere.", "--by", "ann", "--detach", *TOOLS)
    assert 0 == ran.code, ran
    ran = pair.run("worker", "--until-idle", *TOOLS)
    assert (0, True) == (ran.code, "COMPLETED" in ran.out), ran
    for word in ("ls", "graph"):
        pair.run(word, *(["@last"] if word == "graph" else []))


def test_a_run_is_started_and_resumed(pair: Pair[Ran], scripted: Scripted, tmp_path: Path) -> None:
    """`run` and `resume` drive a run, which waits between them."""
    (tmp_path / "p.json").write_text('{"schema": "refold/v1", "end_of_turn": "wait"}')
    scripted([say("And now?")])
    assert 1 == pair.run("run", "Ask.", "--policy", tmp_path / "p.json", *TOOLS).code
    scripted([say("Bye.")])
    assert 1 == pair.run("resume", "@last", "--message", "Go home.", *TOOLS).code
    assert 0 == pair.run("cancel", "@last", *WHY).code
    own(pair, "@last")


def test_an_unknown_outcome_is_settled(pair: Pair[Ran], scripted: Scripted) -> None:
    """`doubts` lists a call that a crash interrupted, `resolve` settles it, and `resume` goes on."""
    for store, _ in pair.stores:
        paying.crash(store, "r5", doubt="ask")  # type: ignore[arg-type]
    scripted([say("Paid.")])
    assert 1 == pair.run("resume", "r5", *TOOLS).code
    assert 1 == pair.run("doubts").code
    assert 0 == pair.run("resolve", "r5", "c1", "happened", *WHY).code
    assert 0 == pair.run("resume", "r5", *TOOLS).code
    own(pair, "r5")
    assert [30, 30] == paying.PAID


def test_signed_and_erased(pair: Pair[Ran], key: Path, refold: Refold, tmp_path: Path) -> None:
    """A seal covers all runs, an erased payload is gone, and a bundle of both becomes a store."""
    ran = pair.run("seal", "--key", key)
    assert (0, True) == (ran.code, ran.out.startswith("seal 5:")), ran
    lines = [refold("seal", "--key", key, "--store", store).out.strip() for store, _ in pair.stores]
    pair.run("verify", "--all", "--key", public(key))
    assert 0 == pair.run("erase", "r4@e4", "--yes", *WHY).code
    own(pair, "r4")
    for number, (store, _) in enumerate(pair.stores):
        assert (
            0
            == refold("verify", "--all", "--key", public(key), "--seal", lines[number], "--store", store).code
        )
    assert (
        0
        == pair.run("pack", "r1", "r4", "--out", tmp_path / "{n}.zip", names=["[01].zip: [0-9,]+ bytes"]).code
    )
    for number in (0, 1):
        assert 0 == refold("verify", tmp_path / f"{number}.zip", "--seal", lines[number]).code
        assert 0 == refold("unpack", tmp_path / f"{number}.zip", "--out", tmp_path / f"{number}.db").code
        assert 0 == refold("audit", "--all", "--store", tmp_path / f"{number}.db").code


def test_transcripts_are_imported(pair: Pair[Ran]) -> None:
    """An import adds the same events, and a second one adds none."""
    assert 0 == pair.run("import", TINY).code
    ran = pair.run("import", TINY, "-o", "json")
    assert (0, True) == (ran.code, '"added":0' in ran.out), ran
    assert 0 == pair.run("show", "claude_code-06f4c4ba7078386f").code


def test_what_is_held_elsewhere(pair: Pair[Ran], scripted: Scripted) -> None:
    """A run that an engine of another machine drives is refused, with its name."""

    async def hold() -> None:
        for store, _ in pair.stores:
            async with await open_store(store) as opened:
                await opened.lease("r3", holder="far.example:77:x.1:abcd", seconds=90)

    anyio.run(hold)
    scripted([])
    ran = pair.run("approve", "r3", "c1", *TOOLS)
    assert (4, True) == (ran.code, "far.example" in ran.err), ran
    assert 4 == pair.run("erase", "r3@e3", "--yes", *WHY).code


def test_a_detached_run(pair: Pair[Ran]) -> None:
    """A run that is only recorded is due in both."""
    for store, _ in pair.stores:

        async def queue(address: str = store) -> None:
            async with await open_store(address) as opened:
                agent = Agent(model=ScriptedModel([]), tools=[runs.look], store=opened)
                await agent.start("Look.", run_id="r6", seed=3).detach()

        anyio.run(queue)
    assert 0 == pair.run("show", "r6").code
