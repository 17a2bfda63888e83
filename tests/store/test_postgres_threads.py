"""Threads and connections of the PostgreSQL store: cancelled calls, closing, forks, groups, limits."""

import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence

import anyio
import anyio.lowlevel
import pytest

from refold.engine import Agent, ScriptedModel, Worker, say
from refold.store.postgres import connection
from refold.store.postgres.address import parse_address
from refold.store.postgres.connection import Link, Lost
from refold.store.postgres.store import PostgresStore
from refold.store.postgres.threads import LaneInThread
from refold.store.protocol import LEASE_SECONDS, DamagedStore, Lease, StoreUnavailable
from refold.store.testing import append, records
from support.postgres import execute
from support.proxy import Fault, Proxy

pytestmark = pytest.mark.anyio

ENOUGH = 30.0
"""Seconds after which a test gives up; far below the patience that these tests use."""
PATIENCE = 600.0


class Lane:
    """A lane whose functions need no server, and a first call that occupies its thread until `free`."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.link = Link(parse_address("postgresql://nowhere/d"), "fsync", patience=patience)
        self.lane = LaneInThread(self.link, "a test")
        self.free, self.calls = threading.Event(), list[str]()

    def occupy(self) -> None:
        self.lane.start(lambda _: self.free.wait(ENOUGH))

    def note(self, _: Link, name: str) -> str:
        self.calls.append(name)
        return name

    def lose(self, _: Link, name: str) -> str:
        self.calls.append(name)
        raise Lost("the server is starting up")


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(ENOUGH):
        while not condition():  # noqa: ASYNC110 - other threads do not set events of this loop
            await anyio.sleep(0.005)


async def test_a_cancelled_read_that_waits_is_withdrawn() -> None:
    """Reads that were cancelled before they began do not delay those that follow."""
    at = Lane()
    at.occupy()
    for number in range(5):
        with anyio.move_on_after(0.001):
            await at.lane.run(at.note, str(number))
    at.free.set()
    with anyio.fail_after(ENOUGH):
        assert "next" == await at.lane.run(at.note, "next")
        await at.lane.aclose()
    assert ["next"] == at.calls


async def test_a_cancelled_read_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that retries when it is cancelled ends, although its patience is not over."""
    monkeypatch.setattr(connection, "_PAUSES", (0.005, 0.01))
    at = Lane()
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            await at.lane.run(at.lose, "lost")

        tasks.start_soon(read)
        await until(lambda: len(at.calls) > 2)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(ENOUGH):
        assert "next" == await at.lane.run(at.note, "next")
        await at.lane.aclose()


async def test_patience_counts_from_when_a_call_was_queued() -> None:
    """A call that waited for its whole patience is attempted once."""
    at = Lane(patience=0.05)
    at.occupy()
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            with pytest.raises(StoreUnavailable, match="starting up"):
                await at.lane.run(at.lose, "lost")

        tasks.start_soon(wait)
        await anyio.sleep(0.2)
        at.free.set()
    await at.lane.aclose()
    assert ["lost"] == at.calls


async def test_closing_ends_retries(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the server is away, `aclose` ends what waits for it. The outcome of a sent append is unknown."""
    monkeypatch.setattr(connection, "_PAUSES", (0.005, 0.01))
    away = False
    with Proxy(postgres, lambda: Fault.UNSENT if away else Fault.NONE) as proxy:
        store = await PostgresStore.open(proxy.address, patience=PATIENCE)
        lease = await store.lease("r", holder="a test")
        await store.append("r", 0, lease, records(1))
        errors = dict[str, StoreUnavailable]()

        async def fail(name: str) -> None:
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "append": lambda: store.append("r", 1, lease, records(1, 1)),
                "lease": lambda: store.lease("s", holder="a test"),
                "read": lambda: store.claim("r"),
                "second read": lambda: store.claim("s"),
            }
            with pytest.raises(StoreUnavailable) as caught:
                await calls[name]()
            errors[name] = caught.value

        away = True
        with anyio.fail_after(ENOUGH):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fail, "append")
                await until(lambda: proxy.count[Fault.UNSENT] >= 1)
                for name in ("lease", "read", "second read"):
                    tasks.start_soon(fail, name)
                await until(lambda: proxy.count[Fault.UNSENT] >= 2)
                await store.aclose()
    known = {name: error.outcome_known for name, error in errors.items()}
    assert {"append": False, "lease": True, "read": True, "second read": True} == known


async def test_closing_finishes_what_waits(postgres: str) -> None:
    """While the server is there, closing loses no call that was made before."""
    store = await PostgresStore.open(postgres)
    started, taken = 0, list[Lease]()

    async def take(run: str) -> None:
        nonlocal started
        started += 1
        taken.append(await store.lease(run, holder="a test"))

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(take, str(number))
        while started < 5:
            await anyio.lowlevel.checkpoint()
        await store.aclose()
    assert 5 == len(taken)


FORKED = """
import gc, os, sys, warnings
import anyio
from refold.reducers.errors import WrongUse
from refold.store import open_here, open_store
from refold.store.sequential import at_once

address = sys.argv[1]
here, store = open_here(address), anyio.run(open_store, address)
assert at_once(here.head("r")).seq == 2
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
child = os.fork()
if not child:
    warnings.simplefilter("error")
    sys.unraisablehook = lambda error: os._exit(3)
    assert at_once(here.head("r")).seq == 2

    async def refused():
        with anyio.fail_after(10):
            for call in (store.head("r"), store.lease("r", holder="h")):
                try:
                    await call
                except WrongUse as error:
                    assert "opened in another process" in str(error)
                else:
                    raise AssertionError(call)
            await store.aclose()

    anyio.run(refused)
    at_once(here.aclose())
    del here, store
    gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert at_once(here.head("r")).seq == 2

async def used():
    assert (await store.head("r")).seq == 2
    await store.aclose()

anyio.run(used)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
async def test_a_forked_process_opens_the_store_again(postgres: str) -> None:
    """It never uses the connections of the other process, nor waits for threads that it does not have."""
    async with await PostgresStore.open(postgres) as store:
        await append(store, "r", records(2))
    with anyio.fail_after(ENOUGH):
        done = await anyio.run_process([sys.executable, "-c", FORKED, postgres], check=False)
    assert (0, b"") == (done.returncode, done.stderr)


async def lease_each(store: PostgresStore, runs: Sequence[str]) -> dict[str, Exception]:
    """Lease runs at once, and return the errors."""
    errors = dict[str, Exception]()

    async def take(run: str) -> None:
        try:
            await store.lease(run, holder="a test", seconds=1e18 if run == "large" else LEASE_SECONDS)
        except Exception as error:
            errors[run] = error

    async with anyio.create_task_group() as tasks:
        for run in runs:
            tasks.start_soon(take, run)
    return errors


async def test_a_damaged_row_fails_only_its_run(postgres: str) -> None:
    """A group of leases with a damaged row, and one that the server refuses, fails for these runs only."""
    async with await PostgresStore.open(postgres) as store:
        for run in ("bad", "good"):
            lease = await store.lease(run, holder="a test")
            await store.append(run, 0, lease, records(1))
            await store.release(lease)
        damage = f"UPDATE {parse_address(postgres).schema}.run SET hash = '\\x11' WHERE id = 'bad'"
        execute(postgres, "SET session_replication_role = replica", damage)
        errors = await lease_each(store, ["first", "bad", "large", "good", "new"])
    assert {"bad", "large"} == set(errors)
    assert isinstance(errors["bad"], DamagedStore)


async def test_the_limit_of_a_statement_grows_with_its_size(postgres: str) -> None:
    """A statement with large parameters may take longer than others."""
    link = Link(parse_address(postgres), "fsync", patience=0.0)
    link.connect()
    link.limit = 0.3
    assert [(5 * 10**6,)] == link.execute("SELECT length(%s::text) FROM pg_sleep(0.6)", ["x" * 5 * 10**6])
    with pytest.raises(Lost):
        link.execute("SELECT length(%s::text) FROM pg_sleep(20)", ["x"])
    link.drop()


async def test_take_due_accepts_any_number_and_any_ids(postgres: str) -> None:
    """More runs than the server can count, and ids that it cannot have, are no errors."""
    async with await PostgresStore.open(postgres) as store:
        lease = await store.lease("r", holder="a test")
        await store.append("r", 0, lease, records(1))
        await store.release(lease, 0)
        taken = await store.take_due(10**30, holder="a test", skip={"\ud800", "a\x00", "other"})
    assert ["r"] == [lease.run for lease in taken]


@pytest.mark.parametrize("setting", ["keepalives=x", "options=-cnonsense%3D1", "port=x"])
async def test_a_wrong_setting_is_not_retried(postgres: str, setting: str) -> None:
    """A connection that can never be opened is an error at the first attempt."""
    attempts = 0

    def connect(link: Link) -> None:
        nonlocal attempts
        attempts += 1
        link.connect()

    parsed = parse_address(postgres)
    wrong = f"{parsed.conninfo}{'&' if '?' in parsed.conninfo else '?'}{setting}"
    with pytest.raises(StoreUnavailable, match="cannot connect"):
        Link(parsed._replace(conninfo=wrong), "fsync").retry(connect)
    assert 1 == attempts


class Asked(PostgresStore):
    """Calls `then` once `take_due` was executed, and notes how many runs it was asked for."""

    then: Callable[[], object] = bool
    asked: list[int]

    async def _take_due(self, most: int, holder: str, length: int, skip: Collection[str]) -> Sequence[Lease]:
        self.asked = [*getattr(self, "asked", []), most]
        found = await super()._take_due(most, holder, length, skip)
        self.then()
        await anyio.lowlevel.checkpoint()
        return found


def agent_of(store: PostgresStore) -> Agent:
    return Agent(model=ScriptedModel([say("Done.")]), store=store)


@pytest.mark.parametrize("drained", [False, True], ids=["cancelled", "drained"])
async def test_a_worker_that_stops_returns_what_it_was_granted(postgres: str, drained: bool) -> None:
    """Runs that were leased while the worker was stopped are due again at once."""
    async with await Asked.open(postgres) as store:
        for run in ("a", "b"):
            await agent_of(store).start("Do it.", run_id=run).detach()
        worker = Worker(store, agent_of(store))
        with anyio.fail_after(ENOUGH), anyio.CancelScope() as scope:
            store.then = (lambda: worker.drain(5.0)) if drained else scope.cancel
            await worker.run()
        assert {"a", "b"} == set(await store.due(10))


async def test_a_worker_without_room_does_not_ask(postgres: str) -> None:
    """A worker that drives as many runs as it may waits for one of them to end."""
    async with await Asked.open(postgres) as store:
        for run in ("a", "b"):
            await agent_of(store).start("Do it.", run_id=run).detach()
        with anyio.fail_after(ENOUGH):
            await Worker(store, lambda _: agent_of(store), concurrency=1, poll=0.001).run(until_idle=True)
        assert not await store.due(10)
    assert {1} == set(store.asked)
