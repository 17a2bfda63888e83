"""Edits of a PostgreSQL store by its owner, who may disable triggers: none of them passes for a store."""

import pytest

from refold.reducers.errors import Damaged
from refold.store import open_here, open_store
from refold.store.protocol import DamagedStore, Lease
from refold.store.sequential import at_once, read_log
from refold.store.testing import append, records, take
from support.postgres import execute

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.fixture
async def filled(postgres: str) -> str:
    """A store with the runs `r` of six events and `q` of three."""
    async with await open_store(postgres, durability="process") as opened:
        await append(opened, "r", records(6))
        await append(opened, "q", records(3))
    return postgres


def problem_of(address: str) -> str:
    """What an auditor is told who lists, reads and checks everything."""
    try:
        store = open_here(address)
        try:
            listed = at_once(_listed(store))
            for run in listed:
                assert [*read_log(store, run)]
            at_once(store.check())
            assert ["q", "r"] == sorted(listed), "a run is hidden"
            return "; ".join(gap for gap in at_once(store.durability()).gaps if "refuses edits" in gap)
        finally:
            at_once(store.aclose())
    except Damaged as error:
        return str(error)


async def _listed(store: object) -> list[str]:
    return [run async for page in store.runs() for run, _ in page]  # type: ignore[attr-defined]


async def test_an_intact_store_has_no_problem(filled: str) -> None:
    """The checks below find edits, not stores."""
    assert "" == problem_of(filled)


EDITS: dict[str, tuple[str, ...]] = {
    "another head": ("UPDATE {s}.run SET hash = decode(repeat('11', 32), 'hex') WHERE id = 'r'",),
    "a head moved back with its events": (
        "UPDATE {s}.run SET seq = 4 WHERE id = 'r'",
        "DELETE FROM {s}.event WHERE seq > 4",
    ),
    "a run that appears twice": (
        "ALTER TABLE {s}.run DROP CONSTRAINT run_id_key",
        "INSERT INTO {s}.run (id, token, seq, hash) SELECT id, token, 0, decode(repeat('00', 32), 'hex') FROM {s}.run "
        "WHERE id = 'r'",
    ),
    "a key that is gone": ("ALTER TABLE {s}.event DROP CONSTRAINT event_pkey",),
    "columns without NOT NULL": ("ALTER TABLE {s}.run ALTER COLUMN hash DROP NOT NULL",),
    "rows that policies hide": (
        "ALTER TABLE {s}.run ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE {s}.run FORCE ROW LEVEL SECURITY",
        "CREATE POLICY few ON {s}.run USING (id <> 'q')",
    ),
    "rows in a child table": ("CREATE TABLE {s}.more () INHERITS ({s}.event)",),
    "a rule in place of deletes": ("CREATE RULE gone AS ON DELETE TO {s}.snapshot DO INSTEAD NOTHING",),
    "a table that a crash empties": ("ALTER TABLE {s}.event SET UNLOGGED",),
    "a view in place of a table": (
        "ALTER TABLE {s}.seal RENAME TO seal_1",
        "CREATE VIEW {s}.seal AS SELECT * FROM {s}.seal_1",
    ),
    "a trigger that never fires": (
        "DROP TRIGGER event_delete ON {s}.event",
        "CREATE TRIGGER event_delete BEFORE DELETE ON {s}.event FOR EACH ROW WHEN (old.seq < 0) "
        "EXECUTE FUNCTION {s}.refuse()",
    ),
    "a trigger on another table": (
        "DROP TRIGGER event_erasure ON {s}.event",
        "CREATE TRIGGER event_erasure BEFORE UPDATE ON {s}.meta FOR EACH ROW EXECUTE FUNCTION {s}.allow_erasure()",
    ),
    "a trigger that drops rows": (
        "CREATE FUNCTION {s}.drop_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER more BEFORE INSERT ON {s}.event FOR EACH ROW EXECUTE FUNCTION {s}.drop_row()",
    ),
    "triggers that are off": ("ALTER TABLE {s}.run DISABLE TRIGGER ALL",),
}


@pytest.mark.parametrize("edit", EDITS)
async def test_an_edit_is_found(filled: str, edit: str) -> None:
    """A reader is told, or at least that the server no longer refuses edits; nothing is written there."""
    execute(filled, "SET session_replication_role = replica", *EDITS[edit])
    if edit == "a head moved back with its events":  # the chain holds: only a kept head tells
        execute(
            filled,
            "SET session_replication_role = replica",
            "UPDATE {s}.run SET hash = event.hash FROM {s}.event "
            "WHERE event.run = run.number AND event.seq = run.seq",
        )
        assert "" == problem_of(filled)
        return
    assert problem_of(filled)


async def test_a_role_for_which_no_trigger_fires(filled: str) -> None:
    """`session_replication_role` may be set for a role or a database."""
    joint = "&" if "?" in filled else "?"
    address = f"{filled}{joint}options=-csession_replication_role%3Dreplica"
    with pytest.raises(DamagedStore, match="no trigger fires"):
        await open_store(address)


async def test_no_head_moves_back(filled: str) -> None:
    """The server refuses it, even of a worker's role."""
    for statement in (
        "UPDATE {s}.run SET seq = seq - 1",
        "UPDATE {s}.run SET hash = decode(repeat('11', 32), 'hex')",
    ):
        with pytest.raises(Exception, match="a head never moves back"):
            execute(filled, statement)


async def test_a_run_with_the_largest_number_is_listed(filled: str) -> None:
    """No number is beyond a listing."""
    execute(
        filled,
        "INSERT INTO {s}.run (number, id, token, seq, hash) OVERRIDING SYSTEM VALUE "
        "SELECT 9223372036854775807, 'last', 1, 0, decode(repeat('00', 32), 'hex')",
    )
    async with await open_store(filled) as store:
        await append(store, "last", records(2))
        assert ["last", "q", "r"] == sorted([run async for page in store.runs() for run, _ in page])


@pytest.mark.parametrize(
    "body", ["RETURN NULL;", "NEW.body := ''{}''; RETURN NULL;"], ids=["dropped", "dropped after a change"]
)
async def test_rows_that_a_trigger_drops_are_noticed(filled: str, body: str) -> None:
    """A trigger that appears while the store is open: the append is not acknowledged."""
    async with await open_store(filled) as store:
        lease: Lease = await take(store, "r")
        execute(
            filled,
            f"CREATE FUNCTION {{s}}.drop_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {body} END'",
            "CREATE TRIGGER more BEFORE INSERT ON {s}.event FOR EACH ROW EXECUTE FUNCTION {s}.drop_row()",
        )
        with pytest.raises(DamagedStore, match="drop or change written rows"):
            await store.append("r", 6, lease, records(2))


async def test_claims_of_a_clock_that_was_set_back_come_due(filled: str) -> None:
    """`take_due` finds them without anybody reading their runs."""
    execute(filled, "UPDATE {s}.run SET holder = '', length = 0, until = until + 3600000 WHERE id = 'r'")
    async with await open_store(filled) as store:
        assert ["r"] == [lease.run for lease in await store.take_due(5, holder="one")]
