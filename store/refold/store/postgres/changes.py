"""Rare changes: erasures, seals and snapshots. Functions that run in the writing thread."""

import time
from collections.abc import Collection, Sequence

import msgspec

from refold.store.base import check_sealed, refusal
from refold.store.chain import links
from refold.store.checks import check_erase, inherited_error
from refold.store.postgres import reads, schema
from refold.store.postgres.appends import Place, append_row, changed_rows, event_row
from refold.store.postgres.claims import read_rows
from refold.store.postgres.connection import Link
from refold.store.protocol import Head, Lease, LeaseLost, Record, Seal, SealedHead, Snapshot

CUT_EVERY = 10.0
"""Seconds between two searches for claims that a clock which was set back keeps from being due."""

_ENCODER = msgspec.json.Encoder()


def erase(link: Link, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record) -> Head:
    """See `Store.erase`."""
    with link.transaction():
        row = read_rows(link.shown, link.execute(schema.CONFIRM, [_json([run])])).get(run)
        if row is None:
            raise LeaseLost(run, lease.token, 0)
        if refused := refusal(run, row.token(run), row.head.seq, expected_seq, lease):
            raise refused
        for seq in seqs:
            _check_erase(link, run, row.number, row.head.seq, seq)
        link.execute(schema.ERASE, [row.number, list(seqs)])
        link.execute(schema.DROP_SNAPSHOTS, [row.number])
        (event,) = links(run, row.head, [notice])
        target = Head(seq=event[0], hash=event[3])
        moved = append_row(Place(row, run), target, release=False)
        written = link.execute(schema.APPEND, [_json([moved]), _json([event_row(row.number, event)])])
        if written != [(row.number, target.seq, target.hash, 1)]:
            raise changed_rows(link.shown)
    return target


def _check_erase(link: Link, run: str, number: int, last: int, seq: int) -> None:
    there = 0 < seq <= last
    found = link.execute(schema.DIGEST, [number, seq]) if there else []
    if there and not found and (owner := reads.owner(link, run, seq)) != run:
        raise inherited_error(run, seq, owner)
    check_erase(run, last, seq, found[0][1] if found else None)


def add_seal(link: Link, heads: Sequence[SealedHead], seal: Seal) -> None:
    """See `Store.add_seal`."""
    with link.transaction():
        link.execute(schema.LOCK_SEALS)
        ((size,),) = link.execute(schema.SEALED)
        check_sealed(size, heads, seal)
        rows = [[each.place, each.run, each.seq, each.hash.hex()] for each in heads]
        link.execute(schema.ADD_SEALED, [_json(rows)])
        link.execute(schema.ADD_SEAL, [seal.size, seal.at, seal.root, seal.key, seal.signature])


def take_due(link: Link, most: int, holder: str, length: int, skip: Collection[str]) -> list[Lease]:
    """See `Store.take_due`."""
    if time.monotonic() - link.cut_at >= CUT_EVERY:
        link.cut_at = time.monotonic()
        reads.cut_claims(link)
    found = link.execute(schema.TAKE_DUE, [_json(sorted(skip)), most, holder, length, length])
    return [Lease(run=name.decode(), token=token) for name, token in found]


def save_snapshot(link: Link, run: str, snapshot: Snapshot) -> None:
    """See `Store.save_snapshot`."""
    link.execute(schema.SAVE_SNAPSHOT, [snapshot.version, snapshot.data, snapshot.seq, run])


def _json(value: object) -> str:
    return _ENCODER.encode(value).decode()
