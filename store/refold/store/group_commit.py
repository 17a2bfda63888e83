"""Writing of a group of appends in one transaction.

Inside the transaction, each append is checked against its run's head and token, and one that does not match
is left out. If SQLite refuses the rest, the transaction is rolled back and each append is written in its own,
so that only the offending append fails. A later append of the same run then fails too, because it expects a
head that does not exist. The hashes are also computed inside the transaction, where the head cannot change.
"""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from refold.reducers.errors import RefoldError
from refold.store import rows, schema, tables
from refold.store.base import give_up, refusal
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
"""The head after an append, or the error that the append raises."""

_MOST_KNOWN = 4096


class AppendRequest(NamedTuple):
    """The arguments of an append."""

    run: str
    expected_seq: int
    lease: Lease
    records: Sequence[Record]
    release: bool


class Known:
    """Cache of run places after the last group, valid until the file changes.

    SQLite counts the rows that a connection changed, and changes `data_version` when another connection
    writes. While both are unchanged, a new transaction would read the same places.
    """

    def __init__(self) -> None:
        self._places: dict[str, RunPlace] = {}
        self._version = 0
        self._after: tuple[int, int] | None = None  # data version, and rows changed by this connection

    def recall(self, connection: PagedConnection) -> dict[str, RunPlace]:
        """Return the valid places, inside a transaction. They are dropped unless `keep` follows."""
        (self._version,) = connection.execute("PRAGMA data_version").fetchone()
        if self._after != (self._version, connection.total_changes) or len(self._places) > _MOST_KNOWN:
            self._places = {}
        self._after = None
        return self._places

    def keep(self, connection: PagedConnection) -> None:
        """Keep the places that `recall` returned: the changes to them are committed."""
        self._after = self._version, connection.total_changes


def commit(connection: PagedConnection, group: Sequence[AppendRequest], known: Known) -> list[Outcome]:
    """Write all valid appends of the group in one transaction. Return the outcome of each, in order."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except FAILED as error:
        return [translate(connection.path, error) for _ in group]
    return _write_group(connection, group, known)


def commit_unhindered(connection: PagedConnection, append: AppendRequest, known: Known) -> Outcome | None:
    """Write one append. Return None, with nothing written, if another program holds the lock."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except FAILED:
        return None
    return _write_group(connection, [append], known)[0]


def _write_group(connection: PagedConnection, group: Sequence[AppendRequest], known: Known) -> list[Outcome]:
    """Write the group in the open transaction and end it. Return the outcome of each append."""
    writing = False
    try:
        places = known.recall(connection)
        outcomes, events = _prepare(connection, group, places)
        insert(connection, events)
        _release(connection, group, outcomes, places)
        writing = True
        connection.execute("COMMIT")
        known.keep(connection)
    except (*FAILED, DamagedStore) as error:
        roll_back(connection)
        return _retry_each(connection, group, error, known, writing=writing)
    except BaseException:
        roll_back(connection)
        raise
    return outcomes


def _release(
    connection: PagedConnection,
    group: Sequence[AppendRequest],
    outcomes: Sequence[Outcome],
    places: dict[str, RunPlace],
) -> None:
    """Release the runs whose last append was written."""
    for append, outcome in zip(group, outcomes, strict=True):
        if append.release and isinstance(outcome, Head):
            give_up(tables.ClaimTable(connection), append.run)
            del places[append.run]  # its token changed


def _retry_each(
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
    """Return each append's outcome once the rows are written, and the rows. Updates `places`."""
    outcomes, events = list[Outcome](), list[SqlRow]()
    for append in group:
        place: RunPlace | RefoldError | None = places.get(append.run) or _find(connection, append.run)
        if isinstance(place, RunPlace) and append.expected_seq and not place.head.seq:
            place = _find_fork(connection, append, place)
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
    except DamagedStore as error:  # damage to one run must not fail appends of others
        return error


def _find_fork(connection: PagedConnection, append: AppendRequest, place: RunPlace) -> RunPlace | RefoldError:
    """Return the place at which a run without events begins as a fork; unchanged if it is not a fork."""
    if place.token != append.lease.token:
        return place
    try:
        head = tables.find_origin(connection, append.run, append.records[0], append.expected_seq)
    except RefoldError as error:
        return error
    return place if head is None else place._replace(head=head)


def refused_append(run: str, place: RunPlace | None, expected_seq: int, lease: Lease) -> StoreError | None:
    """Return why a run at this place refuses the append; None if it accepts it."""
    token, seq = (place.token, place.head.seq) if place else (0, 0)
    return refusal(run, token, seq, expected_seq, lease)


def insert(connection: PagedConnection, events: Sequence[SqlRow]) -> None:
    """Insert the rows of events. Raises `DamagedStore` if the table does not take them all."""
    if events and connection.executemany(schema.INSERT, events).rowcount != len(events):
        raise rows.changed_schema(connection.path)
