"""Who has a run, and which runs want an engine: what a connection's thread does about it, a transaction each.

Time is the database's own: every process that shares the file reads the clock of the machine that has it. A lease is
good until an instant of that clock. One that ends further away than it was ever given for was written before the clock
was set back, and would bar the run for as long as that: it is cut to its own length, once, at the next look.
"""

from refold.store import rows, schema
from refold.store.connection import PagedConnection, transaction
from refold.store.protocol import Claim, DamagedStore, Held, Lease, LeaseLost, UnknownRun
from refold.store.rows import RunPlace

LAST_TOKEN = 2**63 - 2
"""The largest token of a column of 63 bits that a lease and its release can follow: no clock gets that far."""


def lease(connection: PagedConnection, run: str, holder: str, length: int, over: int | None) -> Lease | Held:
    """Take the run for `length` ms; `Held` if an engine has it, and nothing was changed then."""
    with transaction(connection):
        place = find(connection, run) or _add(connection, run)
        connection.execute(schema.CUT_CLAIM, (place.number,))
        held = claim(connection, run)
        if held and held.holder and held.seconds > 0 and place.token != over:
            return Held(run, held.holder, place.token, held.seconds)
        token = _fence(connection, run, place)
        # The engine that takes the run reads all of its log: what it was woken for before has been answered by that.
        connection.execute(schema.SET_CLAIM, (place.number, holder, length))
        return Lease(run=run, token=token)


def renew(connection: PagedConnection, lease: Lease, length: int) -> LeaseLost | None:
    """Have the lease for `length` ms from now; `LeaseLost` if it is not the run's any more."""
    with transaction(connection):
        place = find(connection, lease.run)
        token = place.token if place else 0
        if place is None or token != lease.token:
            return LeaseLost(lease.run, lease.token, token)
        connection.execute(schema.RENEW_CLAIM, (place.number, length))
        return None


def release(connection: PagedConnection, lease: Lease, after: int | None) -> None:
    """Let go of the run, to be taken up in `after` ms; None: when it is woken. A lost lease changes nothing."""
    with transaction(connection):
        place = find(connection, lease.run)
        if place is None or place.token != lease.token:
            return
        if _woken(connection, lease.run):
            after = 0
        _fence(connection, lease.run, place)
        if after is None:
            connection.execute(schema.DROP_CLAIM, (place.number,))
        else:
            connection.execute(schema.SET_CLAIM, (place.number, "", after))


def wake(connection: PagedConnection, run: str) -> None:
    """Have the run taken up as soon as it is free. Raises `UnknownRun`."""
    with transaction(connection):
        place = find(connection, run)
        if place is None or place.head.seq == 0:
            raise UnknownRun(run)
        connection.execute(schema.WAKE, (place.number,))


def cut(connection: PagedConnection) -> None:
    """Cut the claims that end further away than they were made for."""
    with transaction(connection):
        connection.execute(schema.CUT_CLAIMS)


def due(connection: PagedConnection, most: int) -> tuple[list[str], bool]:
    """The runs to take up now, those that wait longest first; and whether there is a claim to be cut."""
    (astray,) = connection.execute(schema.ANY_ASTRAY).fetchone()
    found = [rows.run_id(name) for _, name in connection.execute(schema.DUE, (max(most, 0),))]
    return [run for run in found if run is not None], bool(astray)


def claim(connection: PagedConnection, run: str) -> Claim | None:
    """Who has the run, or since when it wants an engine. Raises `DamagedStore`."""
    row = connection.execute(schema.CLAIM, (run,)).fetchone()
    if row is None:
        return None
    left, _, token, holder = row
    if not all(map(isinstance, row, (int, int, int, bytes))):
        raise DamagedStore(connection.path, f"the claim on run {run} is not valid: delete its row")
    return Claim(run=run, holder=rows.text(holder), token=token, seconds=left / 1000)


def _woken(connection: PagedConnection, run: str) -> bool:
    row = connection.execute(schema.CLAIM, (run,)).fetchone()
    return bool(row and row[1])


def find(connection: PagedConnection, run: str) -> RunPlace | None:
    """Where the run stands; None if it has no number. Raises `DamagedStore`."""
    row = connection.execute(schema.PLACE, (run,)).fetchone()
    return rows.place(connection.path, row) if row else None


def _add(connection: PagedConnection, run: str) -> RunPlace:
    connection.execute(schema.ADD_RUN, (run,))
    place = find(connection, run)
    if place is None:
        raise rows.changed_schema(connection.path)
    return place


def _fence(connection: PagedConnection, run: str, place: RunPlace) -> int:
    """Give the run another token: every lease before it is lost. Raises `DamagedStore` where there is none."""
    if place.token >= LAST_TOKEN:
        raise DamagedStore(
            connection.path, f"run {run}: its token is {place.token}, and no lease can follow it"
        )
    (token,) = connection.execute(schema.FENCE, (place.number,)).fetchone()
    return int(token)
