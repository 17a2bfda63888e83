"""Runs of a transcript into a store."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

import msgspec

from refold.console.conversations import Conversations, ImportedConversation
from refold.console.imported_logs import EarlierImport, ImportedLog, Relation, complete, record_successor
from refold.engine import clock
from refold.engine.journal import record
from refold.engine.tenure import Tenure
from refold.importers.derivation.log import Derived
from refold.importers.registry import Candidate, importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript, TranscriptRun
from refold.reducers import codec
from refold.reducers.errors import CannotJudge, Damaged
from refold.reducers.events import Parent
from refold.replay.verification import verify
from refold.store.protocol import Record, Store


class Growth:
    """Which runs of a file go on from one that is there, by their keys.

    The file is read for it once, where one could.
    """

    def __init__(
        self,
        store: Store,
        known: Conversations,
        found: Candidate,
        reopened: Callable[[], AbstractContextManager[Source]],
    ) -> None:
        self._store, self._known, self._found, self._reopened = store, known, found, reopened
        self._runs: dict[str, str] | None = None
        self._heads: dict[str, int] = {}

    async def of(self, reading: TranscriptRun) -> str:
        """The run that is there and goes on in this one; "" if there is none, or it is not known to be the
        same.
        """
        if (await self._store.head(reading.run)).seq or not await self._beside(reading):
            return ""
        if self._runs is None:
            with self._reopened() as source:
                again = Transcript(source, importer(self._found.format))
                # Of a file that is not any more what it was as far as it reached, the next import tells.
                steady = again.sha256 == reading.origin.sha256
                self._runs = {run.key: await self._followed(run) for run in again.runs() if steady}
        return self._runs.get(reading.key, "")

    async def overtaken(self, reading: TranscriptRun, log: ImportedLog, beside: Sequence[str]) -> bool:
        """Whether another import wrote since `log` was found to go on, or since `beside` were the newest
        runs: then all is asked anew.
        """
        await self._known.look_again(reading.format)
        seen = self._heads.get(log.run, 0) == len(log.marks) and beside == await self._known.of(
            reading.format, reading.key, log.run
        )
        self._runs = self._runs if seen else None
        return not seen

    async def _followed(self, reading: TranscriptRun) -> str:
        """As `of`.

        All of it is derived, for its calls may have begun runs behind it; under the id that it will have.
        """
        own, log = reading.run, await self._log(reading)
        # The ends that its source came to before stand in no file any more: only the chain tells that nobody
        # edited them.
        reading.begun_by = await self._known.kept(reading, log.parent) if log else None
        if log is not None and _tells(reading, log) and (await verify(self._store, log.run)).problem is None:
            self._heads[log.run] = len(log.marks)
            return log.run
        if log is None:
            for _ in reading.derive(clock.new_salts(None)):
                pass
        reading.run, reading.begun_by = own, None
        return ""

    async def _beside(self, reading: TranscriptRun) -> Sequence[str]:
        """The newest runs of this conversation."""
        return await self._known.of(reading.format, reading.key, reading.run)

    async def _log(self, reading: TranscriptRun) -> ImportedLog | None:
        """The log that came to an end with just this file; else the newest, if something may go on behind
        it.
        """
        if (await self._store.head(reading.run)).seq:
            return None
        newest: ImportedLog | None = None
        for place, run in enumerate(await self._beside(reading)):
            with suppress(CannotJudge, Damaged):
                log = await ImportedLog.read(self._store, run, grown=True)
                if reading.origin.sha256 in log.files:
                    return log
                newest = log if not place and log.ends and not log.closed else newest
        return newest


def _tells(reading: TranscriptRun, log: ImportedLog) -> bool:
    """Whether the file gives every event of this log again: to its end, or to one that its source came to
    before.

    Of a log that is closed only the latter: nothing can follow what its source said last.
    """
    chance, seq, same = clock.new_salts(None), 0, True

    def salt(seq: int) -> bytes:
        return (log.salts[seq - 1] if seq <= len(log.salts) else b"") or chance(seq)

    for group in reading.derive(salt, log.run, log.between):
        for each in group:
            seq = each.seq
            if same and seq <= len(log.marks):
                same = log.same(each, codec.encode(each.event))
    return same and (seq in log.ends or (seq >= len(log.marks) and not log.closed))


EVENTS, BYTES = 1024, 4 << 20
"""Of one append, about."""

_LEASE = 30.0  # seconds


class BegunOtherwise(Damaged):
    """A half-imported run that this import derives otherwise: another version of refold began it.

    It is left alone.
    """

    def __init__(self, run: str, seq: int) -> None:
        super().__init__(run, seq)
        self.run, self.seq = run, seq

    def __str__(self) -> str:
        return (
            f"run {self.run} was imported up to event {self.seq} by a version of refold that derives another event "
            "there: it was left as it is; import into another store"
        )


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did: `added` events are new (None: nothing was to be written); `whole`: all of it was
    there already.

    Of what was there: the content of `erased` is gone, by notice; from event `differs` on (0: nowhere) it is
    not what the source gives, and `damaged` says what `verify` finds wrong with it. `related` are other runs
    of the same conversation. `parent`: the run and the call that began it.
    """

    added: int | None = None
    whole: bool = False
    erased: tuple[int, ...] = ()
    differs: int = 0
    damaged: str = ""
    related: tuple[Relation, ...] = ()
    parent: Parent | None = None


async def add_run(
    store: Store, known: Conversations, reading: TranscriptRun, growth: Growth | None = None
) -> ImportResult:
    """Append what is not there yet of a run, and compare what is. Raises what a store raises, and
    `BegunOtherwise`.

    What goes on from a run that is there is appended to that one.
    """
    done = None
    while done is None:
        done = await _try_add(store, known, reading, growth)
    return done


async def _try_add(
    store: Store, known: Conversations, reading: TranscriptRun, growth: Growth | None
) -> ImportResult | None:
    """As `add_run`. None: another import wrote of this conversation meanwhile."""
    grown = await growth.of(reading) if growth else ""
    run = grown or reading.run
    beside = await known.of(reading.format, reading.key, run)
    others = [await EarlierImport.read(store, each) for each in beside]
    async with _tenure(store, run) as tenure, _tenure(store, beside[0] if beside else run) as newest:
        new = bool(growth and beside and not grown and not (await store.head(run)).seq)
        if new:  # who imports another state of the file right now waits for us here
            await newest.hold()
        if grown or not await complete(store, run):
            await tenure.hold()
        done = not grown and await complete(store, run)  # by another import, until just now
        there = await ImportedLog.read(store, run, grown=bool(grown))
        if growth and (grown or new) and await growth.overtaken(reading, there, beside):
            return None
        # Who did not know what began it when it was imported does not say so now.
        reading.begun_by = await (
            known.kept(reading, there.parent) if there.marks else known.parent_of(conversation(reading))
        )
        appending = _Appending(store, run, tenure, there, others, complete=done)
        for group in reading.derive(appending.salt, run, there.between if grown else {}):
            await appending.take(group)
        await appending.flush()
    known.add(conversation(reading))
    return await appending.result(reading, grown=bool(grown))


def _tenure(store: Store, run: str) -> Tenure:
    """Of a run that nobody is to take up afterwards."""
    tenure = Tenure(store, run, _LEASE, patience=_LEASE)  # another import is soon done
    tenure.due = None
    return tenure


def conversation(reading: TranscriptRun) -> ImportedConversation:
    """What an imported run is in its source."""
    return ImportedConversation(reading.run, reading.format, reading.key, reading.apart, reading.begun_by)


async def _record_relations(
    store: Store, reading: TranscriptRun, others: list[EarlierImport], *, new: bool
) -> tuple[Relation, ...]:
    found: list[Relation] = []
    for beside in others:
        related = beside.related()
        found += [related] if related is not None else []
        if related is not None and related.how == "goes_on" and (new or not beside.ended.run):
            with suppress(CannotJudge, Damaged):  # what cannot be folded has no end to be superseded
                if await _damage(store, related.run):
                    continue  # nothing is written onto what was edited
                await record_successor(store, related, reading.origin, reading.run)
    return tuple(found)


async def _damage(store: Store, run: str) -> str:
    problem = (await verify(store, run)).problem
    return "" if problem is None else f"event {problem.seq} ({problem.kind}): {problem.problem}"


class _Appending:
    """Appends a run's events, many at once. Those that are there already must be what they are now, salts and
    all.

    Where all of a run is there, nothing is appended: `differs` is the first event that is another.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        tenure: Tenure,
        there: ImportedLog,
        others: list[EarlierImport],
        *,
        complete: bool,
    ) -> None:
        self.added = self.differs = 0
        # More is there than this file gives, of a later one: it was compared with nothing.
        self.went_on = False
        self._store, self._run, self._tenure, self._there = store, run, tenure, there
        self._others, self._complete = others, complete
        self._chance = clock.new_salts(None)
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
        """Write what waits.

        Of a run that was complete: see that nothing but annotations stands behind its source.
        """
        if self._complete and not self.differs:
            # What its source said later, by another file, stands up to the last of its ends.
            ended = self._there.ends[-1] if self._seq in self._there.ends else self._seq
            self.went_on = ended > self._seq
            self.differs = next((seq for seq in self._there.decided if seq > ended), 0)
        if not self._waiting:
            return
        await self._tenure.assure()
        lease = await self._tenure.hold()
        await self._store.append(self._run, self._head, lease, self._waiting)
        self._head += len(self._waiting)
        self.added += len(self._waiting)
        self._waiting, self._bytes = [], 0

    async def result(self, reading: TranscriptRun, *, grown: bool) -> ImportResult:
        """What was appended and compared, once the run is given back."""
        there = self._there
        unsaid = self.went_on or there.parent not in (None, reading.parent)  # by the file
        whole = self._complete or (grown and not self.added)
        return ImportResult(
            added=self.added,
            whole=whole,
            erased=tuple(sorted(there.erased)),
            differs=self.differs,
            damaged=await _damage(self._store, self._run) if self.differs or unsaid else "",
            related=await _record_relations(self._store, reading, self._others, new=not whole),
            parent=reading.begun_by,
        )
