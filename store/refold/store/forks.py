"""Forks in the SQLite file: what a connection's thread looks up about them."""

from collections.abc import Sequence
from functools import partial

from refold.store import checks, rows, schema
from refold.store.checks import LogPart, OwnLog
from refold.store.claims import find
from refold.store.connection import PagedConnection
from refold.store.protocol import Head, Origin, Record
from refold.store.rows import RunPlace


def origins(connection: PagedConnection, run: str) -> list[Origin]:
    """See `Store.lineage`."""
    found = checks.traced(run, partial(_own, connection))
    for origin in found:
        key = _low(connection, origin.run) + origin.seq
        row = connection.execute(schema.DIGEST, (key,)).fetchone()
        checks.check_link(run, origin, row[0] if row else None)
    return found


def spans(connection: PagedConnection, run: str) -> list[tuple[LogPart, int]]:
    """The parts of the run's whole log in order, each with its key's upper bits; none for a run without events."""
    place = find(connection, run)
    if place is None or not place.head.seq:
        return []
    own = _own_at(connection, place)
    if own is None or own.origin is None:  # almost always
        # From the front means from the very front: what was put before event 1 must be seen to be found.
        return [(LogPart(run, -1, place.head.seq), place.number << schema.SEQ_BITS)]
    parts = checks.pieces(run, own.last, origins(connection, run))
    return [(part, _low(connection, part.run)) for part in parts]


def begun(connection: PagedConnection, run: str, first: Record, expected_seq: int) -> Head | None:
    """Where a run without events is to go on from, if this record begins it as a fork there. Raises `WrongUse`."""
    origin = checks.origin_of(expected_seq + 1, first.kind, first.body)
    if origin is None:
        return None
    place = find(connection, origin.run)
    row = (
        place
        and connection.execute(schema.DIGEST, ((place.number << schema.SEQ_BITS) + origin.seq,)).fetchone()
    )
    depth = len(origins(connection, origin.run)) + 1
    checks.check_origin(run, origin, row[0] if row else None, depth)
    return origin


def owner(connection: PagedConnection, run: str, seq: int) -> str:
    """In whose own log event `seq` of the run's log stands."""
    parts: Sequence[tuple[LogPart, int]] = spans(connection, run)
    return next((part.run for part, _ in parts if part.after < seq <= part.upto), run)


def _own(connection: PagedConnection, run: str) -> OwnLog | None:
    place = find(connection, run)
    return _own_at(connection, place) if place else None


def _own_at(connection: PagedConnection, place: RunPlace) -> OwnLog | None:
    low = place.number << schema.SEQ_BITS
    row = connection.execute(schema.FIRST, (low,)).fetchone()
    if row is None:
        return None
    first = row[0] & schema.SEQ_MASK
    if first <= 1:
        return OwnLog(first, place.head.seq, None)
    # A damaged page may hold anything, and may hide by its number what it has shown in passing.
    kind, body = connection.execute(schema.BEGINNING, (row[0],)).fetchone() or (None, None)
    if not isinstance(kind, bytes) or not isinstance(body, bytes):
        return OwnLog(first, place.head.seq, None)
    return OwnLog(first, place.head.seq, checks.origin_of(first, rows.text(kind), body))


def _low(connection: PagedConnection, run: str) -> int:
    place = find(connection, run)
    assert place is not None, "the lineage was traced through it"
    return place.number << schema.SEQ_BITS
