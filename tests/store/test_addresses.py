"""Addresses: what `open_store` opens for each, what it refuses, and that no password is displayed."""

import traceback
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from refold.engine import Agent, ScriptedModel, say
from refold.reducers.errors import WrongUse
from refold.store import MemoryStore, SqliteStore, open_here, open_memory, open_store
from refold.store.opening import StoreAddress, store_address
from refold.store.postgres.address import parse_address, show_address
from refold.store.postgres.connection import Link
from refold.store.postgres.store import PostgresStore
from refold.store.protocol import StoreUnavailable
from refold.store.testing import append, records

pytestmark = pytest.mark.anyio

SECRET = "S3cr3tW0rd"
PLACE = "127.0.0.1:1/db"

# Passwords in which one character should have been encoded, or was encoded in vain.
BROKEN = [
    *(f"{before}{character}{after}"
      for character in "/?#@[]\\:&=;+ \t\n\x00\x7f℀'\""
      for before, after in ((SECRET, "x"), ("x", SECRET), ("123456", SECRET), ("", SECRET), (SECRET, ""))),
    f"{SECRET}%", f"{SECRET}%zz", f"{SECRET}%00", f"x%00{SECRET}", f"{SECRET}%0A", f"{SECRET}\udcff",
    f"a@{SECRET}?x=y", f"a?sslmode={SECRET}", f"1/x?dbname={SECRET}", f"a/{SECRET}?b#c@d",
]  # fmt: skip


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        pytest.param("runs.db", ("sqlite", "runs.db"), id="path"),
        pytest.param("sqlite:runs.db", ("sqlite", "runs.db"), id="scheme"),
        pytest.param("SQLite:runs.db", ("sqlite", "runs.db"), id="scheme in capitals"),
        pytest.param("sqlite:old:runs.db", ("sqlite", "old:runs.db"), id="path with a colon"),
        pytest.param("./old:runs.db", ("sqlite", "./old:runs.db"), id="path that begins with a dot"),
        pytest.param(Path("redis:runs.db"), ("sqlite", "redis:runs.db"), id="a Path is never an address"),
        pytest.param("C:\\runs.db", ("sqlite", "C:\\runs.db"), id="a drive is no scheme"),
        pytest.param("memory:", ("memory", ""), id="memory"),
        pytest.param("memory", ("sqlite", "memory"), id="without a colon it is a file"),
        pytest.param("bundle:runs.zip", ("bundle", "runs.zip"), id="bundle"),
        pytest.param("postgresql://h/d", ("postgresql", "postgresql://h/d"), id="database"),
        pytest.param("postgres://h/d", ("postgresql", "postgres://h/d"), id="database, the short name"),
    ],
)
def test_an_address_names_one_store(address: str | Path, expected: tuple[str, str]) -> None:
    """Each address is read as the kind of store and the path that are listed here."""
    assert expected == store_address(address)
    assert isinstance(store_address(address), StoreAddress)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("redis:runs", "unknown scheme 'redis'; expected the path of a file, sqlite:PATH, postgresql"),
        ("memory:runs", "a store in memory has no name"),
        ("sqlite:", "expected a path after sqlite:"),
        ("bundle:", "expected a path after bundle:"),
        ("sqlite:///runs.db", "expected a path after sqlite:"),
    ],
)
async def test_what_is_no_address_is_refused(address: str, problem: str) -> None:
    """`open_store` and an agent refuse such an address, quote it, and say what is expected."""
    with pytest.raises(WrongUse, match=problem) as caught:
        await open_store(address)
    assert f"store {address!r}: " in str(caught.value)
    with pytest.raises(WrongUse, match=problem):
        Agent(model=ScriptedModel([]), store=address)


async def test_an_address_opens_its_kind_of_store(tmp_path: Path) -> None:
    """A path and `sqlite:` open the same file, and `memory:` a new store each time."""
    path = tmp_path / "runs.db"
    async with await open_store(f"sqlite:{path}", durability="process") as store:
        assert isinstance(store, SqliteStore)
        await append(store, "r", records(3))
    async with await open_store(path, readonly=True) as store, open_here(path) as here:
        assert 3 == (await store.head("r")).seq
        assert 3 == (await here.head("r")).seq
    async with await open_store("memory:") as one, open_memory() as other:
        assert isinstance(one, MemoryStore)
        await append(one, "r", records(3))
        assert 0 == (await other.head("r")).seq


async def test_a_store_in_memory_cannot_be_opened_to_be_read() -> None:
    """`readonly` is refused for `memory:`: the store would stay empty."""
    with pytest.raises(WrongUse, match="open it without readonly"):
        await open_store("memory:", readonly=True)


async def test_an_agent_keeps_one_store_in_memory() -> None:
    """An agent with `memory:` keeps its runs in one store, as one without a store does."""
    for address in ("memory:", None):
        agent = Agent(model=ScriptedModel([say("Hello."), say("Hello.")]), store=address)
        runs = [(await agent.run("Say hello.")).run for _ in range(2)]
        assert isinstance(agent.store, MemoryStore)
        assert all([(await agent.store.head(run)).seq for run in runs])


def outcome(address: str) -> str:
    """Everything that a user could see of opening the store: the address as displayed, and any traceback."""
    try:
        shown = store_address(address).shown
    except WrongUse as error:
        return "".join(traceback.format_exception(error))
    try:
        PostgresStore.open_here(address, patience=0.0)
    except (WrongUse, StoreUnavailable) as error:
        return shown + "".join(traceback.format_exception(error))
    raise AssertionError("there is no server on port 1")


@pytest.mark.parametrize("password", BROKEN)
def test_no_password_of_a_user_is_shown(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message, cause or displayed address has a password, whatever characters it has."""
    monkeypatch.setattr("refold.store.postgres.connection.OPENING", 0.0)
    seen = outcome(f"postgresql://u:{password}@{PLACE}")
    assert SECRET not in seen
    assert "123456" not in seen


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        (f"password={SECRET}", "password=***"),
        (f"password=a&{SECRET}", "password=***&***"),
        (f"password=a&{SECRET}=b", "password=***&***"),
        (f"password=a&b{SECRET}&sslmode=disable", "password=***&***&sslmode=disable"),
        (f"password=ab#{SECRET}", "password=***"),
        (f"password=a@{SECRET}", "password=***"),
        (f"password={SECRET} x", "password=***"),
        (f"password=a;{SECRET}", "password=***"),
        (f"password=a?{SECRET}", "password=***"),
        (f"pass%77ord={SECRET}", "pass%77ord=***"),
        (f"PASSWORD={SECRET}", "PASSWORD=***"),
        (f"passwd={SECRET}", "passwd=***"),
        (f"passwd=a&{SECRET}=b", "passwd=***&***"),
        (f"sslpassword={SECRET}", "sslpassword=***"),
        (f"oauth_client_secret={SECRET}", "oauth_client_secret=***"),
        (f"scram_client_key={SECRET}", "scram_client_key=***"),
        (f"scram_server_key={SECRET}", "scram_server_key=***"),
        (f"not_yet_invented={SECRET}", "not_yet_invented=***"),
        (f"sslmode=require?password={SECRET}", "sslmode=***"),
        (f"sslmode=require;password={SECRET}", "sslmode=***"),
        (f"sslmode=require#{SECRET}", "sslmode=***"),
        (f"options=-capp.secret%3D{SECRET}", "options=***"),
        (f"dbname=postgresql%3A%2F%2Fu:{SECRET}%40h", "dbname=***"),
        (f"schema=a?password={SECRET}", "schema=***"),
        ("sslmode=require&host=h&passfile=/p", "sslmode=require&host=h&passfile=/p"),
    ],
)
def test_settings_are_shown_by_name(query: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only values of harmless settings are displayed, and no message has those of others."""
    monkeypatch.setattr("refold.store.postgres.connection.OPENING", 0.0)
    assert (
        f"postgresql://u@{PLACE}?{shown}" == show_address(f"postgresql://u@{PLACE}?{query}") or "@" in query
    )
    if SECRET in query:
        assert SECRET not in outcome(f"postgresql://u@{PLACE}?{query}")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u@h/d&password=p", "postgresql://u@h/***"),
        ("postgresql://u:p/d", "postgresql://***"),
        ("postgresql://u:p@h:port/d", "postgresql://***"),
        ("postgresql://u%3Ap@h/d", "postgresql://***@h/d"),
        ("postgresql://h/d?passwd=a@p", "postgresql://***"),
        ("postgresql://u:a@p?x=y@h/d", "postgresql://***"),
        ("postgresql://h?user=u:p@h", "postgresql://***"),
        (
            "postgresql://u:p@[::1]:1,h:2/d?sslmode=disable",
            "postgresql://u:***@[::1]:1,h:2/d?sslmode=disable",
        ),
        (" postgresql://u:p@h", "***"),
        ("host=h password=p", "***"),
    ],
)
def test_what_is_not_certain_is_not_shown(address: str, shown: str) -> None:
    """If a password may be anywhere, only the scheme is displayed."""
    assert shown == show_address(address)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("postgresql://h/d#x", "write %23"),
        ("postgresql://u:a@b@h/d", "write %40"),
        ("postgresql://u:p@h/d?application_name=a@b", "write %40"),
        ("postgresql://h/d@x", "write %2F for /"),
        ("postgresql://u:1/x@h/d", "write %2F for /"),
        ("postgresql://u:1?x@h/d", "%3F for ?"),
        ("postgresql://h:port/d", r"HOST\[:PORT\]"),
        ("postgresql://h/d?password=a b", "write %20"),
        ("postgresql://h/d?password=a%", "or %25"),
        ("postgresql://h/d?password=a%00", "%00"),
        ("postgresql://h/\x1bd", "control character"),
        ("postgresql://h/d\n", "control character"),
        ("postgresql://h/\udcff", "is not UTF-8"),
        ("postgresql://u:%F0@h/d", "is not UTF-8"),
        ("postgresql://h/d?user=a@b:1/d", "%40 for @"),
        ("postgresql://h/d?nonsense=1", "nonsense=.*does not know a setting"),
        ("postgresql://h/d?schema", "one has no value"),
        ("postgresql://h/d?client_encoding=LATIN1", "always UTF-8"),
        ("postgresql://h/d?client%5Fencoding=utf8", "always UTF-8"),
        ("postgresql://h/d?schema=", "at most 55"),
        ("postgresql://h/d?schema=" + "s" * 56, "at most 55"),
        ("postgresql://h/d?sch%65ma=Runs", "lower-case letters"),
        ("mysql://h/d", "expected postgresql://"),
    ],
)  # fmt: skip
def test_what_is_refused(address: str, problem: str) -> None:
    """The error says which character or setting is wrong, and has no cause that would quote it."""
    with pytest.raises(WrongUse, match=problem) as caught:
        parse_address(address)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("address", "conninfo", "schema"),
    [
        ("postgresql://h/d?options=-c%20statement_timeout%3D5000",) * 2 + ("refold",),
        ("postgresql://h/d?password=a%20b+c",) * 2 + ("refold",),
        ("postgresql:///d?host=/var/run",) * 2 + ("refold",),
        ("postgresql://%2Fvar%2Frun/d%23b",) * 2 + ("refold",),
        ("postgresql://u:%C3%A9@[::1]:5,b:6/d",) * 2 + ("refold",),
        ("POSTGRES://h/d?schema=a", "postgresql://h/d", "a"),
        ("postgresql://h?schema=a", "postgresql://h", "a"),
        ("postgresql://?schema=a&user=x%26y", "postgresql://?user=x%26y", "a"),
        ("postgresql://h/d?user=x&schema=a&sslmode=prefer", "postgresql://h/d?user=x&sslmode=prefer", "a"),
        ("postgresql://h/d?schema=a&schema=b", "postgresql://h/d", "b"),
        ("postgresql://h/d?sch%65ma=a", "postgresql://h/d", "a"),
        ("postgresql://h/d?schema=" + "s" * 55, "postgresql://h/d", "s" * 55),
    ],
)
def test_libpq_gets_the_rest_unchanged(address: str, conninfo: str, schema: str) -> None:
    """Only `schema` is removed; libpq gets every other byte as it was written."""
    parsed = parse_address(address)
    assert (conninfo, schema) == (parsed.conninfo, parsed.schema)


CHARACTERS = "uv1:/?#@%[]&=;, .+℀2F40"


@given(password=st.text(CHARACTERS, max_size=12), cut=st.integers(0, 12))
def test_no_password_is_shown_that_libpq_reads(password: str, cut: int) -> None:
    """An address is refused, or libpq reads the password; in neither case is the password displayed."""
    password = f"{password[:cut]}{SECRET}{password[cut:]}"
    for address in (f"postgresql://u:{password}@h/d", f"postgresql://u@h/d?password={password}"):
        assert SECRET not in show_address(address)
        with suppress(WrongUse):
            assert SECRET in str(conninfo_to_dict(parse_address(address).conninfo)["password"])


TYPED = [
    f"postgresql://u:{SECRET}@h/d", f"postgres://u:{SECRET}@h/d", f"host=h password={SECRET}",
    f"host=h password = '{SECRET}'", f"PASSWORD={SECRET} host=h", f"host=h sslpassword={SECRET}",
    f"oauth_client_secret={SECRET}", f"scram_client_key={SECRET}", f"postgresql//u:{SECRET}@h/d",
    f"postgresql:/u:{SECRET}@h/d", f"//u:{SECRET}@h/d", f"sqlite:postgresql://u:{SECRET}@h/d",
    f"bundle: postgresql://u:{SECRET}@h/d", f"memory:postgresql://u:{SECRET}@h/d",
    f"sqlite://u:{SECRET}@h/d", f"mysql://u:{SECRET}#@h/d", f"jdbc:postgresql://h/d?password={SECRET}",
]  # fmt: skip
BEFORE = ("", " ", "'", '"', "\t", "\ufeff")


@pytest.mark.parametrize("text", [before + typed for before, typed in product(BEFORE, TYPED)][2:])
def test_no_such_text_is_a_path(text: str) -> None:
    """An address after a quote or space, or in libpq's other form, is no path, and is in no message."""
    with pytest.raises(WrongUse) as caught:
        store_address(text)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_path_from_an_address() -> None:
    """A `Path` made of an address, which lost a slash, is refused, too."""
    with pytest.raises(WrongUse, match="looks like a PostgreSQL address") as caught:
        store_address(Path(f"postgresql://u:{SECRET}@h/d"))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    ["runs.db", "/tmp/a@b/runs.db", "my runs.db", "a=b.db", "postgres/runs.db", "C:\\runs.db", "a:1.db"],
)
def test_such_a_path_is_a_path(path: str) -> None:
    """Spaces, @ and = do not make a path an address."""
    assert path == store_address(f"./{path}").path[2:]


@pytest.mark.parametrize("named", [True, False], ids=["in options", "in the environment"])
def test_the_text_is_utf8(named: bool, postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither `options` nor the environment changes the encoding of a connection."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    address = f"{postgres}{'&options=-c%20client_encoding%3DLATIN1' if named else ''}"
    link = Link(parse_address(address), "process")
    try:
        assert [(b"UTF8",)] == link.execute("SHOW client_encoding")
    finally:
        link.drop()
