"""A store in PostgreSQL that was restored from a backup taken under load: what is there, and what is lost."""

import re
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from console.conftest import Ran, Refold
from refold.console.main import main
from refold.engine import say
from refold.store import open_store
from support import runs
from support.backups import address_in, begin_backup, restore
from support.pairs import agent, fill
from support.postgres import FAST, PostgresServer

pytestmark = pytest.mark.slow

BUSY = 8


class Restored(NamedTuple):
    """A store before and after, in two servers, and what was kept elsewhere.

    `before` and `after` are lines of seals that were signed before and after the backup, `certificate` is of
    an audit after it, `written` the events that were appended while the backup ran.
    """

    old: str
    new: str
    key: Path
    before: str
    after: str
    certificate: Path
    written: int


async def load(address: str, done: threading.Event, written: list[int]) -> None:
    """Drive runs to their ends, one after another, until told to stop."""
    async with await open_store(address) as store:
        while not done.is_set():
            run = f"busy-{len(written)}"
            result = await runs.agent(store=store).start("Do it.", run_id=run, seed=1).result()
            written.append((await store.head(result.run)).seq)


async def go_on(address: str) -> None:
    """What happens after the backup: a run goes on, and another begins."""
    waiting = agent(address, say("Painted.")).resume("r3")
    waiting.answer({"c1": "approve"})
    await waiting.result()
    await agent(address, say("Late.")).start("Be late.", run_id="late").result()


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    folder = tmp_path_factory.mktemp("restored")
    key, certificate = folder / "k", folder / "certificate"
    old, new = PostgresServer(FAST), PostgresServer(FAST)
    try:
        source, target = address_in(old.start()), address_in(new.start())
        fill(source)
        run("keygen", key)
        before = run("seal", "--key", key, "--store", source)
        done, written = threading.Event(), list[int]()
        thread = threading.Thread(target=anyio.run, args=(load, source, done, written))
        thread.start()
        while len(written) < BUSY:
            done.wait(0.01)
        dumping, begun = begin_backup(old, folder / "dump"), len(written)
        assert 0 == dumping.wait(60)
        during = sum(written[begun:])
        done.set()
        thread.join()
        anyio.run(go_on, source)
        after = run("seal", "--key", key, "--seal", before, "--store", source)
        run("audit", "--all", "--certificate", certificate, "--store", source)
        restore(new, folder / "dump")
        yield Restored(source, target, key, before, after, certificate, during)
    finally:
        old.remove()
        new.remove()


def run(*words: object) -> str:
    """Run a command that must succeed; return its result."""
    with redirect_stdout(StringIO()) as out:
        assert 0 == main([str(word) for word in words]), words
    return out.getvalue().strip()


def verify(refold: Refold, restored: Restored, *words: object) -> Ran:
    return refold("verify", "--key", restored.key.with_name("k.pub"), "--store", restored.new, *words)


def test_the_backup_is_a_store(refold: Refold, restored: Restored) -> None:
    """A backup under load is one moment: every log in it is whole, and nothing is hidden."""
    assert restored.written > 0
    ran = verify(refold, restored, "--all", "--seal", restored.before)
    assert (0, True, True) == (
        ran.code,
        "signed checkpoints: valid" in ran.out,
        "4 log heads of these runs compared" in ran.out,
    )
    assert 0 == refold("audit", "--all", "--store", restored.new).code
    assert "damage     no hidden rows found" in refold("doctor", "--deep", "--store", restored.new).out


def test_a_later_line_shows_the_loss(refold: Refold, restored: Restored) -> None:
    """A line kept since the backup proves that something is lost, and with it nothing is signed. With the
    line kept before, signing goes on, and the loss stays provable.
    """
    ran = verify(refold, restored, "--all", "--seal", restored.after)
    size = int(restored.after.split()[1].partition(":")[0])
    problem = f"it has 5 entries, fewer than the kept line seal {size}:"
    assert (3, True) == (ran.code, problem in ran.out), ran.out
    signing = refold("seal", "--key", restored.key, "--seal", restored.after, "--store", restored.new)
    assert (3, "", True) == (signing.code, signing.out, "nothing was signed" in signing.err)
    signing = refold("seal", "--key", restored.key, "--seal", restored.before, "--store", restored.new)
    assert 0 == signing.code
    assert 0 == verify(refold, restored, "--all", "--seal", signing.out.strip()).code
    assert 3 == verify(refold, restored, "--all", "--seal", restored.after).code


def test_a_certificate_names_the_loss(refold: Refold, restored: Restored) -> None:
    """A certificate written since the backup names each run that is shorter or missing, and by how much."""
    ran = refold("verify", restored.certificate, "--store", restored.new)
    assert 3 == ran.code, ran
    assert "late: the store does not have this run" in ran.out
    assert re.search(
        r"r3: event 15 was audited with the hash [0-9a-f]{64}; its log ends at event 5\n", ran.out
    )
    assert "r1:" not in ran.out
