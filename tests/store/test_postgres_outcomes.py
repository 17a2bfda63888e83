"""Appends to PostgreSQL over a network that loses statements and responses: none is lost or doubled."""

import random
from collections import Counter
from collections.abc import Sequence

import anyio
import anyio.lowlevel
import psycopg
import pytest
from anyio import to_thread

from refold.store.chain import START, links
from refold.store.postgres import connection, schema
from refold.store.postgres.address import parse_address
from refold.store.postgres.appends import Append, Appender
from refold.store.postgres.connection import Link
from refold.store.postgres.store import PostgresStore
from refold.store.protocol import Head, Lease, Record, StoreUnavailable
from refold.store.testing import append, events, records, shared_fields
from support.postgres import execute
from support.proxy import Fault, Proxy

pytestmark = pytest.mark.anyio

RUNS, APPENDS = 3, 5
LIMIT = 0.1
"""Seconds that a statement may take here: a stalled one is given up after them."""

FAULTS = [fault for fault in Fault if fault is not Fault.NONE]


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "limit", LIMIT)
    monkeypatch.setattr(connection, "_PAUSES", (0.002, 0.01))


class Trouble:
    """Chooses faults by a seed, once it is on."""

    def __init__(self, seed: int, faults: Sequence[Fault]) -> None:
        self.seed = seed
        self._chance, self._faults = random.Random(seed), faults
        self.on = False

    def __call__(self) -> Fault:
        return self._chance.choice([*self._faults, *[Fault.NONE] * 10]) if self.on else Fault.NONE


async def write(store: PostgresStore, lease: Lease) -> list[Record]:
    """Append to a run, and return what its log has by what the store says."""
    head, written = START, list[Record]()
    for number in range(APPENDS):
        reached, attempt = head, 0
        while reached == head:
            attempt += 1
            # Other records at each attempt, so that the log shows which of them was written.
            new = records(2, 10 * number + 1000 * attempt)
            seq, _, _, hashed, *_ = links(lease.run, head, new)[-1]
            try:
                reached = await store.append(lease.run, head.seq, lease, new)
            except StoreUnavailable as error:
                reached = head if error.outcome_known else await find_head(store, lease.run)
        assert Head(seq=seq, hash=hashed) == reached
        head, written = reached, [*written, *new]
    return written


async def open_slowly(address: str, patience: float) -> PostgresStore:
    """Open a store; a busy machine may need more than the limit of a statement."""
    while True:
        try:
            return await PostgresStore.open(address, patience=patience)
        except StoreUnavailable:
            continue


async def find_head(store: PostgresStore, run: str) -> Head:
    while True:
        try:
            return await store.head(run)
        except StoreUnavailable:
            continue


async def write_through(address: str, trouble: Trouble, patience: float, direct: PostgresStore) -> None:
    """Write runs at once through a faulty network, then compare their logs with what the store said."""
    async with await open_slowly(address, patience) as store:
        leases = [await direct.lease(f"{trouble.seed}-{number}", holder="a test") for number in range(RUNS)]
        trouble.on = True

        async def write_one(lease: Lease) -> None:
            expected = await write(store, lease)
            stored = await events(direct, lease.run)
            assert [shared_fields(each) for each in expected] == [shared_fields(each) for each in stored]

        async with anyio.create_task_group() as tasks:
            for lease in leases:
                tasks.start_soon(write_one, lease)
        trouble.on = False


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(2), id="few"), pytest.param(range(2, 16), id="many", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("patience", [5.0, 0.0], ids=["patient", "impatient"])
async def test_no_append_is_lost_or_doubled(postgres: str, seeds: range, patience: float) -> None:
    """An acknowledged append is in the log once, and one that was not written never appears there."""
    async with await PostgresStore.open(postgres) as direct:
        limit, counts = anyio.CapacityLimiter(3), Counter[Fault]()

        async def try_seed(seed: int) -> None:
            trouble = Trouble(seed, FAULTS)
            async with limit:
                with Proxy(postgres, trouble) as proxy:
                    await write_through(proxy.address, trouble, patience, direct)
                counts.update(proxy.count)

        async with anyio.create_task_group() as tasks:
            for seed in seeds:
                tasks.start_soon(try_seed, seed)
        await direct.check()
    assert set(FAULTS) <= {fault for fault, count in counts.items() if count} or len(seeds) < 10


async def test_a_statement_that_arrives_late_changes_nothing(postgres: str) -> None:
    """After the store found out that an append was not written, the network cannot deliver it any more."""
    faults = list[Fault]()
    with Proxy(postgres, lambda: faults.pop() if faults else Fault.NONE, late=0.1) as proxy:
        async with (
            await PostgresStore.open(proxy.address, patience=0.0) as store,
            await PostgresStore.open(postgres) as direct,
        ):
            lease = await store.lease("r", holder="a test")
            first = await store.append("r", 0, lease, records(1))
            faults.append(Fault.LATE)
            with pytest.raises(StoreUnavailable) as caught:
                await store.append("r", 1, lease, records(2, 1))
            assert not caught.value.outcome_known
            assert first == await store.head("r")
            assert await to_thread.run_sync(proxy.arrived.wait, 10)
            assert first == await direct.head("r")
            second = await store.append("r", 1, lease, records(1, 7))
            assert second == await direct.head("r")


async def test_an_error_after_a_lost_connection_leaves_the_outcome_unknown(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that was committed is not reported as failed because the store could not find that out."""
    faults = list[Fault]()
    with Proxy(postgres, lambda: faults.pop() if faults else Fault.NONE) as proxy:
        async with await PostgresStore.open(postgres) as direct:
            leases = [await direct.lease(run, holder="a test") for run in ("r", "s")]
            link = Link(parse_address(proxy.address), "fsync", patience=5.0)
            appender = Appender(link)
            appender.commit([Append(each.run, 0, each, records(1), release=False) for each in leases])
            group = [Append(each.run, 1, each, records(1, 1), release=False) for each in leases]
            with monkeypatch.context() as patch:
                patch.setattr(schema, "CONFIRM", "SELECT 1 / 0, %s")
                faults.append(Fault.DONE)
                appender.commit(group)
            assert [2, 2] == [(await direct.head(lease.run)).seq for lease in leases]
            link.drop()
    unknown = [each.outcome for each in group if isinstance(each.outcome, StoreUnavailable)]
    assert [False, False] == [each.outcome_known for each in unknown]
    assert {"r", "s"} == appender.unsure


async def test_a_connection_lost_while_it_opens_is_opened_again(postgres: str) -> None:
    """A connection that is lost before it is set up counts as lost, not as a failed statement."""
    async with await PostgresStore.open(postgres) as direct:
        await append(direct, "r", records(2))
    faults = [Fault.DONE, Fault.UNSENT]
    with Proxy(postgres, lambda: faults.pop() if faults else Fault.NONE) as proxy:
        async with await PostgresStore.open(proxy.address) as store:
            assert 2 == (await store.head("r")).seq
    assert not faults


async def test_the_server_ends_sessions_of_clients_that_gave_up(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that waited for a locked row until their limit leave no session behind."""
    monkeypatch.setattr(connection, "_NOTICED", 50)
    async with await PostgresStore.open(postgres, patience=3 * LIMIT) as store:
        lease = await store.lease("r", holder="a test")
        usual = Link.limit
        monkeypatch.setattr(Link, "limit", LIMIT)
        with psycopg.connect(parse_address(postgres).conninfo) as other:
            other.execute(f"SELECT FROM {parse_address(postgres).schema}.run FOR UPDATE".encode())
            with pytest.raises(StoreUnavailable):
                await store.append("r", 0, lease, records(1))
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            with anyio.fail_after(10):
                while execute(postgres, waiting) != [(0,)]:
                    await anyio.lowlevel.checkpoint()
        monkeypatch.setattr(Link, "limit", usual)
        assert 1 == (await store.append("r", 0, lease, records(1))).seq
