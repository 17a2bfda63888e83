"""Runs of a transcript into a store: each is there whole, or the next import finishes it; what is there is compared."""

from contextlib import suppress

import msgspec

from refold.console import import_marks
from refold.console.import_relations import Beside, Conversations, Relation, superseded
from refold.engine import entropy
from refold.engine.journal import record
from refold.engine.tenure import BRIEF, Tenure
from refold.reducers import codec
from refold.reducers.errors import CannotJudge, Damaged
from refold.reducers.events import Annotation, ContentErased, SourceRecorded
from refold.replay.importers.derivation.log import Derived
from refold.replay.importers.transcript import TranscriptRun
from refold.replay.reader import event_of
from refold.replay.source_words import END
from refold.replay.verification import verify
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


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did: `added` events are new (None: nothing was to be written); `whole`: all of it was there already.

    Of what was there: the content of `erased` is gone, by notice; from event `differs` on (0: nowhere) it is not what the
    source gives, and `damaged` says what `verify` finds wrong with it. `related` are other runs of the same conversation.
    """

    added: int | None = None
    whole: bool = False
    erased: tuple[int, ...] = ()
    differs: int = 0
    damaged: str = ""
    related: tuple[Relation, ...] = ()


async def add_run(store: Store, known: Conversations, reading: TranscriptRun) -> ImportResult:
    """Append what is not there yet of a run, and compare what is. Raises what a store raises, and `BegunOtherwise`."""
    others = [
        await Beside.read(store, run) for run in await known.of(reading.format, reading.key, reading.run)
    ]
    async with Tenure(store, reading.run, _LEASE, patience=BRIEF) as tenure:
        tenure.due = None
        if not await _complete(store, reading.run):
            await tenure.hold()
        done = await _complete(store, reading.run)  # by another import, until just now
        there = await _there(store, reading.run)
        appending = _Appending(store, reading.run, tenure, there, others, complete=done)
        for group in reading.derive(appending.salt):
            await appending.take(group)
        await appending.flush()
    known.add(reading.format, reading.key, reading.run)
    return ImportResult(
        added=appending.added,
        whole=done,
        erased=tuple(sorted(there.erased)),
        differs=appending.differs,
        damaged=await _damaged(store, reading.run) if appending.differs else "",
        related=await _related(store, reading, others, new=not done),
    )


async def _related(
    store: Store, reading: TranscriptRun, others: list[Beside], *, new: bool
) -> tuple[Relation, ...]:
    found: list[Relation] = []
    for beside in others:
        related = beside.related()
        found += [related] if related is not None else []
        if related is not None and related.how == "goes_on" and (new or not beside.ended.run):
            with suppress(CannotJudge, Damaged):  # what cannot be folded has no end to be superseded
                await superseded(store, related, reading.origin, reading.run)
    return tuple(found)


async def _damaged(store: Store, run: str) -> str:
    problem = (await verify(store, run)).problem
    return "" if problem is None else f"event {problem.seq} ({problem.kind}): {problem.problem}"


class _There(msgspec.Struct):
    """The events that are there: their salts, and by what each is known again; `decided` are those that are no annotation.

    From the first of the `erased` on they are known without what hangs on salts, for its salt is gone with the content.
    """

    salts: list[bytes] = []
    marks: list[bytes] = []
    decided: list[int] = []
    erased: frozenset[int] = frozenset()
    first_erased: int = 0

    def same(self, each: Derived, encoded: codec.Encoded) -> bool:
        """Whether this event is there."""
        return each.seq <= len(self.marks) and self.marks[each.seq - 1] == self.mark(
            each.seq, each.at, encoded
        )

    def mark(self, seq: int, at: int, encoded: codec.Encoded) -> bytes:
        """By what an event is known again at its place."""
        if not 0 < self.first_erased <= seq:
            return import_marks.exact(at, encoded)
        return import_marks.unsalted(at, encoded, worded=seq not in self.erased)


class _Appending:
    """Appends a run's events, many at once. Those that are there already must be what they are now, salts and all.

    Where all of a run is there, nothing is appended: `differs` is the first event that is another.
    """

    def __init__(
        self, store: Store, run: str, tenure: Tenure, there: _There, others: list[Beside], *, complete: bool
    ) -> None:
        self.added = self.differs = 0
        self._store, self._run, self._tenure, self._there = store, run, tenure, there
        self._others, self._complete = others, complete
        self._chance = entropy.salts(None)
        self._waiting: list[Record] = []
        self._head, self._bytes, self._seq = len(there.marks), 0, 0

    def salt(self, seq: int) -> bytes:
        """The salt of an event's content: a new one, or that with which it was written."""
        known = self._there.salts[seq - 1] if seq <= len(self._there.salts) else b""
        return known or self._chance(seq)

    async def take(self, group: list[Derived]) -> None:
        for each in group:
            self._seq = each.seq
            encoded = codec.encode(each.event)
            for other in self._others:
                other.take(each, encoded)
            if self._complete or each.seq <= len(self._there.marks):
                self._compare(each, encoded)
                continue
            new = record(each.event, each.at, each.salt)
            self._waiting.append(new)
            self._bytes += len(new.body) + len(new.content or b"")
        if len(self._waiting) >= EVENTS or self._bytes >= BYTES:
            await self.flush()

    def _compare(self, each: Derived, encoded: codec.Encoded) -> None:
        if self.differs or self._there.same(each, encoded):
            return
        if not self._complete:
            raise BegunOtherwise(self._run, each.seq)
        self.differs = each.seq

    async def flush(self) -> None:
        """Write what waits. Of a run that was complete: see that nothing but annotations stands behind its source."""
        if self._complete and not self.differs:
            self.differs = next((seq for seq in self._there.decided if seq > self._seq), 0)
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


async def _there(store: Store, run: str) -> _There:
    """The events that are there, in their order."""
    there, upto = _There(), (await store.head(run)).seq
    if not upto:
        return there
    gone: set[int] = set()
    noticed: set[int] = set()
    async for chunk in store.read(run, 0, upto):
        for stored in chunk:
            event = event_of(stored, content=False)
            noticed |= set(event.seqs) if isinstance(event, ContentErased) else set()
            gone |= {stored.seq} if stored.content is None and stored.content_digest is not None else set()
            there.decided += [] if isinstance(event, Annotation) else [stored.seq]
            there.salts.append(stored.salt)
            there.marks.append(there.mark(stored.seq, stored.at, _encoded(stored)))
    there.erased = frozenset(gone & noticed)  # what is gone without a notice was taken away, and differs
    if there.erased:
        there.first_erased = min(there.erased)
        async for chunk in store.read(run, there.first_erased - 1, upto):
            for stored in chunk:
                there.marks[stored.seq - 1] = there.mark(stored.seq, stored.at, _encoded(stored))
    return there


def _encoded(stored: Stored) -> codec.Encoded:
    return codec.Encoded(stored.kind, stored.body, stored.content)
