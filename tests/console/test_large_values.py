"""An event that says more than anybody wants in memory is refused by its number, and nothing of it is
read.
"""

import tracemalloc
from pathlib import Path

import pytest

from console.conftest import Refold, record
from console.test_listings import tamper
from refold.engine import call, say
from refold.store import connection

MOST = 2**18
LARGE = 2**25  # more than what a command imports


def grow(store: Path, column: str) -> None:
    """Make a body or a content of the run longer than it could be written."""
    tamper(
        store,
        f"UPDATE event SET {column} = CAST(zeroblob({LARGE}) AS TEXT) WHERE key & 4294967295 = 4",
    )


@pytest.fixture(params=["body", "content"])
def grown(request: pytest.FixtureRequest, store: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in whose event 4 one value is larger than what is read; which."""
    record(store, [call("look", path="a"), say("done")], run_id="aa11")
    grow(store, request.param)
    monkeypatch.setattr(connection, "MOST_BYTES", MOST)
    return str(request.param)


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "aa11"],
        ["audit", "aa11"],
        ["show", "aa11"],
        ["show", "aa11", "--raw"],
        ["view", "aa11@t2"],
        ["grep", "done", "--all"],
        ["stats", "--all"],
        ["whatif", "aa11", "--policy", "hermes"],
        ["testcase", "aa11", "--out", "test_a.py"],
        ["pack", "aa11", "--out", "a.zip"],
    ],
    ids=" ".join,
)
def test_an_event_that_is_too_large_is_refused_by_its_number(
    refold: Refold, store: Path, grown: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command that would read it ends with 3, says which event it is and how large, and holds little of
    it.
    """
    monkeypatch.chdir(tmp_path)
    tracemalloc.start()
    try:
        ran = refold(*words, "--store", store)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    said = ran.out + ran.err
    assert 3 == ran.code, said
    assert "event 4 of run aa11" in " ".join(said.split())
    assert f"its {grown} has {LARGE} bytes" in " ".join(said.split())
    assert peak < LARGE


def test_what_was_written_is_read(store: Path, refold: Refold, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store takes, a reader takes: a run with an event just below the bound is whole."""
    monkeypatch.setattr(connection, "MOST_BYTES", MOST)
    record(store, [say("x" * (MOST - 2000))], run_id="aa11")
    assert 0 == refold("verify", "aa11", "--store", store).code
