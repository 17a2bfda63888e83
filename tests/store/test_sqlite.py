"""What only a file can get wrong: edits by hand, other programs, other processes, disks, and crashes."""
# ruff: noqa: ASYNC240 - a test may look at a file while nothing else goes on

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from itertools import product
from pathlib import Path

import anyio
import pytest

from refold.reducers.errors import RefoldError, WrongUse
from refold.store import (
    GENESIS,
    Conflict,
    DamagedStore,
    Head,
    NotAStore,
    Record,
    Snapshot,
    SqliteStore,
    Store,
    StoreUnavailable,
    check,
    connection,
    schema,
)
from refold.store.access import Durability
from refold.store.committer import Committer
from refold.store.database import Database
from refold.store.portal import bridge
from refold.store.testing import append, events, records, take
from refold.store.testing.evidence import heads, seal

pytestmark = pytest.mark.anyio

PROCESS = Path(__file__).with_name("processes.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def filled(path: Path) -> Path:
    """A store with one run `r` of six events, closed."""
    async with await SqliteStore.open(path, durability="process") as store:
        await append(store, "r", records(6))
    return path


def by_hand(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """Run statements as a person with the `sqlite3` shell would; the rows of the last one."""
    with closing(sqlite3.connect(path)) as raw:
        rows = [raw.execute(statement).fetchall() for statement in statements]
        raw.commit()
    return rows[-1]


@asynccontextmanager
async def tampered(path: Path, *pragmas: str, durability: Durability = "process") -> AsyncGenerator[Store]:
    """A store whose writing connection was told these pragmas, to fail as a real disk would."""
    way = await bridge()
    database = await way.call(lambda: Database.open(path, durability, readonly=False))
    async with SqliteStore(way, database, Committer(database)) as store:
        for pragma in pragmas:
            await way.call(run, database, pragma)
        yield store


async def run(database: Database, statement: str) -> None:
    await database.writer.run(lambda connection: connection.execute(statement).close())


async def problems(store: Store, run: str) -> list[str]:
    """What `check` says about the run's events, with their numbers."""
    previous, found = Head(seq=0, hash=GENESIS), list[str]()
    for event in await events(store, run):
        if problem := check(event, previous):
            found.append(f"{event.seq}: {problem}")
        previous = Head(seq=event.seq, hash=event.hash)
    return found


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET body = '{}'",
        "UPDATE event SET content = NULL, salt = NULL WHERE key & 1 = 1",
        "UPDATE event SET content = NULL WHERE key & 1 = 0",
        "UPDATE event SET content = NULL, salt = NULL, content_digest = NULL WHERE key & 1 = 0",
        "UPDATE event SET content = NULL, salt = NULL, body = '{}' WHERE key & 1 = 0",
        "UPDATE event SET key = key + 100",
        "DELETE FROM event",
        "INSERT OR REPLACE INTO event SELECT * FROM event LIMIT 1",
        "REPLACE INTO event SELECT key, at, 'other', hash, content_digest, salt, body, content FROM event",
        "INSERT OR IGNORE INTO event SELECT * FROM event",
        "INSERT INTO event SELECT * FROM event ON CONFLICT DO UPDATE SET body = '{}'",
        "UPDATE run SET id = 'other'",
        "UPDATE run SET number = 7",
        "DELETE FROM run",
        "INSERT OR REPLACE INTO run SELECT * FROM run",
        "INSERT OR REPLACE INTO run (number, id) VALUES (99, 'r')",
        "UPDATE sealed_head SET seq = 2",
        "DELETE FROM sealed_head",
        "REPLACE INTO sealed_head SELECT * FROM sealed_head",
        "UPDATE seal SET at = 2",
        "DELETE FROM seal",
        "REPLACE INTO seal SELECT * FROM seal",
        "UPDATE log SET body = ''",
        "DELETE FROM log",
    ],
)
async def test_a_shell_cannot_edit_a_log(filled: Path, statement: str) -> None:
    """Plain SQL that would change, delete or replace an event or a run is refused, and changes nothing."""
    async with await SqliteStore.open(filled) as store:
        await store.add_seal(heads(1, 1), seal(1))
    everything = "SELECT * FROM event JOIN run JOIN sealed_head JOIN seal"
    before = by_hand(filled, everything)
    with pytest.raises(sqlite3.DatabaseError):
        by_hand(filled, statement)
    assert before == by_hand(filled, everything)


async def test_a_shell_can_read_a_log(path: Path) -> None:
    """The view `log` shows run, number, time, kind, and body and content as JSON text, in order."""
    async with await SqliteStore.open(path) as store:
        for run in ("a", "b"):
            new = [Record(at=n, kind="k", body=b'{"n":%d}' % n, content='"ß"'.encode()) for n in (1, 2)]
            await append(store, run, new)
        await append(store, "a", [Record(at=3, kind="end", body=b'{"n":3}')])
    got = by_hand(
        path, "SELECT run, seq, at, kind, json_extract(body, '$.n'), content, typeof(body) FROM log"
    )
    assert [
        ("a", 1, 1, "k", 1, '"ß"', "text"),
        ("a", 2, 2, "k", 2, '"ß"', "text"),
        ("a", 3, 3, "end", 3, None, "text"),
        ("b", 1, 1, "k", 1, '"ß"', "text"),
        ("b", 2, 2, "k", 2, '"ß"', "text"),
    ] == got
    plan = by_hand(path, "EXPLAIN QUERY PLAN SELECT * FROM log WHERE run = 'b'")
    assert not [row for row in plan if "SCAN" in str(row[-1])]


async def test_the_file_says_what_it_is(filled: Path) -> None:
    """Application, schema version and journal mode stand in the file, and nothing is left beside it."""
    header = filled.read_bytes()[:100]
    assert (b"rfld", schema.VERSION) == (header[68:72], int.from_bytes(header[60:64], "big"))
    assert b"\x02\x02" == header[18:20]  # write-ahead logging
    assert [filled] == list(filled.parent.iterdir())


@pytest.mark.parametrize(("durability", "level"), [("fsync", 2), ("process", 1)])
async def test_durability(path: Path, durability: Durability, level: int) -> None:
    """`fsync` flushes at each commit (SQLite's FULL), `process` does not (NORMAL)."""
    way = await bridge()
    try:
        database = await way.call(lambda: Database.open(path, durability, readonly=False))
        (got,) = await way.call(lambda: database.writer.run(connection.one, "PRAGMA synchronous"))
        await way.call(database.close)
    finally:
        await way.aclose()
    assert level == got


def make_text(path: Path) -> None:
    path.write_text("run log, not a database\n" * 100)


def make_truncated(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(20))


def make_other_application(path: Path) -> None:
    by_hand(path, "PRAGMA journal_mode = WAL", "PRAGMA application_id = 42", "CREATE TABLE event (key)")


def make_other_database(path: Path) -> None:
    by_hand(path, "CREATE TABLE event (key)", "INSERT INTO event VALUES (1)")


def make_newer(path: Path) -> None:
    by_hand(
        path,
        f"PRAGMA application_id = {schema.APPLICATION_ID}",
        "CREATE TABLE event (key)",
        "PRAGMA user_version = 99",
    )


def make_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("readonly", [False, True], ids=["to write", "to read"])
@pytest.mark.parametrize(
    ("make", "problem"),
    [
        pytest.param(make_text, "no SQLite database", id="text"),
        pytest.param(make_truncated, "no SQLite database", id="truncated"),
        pytest.param(
            make_other_application,
            "another program's database (its application id is 42)",
            id="other program",
        ),
        pytest.param(make_other_database, "another program's database", id="other tables"),
        pytest.param(make_newer, "schema 99, this refold knows 3: a newer one wrote it", id="newer schema"),
        pytest.param(make_directory, "is a directory", id="directory"),
    ],
)
async def test_what_is_no_store_is_left_alone(path: Path, make: object, problem: str, readonly: bool) -> None:
    """Anything but a store raises `NotAStore` with the path and the problem; no byte and no file is touched."""
    assert callable(make)
    make(path)
    before = {p: p.read_bytes() if p.is_file() else b"" for p in path.parent.iterdir()}
    with pytest.raises(NotAStore) as caught:
        await SqliteStore.open(path, readonly=readonly)
    assert str(path) in str(caught.value)
    assert problem in str(caught.value)
    assert before == {p: p.read_bytes() if p.is_file() else b"" for p in path.parent.iterdir()}


async def test_a_missing_place(path: Path) -> None:
    """A missing folder, and a missing file that is only to be read, raise `NotAStore` and are not made."""
    with pytest.raises(NotAStore, match="there is no folder"):
        await SqliteStore.open(path / "deeper" / "runs.db")
    with pytest.raises(NotAStore, match="no such file"):
        await SqliteStore.open(path, readonly=True)
    assert [] == list(path.parent.iterdir())


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    """A file of zero bytes is as good as none to write to, and no store to read."""
    path.touch()
    with pytest.raises(NotAStore):
        await SqliteStore.open(path, readonly=True)
    async with await SqliteStore.open(path) as store:
        assert 1 == (await append(store, "r", records(1))).seq


async def test_a_file_left_half_made(path: Path) -> None:
    """What a power cut left of a file that was being made is rolled back by who may write; a reader says so."""
    other = path.with_name("other.db")
    with closing(sqlite3.connect(other, isolation_level=None)) as raw:
        raw.execute("PRAGMA cache_size = 1")
        raw.execute("BEGIN")
        raw.execute("CREATE TABLE half (made)")
        raw.execute("INSERT INTO half VALUES (zeroblob(100000)), (zeroblob(100000))")
        for suffix in ("", "-journal"):
            shutil.copy(f"{other}{suffix}", f"{path}{suffix}")
    with pytest.raises(StoreUnavailable, match="left half-made"):
        await SqliteStore.open(path, readonly=True)
    async with await SqliteStore.open(path) as store:
        assert 1 == (await append(store, "r", records(1))).seq


@pytest.mark.parametrize("name", ["a b", "100%25?mode=ro#x&immutable=1", "ß", "':memory:", ":memory:"])
async def test_any_file_name(tmp_path: Path, name: str) -> None:
    """A name is a name, whatever it means in a URI."""
    async with await SqliteStore.open(tmp_path / name, durability="process") as store:
        await append(store, "r", records(1))
    assert [name] == [p.name for p in tmp_path.iterdir()]


async def test_opening_again_changes_nothing(filled: Path) -> None:
    """A store opened and closed has the same bytes."""
    before = filled.read_bytes()
    async with await SqliteStore.open(filled) as store:
        assert 6 == len(await events(store, "r"))
    assert before == filled.read_bytes()


@pytest.mark.parametrize("version", range(1, schema.VERSION))
@pytest.mark.parametrize("readonly", [False, True])
async def test_a_store_from_before_any_release(filled: Path, version: int, readonly: bool) -> None:
    """It is refused, and left as it is."""
    by_hand(filled, f"PRAGMA user_version = {version}")
    before = filled.read_bytes()
    with pytest.raises(NotAStore, match="made by an unreleased version of refold"):
        await SqliteStore.open(filled, readonly=readonly)
    assert before == filled.read_bytes()


@pytest.mark.parametrize("token", [2**63 - 1, 2**63 - 2])
async def test_a_token_after_which_there_is_none(filled: Path, token: int) -> None:
    """A run whose token somebody set to the largest ones takes no lease, and whoever asks is told which run it is."""
    by_hand(filled, f"UPDATE run SET token = {token}")
    async with await SqliteStore.open(filled) as store:
        with pytest.raises(DamagedStore, match=f"run r: its token is {token}, and no lease can follow it"):
            await store.lease("r", holder="one", over=token)
        assert 6 == (await store.head("r")).seq


async def test_a_snapshot_of_another_log(filled: Path) -> None:
    """A snapshot whose event has another hash by now, by whoever's hand, is none."""
    async with await SqliteStore.open(filled) as store:
        await store.save_snapshot("r", Snapshot(seq=3, version="1", data=b"state"))
        assert await store.snapshot("r", "1") is not None
        by_hand(filled, "UPDATE snapshot SET hash = zeroblob(32)")
        assert await store.snapshot("r", "1") is None


async def test_readonly(filled: Path) -> None:
    """A store opened to be read reads, beside a writer too, refuses to append, and changes no byte."""
    before = filled.read_bytes()
    async with await SqliteStore.open(filled, readonly=True) as store:
        assert 6 == len(await events(store, "r"))
        with pytest.raises(WrongUse, match="opened to be read only"):
            await append(store, "r", records(1))
        with pytest.raises(WrongUse, match="opened to be read only"):
            await append(store, "new", records(1))
        assert before == filled.read_bytes()
        async with await SqliteStore.open(filled) as writer:
            await append(writer, "r", records(1))
            assert 7 == len(await events(store, "r"))


@pytest.mark.parametrize("size", [2, 200])
async def test_a_full_disk(filled: Path, size: int) -> None:
    """On a full disk the append raises `StoreUnavailable`, nothing of it is there, and with room it goes on."""
    long = Record(at=0, kind="k", body=b'"' + b"x" * 50_000 + b'"')
    async with tampered(filled, "PRAGMA max_page_count = 20") as store:
        head = await store.head("r")
        with pytest.raises(StoreUnavailable, match="the disk is full") as caught:
            await append(store, "r", [long] * size)
        assert caught.value.outcome_known
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert head == await store.head("r")
        assert 7 == (await append(store, "r", records(1))).seq
    async with await SqliteStore.open(filled) as store:
        await append(store, "r", [long] * size)
        assert [] == await problems(store, "r")


async def test_a_file_that_cannot_be_written(filled: Path) -> None:
    """When writing is forbidden in mid-run, the append raises `StoreUnavailable`, and reading goes on."""
    async with tampered(filled, "PRAGMA query_only = ON") as store:
        with pytest.raises(StoreUnavailable, match="read-only"):
            await append(store, "r", records(1))
        assert 6 == len(await events(store, "r"))


@pytest.fixture
def locked_away(filled: Path) -> Iterator[Path]:
    """The file and its folder without the permission to write."""
    filled.chmod(0o444)
    filled.parent.chmod(0o555)
    yield filled
    filled.parent.chmod(0o755)
    filled.chmod(0o644)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="to root, everything is writable")
async def test_a_read_only_place(locked_away: Path) -> None:
    """Where nothing may be written, opening to write fails at once, and opening to read reads."""
    with pytest.raises(StoreUnavailable, match="read-only"):
        await SqliteStore.open(locked_away)
    with pytest.raises(StoreUnavailable, match="cannot be opened or made"):
        await SqliteStore.open(locked_away.with_name("new.db"))
    async with await SqliteStore.open(locked_away, readonly=True) as store:
        assert 6 == len(await events(store, "r"))
    assert [locked_away] == list(locked_away.parent.iterdir())


async def test_a_locked_file(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another program holds the lock, appends raise `StoreUnavailable` and reads work; then it goes on."""
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.01)
    async with await SqliteStore.open(filled) as store:
        with closing(sqlite3.connect(filled, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="another program holds its lock"):
                await append(store, "r", records(1))
            with pytest.raises(StoreUnavailable, match="another program holds its lock"):
                await SqliteStore.open(filled)
            assert 6 == len(await events(store, "r"))
        assert 7 == (await append(store, "r", records(1))).seq


async def test_a_corrupt_database(path: Path) -> None:
    """Pages overwritten with rubbish raise `DamagedStore` that names the file."""
    async with await SqliteStore.open(path) as store:
        await append(store, "r", records(500))
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xff" * len(data[8192:])
    path.write_bytes(data)
    with pytest.raises(DamagedStore, match="corrupt") as caught:
        async with await SqliteStore.open(path, readonly=True) as store:
            await events(store, "r")
    assert str(path) in str(caught.value)


ENDLESS = "WITH RECURSIVE n (key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM n) SELECT key FROM n"


@pytest.mark.parametrize(
    ("statements", "differs"),
    [
        pytest.param(["DROP VIEW log", "ALTER TABLE event RENAME TO gone"], "table 'event'", id="event gone"),
        pytest.param(["DROP VIEW log", "ALTER TABLE run RENAME TO gone"], "table 'run'", id="run gone"),
        pytest.param(["ALTER TABLE event ADD COLUMN more ANY"], "table 'event'", id="a column more"),
        pytest.param(["CREATE TABLE more (x)"], "table 'more'", id="a table more"),
        pytest.param(["CREATE INDEX more ON event (at)"], "index 'more'", id="an index more"),
        pytest.param(["DROP VIEW log"], "view 'log'", id="no view"),
        pytest.param(
            ["DROP VIEW log", "DROP TABLE event", f"CREATE VIEW event AS {ENDLESS}"],
            "table 'event'",
            id="an endless view for a table",
        ),
    ],
)
@pytest.mark.parametrize("readonly", [False, True], ids=["to write", "to read"])
async def test_a_changed_schema(filled: Path, statements: list[str], differs: str, readonly: bool) -> None:
    """Tables, views and indexes other than a store's are `DamagedStore` on opening, which names the first."""
    by_hand(filled, *statements)
    with pytest.raises(DamagedStore, match=f"{differs} is not as the store makes it"):
        await SqliteStore.open(filled, readonly=readonly)


@pytest.mark.parametrize(
    ("statement", "differs"),
    [
        pytest.param("DROP TRIGGER event_stays", "trigger 'event_stays'", id="one gone"),
        pytest.param(
            "CREATE TRIGGER more AFTER INSERT ON event BEGIN DELETE FROM run; END",
            "trigger 'more'",
            id="one more",
        ),
    ],
)
async def test_changed_triggers(filled: Path, statement: str, differs: str) -> None:
    """Triggers other than a store's refuse to be written to; a reader, who fires none, still finds every edit."""
    by_hand(filled, statement)
    with pytest.raises(DamagedStore, match=f"{differs} is not as the store makes it"):
        await SqliteStore.open(filled)
    async with await SqliteStore.open(filled, readonly=True) as store:
        assert [] == await problems(store, "r")


@pytest.mark.parametrize("table", ["event", "run"])
async def test_a_schema_changed_while_open(filled: Path, table: str) -> None:
    """A table taken away from an open store raises `DamagedStore`, to readers and to writers."""
    async with await SqliteStore.open(filled) as store:
        by_hand(filled, "DROP VIEW log", f"ALTER TABLE {table} RENAME TO gone")
        with pytest.raises(DamagedStore, match="changed"):
            await events(store, "r")
        with pytest.raises(DamagedStore, match="changed"):
            await append(store, "r", records(1))


@pytest.mark.parametrize("readonly", [False, True], ids=["to write", "to read"])
async def test_an_analysed_file(filled: Path, readonly: bool) -> None:
    """What SQLite itself keeps beside the tables, after ANALYZE, is no change of the schema."""
    by_hand(filled, "ANALYZE")
    async with await SqliteStore.open(filled, readonly=readonly) as store:
        assert [] == await problems(store, "r")


@pytest.mark.parametrize(
    ("edit", "seq"),
    [
        pytest.param("UPDATE event SET body = '{\"n\":9}' WHERE key & 255 = 3", 3, id="body"),
        pytest.param(
            "UPDATE event SET body = CAST(x'ff' AS TEXT) WHERE key & 255 = 3", 3, id="body no UTF-8"
        ),
        pytest.param(
            "UPDATE event SET kind = CAST(x'ff' AS TEXT) WHERE key & 255 = 3", 3, id="kind no UTF-8"
        ),
        pytest.param("UPDATE event SET content = 'x' WHERE key & 255 = 4", 4, id="content"),
        pytest.param("UPDATE event SET content = 'x' WHERE key & 255 = 3", 3, id="content added"),
        pytest.param("UPDATE event SET hash = zeroblob(32) WHERE key & 255 = 6", 6, id="hash"),
        pytest.param("UPDATE event SET hash = x'' WHERE key & 255 = 6", 6, id="hash emptied"),
        pytest.param("DELETE FROM event WHERE key & 255 = 2", 3, id="removed"),
        pytest.param("DELETE FROM event WHERE key & 255 = 1", 2, id="first removed"),
        pytest.param("UPDATE event SET key = key + 1 WHERE key & 255 = 6", 7, id="moved"),
    ],
)
async def test_an_edit_by_hand_is_found(filled: Path, edit: str, seq: int) -> None:
    """With the triggers out of the way, an edit is readable all the same, and found at its event."""
    triggers = [
        str(row[0]) for row in by_hand(filled, "SELECT name FROM sqlite_schema WHERE type = 'trigger'")
    ]
    by_hand(filled, *[f"DROP TRIGGER {name}" for name in triggers], edit)
    async with await SqliteStore.open(filled, readonly=True) as store:
        found = await problems(store, "r")
    assert found[0].startswith(f"{seq}: ")


FORGED = """
INSERT INTO event SELECT 1 << 32, at, kind, hash, content_digest, salt, body, content FROM event LIMIT 1
"""


async def test_an_event_before_the_first(filled: Path) -> None:
    """The tables take no event with number 0; put there all the same, it is read and found."""
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        by_hand(filled, FORGED)
    by_hand(filled, "PRAGMA ignore_check_constraints = ON", FORGED)
    async with await SqliteStore.open(filled, readonly=True) as store:
        found = await problems(store, "r")
    assert "0: event 0 is no event: events are numbered from 1" == found[0]


async def test_a_run_of_nothing_but_an_event_before_the_first(filled: Path) -> None:
    """A run whose only event has number 0 is damaged to whoever lists, reads or continues it."""
    last = FORGED.replace("1 << 32", "2 << 32")
    by_hand(filled, "PRAGMA ignore_check_constraints = ON", "INSERT INTO run (id) VALUES ('s')", last)
    async with await SqliteStore.open(filled) as store:
        with pytest.raises(DamagedStore, match="run number 2"):
            await listed(store)
        with pytest.raises(DamagedStore, match="run number 2"):
            await events(store, "s")
        with pytest.raises(DamagedStore, match="run number 2"):
            await append(store, "s", records(1))


async def listed(store: Store, into: list[str] | None = None) -> list[str]:
    """The ids of the runs; those that came before an error are in `into`."""
    names = [] if into is None else into
    async for chunk in store.runs():
        names += [name for name, _ in chunk]
    return names


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param("INSERT INTO run (id) VALUES (CAST(x'ff72' AS TEXT))", id="no UTF-8"),
        pytest.param("INSERT INTO run (id) VALUES ('x' || char(0) || 'y')", id="NUL"),
        pytest.param("INSERT INTO run (id) VALUES ('r: whole' || char(10) || 'run x')", id="line break"),
        pytest.param("INSERT INTO run (id) VALUES ('')", id="empty"),
        pytest.param("INSERT INTO run (number, id) VALUES (3 + (1 << 32), 'x')", id="number beyond 31 bits"),
    ],
)
async def test_a_damaged_id_hides_no_other_run(filled: Path, edit: str) -> None:
    """An id that no run can have is `DamagedStore` with the row's number, once all other runs are listed."""
    names = list[str]()
    async with await SqliteStore.open(filled) as store:
        await append(store, "s", records(1))
        unchecked = "PRAGMA ignore_check_constraints = ON"
        by_hand(filled, unchecked, edit, FORGED.replace("1 << 32", "(3 << 32) + 1"))
        with pytest.raises(DamagedStore, match=r"run number (3|4294967299)"):
            await listed(store, names)
    assert ["s", "r"] == names


@pytest.mark.parametrize("upto", [4, None])
async def test_keys_out_of_order_come_to_an_end(filled: Path, upto: int | None) -> None:
    """A page whose keys go back, from a bad disk, is `DamagedStore` or read once, not read for ever."""
    rekeyed(filled, b"\x90\x80\x80\x80\x05", b"\x90\x80\x80\x80\x02")
    async with await SqliteStore.open(filled, readonly=True) as store:
        with anyio.fail_after(10), suppress(DamagedStore):
            assert len(await events(store, "r", 0, upto)) < 9
        with anyio.fail_after(10), suppress(DamagedStore):
            assert len(await store.read_some("r", range(1, 7))) < 9


async def test_a_copy_gives_newer_tokens(filled: Path, tmp_path: Path) -> None:
    """A token is no smaller than the file's own time: of a copy, or a bundle unpacked anew, it is above those given before."""
    with closing(sqlite3.connect(filled)) as raw:
        (before,) = raw.execute(f"SELECT {schema.NOW}").fetchone()
    async with await SqliteStore.open(filled) as store:
        given = [(await take(store, "r")).token for _ in range(3)]
    assert before <= given[0] < given[1] < given[2]
    async with await SqliteStore.open(tmp_path / "anew.db") as store:
        await append(store, "r", records(6))
        assert before <= (await take(store, "r")).token


async def test_runs_out_of_order_come_to_an_end(filled: Path) -> None:
    """Runs whose numbers go back, from a bad disk, are `DamagedStore`, not listed for ever."""
    async with await SqliteStore.open(filled) as store:
        await append(store, "s", records(1))
        await append(store, "t", records(1))
    by_hand(filled, FORGED.replace("1 << 32", "(9 << 32) + 1"))
    rekeyed(filled, b"\x0b\x01\x04\x00\x0f\x05r", b"\x0b\x09\x04\x00\x0f\x05r")
    async with await SqliteStore.open(filled, readonly=True) as store:
        with anyio.fail_after(10), pytest.raises(DamagedStore, match="out of order"):
            await listed(store)


def rekeyed(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert 1 == data.count(old)
    path.write_bytes(data.replace(old, new))


async def test_an_append_that_is_silently_dropped(filled: Path) -> None:
    """Where an insert leaves the head as it was, though nobody else wrote, the append raises `DamagedStore`."""
    async with await SqliteStore.open(filled) as store:
        by_hand(
            filled, "CREATE TRIGGER more BEFORE INSERT ON event BEGIN SELECT RAISE(IGNORE); END", "SELECT 1"
        )
        with pytest.raises(DamagedStore, match="drop what is written"):
            await append(store, "r", records(1))


COLUMNS = ("at", "kind", "hash", "body", "content_digest", "salt", "content")


@pytest.mark.parametrize(
    ("column", "value"),
    [*product(COLUMNS, ["1.5"]), *product(COLUMNS[1:], ["7"]), *product(COLUMNS[:4], ["NULL"])],
)
async def test_a_value_of_another_kind(filled: Path, column: str, value: str) -> None:
    """A value that its column cannot hold is `DamagedStore` that names event and column."""
    loosened(filled, f"UPDATE event SET {column} = {value} WHERE key & 255 = 2")
    async with await SqliteStore.open(filled, readonly=True) as store:
        with pytest.raises(DamagedStore, match=f"event 2 of run r: its {column} is"):
            await events(store, "r")
        with pytest.raises(DamagedStore, match=f"event 2 of run r: its {column} is"):
            await store.read_some("r", [2])


LOOSE = "CREATE TABLE event (key INTEGER PRIMARY KEY, at, kind, hash, content_digest, salt, body, content)"


def loosened(path: Path, statement: str) -> None:
    """Run a statement on a table that takes any value, and make it strict again: so a bad disk could leave it."""
    asked = "SELECT sql FROM sqlite_schema WHERE name IN ('event', 'event_is_final') ORDER BY name"
    strict, trigger = [str(sql) for (sql,) in by_hand(path, asked)]
    by_hand(path, "DROP TRIGGER event_is_final")
    remade(path, LOOSE)
    by_hand(path, statement)
    remade(path, strict)
    by_hand(path, trigger)


def remade(path: Path, sql: str) -> None:
    quoted = sql.replace("'", "''")
    edit = f"UPDATE sqlite_schema SET sql = '{quoted}' WHERE name = 'event'"
    by_hand(path, "PRAGMA writable_schema = ON", edit)


@pytest.mark.parametrize("readonly", [False, True], ids=["to write", "to read"])
@pytest.mark.parametrize("seed", range(4))
async def test_flipped_bytes(filled: Path, seed: int, readonly: bool) -> None:
    """However a byte or two of the file are flipped, it opens and reads, or raises an error of the store."""
    async with await SqliteStore.open(filled, durability="process") as store:
        await store.save_snapshot("r", Snapshot(seq=3, version="1", data=b"state"))
        await store.add_seal(heads(1, 2), seal(2))
    whole, chance = filled.read_bytes(), random.Random(seed)
    for _ in range(60):
        flipped = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 8))):
            # Most of the file is empty: aim where something is written, as often as not.
            at = chance.randrange(len(flipped))
            while chance.random() < 0.9 and not flipped[at]:
                at = chance.randrange(len(flipped))
            flipped[at] ^= chance.randrange(1, 256)
        for path in filled.parent.iterdir():
            path.unlink()
        filled.write_bytes(flipped)
        with suppress(NotAStore, DamagedStore, StoreUnavailable):
            async with await SqliteStore.open(filled, durability="process", readonly=readonly) as store:
                for look in (problems(store, "r"), listed(store), beside_the_log(store)):
                    with suppress(DamagedStore):
                        await look


async def beside_the_log(store: Store) -> None:
    """Look at everything that is no event."""
    await store.snapshot("r", "1")
    await store.due(9)
    await store.claim("r")
    async for _ in store.sealed_heads():
        pass
    async for _ in store.seals():
        pass


async def test_two_stores_on_one_file(path: Path) -> None:
    """What one wrote the other sees; what one believed and the other changed is a conflict, not a fork."""
    async with await SqliteStore.open(path) as one, await SqliteStore.open(path) as other:
        await append(one, "r", records(2))
        await append(other, "r", records(2))
        with pytest.raises(Conflict):
            await one.append("r", 2, await take(one, "r"), records(1))
        await append(one, "r", records(2))
        assert await one.head("r") == await other.head("r")
        assert [] == await problems(other, "r")


def start(path: Path, run: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, PROCESS, path, run, str(count)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_processes_share_a_file(path: Path) -> None:
    """Three processes that make one file and append to one run at once lose nothing and break no chain."""
    processes = [start(path, "r", 10) for _ in range(3)]
    seqs = [int(line) for process in processes for line in process.communicate()[0].split()]
    assert [0] * 3 == [process.returncode for process in processes]
    assert list(range(2, 62, 2)) == sorted(seqs)

    async def look() -> list[str]:
        async with await SqliteStore.open(path, readonly=True) as store:
            assert 60 == (await store.head("r")).seq
            return await problems(store, "r")

    assert [] == anyio.run(look)


@pytest.mark.parametrize("acknowledged", [1, 7, 40])
def test_a_killed_process_loses_nothing(path: Path, acknowledged: int) -> None:
    """After SIGKILL every append that had returned is there, whole, and the store goes on."""
    process = start(path, "r", 1_000_000)
    assert process.stdout is not None
    with process:
        lines = [process.stdout.readline() for _ in range(acknowledged)]
        process.kill()
        lines += process.stdout.readlines()
    seen = [int(line) for line in lines if line.endswith("\n")]

    async def look() -> list[str]:
        async with await SqliteStore.open(path) as store:
            head = await store.head("r")
            assert head.seq >= seen[-1]
            assert 0 == head.seq % 2
            await append(store, "r", records(1))
            return await problems(store, "r")

    assert acknowledged <= len(seen)
    assert [] == anyio.run(look)


async def test_closing_under_way(path: Path) -> None:
    """Closing while appends are under way lets each end whole or be refused, and nothing is left open."""
    ended = list[object]()

    async def write(store: Store, run: str) -> None:
        try:
            ended.append(await append(store, run, records(3)))
        except RefoldError as error:
            ended.append(error)

    store = await SqliteStore.open(path)
    async with anyio.create_task_group() as tasks:
        for n in range(10):
            tasks.start_soon(write, store, f"run-{n}")
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(store.aclose)
        await store.aclose()
    assert 10 == len(ended)
    async with await SqliteStore.open(path, readonly=True) as store:
        sizes = [head.seq async for chunk in store.runs() for _, head in chunk]
    assert [3] * len([end for end in ended if isinstance(end, Head)]) == sizes
