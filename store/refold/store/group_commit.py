"""Appends, as they are written: a group of them in one transaction.

Each append is checked against its own run's head and token, inside the transaction. One that is not as
expected is left out. If SQLite refuses the rest, it is rolled back and written again append by append, so
that only the offender fails. A later append of the same run then fails by itself, for it expects a head that
never came to be. The hashes are computed in there too, after a head that cannot move.
"""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from refold.reducers.errors import RefoldError
from refold.store import rows, schema, tables
from refold.store.base import refusal
from refold.store.connection import PagedConnection, roll_back
from refold.store.protocol import (
    DamagedStore,
    Head,
    Lease,
    Record,
    StoreError,
    StoreUnavailable,
)
from refold.store.rows import FAILED, RunPlace, SqlRow, translate
from refold.store.tables import find

Outcome = Head | BaseException
"""The head after an append, or what it is to raise."""

_MOST_KNOWN = 4096


class AppendRequest(NamedTuple):
    """What an append asks for."""

    run: str
    expected_seq: int
    lease: Lease
    records: Sequence[Record]


class Known:
    """Where runs stood after the last group, for as long as the file was not changed since, by us or by
    others.

    SQLite counts the rows that a connection changed, and gives the file another version when any other has
    changed it. As long as both are as they were, a transaction that looked again would find the same.
    """

    def __init__(self) -> None:
        self._places: dict[str, RunPlace] = {}
        self._version = 0
        self._after: tuple[int, int] | None = None  # of the file, and rows changed by us

    def recall(self, connection: PagedConnection) -> dict[str, RunPlace]:
        """Inside a transaction: the places that hold. They are forgotten unless `keep` follows."""
        (self._version,) = connection.execute("PRAGMA data_version").fetchone()
        if self._after != (self._version, connection.total_changes) or len(self._places) > _MOST_KNOWN:
            self._places = {}
        self._after = None
        return self._places

    def keep(self, connection: PagedConnection) -> None:
        """What `recall` gave, and was changed since, is committed."""
        self._after = self._version, connection.total_changes


def commit(connection: PagedConnection, group: Sequence[AppendRequest], known: Known) -> list[Outcome]:
    """Write what can be written of the group, in one transaction. The outcome of each, in order."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except FAILED as error:
        return [translate(connection.path, error) for _ in group]
    return _written(connection, group, known)


def commit_unhindered(connection: PagedConnection, append: AppendRequest, known: Known) -> Outcome | None:
    """Write one append.

    None, with nothing done, where the transaction cannot begin now: another program has the lock.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
    except FAILED:
        return None
    return _written(connection, [append], known)[0]


def _written(connection: PagedConnection, group: Sequence[AppendRequest], known: Known) -> list[Outcome]:
    """What becomes of each, in the transaction that has begun. It is over then."""
    writing = False
    try:
        outcomes, events = _prepare(connection, group, known.recall(connection))
        insert(connection, events)
        writing = True
        connection.execute("COMMIT")
        known.keep(connection)
    except (*FAILED, DamagedStore) as error:
        roll_back(connection)
        return _failed(connection, group, error, known, writing=writing)
    except BaseException:
        roll_back(connection)
        raise
    return outcomes


def _failed(
    connection: PagedConnection,
    group: Sequence[AppendRequest],
    error: sqlite3.Error | UnicodeDecodeError | DamagedStore,
    known: Known,
    *,
    writing: bool,
) -> list[Outcome]:
    told = [
        error if isinstance(error, DamagedStore) else translate(connection.path, error, writing=writing)
        for _ in group
    ]
    in_doubt = isinstance(told[0], StoreUnavailable) and not told[0].outcome_known
    if in_doubt or len(group) == 1:
        return [*told]
    return [outcome for append in group for outcome in commit(connection, [append], known)]


def _prepare(
    connection: PagedConnection, group: Sequence[AppendRequest], places: dict[str, RunPlace]
) -> tuple[list[Outcome], list[SqlRow]]:
    """What will have become of each append once the rows are written, and the rows. Moves the places on."""
    outcomes, events = list[Outcome](), list[SqlRow]()
    for append in group:
        place: RunPlace | RefoldError | None = places.get(append.run) or _find(connection, append.run)
        if isinstance(place, RunPlace) and append.expected_seq and not place.head.seq:
            place = _forked(connection, append, place)
        if isinstance(place, RefoldError):
            outcomes.append(place)
        elif refused := refused_append(append.run, place, append.expected_seq, append.lease):
            outcomes.append(refused)
        else:
            assert place is not None
            new = rows.from_records(append.run, place, append.records)
            events += new
            head = Head(seq=append.expected_seq + len(new), hash=new[-1][3])
            places[append.run] = place._replace(head=head)
            outcomes.append(head)
    return outcomes, events


def _find(connection: PagedConnection, run: str) -> RunPlace | DamagedStore | None:
    try:
        return find(connection, run)
    except DamagedStore as error:  # that of one run is no reason for another's to fail
        return error


def _forked(connection: PagedConnection, append: AppendRequest, place: RunPlace) -> RunPlace | RefoldError:
    """The place of a run without events at which it is to begin as a fork; as it is, where that is not asked
    for.
    """
    if place.token != append.lease.token:
        return place
    try:
        head = tables.begun(connection, append.run, append.records[0], append.expected_seq)
    except RefoldError as error:
        return error
    return place if head is None else place._replace(head=head)


def refused_append(run: str, place: RunPlace | None, expected_seq: int, lease: Lease) -> StoreError | None:
    """Why a run at this place takes no append there; None if it does."""
    token, seq = (place.token, place.head.seq) if place else (0, 0)
    return refusal(run, token, seq, expected_seq, lease)


def insert(connection: PagedConnection, events: Sequence[SqlRow]) -> None:
    """Insert the rows of events. Raises `DamagedStore` if the table does not take them all."""
    if events and connection.executemany(schema.INSERT, events).rowcount != len(events):
        raise rows.changed_schema(connection.path)
