"""Files that somebody edited or a bad disk changed: found, named, and no other run hidden by it."""
# ruff: noqa: ASYNC240 - a test may look at a file while nothing else goes on

import random
import sqlite3
from contextlib import closing, suppress
from itertools import product
from pathlib import Path

import anyio
import pytest

from refold.reducers.errors import DamagedLog
from refold.store import DamagedStore, NotAStore, Snapshot, SqliteStore, Store, StoreUnavailable, schema
from refold.store.scans import open_scan
from refold.store.testing import append, events, records, take
from refold.store.testing.evidence import heads, seal
from support.edited import edited
from support.files import by_hand, problems

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("token", [2**63 - 1, 2**63 - 2])
async def test_a_token_after_which_there_is_none(filled: Path, token: int) -> None:
    """A run whose token somebody set to the largest ones takes no lease, and whoever asks is told which run
    it is.
    """
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
    with pytest.raises(DamagedStore, match=f"{differs} differs from a store's"):
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
    """Triggers other than a store's refuse to be written to; a reader, who fires none, still finds every
    edit.
    """
    by_hand(filled, statement)
    with pytest.raises(DamagedStore, match=f"{differs} differs from a store's"):
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
        there = [event.seq for event in await events(store, "r", checked=False)]
        given = list[int]()
        with pytest.raises(DamagedLog, match=f"event {seq}: "):  # noqa: PT012 - what came before it is given
            async for chunk in store.read("r"):
                given += [event.seq for event in chunk]
        assert [each for each in there if each < seq] == given
        for asked in (events(store, "r", seq - 1), store.read_some("r", [seq])):
            with pytest.raises(DamagedLog, match=f"event {seq}: "):
                await asked
    with open_scan(filled) as scan, pytest.raises(DamagedLog, match=f"event {seq}: "):
        list(scan.records("r"))
    assert found[0].startswith(f"{seq}: ")


async def test_an_edit_of_a_kind_that_is_asked_for(filled: Path) -> None:
    """Who asks for the events of a kind is given none that was edited."""
    edited(filled, "UPDATE event SET content = 'x' WHERE key & 255 = 4")
    async with await SqliteStore.open(filled, readonly=True) as store:
        with pytest.raises(DamagedLog, match="event 4: "):
            await store.read_kinds("r", ["note_added"])


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
    assert "0: event 0 is not valid: events are numbered from 1" == found[0]


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
        pytest.param("INSERT INTO run (id) VALUES ('r: intact' || char(10) || 'run x')", id="line break"),
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
    """A token is no smaller than the file's own time: of a copy, or a bundle unpacked anew, it is above those
    given before.
    """
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
    """Where an insert leaves the head as it was, though nobody else wrote, the append raises
    `DamagedStore`.
    """
    async with await SqliteStore.open(filled) as store:
        by_hand(
            filled, "CREATE TRIGGER more BEFORE INSERT ON event BEGIN SELECT RAISE(IGNORE); END", "SELECT 1"
        )
        with pytest.raises(DamagedStore, match="drop written rows"):
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
    """Run a statement on a table that takes any value, and make it strict again: so a bad disk could leave
    it.
    """
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
