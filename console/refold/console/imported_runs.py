"""Runs of a transcript into a store: each is there whole, or the next import finishes it."""

import msgspec

from refold.engine import entropy
from refold.engine.journal import record
from refold.engine.tenure import BRIEF, Tenure
from refold.reducers import codec
from refold.reducers.errors import Damaged
from refold.reducers.events import SourceRecorded
from refold.replay.importers.deriving.writing import Derived
from refold.replay.importers.importing import RunReading
from refold.replay.reading import event_of
from refold.replay.source_words import END
from refold.store.protocol import Record, Store, Stored

EVENTS, BYTES = 1024, 4 << 20
"""Of one append, about."""

_LEASE = 30.0  # seconds
_TAIL = 16  # events in which the end of an import mostly stands: notes and seals may have come after it


class BegunOtherwise(Damaged):
    """A half-imported run that this import derives otherwise: another version of refold began it. It is left alone."""

    def __init__(self, run: str, seq: int) -> None:
        super().__init__(run, seq)
        self.run, self.seq = run, seq

    def __str__(self) -> str:
        return (
            f"run {self.run} was imported up to event {self.seq} by a version of refold that derives another event "
            "there: it was left as it is; import into another store"
        )


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did: `added` events are new; `whole`: all of it was there already."""

    added: int = 0
    whole: bool = False


async def add_run(store: Store, reading: RunReading) -> Added:
    """Append what is not there yet of a run. Raises what a store raises, and `BegunOtherwise`."""
    if await _complete(store, reading.run):
        return _passed(reading)
    tenure = Tenure(store, reading.run, _LEASE, patience=BRIEF)
    try:
        await tenure.hold()
        if await _complete(store, reading.run):  # by another import, until just now
            return _passed(reading)
        appending = _Appending(store, reading.run, tenure, await _there(store, reading.run))
        for group in reading.derive(appending.salt):
            await appending.take(group)
        await appending.flush()
    finally:
        await tenure.let_go(None)
    return Added(added=appending.added)


def _passed(reading: RunReading) -> Added:
    for _ in reading.derive(entropy.salts(None)):
        pass  # what is odd in the source is told every time
    return Added(whole=True)


class _Appending:
    """Appends a run's events, many at once. Those that are there already must be what they are now, salts and all."""

    def __init__(self, store: Store, run: str, tenure: Tenure, there: dict[int, tuple[bytes, bytes]]) -> None:
        self.added = 0
        self._store, self._run, self._tenure, self._there = store, run, tenure, there
        self._chance = entropy.salts(None)
        self._waiting: list[Record] = []
        self._head, self._bytes = len(there), 0

    def salt(self, seq: int) -> bytes:
        """The salt of an event's content: a new one, or that with which it was written."""
        known = self._there.get(seq)
        return known[0] if known and known[0] else self._chance(seq)

    async def take(self, group: list[Derived]) -> None:
        for each in group:
            if each.seq in self._there:
                if _mark(codec.encode(each.event)) != self._there[each.seq][1]:
                    raise BegunOtherwise(self._run, each.seq)
                continue
            new = record(each.event, each.at, each.salt)
            self._waiting.append(new)
            self._bytes += len(new.body) + len(new.content or b"")
        if len(self._waiting) >= EVENTS or self._bytes >= BYTES:
            await self.flush()

    async def flush(self) -> None:
        if not self._waiting:
            return
        await self._tenure.assure()
        lease = await self._tenure.hold()
        await self._store.append(self._run, self._head, lease, self._waiting)
        self._head += len(self._waiting)
        self.added += len(self._waiting)
        self._waiting, self._bytes = [], 0


async def _complete(store: Store, run: str) -> bool:
    """Whether the end of the source was reached: it is the last thing that an import writes."""
    head = (await store.head(run)).seq
    for after in (max(0, head - _TAIL), 0) if head else ():
        async for chunk in store.read(run, after):
            if any(_ends(stored) for stored in chunk):
                return True
    return False


def _ends(stored: Stored) -> bool:
    if stored.kind != "source_recorded":
        return False
    event = event_of(stored)
    return isinstance(event, SourceRecorded) and event.what.startswith(END)


async def _there(store: Store, run: str) -> dict[int, tuple[bytes, bytes]]:
    """Of each event that is there its salt, and by what it is known again."""
    found: dict[int, tuple[bytes, bytes]] = {}
    if head := (await store.head(run)).seq:
        async for chunk in store.read(run, 0, head):
            for stored in chunk:
                known = _mark(codec.Encoded(stored.kind, stored.body, stored.content))
                found[stored.seq] = (stored.salt, known)
    return found


def _mark(encoded: codec.Encoded) -> bytes:
    return codec.digest(encoded.kind.encode(), encoded.body + b"\0" + (encoded.content or b"")).encode()
