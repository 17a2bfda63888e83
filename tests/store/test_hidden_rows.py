"""Rows that are gone or changed, and the words in which a reader, and a look through the file, say so."""

from pathlib import Path

import pytest

from refold.reducers.errors import DamagedLog
from refold.store import DamagedStore, SqliteStore, schema
from refold.store.rows import missing_events
from refold.store.testing import events
from support.edited import edited

pytestmark = pytest.mark.anyio


LAST = f"(SELECT max(key) FROM event) & {schema.SEQ_MASK}"


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        pytest.param(
            ["DELETE FROM event WHERE key = (SELECT min(key) FROM event)"],
            "event 2 of run number 1 is the first event of its run",
            id="the first event is gone",
        ),
        pytest.param(
            [
                f"INSERT INTO snapshot SELECT key >> 32, {LAST}, hash, '1', '{{}}' FROM event ORDER BY key DESC LIMIT 1",
                "DELETE FROM event WHERE key = (SELECT max(key) FROM event)",
            ],
            "event 6 of run number 1 has a snapshot, but is missing",
            id="the last event is gone, and its snapshot is there",
        ),
        pytest.param(["DELETE FROM run"], "event 1 of run number 1 belongs to no run", id="the run is gone"),
    ],
)
async def test_rows_that_no_store_leaves(filled: Path, statements: list[str], problem: str) -> None:
    """Where rows are gone, and a row that is there shows it, `check` names the event and why it cannot stand
    so.
    """
    async with await SqliteStore.open(filled, readonly=True) as store:
        await store.check()
    edited(filled, *(each.replace("'{}'", "x'7b7d'") for each in statements))
    async with await SqliteStore.open(filled, readonly=True) as store:
        with pytest.raises(DamagedStore, match=f"events may be hidden: {problem}"):
            await store.check()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        pytest.param(
            "UPDATE event SET body = body || ' ' WHERE key & 15 = 4",
            "event 4: it is damaged: ",
            id="edited",
        ),
        pytest.param(
            "DELETE FROM event WHERE key & 15 = 4",
            "event 5: follows event 3|event 5: event 4 is missing",
            id="a gap",
        ),
    ],
)
async def test_what_a_reader_is_told_of_a_changed_log(filled: Path, statement: str, problem: str) -> None:
    """An edited event is said to be another than was recorded; one behind a gap is not: itself it may be as
    it was.
    """
    edited(filled, statement)
    async with await SqliteStore.open(filled, readonly=True) as store:
        with pytest.raises(DamagedLog, match=problem) as caught:
            await events(store, "r")
    assert ("it is damaged" in str(caught.value)) is ("UPDATE" in statement)


@pytest.mark.parametrize(("last", "words"), [(17, "event 17 of run r"), (19, "events 17 to 19 of run r")])
def test_which_events_cannot_be_read(last: int, words: str) -> None:
    """One is named by its number, several by the first and the last."""
    assert str(missing_events("runs.db", "r", 17, last)).startswith(f"runs.db: {words} cannot be read")
