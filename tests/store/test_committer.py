"""How appends of one moment share a commit, and how each fails alone."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.reducers.errors import RefoldError
from refold.store import (
    Conflict,
    DamagedStore,
    Head,
    Lease,
    Record,
    SqliteStore,
    StoreUnavailable,
    committer,
    connection,
    group_commit,
    tables,
)
from refold.store.committer import Committer, Database
from refold.store.connection import PagedConnection, direct
from refold.store.testing import append, events, records
from refold.store.thread import Connection, bridge

# The order of a group is that of asyncio's tasks. Trio comes in by threads: the suite of promises tests that.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The runs of every group that is committed, from here on."""
    seen = list[list[str]]()

    def commit(connection: PagedConnection, group: Any, known: group_commit.Known) -> Any:
        seen.append([each.run for each in group])
        return group_commit.commit(connection, group, known)

    monkeypatch.setattr(committer, "commit", commit)
    return seen


async def leased(store: SqliteStore, count: int) -> list[Lease]:
    return [await store.lease(f"run-{n}", holder="one") for n in range(count)]


async def outcome(store: SqliteStore, lease: Lease, new: list[Record], seq: int = 0) -> Head | RefoldError:
    try:
        return await store.append(lease.run, seq, lease, new)
    except RefoldError as error:
        return error


async def test_many_runs_share_a_commit(store: SqliteStore, groups: list[list[str]]) -> None:
    """64 appends that wait at one moment are one transaction; then each group is what came during the last
    one.
    """
    leases = await leased(store, 64)
    async with asyncio.TaskGroup() as tasks:
        for lease in leases:
            tasks.create_task(store.append(lease.run, 0, lease, records(3)))
    assert [[lease.run for lease in leases]] == groups


@pytest.mark.parametrize(
    ("new", "sizes"),
    [
        pytest.param(records(200), [3, 3, 1], id="500 rows"),
        pytest.param([Record(at=0, kind="k", body=b'"%s"' % (b"x" * 700_000))], [3, 3, 1], id="2 MB"),
        pytest.param(records(600), [1] * 7, id="each too long for a group"),
    ],
)
async def test_a_group_has_a_size(
    store: SqliteStore, groups: list[list[str]], new: list[Record], sizes: list[int]
) -> None:
    """A group ends at so many rows or bytes, with the append that reaches them; no append is cut."""
    leases = await leased(store, 7)
    async with asyncio.TaskGroup() as tasks:
        for lease in leases:
            tasks.create_task(store.append(lease.run, 0, lease, new))
    assert sizes == [len(group) for group in groups]


async def test_appends_of_one_run_in_a_group(store: SqliteStore, groups: list[list[str]]) -> None:
    """Each follows the one before it, in the order in which they were asked for."""
    (lease,) = await leased(store, 1)
    async with asyncio.TaskGroup() as tasks:
        for turn in range(5):
            tasks.create_task(store.append(lease.run, 2 * turn, lease, records(2, 2 * turn)))
    assert [[lease.run] * 5] == groups
    assert list(range(10)) == [event.at for event in await events(store, lease.run)]


async def test_the_offender_fails_alone(store: SqliteStore, groups: list[list[str]], tmp_path: Path) -> None:
    """What SQLite refuses fails, and what hangs on it; all else of the group is written."""
    leases = await leased(store, 6)
    with closing(sqlite3.connect(tmp_path / "runs.db")) as other:
        other.execute(
            "CREATE TRIGGER bad BEFORE INSERT ON event WHEN NEW.kind = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    bad = [*records(2), Record(at=0, kind="bad", body=b"{}")]
    asked = [(lease, bad if n == 2 else records(3), 0) for n, lease in enumerate(leases)]
    asked.append((leases[2], records(1), 3))
    got = await asyncio.gather(*[outcome(store, *each) for each in asked])
    assert [Head, Head, DamagedStore, Head, Head, Head, Conflict] == [type(each) for each in got]
    assert [3, 3, 0, 3, 3, 3] == [(await store.head(lease.run)).seq for lease in leases]


async def test_a_full_disk_stops_who_needs_room(tmp_path: Path) -> None:
    """Of a group that does not fit the disk, the appends that fit are written."""
    database = await Database.open(tmp_path / "runs.db", "process", readonly=False)
    async with SqliteStore(await bridge(), database, Committer(database)) as store:
        leases = await leased(store, 3)
        await database.writer.run(connection.one, "PRAGMA max_page_count = 60")
        huge = [Record(at=0, kind="k", body=b'"%s"' % (b"x" * 500_000))]
        got = await asyncio.gather(
            *[outcome(store, lease, huge if n == 1 else records(2)) for n, lease in enumerate(leases)]
        )
        assert [Head, StoreUnavailable, Head] == [type(each) for each in got]
        assert isinstance(got[1], StoreUnavailable)
        assert got[1].outcome_known


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, BaseException, bool]]:
    """Put (statement, error, whether it is run first) here, and the next such statement fails so."""
    plan = list[tuple[str, BaseException, bool]]()
    execute = PagedConnection.execute

    def fail(self: PagedConnection, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if plan and plan[0][0] == sql:
            _, error, after = plan.pop(0)
            if after:
                execute(self, sql, parameters)
            raise error
        return execute(self, sql, parameters)

    monkeypatch.setattr(PagedConnection, "execute", fail)
    return plan


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("said so")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize("after", [False, True], ids=["not committed", "committed"])
async def test_a_commit_of_unknown_outcome(
    store: SqliteStore,
    groups: list[list[str]],
    failing: list[tuple[str, BaseException, bool]],
    after: bool,
) -> None:
    """When the disk fails in a commit, every append of the group says that it may have happened; none is
    tried again.
    """
    leases = await leased(store, 4)
    failing.append(("COMMIT", sqlite_error(sqlite3.SQLITE_IOERR), after))
    got = await asyncio.gather(*[outcome(store, lease, records(2)) for lease in leases])
    assert [False] * 4 == [each.outcome_known for each in got if isinstance(each, StoreUnavailable)]
    assert (
        len({id(each) for each in got}) == 4
    )  # an error that two tasks raise would gather both their traces
    assert 1 == len(groups)
    for lease in leases:
        head = await store.head(lease.run)
        assert (2 if after else 0) == head.seq
        await store.append(lease.run, head.seq, lease, records(1))


async def test_a_disk_that_fails_before_the_commit(
    store: SqliteStore, failing: list[tuple[str, BaseException, bool]]
) -> None:
    """A group that could not even begin was not written, and says so."""
    leases = await leased(store, 3)
    failing.append(("BEGIN IMMEDIATE", sqlite_error(sqlite3.SQLITE_IOERR), False))
    got = await asyncio.gather(*[outcome(store, lease, records(2)) for lease in leases])
    assert [True] * 3 == [each.outcome_known for each in got if isinstance(each, StoreUnavailable)]
    assert [0] * 3 == [(await store.head(lease.run)).seq for lease in leases]


async def test_an_error_of_no_database(
    store: SqliteStore, failing: list[tuple[str, BaseException, bool]]
) -> None:
    """Whatever else goes wrong in the thread reaches every append of the group, and the next group is
    written.
    """
    leases = await leased(store, 2)
    failing.append(("COMMIT", MemoryError("no room"), False))
    async with asyncio.TaskGroup() as tasks:
        for lease in leases:

            async def fail(lease: Lease = lease) -> None:
                with pytest.raises(MemoryError):
                    await store.append(lease.run, 0, lease, records(2))

            tasks.create_task(fail())
    assert 2 == (await store.append(leases[0].run, 0, leases[0], records(2))).seq


async def test_heads_are_looked_up_only_if_somebody_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place found by the last group is believed until this connection, or any other, has changed the
    file.
    """
    looked = list[str]()

    def find(connection: PagedConnection, run: str) -> object:
        looked.append(run)
        return tables.find(connection, run)

    monkeypatch.setattr(group_commit, "find", find)
    async with await SqliteStore.open(tmp_path / "runs.db") as store:
        one, other = await leased(store, 2)
        await store.append(one.run, 0, one, records(1))
        await store.append(one.run, 1, one, records(1))
        await store.append(other.run, 0, other, records(1))
        assert [one.run, other.run] == looked
        new = await store.lease(one.run, holder="two", over=one.token)
        for lease in (one, new):
            assert (lease is new) == isinstance(await outcome(store, lease, records(1), 2), Head)
        assert [one.run] * 2 == looked[2:]
        async with await SqliteStore.open(tmp_path / "runs.db") as elsewhere:
            await elsewhere.append(new.run, 3, new, records(1))
        assert Conflict(new.run, 3, 4).args == (await outcome(store, new, records(1), 3)).args  # type: ignore[union-attr]


async def test_a_cancelled_append_that_was_not_taken(tmp_path: Path) -> None:
    """It ends at once, though another group is still being committed, and is never written."""
    database = await Database.open(tmp_path / "runs.db", "process", readonly=False)
    async with SqliteStore(await bridge(), database, Committer(database)) as store:
        leases, gate = await leased(store, 3), threading.Event()
        held = asyncio.create_task(database.write(lambda _: gate.wait()))
        first = asyncio.create_task(store.append(leases[0].run, 0, leases[0], records(1)))
        await anyio.wait_all_tasks_blocked()
        try:
            second = asyncio.create_task(store.append(leases[1].run, 0, leases[1], records(1)))
            third = asyncio.create_task(store.append(leases[2].run, 0, leases[2], records(1)))
            await anyio.wait_all_tasks_blocked()
            second.cancel()
            await asyncio.wait([second])
            first.cancel()
            await anyio.wait_all_tasks_blocked()
            assert not first.done()  # taken, and so waited for
        finally:
            gate.set()
        assert 1 == (await third).seq
        await asyncio.wait([first, held])
        assert (True, True) == (first.cancelled(), second.cancelled())
        assert [1, 0, 1] == [(await store.head(lease.run)).seq for lease in leases]


@pytest.mark.parametrize("kind", ["append", "lease"])
async def test_what_is_cancelled_more_than_once(tmp_path: Path, kind: str) -> None:
    """However often it is cancelled: once it is over, nothing of it is in flight any more."""
    database = await Database.open(tmp_path / "runs.db", "process", readonly=False)
    async with SqliteStore(await bridge(), database, Committer(database)) as store:
        (lease,), gate = await leased(store, 1), threading.Event()
        held = asyncio.create_task(database.write(lambda _: gate.wait()))
        await anyio.wait_all_tasks_blocked()
        begun = {
            "append": store.append(lease.run, 0, lease, records(1)),
            "lease": store.lease("r", holder="one"),
        }
        task: asyncio.Task[object] = asyncio.create_task(begun.pop(kind))
        begun.popitem()[1].close()
        try:
            for _ in range(3):
                await anyio.wait_all_tasks_blocked()
                task.cancel()
            await anyio.wait_all_tasks_blocked()
            assert not task.done()
        finally:
            gate.set()
        await asyncio.wait([task, held])
        written = (await store.head(lease.run)).seq if kind == "append" else await store.claim("r")
        assert (True, True) == (task.cancelled(), bool(written))


async def test_closing_waits_for_the_last_group(tmp_path: Path) -> None:
    """No task is left behind by a store that is closed."""
    before = asyncio.all_tasks()
    async with await SqliteStore.open(tmp_path / "runs.db") as store:
        await append(store, "r", records(1))
    assert before == asyncio.all_tasks()


async def test_functions_run_in_the_thread_of_the_connection(tmp_path: Path) -> None:
    """What is asked of aiosqlite does what we think: one call, in its thread, in order, errors and all."""
    opened = await Connection.open(lambda: direct(tmp_path / "runs.db", "mode=rwc"))
    try:
        threads = [await opened.run(lambda _: threading.current_thread().name) for _ in range(2)]
        assert threads[0] == threads[1] != threading.current_thread().name
        assert isinstance(await opened.run(lambda connection: connection), PagedConnection)
        assert 3 == await opened.run(lambda _, a, b: a + b, 1, 2)
        with pytest.raises(ZeroDivisionError):
            await opened.run(lambda _: 1 // 0)
    finally:
        await opened.close()


async def test_a_locked_file_stops_the_group(
    tmp_path: Path, groups: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another program has the lock, a group waits once for it, and then fails whole, with nothing
    written.
    """
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.01)
    async with await SqliteStore.open(tmp_path / "runs.db") as store:
        leases = await leased(store, 3)
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            got = await asyncio.gather(*[outcome(store, lease, records(1)) for lease in leases])
        assert ["another program holds its lock"] * 3 == [str(each).split(": ")[1] for each in got]
        assert 1 == len(groups)
        assert 1 == (await store.append(leases[0].run, 0, leases[0], records(1))).seq
