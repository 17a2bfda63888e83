"""Erasure, snapshots and the log of heads: what a connection's thread does about them, a transaction each."""

from collections.abc import Sequence

from refold.store import forks, rows, schema
from refold.store.checks import check_erase
from refold.store.claims import find
from refold.store.connection import PagedConnection, transaction
from refold.store.group_commit import insert, refusal
from refold.store.lineage import inherited
from refold.store.problems import FAILED
from refold.store.protocol import (
    Head,
    Lease,
    Record,
    Seal,
    SealedElsewhere,
    SealedHead,
    Snapshot,
    StoreUnavailable,
)
from refold.store.rows import RunPlace, SqlRow


def erase(
    connection: PagedConnection,
    run: str,
    expected_seq: int,
    lease: Lease,
    seqs: Sequence[int],
    notice: Record,
) -> tuple[Head, list[bytes]]:
    """See `Store.erase`. The new head; and what marks each erased event in the file: see `residue`."""
    with transaction(connection):
        place = find(connection, run)
        if refused := refusal(run, place, expected_seq, lease):
            raise refused
        assert place is not None
        marks = [_erase(connection, run, place, seq) for seq in seqs]
        new = rows.from_records(run, place, [notice])
        insert(connection, new)
        connection.execute(schema.DROP_SNAPSHOT, (place.number,))
    empty_journal(connection)
    return Head(seq=expected_seq + 1, hash=new[0][3]), marks


def _erase(connection: PagedConnection, run: str, place: RunPlace, seq: int) -> bytes:
    key = (place.number << schema.SEQ_BITS) + seq
    there = 0 < seq <= place.head.seq
    row: SqlRow | None = connection.execute(schema.DIGEST, (key,)).fetchone() if there else None
    if there and row is None and (owner := forks.owner(connection, run, seq)) != run:
        raise inherited(run, seq, owner)
    check_erase(run, place.head.seq, seq, row[1] if row else None)
    assert row is not None
    connection.execute(schema.ERASE, (key,))
    return b"".join(row)


def rewrite(connection: PagedConnection) -> None:
    """Write the file anew, without gaps."""
    try:
        connection.execute("VACUUM")
    except FAILED as error:
        raise _unfinished(
            connection.path, f"in the gaps of the file, which could not be written anew ({error})"
        ) from error
    empty_journal(connection)


def empty_journal(connection: PagedConnection) -> None:
    """Bring the write-ahead log into the file, and cut it to nothing: what was erased stands there too."""
    try:
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except FAILED as error:
        raise _unfinished(connection.path, f"in the -wal beside the file ({error})") from error
    if busy:
        raise _unfinished(connection.path, "in the -wal beside the file, which another program is reading")


def _unfinished(path: str, where: str) -> StoreUnavailable:
    problem = f"the log has it no more, but what was erased may still stand {where}: close other programs, erase it again"
    return StoreUnavailable(path, problem, outcome_known=False)


def save_snapshot(connection: PagedConnection, run: str, snapshot: Snapshot) -> None:
    """See `Store.save_snapshot`."""
    connection.execute(schema.SAVE_SNAPSHOT, (run, snapshot.seq, snapshot.version, snapshot.data))


def add_seal(connection: PagedConnection, heads: Sequence[SealedHead], seal: Seal) -> None:
    """See `Store.add_seal`."""
    with transaction(connection):
        (size,) = connection.execute(schema.SEALED).fetchone()
        expected = seal.size - len(heads)
        if size != expected:
            raise SealedElsewhere(expected, size)
        connection.executemany(
            schema.ADD_SEALED, [(each.place, each.run, each.seq, each.hash) for each in heads]
        )
        connection.execute(schema.ADD_SEAL, (seal.size, seal.at, seal.root, seal.key, seal.signature))
