"""Addresses: what `open_store` opens for each, and what it refuses."""

from pathlib import Path

import pytest

from refold.engine import Agent, ScriptedModel, say
from refold.reducers.errors import WrongUse
from refold.store import MemoryStore, SqliteStore, open_here, open_memory, open_store
from refold.store.opening import StoreAddress, store_address
from refold.store.testing import append, records

pytestmark = pytest.mark.anyio


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
