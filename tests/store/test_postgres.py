"""What only the store in PostgreSQL does: its schema, its guarantees against edits, and what it reads from a
server that is not trusted.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import psycopg
import pytest

from refold.reducers.errors import DamagedLog, WrongUse
from refold.store import open_here, open_store
from refold.store.base import BaseStore
from refold.store.postgres import schema
from refold.store.postgres.address import DEFAULT_SCHEMA, parse_address, show_address
from refold.store.postgres.store import PostgresStore
from refold.store.protocol import DamagedStore, NotAStore, Record, StoreUnavailable, UnknownRun
from refold.store.sequential import at_once, read_log
from refold.store.testing import append, events, record, records, take
from support.postgres import execute

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(postgres: str) -> AsyncGenerator[BaseStore]:
    async with await open_store(postgres, durability="process") as opened:
        yield opened


@pytest.fixture
async def filled(postgres: str) -> str:
    """A store with a run `r` of six events, closed."""
    async with await open_store(postgres, durability="process") as opened:
        await append(opened, "r", records(6))
    return postgres


@pytest.mark.parametrize(
    ("address", "conninfo", "name"),
    [
        ("postgresql://h/d", "postgresql://h/d", DEFAULT_SCHEMA),
        ("postgres://h/d?schema=other", "postgresql://h/d", "other"),
        (
            "postgresql://u:p@a:1,b:2/d?target_session_attrs=read-write&schema=x_1",
            "postgresql://u:p@a:1,b:2/d?target_session_attrs=read-write",
            "x_1",
        ),
        ("postgresql:///d?host=/var/run", "postgresql:///d?host=/var/run", DEFAULT_SCHEMA),
    ],
)
def test_an_address_has_a_schema_and_the_rest_is_the_servers(address: str, conninfo: str, name: str) -> None:
    """`schema` is ours; everything else is given to libpq as it stands."""
    parsed = parse_address(address)
    assert (conninfo, name) == (parsed.conninfo, parsed.schema)


@pytest.mark.parametrize("name", ["", "Runs", "a-b", 'x"; DROP', "1st", "a" * 64])
def test_names_of_schemas(name: str) -> None:
    """A schema's name is a plain one, so no name can end a quotation."""
    with pytest.raises(WrongUse, match="schema"):
        parse_address(f"postgresql://h/d?schema={name}")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:s3cret@h/d", "postgresql://ann:***@h/d"),
        ("postgresql://ann:s3@cret@h/d", "postgresql://ann:***@h/d"),
        ("postgresql://:s3cret@h/d", "postgresql://:***@h/d"),
        ("postgresql://h/d?password=s3cret&x=1", "postgresql://h/d?password=***&***"),
        ("postgresql://h/d?PASSWORD=s3cret", "postgresql://h/d?PASSWORD=***"),
        ("postgresql://h/d?sslpassword=s3cret", "postgresql://h/d?sslpassword=***"),
        ("postgresql://ann@h/d", "postgresql://ann@h/d"),
        ("postgresql://h:5432/d", "postgresql://h:5432/d"),
        ("postgresql://h:5432/d?application_name=a@b", "postgresql://h:5432/d?application_name=a@b"),
        ("postgresql://a:1,b:2/d?user=c@d", "postgresql://a:1,b:2/d?user=c@d"),
        ("postgresql://ann:s3/c?r#et@h/d", "postgresql://ann:***@h/d"),
        ("postgresql+psycopg://ann:s3cret@h/d", "postgresql+psycopg://ann:***@h/d"),
        ("postgresql://h/d?pass%77ord=s3cret", "postgresql://h/d?pass%77ord=***"),
    ],
)
def test_passwords_are_not_shown(address: str, shown: str) -> None:
    """No message has a password of an address."""
    assert shown == show_address(address)


async def test_a_password_is_in_no_error(postgres_address: str) -> None:
    """Errors of connecting name the address without its password."""
    address = "postgresql://ann:s3cret@127.0.0.1:1/d?connect_timeout=1"
    with pytest.raises(StoreUnavailable) as caught:
        await PostgresStore.open(address, patience=0.0)
    assert "s3cret" not in str(caught.value)
    assert "postgresql://ann:***@127.0.0.1:1/d" in str(caught.value)
    for address, problem in (
        ("postgresql://ann:s3cret@h/d?nonsense=1", "nonsense"),
        ("postgresql://ann:s3cret%@h/d", "write %20 or %25"),
        ("postgresql://ann:s3cret s@h/d", "write %20 or %25"),
        ("postgres+psycopg://ann:s3cret@h/d", "unknown scheme"),
    ):
        with pytest.raises(WrongUse, match=problem) as refused:
            await open_store(address)
        assert "s3cret" not in str(refused.value)


async def test_a_database_that_does_not_exist(postgres_address: str) -> None:
    """A wrong name is an error at once: nothing is tried again."""
    other = postgres_address.rpartition("/")[0] + "/nothing_of_this_name"
    with anyio.fail_after(10), pytest.raises(StoreUnavailable, match="does not exist"):
        await open_store(other)


async def test_opening_for_reading_creates_nothing(postgres: str) -> None:
    """A schema that does not exist stays so, and the error names it."""
    name = parse_address(postgres).schema
    with pytest.raises(NotAStore, match=f"no schema '{name}'"):
        await open_store(postgres, readonly=True)
    with pytest.raises(NotAStore, match=f"no schema '{name}'"):
        open_here(postgres)
    async with await open_store(postgres), await open_store(postgres, readonly=True) as reader:
        with pytest.raises(WrongUse, match="open read-only"):
            await reader.lease("r", holder="one")


async def test_many_create_it_at_once(postgres: str) -> None:
    """Processes that open a new store at the same time all get it."""

    async def work() -> None:
        async with await open_store(postgres) as opened:
            await opened.check()

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(work)


async def test_a_schema_of_another_program(postgres: str) -> None:
    """Its tables are not touched."""
    execute(postgres, "CREATE SCHEMA {s}", "CREATE TABLE {s}.run (id integer)")
    for readonly in (False, True):
        with pytest.raises(NotAStore, match="is not refold's"):
            await open_store(postgres, readonly=readonly)
    execute(postgres, "DROP TABLE {s}.run")
    with pytest.raises(NotAStore, match="is empty or another program's"):
        await open_store(postgres)


async def test_a_newer_schema(filled: str) -> None:
    """A newer refold made it: this one does not write there."""
    execute(filled, "UPDATE {s}.meta SET version = 99")
    with pytest.raises(NotAStore, match="has schema 99, and this refold supports 1"):
        await open_store(filled)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {s}.event ADD COLUMN more text",
        "ALTER TABLE {s}.run RENAME COLUMN woken TO awake",
        "ALTER TABLE {s}.event ALTER COLUMN salt TYPE text USING NULL",
        "DROP TABLE {s}.seal CASCADE",
    ],
)
async def test_changed_tables(filled: str, change: str) -> None:
    """Tables that differ from those of a store are neither written nor read."""
    execute(filled, change)
    for readonly in (False, True):
        with pytest.raises(DamagedStore, match="differs from a store's"):
            await open_store(filled, readonly=readonly)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {s}.event DISABLE TRIGGER event_delete",
        "ALTER TABLE {s}.event DISABLE TRIGGER ALL",
        "DROP TRIGGER event_erasure ON {s}.event",
        "CREATE OR REPLACE FUNCTION {s}.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
    ],
)
async def test_changed_triggers(filled: str, change: str) -> None:
    """Nothing is written to a store without its triggers; a reader can still examine it."""
    execute(filled, change)
    with pytest.raises(DamagedStore, match="which forbids changes of the log"):
        await open_store(filled)
    async with await open_store(filled, readonly=True) as reader:
        assert 6 == len(await events(reader, "r"))


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE {s}.event SET body = '{}'",
        "UPDATE {s}.event SET content = 'x' WHERE seq = 1",
        "UPDATE {s}.event SET content = NULL",
        "UPDATE {s}.event SET seq = seq + 9",
        "DELETE FROM {s}.event WHERE seq = 6",
        "TRUNCATE {s}.event",
        "DELETE FROM {s}.run",
        "TRUNCATE {s}.run CASCADE",
        "UPDATE {s}.run SET id = 'q'",
        "DELETE FROM {s}.sealed_head WHERE place = 1",
        "UPDATE {s}.seal SET at = 0",
        "TRUNCATE {s}.seal",
        "INSERT INTO {s}.event SELECT * FROM {s}.event",
        "INSERT INTO {s}.event SELECT * FROM {s}.event ON CONFLICT (run, seq) DO UPDATE SET body = '{}'",
    ],
)
async def test_the_log_is_append_only(filled: str, edit: str) -> None:
    """The server refuses every statement that changes or removes what was recorded."""
    execute(
        filled,
        "INSERT INTO {s}.sealed_head VALUES (1, 'r', 1, '')",
        "INSERT INTO {s}.seal VALUES (1, 1, 1, '', '', '')",
    )
    with pytest.raises(psycopg.errors.IntegrityError):
        execute(filled, edit)
    async with await open_store(filled) as opened:
        assert 6 == len(await events(opened, "r"))


async def edited(address: str, *statements: str) -> None:
    """Edit as one who may disable triggers."""
    execute(address, "SET session_replication_role = replica", *statements)


async def test_edits_behind_its_back(filled: str) -> None:
    """An edited event is reported by its number, and so are events removed at the end."""
    await edited(filled, "UPDATE {s}.event SET body = '{}' WHERE seq = 4")
    async with await open_store(filled, readonly=True) as reader:
        with pytest.raises(DamagedLog, match="event 4: it is damaged"):
            await events(reader, "r")
    await edited(filled, "DELETE FROM {s}.event WHERE seq >= 3")
    async with await open_store(filled, readonly=True) as reader:
        with pytest.raises(
            DamagedStore, match="its row ends at event 6, which is missing or has another hash"
        ):
            await events(reader, "r")
        with pytest.raises(
            DamagedStore, match="run r ends at event 6 by its row, and its last stored event is 2"
        ):
            await reader.check()


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        (["UPDATE {s}.run SET seq = 2"], "run r ends at event 2 by its row, and its last stored event is 6"),
        (["DELETE FROM {s}.run"], "event 1 belongs to run number 1, which does not exist"),
        (["DELETE FROM {s}.event WHERE seq = 1"], "run r begins with event 2, and it is not a fork"),
    ],
)
async def test_rows_that_no_store_writes(filled: str, statements: list[str], problem: str) -> None:
    """`check` finds events that readers would not see."""
    async with await open_store(filled) as opened:
        await opened.check()
        await edited(filled, *statements)
        with pytest.raises(DamagedStore, match=problem):
            await opened.check()


async def test_an_append_beside_hidden_events_fails_alone(filled: str) -> None:
    """Appends of other runs in the same group are written."""
    await edited(filled, "UPDATE {s}.run SET seq = 2, hash = (SELECT hash FROM {s}.event WHERE seq = 2)")
    failed = list[Exception]()

    async def work(store: BaseStore, run: str, seq: int) -> None:
        lease = await take(store, run)
        try:
            await store.append(run, seq, lease, records(2))
        except DamagedStore as error:
            failed.append(error)

    async with await open_store(filled) as opened, anyio.create_task_group() as tasks:
        tasks.start_soon(work, opened, "r", 2)
        for number in range(5):
            tasks.start_soon(work, opened, f"o{number}", 0)
    assert 1 == len(failed)
    async with await open_store(filled, readonly=True) as reader:
        for number in range(5):
            assert 2 == len(await events(reader, f"o{number}"))


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":"\\u0000 \\ud800 \\\\ \\n \\" \'"}',
        '{"a":"\U0001f600 é ﷽ \u2028"}'.encode(),
        b'{ "a" :\t1e400,\r\n"a":1, "b":-0 }',
        b'"%s %d {s} %% $1 \'; DROP TABLE run; --"',
        b"\\x00\\N",
        b" ",
        b"",
    ],
)
async def test_text_stays_as_it_is(store: BaseStore, text: bytes) -> None:
    """Bodies and payloads are read byte for byte as they were written."""
    made = Record(at=-(2**63), kind="k", body=text, content=text, salt=bytes(range(16)))
    head = await append(store, "r%s{s}'\"é", [made])
    (read,) = await events(store, "r%s{s}'\"é")
    assert (text, text, -(2**63), head.hash) == (read.body, read.content, read.at, read.hash)


async def test_large_events_are_read_in_pages(store: BaseStore) -> None:
    """A page ends at a number of bytes; one large event is a page of its own."""
    large = [record(number, content=b'"' + b"x" * 700_000 + b'"') for number in range(5)]
    await append(store, "r", [*records(3), *large])
    async with aclosing(_pages(store, "r")) as pages:
        sizes = [len(page) async for page in pages]
    assert 8 == sum(sizes)
    assert len(sizes) >= 3


async def _pages(store: BaseStore, run: str) -> AsyncGenerator[list[object]]:
    async for page in store.read(run):
        yield [*page]


async def test_an_event_that_is_too_large(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event larger than any that is written is not read into memory."""
    await edited(filled, f"UPDATE {{s}}.event SET body = repeat('x', {schema.MOST_BYTES + 1}) WHERE seq = 2")
    async with await open_store(filled, readonly=True) as reader:
        with pytest.raises(DamagedStore, match=f"event 2 of run r has {schema.MOST_BYTES + 1} bytes"):
            await events(reader, "r")


async def test_reading_without_an_event_loop(filled: str) -> None:
    """`open_here` reads in the calling thread; its methods never wait."""
    opened = open_here(filled)
    assert 6 == len([*read_log(opened, "r")])
    with pytest.raises(UnknownRun):
        [*read_log(opened, "other")]
    with pytest.raises(WrongUse, match="open read-only"):
        at_once(opened.lease("r", holder="one"))
    at_once(opened.aclose())
    at_once(opened.aclose())
    with pytest.raises(WrongUse, match="is closed"):
        at_once(opened.head("r"))


async def test_a_wake_up_is_noticed(postgres: str) -> None:
    """`wait_due` returns when another process wakes a run, long before its time, also after waits that were
    cancelled.
    """
    async with await open_store(postgres) as one, await open_store(postgres) as other:
        for _ in range(3):
            with anyio.move_on_after(0.01):
                await one.wait_due(120)
        await append(one, "r", records(1))
        await one.release(await take(one, "r"))
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                done = anyio.Event()

                async def wait() -> None:
                    await one.wait_due(120)
                    done.set()

                tasks.start_soon(wait)
                while not done.is_set():  # the notice may come before the other side listens
                    await other.wake("r")
                    await anyio.sleep(0.02)
                    await other.release(await take(other, "r"))


async def test_waiting_ends_in_time(store: BaseStore) -> None:
    """Without a wake-up, `wait_due` returns after its seconds."""
    with anyio.fail_after(30):
        await store.wait_due(0.05)


async def test_what_the_server_promises(store: PostgresStore, postgres: str) -> None:
    """`durability` reads the settings that decide what an append survives."""
    found = await store.durability()
    assert found.clock is not None
    if not os.environ.get("REFOLD_TEST_POSTGRES"):
        assert (False, False) == (found.power_cut, found.loss)
        assert "that acknowledged events survive a power cut: the server runs with fsync off" in found.gaps
    assert not any("refuses edits" in gap for gap in found.gaps)
    execute(postgres, "ALTER TABLE {s}.event DISABLE TRIGGER event_delete")
    assert any("trigger 'event_delete'" in gap for gap in (await store.durability()).gaps)


async def test_every_statement_names_its_schema(store: BaseStore, postgres: str) -> None:
    """Nothing depends on `search_path`, so sessions may be shared by a pooler."""
    parsed = parse_address(postgres)
    with psycopg.connect(parsed.conninfo, autocommit=True) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename IN ('run', 'event')"
        ).fetchone()
    assert (0,) == found
