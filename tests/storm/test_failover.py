"""A PostgreSQL server or its standby is lost; `make failover` does it with more load, and measures."""

import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import sniffio
from anyio import to_thread

from refold.store.postgres.connection import Link
from refold.store.postgres.store import PostgresStore
from refold.store.protocol import Head, StoreUnavailable
from refold.store.testing import events, records
from storm.failover import fail_over, stand_still
from storm.pairs import SECONDS, Pair
from support.postgres import execute

pytestmark = pytest.mark.slow

LIMIT = 0.5
"""Seconds that a statement may take here. A commit that waits for a standby takes any time."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair() as both:
        yield both


@pytest.mark.parametrize("synchronous", [True, False], ids=["synchronous", "asynchronous"])
def test_workers_go_on_after_a_failover(tmp_path: Path, synchronous: bool) -> None:
    """After the primary was killed and the standby promoted, workers and clients go on, and every run is
    intact; with synchronous replication no acknowledged event is lost.
    """
    found = fail_over(tmp_path, synchronous=synchronous, seconds=1.0, runs=6, workers=1, steps=6, clients=4)
    assert 0 == found.violations, found


@pytest.mark.parametrize("back", [True, False], ids=["the standby is back", "no commit waits any more"])
def test_nothing_is_acknowledged_without_the_standby(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """While the standby stands still no append is acknowledged; afterwards all goes on, with nothing lost."""
    monkeypatch.setattr(Link, "limit", LIMIT)
    found = stand_still(tmp_path, seconds=3.0, back=back, runs=6, workers=1, steps=6, clients=4, before=0.5)
    assert 0 == found.violations, found
    assert found.unknown


@pytest.mark.anyio
@pytest.mark.parametrize("back", [True, False], ids=["the standby is back", "the standby stays away"])
async def test_a_cancelled_wait_for_the_standby_is_no_acknowledgement(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """If the server stops waiting for its standby, the append is acknowledged once the standby has it, and
    its outcome is unknown until then.
    """
    async with await PostgresStore.open(pair.address, patience=30.0 if back else 1.0) as store:
        run = f"cancelled-{back}-{sniffio.current_async_library()}"
        lease = await store.lease(run, holder="a test")
        await store.append(run, 0, lease, records(1))
        monkeypatch.setattr(Link, "limit", LIMIT if not back else Link.limit)
        pair.standby.suspend()
        outcomes = list[Head | StoreUnavailable]()

        async def append() -> None:
            try:
                outcomes.append(await store.append(run, 1, lease, records(2, 1)))
            except StoreUnavailable as error:
                outcomes.append(error)

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(append)
                await to_thread.run_sync(_cancel_waiting, pair)
                assert 3 == (
                    await to_thread.run_sync(_last_event, pair, run)
                )  # committed, for everybody to see
                await to_thread.run_sync(_wait_for_waiting, pair)
                if back:
                    assert not outcomes
                    pair.standby.resume()
        finally:
            pair.standby.resume()
        (outcome,) = outcomes
        assert not isinstance(outcome, Head) or back
        assert isinstance(outcome, Head) or not outcome.outcome_known
        head = await store.head(run)
        assert 3 == head.seq == len(await events(store, run))
        assert outcome == head or not back


def _waiting(pair: Pair) -> list[object]:
    rows = pair.primary.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    return [pid for (pid,) in rows]


def _wait_for_waiting(pair: Pair) -> list[object]:
    until = time.monotonic() + SECONDS
    while not (found := _waiting(pair)):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


def _cancel_waiting(pair: Pair) -> None:
    for pid in _wait_for_waiting(pair):
        pair.primary.execute(f"SELECT pg_cancel_backend({pid})")


def _last_event(pair: Pair, run: str) -> object:
    """Return the last event that everybody can see, once it can be seen."""
    until, last = time.monotonic() + SECONDS, None
    while last != 3 and time.monotonic() < until:
        ((last,),) = execute(pair.address, f"SELECT max(seq) FROM {{s}}.log WHERE run = '{run}'")
    return last
