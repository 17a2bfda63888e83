"""Logs rewritten by somebody who can write the store: each forged log has a chain that holds."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from refold.reducers import codec
from refold.reducers.events import Event
from refold.store.protocol import Record, Store

Forgery = Callable[[list[Record]], list[Record]]
"""The records of a log, in order, to those of another."""


async def records_of(store: Store, run: str) -> list[Record]:
    """A log as it was appended."""
    return [
        Record(at=each.at, kind=each.kind, body=each.body, content=each.content, salt=each.salt)
        async for chunk in store.read(run)
        for each in chunk
    ]


async def write(store: Store, run: str, records: Sequence[Record]) -> None:
    """Write a whole log into a store that lacks it."""
    lease = await store.lease(run, holder="a forger")
    await store.append(run, 0, lease, records)
    await store.release(lease)


def event_of(record: Record) -> Event:
    return codec.decode(record.kind, record.body, record.content)


def recorded(event: Event, at: int, salt: bytes = b"") -> Record:
    encoded = codec.encode(event)
    return Record(at=at, kind=encoded.kind, body=encoded.body, content=encoded.content, salt=salt)


def changed(seq: int, **fields: Any) -> Forgery:
    """Event `seq` with other fields."""

    def forge(log: list[Record]) -> list[Record]:
        old = log[seq - 1]
        new = recorded(msgspec.structs.replace(event_of(old), **fields), old.at, old.salt)
        return [*log[: seq - 1], new, *log[seq:]]

    return forge


def dropped(seq: int) -> Forgery:
    """Without event `seq`."""
    return lambda log: log[: seq - 1] + log[seq:]


def doubled(seq: int) -> Forgery:
    """Event `seq` twice."""
    return lambda log: log[:seq] + log[seq - 1 :]


def swapped(seq: int) -> Forgery:
    """Events `seq` and the next in the other order."""
    return lambda log: [*log[: seq - 1], log[seq], log[seq - 1], *log[seq + 1 :]]


def invented(seq: int, event: Event) -> Forgery:
    """Another event in the place of event `seq`, and everything from there on after it."""
    return lambda log: [*log[: seq - 1], recorded(event, log[seq - 2].at), *log[seq - 1 :]]
