"""`verify` on real files, edited with nothing but `sqlite3`, as somebody who has the file could."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.replay import Verification, audit, verify
from refold.replay.verification import UNKEYED, UNSEALED
from refold.store import SqliteStore
from refold.store.schema import SEQ_MASK
from support import runs
from support.strategies import scaled

pytestmark = pytest.mark.anyio

EVENTS = len(runs.TRANSCRIPT)
COLUMNS = "at, kind, hash, content_digest, salt, body, content"
TYPES = {"kind": "TEXT", "body": "TEXT", "content": "TEXT"}


@pytest.fixture(scope="module")
async def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a store that holds run `r1` of the transcript."""
    path = tmp_path_factory.mktemp("written") / "runs.db"
    async with await SqliteStore.open(path, durability="process") as store:
        await runs.recorded_run(store)
    return path.read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("edited")


@contextmanager
def edited(path: Path, written: bytes) -> Iterator[sqlite3.Connection]:
    """The file as it was written, without the triggers that hold off honest mistakes."""
    path.write_bytes(written)
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.text_factory = bytes
        for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name.decode()}")
        yield raw


async def verified(path: Path, run: str = runs.RUN) -> Verification:
    async with await SqliteStore.open(path, readonly=True) as store:
        return await verify(store, run)


def problem_of(found: Verification) -> int | None:
    return found.problem.seq if found.problem else None


def cell(raw: sqlite3.Connection, seq: int, column: str) -> bytes | int | None:
    row = raw.execute(f"SELECT {column} FROM event WHERE key & {SEQ_MASK} = ?", (seq,)).fetchone()
    value: bytes | int | None = row[0]
    return value


def write_cell(raw: sqlite3.Connection, seq: int, column: str, value: bytes | int | None) -> None:
    new = f"CAST(? AS {TYPES[column]})" if column in TYPES else "?"
    raw.execute(f"UPDATE event SET {column} = {new} WHERE key & {SEQ_MASK} = ?", (value, seq))


async def test_an_untouched_file_is_whole(scratch: Path, written: bytes) -> None:
    """A log that nobody edited verifies; what no chain without key and seal can prove is said."""
    with edited(scratch / "untouched.db", written):
        found = await verified(scratch / "untouched.db")
    assert (None, True, EVENTS, 0, "ERROR") == (
        found.problem,
        found.whole,
        found.events,
        found.erased,
        found.agent_state,
    )
    assert (UNSEALED, UNKEYED) == found.cannot_prove


@settings(max_examples=scaled(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seq=st.integers(1, EVENTS),
    column=st.sampled_from(["body", "content", "kind", "hash", "content_digest", "salt"]),
    place=st.integers(0, 2**16),
    other=st.integers(1, 255),
)
async def test_any_changed_byte_is_found(
    scratch: Path, written: bytes, seq: int, column: str, place: int, other: int
) -> None:
    """One byte of any stored column changed, and `verify` fails at that very event."""
    path = scratch / "byte.db"
    with edited(path, written) as raw:
        value = cell(raw, seq, column)
        if not isinstance(value, bytes) or not value:
            return
        place %= len(value)
        write_cell(raw, seq, column, value[:place] + bytes([value[place] ^ other]) + value[place + 1 :])
    assert seq == problem_of(await verified(path))


@pytest.mark.parametrize("seq", range(1, EVENTS + 1))
async def test_any_changed_instant_is_found(scratch: Path, written: bytes, seq: int) -> None:
    """An event's instant in its header, one nanosecond off, fails at that event."""
    path = scratch / "at.db"
    with edited(path, written) as raw:
        at = cell(raw, seq, "at")
        assert isinstance(at, int)
        write_cell(raw, seq, "at", at + 1)
    assert seq == problem_of(await verified(path))


async def test_a_renamed_run_is_found(scratch: Path, written: bytes) -> None:
    """A log that is given to another run's id fails at its first event: every header names the run."""
    path = scratch / "renamed.db"
    with edited(path, written) as raw:
        raw.execute("UPDATE run SET id = 'r2'")
    assert 1 == problem_of(await verified(path, "r2"))


@pytest.mark.parametrize("seq", range(1, EVENTS))
async def test_a_removed_event_is_found(scratch: Path, written: bytes, seq: int) -> None:
    """Without one of its events, not the last, a log fails where the gap shows."""
    path = scratch / "removed.db"
    with edited(path, written) as raw:
        raw.execute(f"DELETE FROM event WHERE key & {SEQ_MASK} = ?", (seq,))
    found = await verified(path)
    assert found.problem is not None
    assert (seq + 1, f"event {seq} is missing before it") == (found.problem.seq, found.problem.problem)


def shift(raw: sqlite3.Connection, from_seq: int, by: int) -> None:
    """Move the events from this number on, and close or make a gap."""
    order = "DESC" if by > 0 else "ASC"
    keys = raw.execute(
        f"SELECT key FROM event WHERE key & {SEQ_MASK} >= ? ORDER BY key {order}", (from_seq,)
    ).fetchall()
    for (key,) in keys:
        raw.execute("UPDATE event SET key = ? WHERE key = ?", (key + by, key))


@pytest.mark.parametrize("seq", [1, 2, 9, 16, 27])
async def test_a_removed_event_is_found_when_the_others_close_up(
    scratch: Path, written: bytes, seq: int
) -> None:
    """Renumbering what follows does not hide that an event was taken out: the event in its place fails."""
    path = scratch / "closed.db"
    with edited(path, written) as raw:
        raw.execute(f"DELETE FROM event WHERE key & {SEQ_MASK} = ?", (seq,))
        shift(raw, seq + 1, -1)
    assert seq == problem_of(await verified(path))


@pytest.mark.parametrize("seq", [1, 2, 9, 16, 28])
async def test_a_doubled_event_is_found(scratch: Path, written: bytes, seq: int) -> None:
    """An event that stands twice fails the second time."""
    path = scratch / "doubled.db"
    with edited(path, written) as raw:
        shift(raw, seq + 1, 1)
        raw.execute(
            f"INSERT INTO event (key, {COLUMNS}) SELECT key + 1, {COLUMNS} FROM event WHERE key & {SEQ_MASK} = ?",
            (seq,),
        )
    assert seq + 1 == problem_of(await verified(path))


@pytest.mark.parametrize(("seq", "by"), [(2, 6), (10, 11), (19, 8), (28, 9)])
async def test_a_replaced_event_is_found(scratch: Path, written: bytes, seq: int, by: int) -> None:
    """An event in whose place another of the same log was put, hash and all, fails."""
    path = scratch / "replaced.db"
    with edited(path, written) as raw:
        key = raw.execute(f"SELECT key FROM event WHERE key & {SEQ_MASK} = ?", (seq,)).fetchone()[0]
        raw.execute(
            f"REPLACE INTO event (key, {COLUMNS}) SELECT ?, {COLUMNS} FROM event WHERE key & {SEQ_MASK} = ?",
            (key, by),
        )
    assert seq == problem_of(await verified(path))


@pytest.mark.parametrize("seq", [1, 8, 10, 26, 27])
async def test_swapped_events_are_found(scratch: Path, written: bytes, seq: int) -> None:
    """Two neighbours that changed places fail at the first of them."""
    path = scratch / "swapped.db"
    with edited(path, written) as raw:
        for old, new in ((seq, SEQ_MASK), (seq + 1, seq), (SEQ_MASK, seq + 1)):
            raw.execute(
                f"UPDATE event SET key = (key & ~{SEQ_MASK}) | ? WHERE key & {SEQ_MASK} = ?", (new, old)
            )
    assert seq == problem_of(await verified(path))


@pytest.mark.parametrize("left", [1, 2, 9, 17, 27])
async def test_a_cut_off_tail_is_not_claimed_to_be_absent(scratch: Path, written: bytes, left: int) -> None:
    """Of a log without its last events everything that is there is whole, and that it is all is not
    claimed.
    """
    path = scratch / "cut.db"
    with edited(path, written) as raw:
        raw.execute(f"DELETE FROM event WHERE key & {SEQ_MASK} > ?", (left,))
    found = await verified(path)
    assert (None, left) == (found.problem, found.events)
    assert UNSEALED in found.cannot_prove
    assert "not sealed" in UNSEALED


@pytest.mark.parametrize("seq", [seq for seq, line in enumerate(runs.TRANSCRIPT, 1) if "returned" in line])
async def test_an_erased_output_still_audits_clean(scratch: Path, written: bytes, seq: int) -> None:
    """Where the words of a tool were taken, no decision needed them; that no notice says so is what is
    wrong.
    """
    path = scratch / "output.db"
    with edited(path, written) as raw:
        write_cell(raw, seq, "content", None)
        write_cell(raw, seq, "salt", None)
    found = await verified(path)
    assert (seq, 1, EVENTS) == (problem_of(found), found.erased, found.events)
    assert found.problem is not None
    assert "no erasure record names it" in found.problem.problem
    async with await SqliteStore.open(path, readonly=True) as store:
        assert (await audit(store, runs.RUN)).clean


async def test_where_an_answer_was_erased_the_guard_that_read_it_is_blind(
    scratch: Path, written: bytes
) -> None:
    """Without the calls of an answer the repetition guard cannot judge: its decision is unreplayable, all
    others agree.
    """
    path = scratch / "answer.db"
    with edited(path, written) as raw:
        write_cell(raw, 18, "content", None)
        write_cell(raw, 18, "salt", None)
    async with await SqliteStore.open(path, readonly=True) as store:
        assert 18 == problem_of(await verify(store, runs.RUN))
        found = await audit(store, runs.RUN)
    assert ("repetition: content erased or not read",) == found.blind
    assert (0, [(26, "unreplayable")]) == (
        found.differences,
        [(each.seq, str(each.difference)) for each in found.unreplayable],
    )
    assert "guard repetition: content erased or not read" == found.unreplayable[0].why
    assert (EVENTS, "ERROR", "") == (found.events, found.agent_state, found.damaged)


@pytest.mark.parametrize("column", ["content", "salt"])
async def test_half_an_erasure_is_found(scratch: Path, written: bytes, column: str) -> None:
    """Content without its salt is changed content, and a salt without content protects nobody: both fail."""
    path = scratch / "half.db"
    with edited(path, written) as raw:
        write_cell(raw, 10, column, None)
    assert 10 == problem_of(await verified(path))
