"""Claims and forks in the SQLite file: queries and changes that run in a connection's thread, inside one
transaction.

The rules of leases are in `base`; time is the database's own clock.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, TypeVarTuple

from refold.store import checks, rows, schema
from refold.store.base import Claims
from refold.store.checks import LogPart, OwnLog
from refold.store.connection import PagedConnection, transaction
from refold.store.protocol import Claim, DamagedStore, Head, Origin, Record
from refold.store.rows import RunPlace

T = TypeVar("T")
Args = TypeVarTuple("Args")

LAST_TOKEN = 2**63 - 2
"""The largest valid token: the next lease and its release must fit in 63 bits. No clock reaches it."""


def transact(connection: PagedConnection, rule: Callable[[Claims, *Args], T], *args: *Args) -> T:
    """Run a lease rule in one transaction.

    Raises the rule's errors and `DamagedStore`; nothing is changed then.
    """
    with transaction(connection):
        return rule(ClaimTable(connection), *args)


class ClaimTable:
    """The claims of the file: see `base.Claims`.

    Each method raises `DamagedStore` for invalid rows.
    """

    def __init__(self, connection: PagedConnection) -> None:
        self._connection = connection

    def token(self, run: str) -> int:
        """Return the token of the run's last lease; 0 if it was never leased."""
        place = find(self._connection, run)
        return place.token if place else 0

    def has_events(self, run: str) -> bool:
        """Return whether the run has an event of its own."""
        place = find(self._connection, run)
        return place is not None and place.head.seq > 0

    def claim(self, run: str) -> Claim | None:
        """Return the run's claim, cut to its own length if it ends later."""
        if place := find(self._connection, run):
            self._connection.execute(schema.CUT_CLAIM, (place.number,))
        return claim(self._connection, run)

    def woken(self, run: str) -> bool:
        """Return whether the run was woken while an engine had it."""
        row = self._connection.execute(schema.CLAIM, (run,)).fetchone()
        return bool(row and row[1])

    def fence(self, run: str) -> int:
        """Give the run a greater token and return it. Raises `DamagedStore` if the token cannot grow."""
        place = find(self._connection, run) or self._add(run)
        if place.token >= LAST_TOKEN:
            raise DamagedStore(
                self._connection.path, f"run {run}: its token is {place.token}, and no lease can follow it"
            )
        (token,) = self._connection.execute(schema.FENCE, (place.number,)).fetchone()
        return int(token)

    def set_claim(self, run: str, holder: str, length: int) -> None:
        """Claim the run for `length` ms from now; with `holder` "" it is free, and due then."""
        self._connection.execute(schema.SET_CLAIM, (self._number(run), holder, length))

    def renew_claim(self, run: str, length: int) -> None:
        """Set the end of the existing claim to `length` ms from now."""
        self._connection.execute(schema.RENEW_CLAIM, (self._number(run), length))

    def drop_claim(self, run: str) -> None:
        """Delete the run's claim."""
        self._connection.execute(schema.DROP_CLAIM, (self._number(run),))

    def wake(self, run: str) -> None:
        """Make a free run due now; mark a leased one as woken."""
        self._connection.execute(schema.WAKE, (self._number(run),))

    def _add(self, run: str) -> RunPlace:
        self._connection.execute(schema.ADD_RUN, (run,))
        place = find(self._connection, run)
        if place is None:
            raise rows.changed_schema(self._connection.path)
        return place

    def _number(self, run: str) -> int:
        place = find(self._connection, run)
        assert place is not None, "a rule claims runs that have a token or an event"
        return place.number


def cut(connection: PagedConnection) -> None:
    """Cut claims that end later than their length from now."""
    with transaction(connection):
        connection.execute(schema.CUT_CLAIMS)


def due(connection: PagedConnection, most: int) -> tuple[list[str], bool]:
    """Return the due runs, longest waiting first, and whether a claim must be cut."""
    (astray,) = connection.execute(schema.ANY_ASTRAY).fetchone()
    found = [rows.run_id(name) for _, name in connection.execute(schema.DUE, (max(most, 0),))]
    return [run for run in found if run is not None], bool(astray)


def claim(connection: PagedConnection, run: str) -> Claim | None:
    """Return the run's claim: who has it, or since when it is runnable. Raises `DamagedStore`."""
    row = connection.execute(schema.CLAIM, (run,)).fetchone()
    if row is None:
        return None
    left, _, token, holder = row
    if not all(map(isinstance, row, (int, int, int, bytes))):
        raise DamagedStore(
            connection.path, f"the claim on run {run} is not valid: delete its row from the table `claim`"
        )
    return Claim(run=run, holder=rows.text(holder), token=token, seconds=left / 1000)


def find(connection: PagedConnection, run: str) -> RunPlace | None:
    """Return the run's place; None if it has no number. Raises `DamagedStore`."""
    row = connection.execute(schema.PLACE, (run,)).fetchone()
    return rows.place(connection.path, row) if row else None


def origins(connection: PagedConnection, run: str) -> list[Origin]:
    """See `Store.lineage`."""
    found = checks.trace_lineage(run, partial(_own, connection))
    for origin in found:
        key = _low(connection, origin.run) + origin.seq
        row = connection.execute(schema.DIGEST, (key,)).fetchone()
        checks.check_link(run, origin, row[0] if row else None)
    return found


def spans(connection: PagedConnection, run: str) -> list[tuple[LogPart, int]]:
    """Return the parts of the run's complete log in order, each with its key's upper bits; empty if it has no
    events.
    """
    place = find(connection, run)
    if place is None or not place.head.seq:
        return []
    own = _own_at(connection, place)
    if own is None or own.origin is None:  # almost always
        # Start below 0, so that a forged event before event 1 is found.
        return [(LogPart(run, -1, place.head.seq), place.number << schema.SEQ_BITS)]
    parts = checks.pieces(run, own.last, origins(connection, run))
    return [(part, _low(connection, part.run)) for part in parts]


def find_origin(connection: PagedConnection, run: str, first: Record, expected_seq: int) -> Head | None:
    """Return the event that a new run continues if `first` makes it a fork there, else None.

    Raises `WrongUse`.
    """
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
    """Return the run whose own log contains event `seq` of this run's log."""
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
    # A damaged page may hold anything, and a query by key may miss a row that a range query returned.
    kind, body = connection.execute(schema.BEGINNING, (row[0],)).fetchone() or (None, None)
    if not isinstance(kind, bytes) or not isinstance(body, bytes):
        return OwnLog(first, place.head.seq, None)
    return OwnLog(first, place.head.seq, checks.origin_of(first, rows.text(kind), body))


def _low(connection: PagedConnection, run: str) -> int:
    place = find(connection, run)
    assert place is not None, "the lineage was traced through it"
    return place.number << schema.SEQ_BITS
