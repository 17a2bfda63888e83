"""Roles of a store in PostgreSQL: what each of examples/deploy/roles.sql may do, and that it can do it."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import psycopg
import pytest

from refold.store import open_here, open_store
from refold.store.postgres.address import parse_address
from refold.store.protocol import Seal, SealedHead, Snapshot, StoreError
from refold.store.sequential import read_log
from refold.store.testing import append, record, records, take
from support.postgres import execute

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

ROLES = Path(__file__).parents[2] / "examples" / "deploy" / "roles.sql"

As = Callable[[str], str]


@pytest.fixture
async def login(postgres: str) -> AsyncGenerator[As]:
    """A filled store, and its address as a member of one of the roles."""
    async with await open_store(postgres) as store:
        await append(store, "r", [record(number, content=b'"said"') for number in range(3)])
    parsed = parse_address(postgres)
    names = ("auditor", "worker", "sealer", "eraser")
    lines = ROLES.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line.partition("--")[0] for line in lines if not line.startswith("\\"))
    text = text.replace("refold_", f"{parsed.schema}_").replace("refold", parsed.schema)
    execute(postgres, *(part for part in text.split(";") if part.strip()))
    for name in names:
        execute(postgres, f"CREATE ROLE {{s}}_{name}_1 LOGIN PASSWORD 'word' IN ROLE {parsed.schema}_{name}")

    def as_role(name: str) -> str:
        with psycopg.connect(parsed.conninfo) as connection:
            where = connection.info
            at = f"{where.host}:{where.port}/{where.dbname}"
        return f"postgresql://{parsed.schema}_{name}_1:word@{at}?schema={parsed.schema}"

    yield as_role
    execute(postgres, "DROP SCHEMA {s} CASCADE")
    for name in reversed(names):
        execute(postgres, f"DROP ROLE {{s}}_{name}_1", f"DROP ROLE {{s}}_{name}")


async def test_an_auditor_reads(login: As) -> None:
    """It reads logs and what the server promises, and writes nothing."""
    store = open_here(login("auditor"))
    assert 3 == len([*read_log(store, "r")])
    await store.check()
    assert (await store.durability()).refuses_edits
    await store.aclose()
    async with await open_store(login("auditor")) as writable:
        with pytest.raises(StoreError, match="lacks a privilege"):
            await writable.lease("s", holder="one")


async def test_a_worker_drives_runs_and_erases_nothing(login: As) -> None:
    """It creates, leases, appends and wakes, but cannot erase, seal or change what was recorded."""
    async with await open_store(login("worker")) as store:
        head = await append(store, "new", records(2))
        lease = await take(store, "new")
        await store.save_snapshot("new", Snapshot(seq=2, version="1", data=b"x"))
        await store.append("new", 2, lease, records(1), release=True)
        await store.wake("new")
        (taken,) = await store.take_due(3, holder="worker")
        assert "new" == taken.run
        with pytest.raises(StoreError, match="lacks a privilege"):
            await store.erase("r", 3, await take(store, "r"), [1], record(4))
        with pytest.raises(StoreError, match="lacks a privilege"):
            await store.add_seal([SealedHead(place=1, run="new", seq=2, hash=head.hash)], seal_of(1))


async def test_a_sealer_signs(login: As) -> None:
    """It adds checkpoints and appends to no run."""
    async with await open_store(login("sealer")) as store:
        await store.add_seal([SealedHead(place=1, run="r", seq=3, hash=bytes(32))], seal_of(1))
        with pytest.raises(StoreError, match="lacks a privilege"):
            await store.lease("s", holder="one")


async def test_an_eraser_erases(login: As) -> None:
    """It deletes payloads, and changes nothing else."""
    async with await open_store(login("eraser")) as store:
        await store.erase("r", 3, await take(store, "r"), [1], record(4))
        (erased,) = await store.read_some("r", [1])
        assert erased.erased


@pytest.mark.parametrize("role", ["auditor", "worker", "sealer", "eraser"])
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {s}.event DISABLE TRIGGER ALL",
        "SET session_replication_role = replica",
        "DROP TRIGGER event_delete ON {s}.event",
        "DELETE FROM {s}.event",
        "TRUNCATE {s}.event",
        "UPDATE {s}.event SET body = ''",
        "UPDATE {s}.event SET hash = ''",
        "DELETE FROM {s}.run",
        "DELETE FROM {s}.seal",
        "CREATE OR REPLACE FUNCTION {s}.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
    ],
)
async def test_no_role_can_edit_the_log(login: As, role: str, statement: str) -> None:
    """Neither a worker nor anybody else but the owner gets around the triggers."""
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(login(role), statement)


def seal_of(size: int) -> Seal:
    return Seal(size=size, at=1, root=bytes(32), key=bytes(32), signature=bytes(64))
