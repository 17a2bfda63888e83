"""Opening a file as a store: what becomes one, what it says of itself, and what is none and left alone."""
# ruff: noqa: ASYNC240 - a test may look at a file while nothing else goes on

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from refold.store import NotAStore, SqliteStore, StoreUnavailable, connection, schema
from refold.store.access import Durability
from refold.store.committer import Database
from refold.store.testing import append, events, records
from refold.store.thread import bridge
from support.files import by_hand, problems

pytestmark = pytest.mark.anyio


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
        pytest.param(make_text, "not an SQLite database", id="text"),
        pytest.param(make_truncated, "not an SQLite database", id="truncated"),
        pytest.param(
            make_other_application,
            "another program's database (its application id is 42)",
            id="other program",
        ),
        pytest.param(make_other_database, "another program's database", id="other tables"),
        pytest.param(
            make_newer, "schema 99, and this refold supports 3: a newer one wrote it", id="newer schema"
        ),
        pytest.param(make_directory, "is a directory", id="directory"),
    ],
)
async def test_what_is_no_store_is_left_alone(path: Path, make: object, problem: str, readonly: bool) -> None:
    """Anything but a store raises `NotAStore` with the path and the problem; no byte and no file is
    touched.
    """
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
    with pytest.raises(NotAStore, match=r"the folder .* does not exist"):
        await SqliteStore.open(path / "deeper" / "runs.db")
    with pytest.raises(NotAStore, match="does not exist"):
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
    """What a power cut left of a file that was being made is rolled back by who may write; a reader says
    so.
    """
    other = path.with_name("other.db")
    with closing(sqlite3.connect(other, isolation_level=None)) as raw:
        raw.execute("PRAGMA cache_size = 1")
        raw.execute("BEGIN")
        raw.execute("CREATE TABLE half (made)")
        raw.execute("INSERT INTO half VALUES (zeroblob(100000)), (zeroblob(100000))")
        for suffix in ("", "-journal"):
            shutil.copy(f"{other}{suffix}", f"{path}{suffix}")
    with pytest.raises(StoreUnavailable, match="creation was interrupted"):
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


@pytest.mark.parametrize("readonly", [False, True], ids=["to write", "to read"])
async def test_an_analysed_file(filled: Path, readonly: bool) -> None:
    """What SQLite itself keeps beside the tables, after ANALYZE, is no change of the schema."""
    by_hand(filled, "ANALYZE")
    async with await SqliteStore.open(filled, readonly=readonly) as store:
        assert [] == await problems(store, "r")
