"""Write the runs of a transcript to a store."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import cast

import msgspec

from refold.console.conversations import Conversations
from refold.console.derived_files import DerivedRun, conversation
from refold.console.imported_logs import EarlierImport, ImportedLog, Relation, is_complete, record_successor
from refold.engine import clock
from refold.engine.journal import record
from refold.engine.tenure import Tenure
from refold.importers.derivation.log import Derived
from refold.importers.registry import Candidate, importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript, TranscriptRun
from refold.reducers import codec
from refold.reducers.errors import Damaged, Inconclusive
from refold.reducers.events import Parent, RunStarted
from refold.replay.verification import verify
from refold.store.protocol import Record, Store


class Growth:
    """Finds which runs of a file continue a stored run, by their keys.

    Reads the file a second time if any may.
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
        """Return the id of the stored run that this one continues, or "" if none can be confirmed."""
        if (await self._store.head(reading.run)).seq or not await self._newest_runs(reading):
            return ""
        if self._runs is None:
            with self._reopened() as source:
                again = Transcript(source, importer(self._found.format))
                # If the file was overwritten meanwhile, the next import compares it.
                steady = again.sha256 == reading.origin.sha256
                self._runs = {run.key: await self._find_continued(run) for run in again.runs() if steady}
        return self._runs.get(reading.key, "")

    async def is_overtaken(self, reading: TranscriptRun, log: ImportedLog, beside: Sequence[str]) -> bool:
        """Return whether another import wrote to `log` or added runs to `beside` meanwhile.

        Growth is then computed again.
        """
        await self._known.look_again(reading.format)
        seen = self._heads.get(log.run, 0) == len(log.marks) and beside == await self._known.of(
            reading.format, reading.key, log.run
        )
        self._runs = self._runs if seen else None
        return not seen

    async def _find_continued(self, reading: TranscriptRun) -> str:
        """Return the run that `reading` continues, as `of` does.

        Derives all of `reading` under its final id, because its calls may have started later runs of the
        file.
        """
        own, log = reading.run, await self._log(reading)
        # No file has the earlier ends of the source: only the chain shows that they were not edited.
        reading.begun_by = await self._known.recorded_parent(reading, log.parent) if log else None
        if (
            log is not None
            and _reproduces(reading, log)
            and (await verify(self._store, log.run)).problem is None
        ):
            self._heads[log.run] = len(log.marks)
            return log.run
        if log is None:
            for _ in reading.derive(clock.new_salts(None)):
                pass
        reading.run, reading.begun_by = own, None
        return ""

    async def _newest_runs(self, reading: TranscriptRun) -> Sequence[str]:
        """Return the newest runs of this conversation."""
        return await self._known.of(reading.format, reading.key, reading.run)

    async def _log(self, reading: TranscriptRun) -> ImportedLog | None:
        """Return the log whose source ended with exactly this file, else the newest if it can be
        continued.
        """
        if (await self._store.head(reading.run)).seq:
            return None
        newest: ImportedLog | None = None
        for place, run in enumerate(await self._newest_runs(reading)):
            with suppress(Inconclusive, Damaged):
                log = await ImportedLog.read(self._store, run, grown=True)
                if reading.origin.sha256 in log.files:
                    return log
                newest = log if not place and log.ends and not log.closed else newest
        return newest


def _reproduces(reading: TranscriptRun, log: ImportedLog) -> bool:
    """Return whether the file reproduces every event of this log, to its end or to an earlier end of its
    source.

    A closed log qualifies only at an end of its source: nothing can be appended after it.
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
"""Approximate upper bounds of one append."""

_LEASE = 30.0  # seconds


class BegunOtherwise(Damaged):
    """An incomplete import in the store whose events differ from the derived ones: another version of refold
    wrote it. It is not changed.
    """

    def __init__(self, run: str, seq: int) -> None:
        super().__init__(run, seq)
        self.run, self.seq = run, seq

    def __str__(self) -> str:
        return (
            f"run {self.run} was imported in part by another version of refold, which derived a different event "
            f"{self.seq}: it was not changed; import into another store"
        )


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import: `added` new events (None: dry run), and whether the `whole` run was there
    already.

    For a run that was there: `erased` lists events without payload that have an erasure record; `differs` is
    the first event that differs from the source (0: none); `damaged` is the problem that `verify` reports.
    `related`: other runs of the same conversation. `parent`: the run and call that started it.
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
    """Append the events of a run that are not stored yet, and compare the others.

    A run that continues a stored one is appended to that one. Raises what a store raises, and
    `BegunOtherwise`.
    """
    done = None
    while done is None:
        done = await _try_add(store, known, reading, growth)
    return done


async def _try_add(
    store: Store, known: Conversations, reading: TranscriptRun, growth: Growth | None
) -> ImportResult | None:
    """Do the work of `add_run`; None if another import wrote to this conversation meanwhile."""
    grown = await growth.of(reading) if growth else ""
    run = grown or reading.run
    beside = await known.of(reading.format, reading.key, run)
    others = [await EarlierImport.read(store, each) for each in beside]
    async with _tenure(store, run) as tenure, _tenure(store, beside[0] if beside else run) as newest:
        new = bool(growth and beside and not grown and not (await store.head(run)).seq)
        if new:  # a concurrent import of another version of the file waits here
            await newest.hold()
        if grown or not await is_complete(store, run):
            await tenure.hold()
        done = not grown and await is_complete(store, run)  # another import may have finished it
        there = await ImportedLog.read(store, run, grown=bool(grown))
        if growth and (grown or new) and await growth.is_overtaken(reading, there, beside):
            return None
        # A stored run keeps its recorded parent, even if none was known at its import.
        reading.begun_by = await (
            known.recorded_parent(reading, there.parent)
            if there.marks
            else known.parent_of(conversation(reading))
        )
        appending = _Appending(store, run, tenure, there, others, complete=done)
        for group in reading.derive(appending.salt, run, there.between if grown else {}):
            await appending.take(group)
        await appending.flush()
    known.add(conversation(reading))
    return await appending.result(reading, grown=bool(grown))


def _tenure(store: Store, run: str) -> Tenure:
    """Return the tenure of a run that no worker takes up afterwards."""
    tenure = Tenure(store, run, _LEASE, patience=_LEASE)  # another import ends soon
    tenure.due = None
    return tenure


async def add_derived(store: Store, known: Conversations, run: DerivedRun) -> ImportResult | None:
    """Append a run that was derived without the store, or return None if the store knows its conversation.

    It may then be complete, or continue a stored run: `add_run` compares them.
    """
    told = run.conversation
    if (await store.head(told.run)).seq or await known.of(told.format, told.key, told.run):
        return None
    async with _tenure(store, told.run) as tenure:
        await tenure.hold()
        if (await store.head(told.run)).seq:  # another import was faster
            return None
        parent = await known.parent_of(told) or run.parent
        records = run.records if parent == run.parent else _set_parent(run, parent)
        appending = _Batches(store, told.run, tenure, 0)
        for each in records:
            appending.add(each)
            if appending.full:
                await appending.flush()
        await appending.flush()
    known.add(msgspec.structs.replace(told, parent=parent))
    return ImportResult(added=len(records), parent=parent)


def _set_parent(run: DerivedRun, parent: Parent | None) -> Sequence[Record]:
    """Return the events with another parent, which only the first records."""
    first, *others = run.records
    event = codec.decode(first.kind, first.body, first.content, run=run.conversation.run, seq=1)
    begun = msgspec.structs.replace(cast("RunStarted", event), parent=parent)
    return [record(begun, first.at, first.salt), *others]


class _Batches:
    """Events that are appended in batches, after the first `head` events of a log."""

    def __init__(self, store: Store, run: str, tenure: Tenure, head: int) -> None:
        self.added = 0
        self._store, self._run, self._tenure, self._head = store, run, tenure, head
        self._waiting: list[Record] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether the pending events are a batch."""
        return len(self._waiting) >= EVENTS or self._bytes >= BYTES

    def add(self, new: Record) -> None:
        """Add an event to the batch."""
        self._waiting.append(new)
        self._bytes += len(new.body) + len(new.content or b"")

    async def flush(self) -> None:
        """Write the pending events."""
        if not self._waiting:
            return
        await self._tenure.assure()
        lease = await self._tenure.hold()
        await self._store.append(self._run, self._head, lease, self._waiting)
        self._head += len(self._waiting)
        self.added += len(self._waiting)
        self._waiting, self._bytes = [], 0


async def _record_relations(
    store: Store, reading: TranscriptRun, others: list[EarlierImport], *, new: bool
) -> tuple[Relation, ...]:
    found: list[Relation] = []
    for beside in others:
        related = beside.relate()
        found += [related] if related is not None else []
        if related is not None and related.how == "continues" and (new or not beside.ended.run):
            with suppress(Inconclusive, Damaged):  # a log that cannot be folded gets no successor
                if await _damage(store, related.run):
                    continue  # an edited log is not appended to
                await record_successor(store, related, reading.origin, reading.run)
    return tuple(found)


async def _damage(store: Store, run: str) -> str:
    problem = (await verify(store, run)).problem
    return "" if problem is None else f"event {problem.seq} ({problem.kind}): {problem.problem}"


class _Appending:
    """Appends a run's events in batches. Events that are stored already must equal the derived ones, salts
    included.

    If the run is complete, nothing is appended, and `differs` is the first event that differs.
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
        self.differs = 0
        # The store has events of a later version of the file, which were not compared.
        self.went_on = False
        self._store, self._run, self._there = store, run, there
        self._batches, self._seq = _Batches(store, run, tenure, len(there.marks)), 0
        self._others, self._complete = others, complete
        self._chance = clock.new_salts(None)

    def salt(self, seq: int) -> bytes:
        """Return the salt of an event's payload: the stored one, or a new one."""
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
            self._batches.add(record(each.event, each.at, each.salt))
        if self._batches.full:
            await self.flush()

    def _compare(self, each: Derived, encoded: codec.Encoded) -> None:
        if self.differs or self._there.same(each, encoded):
            return
        if not self._complete:
            raise BegunOtherwise(self._run, each.seq)
        self.differs = each.seq

    async def flush(self) -> None:
        """Write the pending events.

        For a complete run, check that only annotations follow its source's end.
        """
        if self._complete and not self.differs:
            # Events of a later version of the file go up to the last end of the source.
            ended = self._there.ends[-1] if self._seq in self._there.ends else self._seq
            self.went_on = ended > self._seq
            self.differs = next((seq for seq in self._there.decided if seq > ended), 0)
        await self._batches.flush()

    async def result(self, reading: TranscriptRun, *, grown: bool) -> ImportResult:
        """Return what was appended and compared, after the lease is released."""
        there, added = self._there, self._batches.added
        unsaid = self.went_on or there.parent not in (None, reading.parent)  # not in this file
        whole = self._complete or (grown and not added)
        return ImportResult(
            added=added,
            whole=whole,
            erased=tuple(sorted(there.erased)),
            differs=self.differs,
            damaged=await _damage(self._store, self._run) if self.differs or unsaid else "",
            related=await _record_relations(self._store, reading, self._others, new=not whole),
            parent=reading.begun_by,
        )
