"""What the store has of an imported run: by what each of its events is known again, and what its source never said."""

import msgspec

from refold.console import import_marks
from refold.reducers import codec
from refold.reducers.events import (
    Annotation,
    ContentErased,
    Diagnosed,
    Event,
    Parent,
    RunStarted,
    SourceRecorded,
)
from refold.replay.importers.derivation.log import Derived
from refold.replay.reader import event_of
from refold.replay.source_words import END, GOES_ON
from refold.store.protocol import Store, Stored

_TAIL = 16  # events in which the end of an import mostly stands: notes and seals may have come after it


class ImportedLog(msgspec.Struct):
    """The events of `run` that are there: their salts, and by what each is known again; `decided` are no annotations.

    From the first of the `erased` on they are known without what hangs on salts, for its salt is gone with the content.

    `ends` are where its source came to an end: several, if it went on and was imported again; `files` are which files they are
    of. By the event before each end, `between` has it and the notes behind it, which a source that goes on passes over;
    `at_end`: nothing but notes stands behind the last. `superseded`: the last end says that the rest is in another run.
    `noted`: notes of ours stand behind an end.

    `parent`: the run and the call that began it, as its first event says. `grown`: what is derived may be of a file that went on, so which file it is does not count.
    """

    run: str
    salts: list[bytes] = []
    marks: list[bytes] = []
    decided: list[int] = []
    erased: frozenset[int] = frozenset()
    first_erased: int = 0
    ends: list[int] = []
    files: set[str] = set()
    between: dict[int, list[Derived]] = {}
    at_end: bool = False
    superseded: bool = False
    noted: bool = False
    parent: Parent | None = None
    grown: bool = False

    @property
    def closed(self) -> bool:
        """Whether nothing can be derived behind it.

        What was erased has lost its salt, so what goes on behind it could not be derived from it; and what stands behind a note
        would have the time of the note.
        """
        return self.superseded or bool(self.erased) or self.noted

    @classmethod
    async def read(cls, store: Store, run: str, *, grown: bool = False) -> "ImportedLog":
        """The log as it stands, in its order: what was edited differs from what the file gives. Raises what a store and a codec raise."""
        log, upto = cls(run, grown=grown), (await store.head(run)).seq
        if not upto:
            return log
        gone: set[int] = set()
        noticed: set[int] = set()
        async for chunk in store.read(run, 0, upto, checked=False):
            for stored in chunk:
                event = event_of(stored, content=False)
                noticed |= set(event.seqs) if isinstance(event, ContentErased) else set()
                gone |= (
                    {stored.seq} if stored.content is None and stored.content_digest is not None else set()
                )
                log._learn(stored, event)
        log.erased = frozenset(gone & noticed)  # what is gone without a notice was taken away, and differs
        if log.erased:
            log.first_erased = min(log.erased)
            async for chunk in store.read(run, log.first_erased - 1, upto, checked=False):
                for stored in chunk:
                    log.marks[stored.seq - 1] = log.mark(stored.seq, stored.at, _encoded(stored))
        return log

    def _learn(self, stored: Stored, event: Event) -> None:
        self.decided += [] if isinstance(event, Annotation) else [stored.seq]
        self.salts.append(stored.salt)
        self.marks.append(self.mark(stored.seq, stored.at, _encoded(stored)))
        self.parent = event.parent if isinstance(event, RunStarted) else self.parent
        says = event.what if isinstance(event, SourceRecorded) else ""
        supersedes = says.startswith(END + GOES_ON)
        if isinstance(event, SourceRecorded) and says.startswith(END) and not supersedes:
            self.ends.append(stored.seq)
            self.files.add(event.source)
            self.between[stored.seq - 1] = []
            self.at_end, self.superseded = True, False
        elif not isinstance(event, Annotation) or (
            isinstance(event, SourceRecorded | Diagnosed) and not supersedes
        ):
            self.at_end, self.superseded = False, False
        self.superseded = self.superseded or supersedes
        if self.at_end:
            said = Derived(stored.seq, stored.at, event_of(stored), stored.salt)
            self.between[self.ends[-1] - 1].append(said)
            self.noted = self.noted or stored.seq > self.ends[-1]

    def same(self, each: Derived, encoded: codec.Encoded) -> bool:
        """Whether this event is there."""
        return each.seq <= len(self.marks) and self.marks[each.seq - 1] == self.mark(
            each.seq, each.at, encoded
        )

    def mark(self, seq: int, at: int, encoded: codec.Encoded) -> bytes:
        """By what an event is known again at its place."""
        if not 0 < self.first_erased <= seq:
            return import_marks.exact(at, encoded, file=not self.grown)
        return import_marks.unsalted(at, encoded, worded=seq not in self.erased, file=not self.grown)


async def complete(store: Store, run: str) -> bool:
    """Whether the end of the source was reached: it is the last thing that an import writes."""
    head = (await store.head(run)).seq
    for after in (max(0, head - _TAIL), 0) if head else ():
        async for chunk in store.read(run, after, checked=False):
            if any(map(_ends, chunk)):
                return True
    return False


def _ends(stored: Stored) -> bool:
    if stored.kind != "source_recorded":
        return False
    event = event_of(stored)
    return isinstance(event, SourceRecorded) and event.what.startswith(END)


def _encoded(stored: Stored) -> codec.Encoded:
    return codec.Encoded(stored.kind, stored.body, stored.content)
