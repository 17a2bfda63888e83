"""Queries: functions that run in a connection's thread. Each statement is a transaction of its own.

A log only grows, so its end is fixed once and its pages are read one after another.
"""

from collections.abc import Collection, Sequence
from functools import partial

import msgspec

from refold.store import checks, rows
from refold.store.checks import BYTES, ROWS, LogPart, OwnLog
from refold.store.postgres import schema
from refold.store.postgres.claims import RunRow, read_rows
from refold.store.postgres.connection import Link, SqlRow
from refold.store.protocol import (
    Claim,
    DamagedStore,
    Head,
    Origin,
    Record,
    Seal,
    SealedHead,
    Snapshot,
    Stored,
)

_ENCODER = msgspec.json.Encoder()

Span = tuple[LogPart, int]
"""A part of a run's log, and the number of the run whose own log has it."""


def find(link: Link, run: str) -> RunRow | None:
    """Return the run's row; None if it was never leased."""
    found = read_rows(link.shown, link.execute(schema.RUNS_NOW, [_json([run])]))
    return found.get(run)


def find_head(link: Link, run: str) -> Head | None:
    """Return the run's head; None if it was never leased."""
    row = find(link, run)
    return row.head if row else None


def find_claim(link: Link, run: str) -> Claim | None:
    """See `Store.claim`."""
    row = find(link, run)
    return row.claim(run) if row else None


def spans(link: Link, run: str) -> list[Span]:
    """Return the parts of the run's complete log in order; empty if it has no events."""
    row = find(link, run)
    if row is None or not row.head.seq:
        return []
    own = _own_at(link, row)
    if own is None or own.origin is None:  # almost always
        return [(LogPart(run, 0, row.head.seq), row.number)]
    parts = checks.pieces(run, own.last, origins(link, run))
    return [(part, _number(link, part.run)) for part in parts]


def origins(link: Link, run: str) -> list[Origin]:
    """See `Store.lineage`."""
    found = checks.trace_lineage(run, partial(_own, link))
    for origin in found:
        hashed, _ = _digest(link, _number(link, origin.run), origin.seq) or (None, None)
        checks.check_link(run, origin, hashed)
    return found


def find_origin(link: Link, run: str, first: Record, expected_seq: int) -> Head | None:
    """Return the event that a new run continues if `first` makes it a fork there, else None.

    Raises `WrongUse`.
    """
    origin = checks.origin_of(expected_seq + 1, first.kind, first.body)
    if origin is None:
        return None
    row = find(link, origin.run)
    hashed, _ = (row and _digest(link, row.number, origin.seq)) or (None, None)
    checks.check_origin(run, origin, hashed, len(origins(link, origin.run)) + 1)
    return origin


def owner(link: Link, run: str, seq: int) -> str:
    """Return the run whose own log contains event `seq` of this run's log."""
    return next((part.run for part, _ in spans(link, run) if part.after < seq <= part.upto), run)


def event_page(link: Link, run: str, number: int, after: int, last: int) -> list[Stored]:
    """Return the run's own events with `after < seq <= last` that fit in a page, at least one.

    Raises `DamagedStore` if there is none.
    """
    # The range is a page's, so that every plan is fast, whatever the server's statistics.
    page = _events(link, run, schema.EVENTS, number, after, min(last, after + ROWS))
    if not page:
        raise missing_events(link.shown, run, after + 1, last)
    return page


def some_events(
    link: Link, run: str, seqs: Sequence[int], *, checked: bool
) -> tuple[list[Stored], dict[int, bytes]]:
    """Return the events with these numbers, and with `checked` the hash of the event before each."""
    found, hashes = list[Stored](), dict[int, bytes]()
    for part, number in spans(link, run):
        wanted = {seq for seq in seqs if max(part.after, 0) < seq <= part.upto}
        if not wanted:
            continue
        after, events = 0, list[Stored]()
        while page := _events(link, part.run, schema.SOME_EVENTS, number, after, _json(sorted(wanted))):
            events += page
            after = page[-1].seq
        if lost := wanted.difference(event.seq for event in events):
            raise missing_events(link.shown, part.run, min(lost), min(lost))
        found += events
    if checked:
        hashes = hashes_before(link, run, found)
    return found, hashes


def events_of_kinds(link: Link, run: str, kinds: Collection[str]) -> tuple[list[Stored], dict[int, bytes]]:
    """Return the events of these kinds, and the hash of the event before each."""
    found, wanted = list[Stored](), _json(sorted(kinds))
    for part, number in spans(link, run):
        after = part.after
        while page := _events(link, part.run, schema.KINDS_OF_EVENTS, number, after, part.upto, wanted):
            found += page
            after = page[-1].seq
    return found, hashes_before(link, run, found)


def hashes_before(link: Link, run: str, events: Sequence[Stored]) -> dict[int, bytes]:
    """Return the hashes of the events before these, by number."""
    before = {event.seq - 1 for event in events}
    hashes = dict[int, bytes]()
    for part, number in spans(link, run) if events else ():
        wanted = sorted(seq for seq in before if part.after < seq <= part.upto)
        hashes |= dict(link.execute(schema.HASHES, [number, _json(wanted)]))
    return hashes


def due(link: Link, most: int, *, writes: bool) -> list[str]:
    """See `Store.due`."""
    if writes:
        cut_claims(link)
    found = [rows.run_id(name) for (name,) in link.execute(schema.DUE, [most])]
    return [run for run in found if run is not None]


def cut_claims(link: Link) -> None:
    """Cut claims that end later than their length from now: the server's clock was set back."""
    ((astray,),) = link.execute(schema.ANY_ASTRAY)
    if astray:
        link.execute(schema.CUT_CLAIMS)


def snapshot(link: Link, run: str, version: str) -> Snapshot | None:
    """See `Store.snapshot`."""
    found = link.execute(schema.SNAPSHOT, [run, version])
    return Snapshot(seq=found[0][0], version=version, data=found[0][1]) if found else None


def runs_page(link: Link, below: int, prefix: str) -> list[SqlRow]:
    """Return number, id, last event and hash of runs below a number, newest first."""
    return link.execute(schema.RUNS, [below, prefix, ROWS])


def sealed_heads(link: Link, after: int) -> list[SealedHead]:
    """Return a page of the log of heads."""
    return [rows.to_sealed_head(link.shown, row) for row in link.execute(schema.SEALED_HEADS, [after, ROWS])]


def seals(link: Link, after: int) -> list[tuple[int, Seal]]:
    """Return a page of seals, with their numbers."""
    return [(row[0], rows.to_seal(link.shown, row)) for row in link.execute(schema.SEALS, [after, ROWS])]


def find_problem(link: Link) -> str:
    """Return what `Store.check` finds, "" for nothing."""
    for statement, sentence in schema.PROBLEMS.items():
        for row in link.execute(statement, limited=False):
            return sentence.format(*(rows.text(each) if isinstance(each, bytes) else each for each in row))
    return ""


def missing_events(shown: str, run: str, first: int, last: int) -> DamagedStore:
    """Return the error for events that belong to a run's log and that are not in the table."""
    which = (
        f"event {first} of run {run} is" if first == last else f"events {first} to {last} of run {run} are"
    )
    return DamagedStore(shown, f"{which} missing: rows were deleted; compare with a backup")


def _events(link: Link, run: str, statement: str, *parameters: int | str) -> list[Stored]:
    found = link.execute(statement, [*parameters, ROWS, BYTES])
    return [_event(link.shown, run, row) for row in found]


def _event(shown: str, run: str, row: SqlRow) -> Stored:
    seq, at, kind, hashed, digest, salt, body, content, size = row
    if size > schema.MOST_BYTES:
        raise DamagedStore(
            shown, f"event {seq} of run {run} has {size} bytes; at most {schema.MOST_BYTES} are read"
        )
    return Stored(
        run=run,
        seq=seq,
        at=at,
        kind=rows.text(kind),
        body=body,
        content=content,
        salt=salt or b"",
        hash=hashed,
        content_digest=digest,
    )


def _own(link: Link, run: str) -> OwnLog | None:
    row = find(link, run)
    return _own_at(link, row) if row else None


def _own_at(link: Link, row: RunRow) -> OwnLog | None:
    for first, kind, body in link.execute(schema.FIRST, [row.number]):
        origin = checks.origin_of(first, rows.text(kind), body) if first > 1 else None
        return OwnLog(first, row.head.seq, origin)
    return None


def _number(link: Link, run: str) -> int:
    row = find(link, run)
    assert row is not None, "the lineage was traced through it"
    return row.number


def _digest(link: Link, number: int, seq: int) -> SqlRow | None:
    found = link.execute(schema.DIGEST, [number, seq])
    return found[0] if found else None


def _json(value: object) -> str:
    return _ENCODER.encode(value).decode()


def run_of(link: Link, row: SqlRow) -> str:
    """Return the id in a row of `runs_page`. Raises `DamagedStore`."""
    run = rows.run_id(row[1])
    if run is None or len(row[3]) != 32 or not row[4]:
        raise rows.damaged_run(link.shown, row[0])
    return run


def bounded(parts: Sequence[Span], after: int, upto: int | None) -> list[tuple[str, int, int, int]]:
    """Return owner, number, and the events after which and up to which each part is read."""
    found = list[tuple[str, int, int, int]]()
    for part, number in parts:
        start = min(max(after, part.after), part.upto)
        last = part.upto if upto is None else min(max(upto, 0), part.upto)
        found.append((part.run, number, start, last))
    return found
