"""What the store has of an imported run, and its relations to what is imported now."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import msgspec

from refold.engine.fork import annotate
from refold.importers.derivation.log import Derived, TranscriptOrigin
from refold.reducers import codec
from refold.reducers import events as ev
from refold.reducers.errors import CannotJudge, Damaged
from refold.reducers.source_marks import END, GOES_ON
from refold.reducers.state import RunState
from refold.replay.kinds.table import texts_of
from refold.replay.reader import event_of, stored_events
from refold.replay.source_words import SourceEnd, source_end
from refold.store.protocol import LEASE_SECONDS, Store, Stored

_SPEAK = (
    ev.ContextObserved,
    ev.InputReceived,
    ev.ModelFailed,
    ev.ModelResponded,
    ev.RunStarted,
    ev.ToolReturned,
)
_STARTED = "run_started"
_RECORDED = "source_recorded"
_NOTHING: frozenset[str] = frozenset()
_SALTED = frozenset({"view", "state", "guards"})
"""What hangs on the salts of contents: two imports of one source agree in nothing of it, nor in a digest in a
size.
"""

_OF_THE_FILE = frozenset({"run", "parent", "labels", "source", "position", "unasked"})
"""What is another in another file of the same conversation: the runs, the file and places in it, whether it
ends there.
"""


def exact_mark(at: int, encoded: codec.Encoded, *, file: bool = True) -> bytes:
    """The whole event; without `file`, but for which file it is of."""
    names = _NOTHING if file else _of_which_file(encoded)
    body = _without(encoded, names) if encoded.kind == _STARTED or names else encoded.body
    return _digest(f"{at}", encoded.kind, body, encoded.content)


def unsalted_mark(at: int, encoded: codec.Encoded, *, worded: bool, file: bool = True) -> bytes:
    """What of the event hangs on no salt; without its words unless `worded`, and as `exact` without
    `file`.
    """
    body = _without(encoded, _SALTED if file else _SALTED | _of_which_file(encoded))
    return _digest(f"{at}", encoded.kind, body, encoded.content if worded else None)


def mark_anywhere(at: int, encoded: codec.Encoded, *, worded: bool) -> bytes:
    """What of the event hangs on no salt, and on no file either."""
    # Where a source does not name the model before the first answer does, its beginning alone does not know
    # it.
    unknown = frozenset({"model"}) if encoded.kind == _STARTED else _NOTHING
    body = _without(encoded, _SALTED | _OF_THE_FILE | unknown)
    return _digest(f"{at}", encoded.kind, body, encoded.content if worded else None)


def words_mark(event: ev.Event) -> list[bytes]:
    """What was said in a fact, text by text, wherever it stands in the log."""
    return [_digest(text) for text in texts_of(event) if text] if isinstance(event, _SPEAK) else []


def _of_which_file(encoded: codec.Encoded) -> frozenset[str]:
    return frozenset({"source"}) if encoded.kind == _RECORDED else _NOTHING


def _without(encoded: codec.Encoded, names: frozenset[str]) -> bytes:
    fields = msgspec.json.decode(encoded.body, type=dict[str, Any])
    if encoded.kind == _STARTED:  # the same bytes under another name are the same transcript
        fields.get("labels", {}).pop("source.file", None)
    if names:
        for size in _sizes(fields):
            size.pop("digest", None)
    return msgspec.json.encode({name: fields[name] for name in fields if name not in names})


def _sizes(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    messages: list[Any] = fields.get("messages", [])
    holders: list[Any] = [fields, *(each for each in messages if isinstance(each, dict))]
    for holder in cast("list[dict[str, Any]]", holders):
        yield from (holder[name] for name in ("size", "partial") if name in holder)


def _digest(*parts: str | bytes | None) -> bytes:
    made = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part or b""
        made.update(b"%d:" % len(data) + data)
    return made.digest()[:16]


_TAIL = 16  # events in which the end of an import mostly stands: notes and seals may have come after it


class ImportedLog(msgspec.Struct):
    """The events of `run` that are there: their salts, and by what each is known again; `decided` are no
    annotations.

    From the first of the `erased` on they are known without what hangs on salts, for its salt is gone with
    the content.

    `ends` are where its source came to an end: several, if it went on and was imported again; `files` are
    which files they are of. By the event before each end, `between` has it and the notes behind it, which a
    source that goes on passes over; `at_end`: nothing but notes stands behind the last. `superseded`: the
    last end says that the rest is in another run. `noted`: notes of ours stand behind an end.

    `parent`: the run and the call that began it, as its first event says. `grown`: what is derived may be of
    a file that went on, so which file it is does not count.
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
    parent: ev.Parent | None = None
    grown: bool = False

    @property
    def closed(self) -> bool:
        """Whether nothing can be derived behind it.

        What was erased has lost its salt, so what goes on behind it could not be derived from it; and what
        stands behind a note would have the time of the note.
        """
        return self.superseded or bool(self.erased) or self.noted

    @classmethod
    async def read(cls, store: Store, run: str, *, grown: bool = False) -> "ImportedLog":
        """The log as it stands, in its order: what was edited differs from what the file gives.

        Raises what a store and a codec raise.
        """
        log, upto = cls(run, grown=grown), (await store.head(run)).seq
        if not upto:
            return log
        gone: set[int] = set()
        noticed: set[int] = set()
        async for chunk in store.read(run, 0, upto, checked=False):
            for stored in chunk:
                event = event_of(stored, content=False)
                noticed |= set(event.seqs) if isinstance(event, ev.ContentErased) else set()
                gone |= {stored.seq} if stored.erased else set()
                log._learn(stored, event)
        log.erased = frozenset(gone & noticed)  # what is gone without a notice was taken away, and differs
        if log.erased:
            log.first_erased = min(log.erased)
            async for chunk in store.read(run, log.first_erased - 1, upto, checked=False):
                for stored in chunk:
                    log.marks[stored.seq - 1] = log.mark(stored.seq, stored.at, _encode(stored))
        return log

    def _learn(self, stored: Stored, event: ev.Event) -> None:
        self.decided += [] if isinstance(event, ev.Annotation) else [stored.seq]
        self.salts.append(stored.salt)
        self.marks.append(self.mark(stored.seq, stored.at, _encode(stored)))
        self.parent = event.parent if isinstance(event, ev.RunStarted) else self.parent
        says = event.what if isinstance(event, ev.SourceRecorded) else ""
        supersedes = says.startswith(END + GOES_ON)
        if isinstance(event, ev.SourceRecorded) and says.startswith(END) and not supersedes:
            self.ends.append(stored.seq)
            self.files.add(event.source)
            self.between[stored.seq - 1] = []
            self.at_end, self.superseded = True, False
        elif not isinstance(event, ev.Annotation) or (
            isinstance(event, ev.SourceRecorded | ev.Diagnosed) and not supersedes
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
            return exact_mark(at, encoded, file=not self.grown)
        return unsalted_mark(at, encoded, worded=seq not in self.erased, file=not self.grown)


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
    return isinstance(event, ev.SourceRecorded) and event.what.startswith(END)


def _encode(stored: Stored) -> codec.Encoded:
    return codec.Encoded(stored.kind, stored.body, stored.content)


How = Literal["goes_on", "ends_before", "same", "differs", "unknown"]


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands to `run`, which was imported before: both are equal up to event `upto` of that one.

    It `goes_on` where that one's source ended; it `ends_before` what that one has besides; it is the `same`
    conversation in another file; or it `differs` from there on. `unknown`: that one cannot be read to its
    end.
    """

    run: str
    how: How
    upto: int


class EarlierImport:
    """A run that is there, held against the events that are derived now. `ended`: how its own source did."""

    def __init__(self, run: str) -> None:
        self.run, self.ended = run, SourceEnd()
        self._marks: list[tuple[bytes, bool]] = []
        self._same, self._parted, self._broken = 0, False, False
        self._taken = self._told = 0  # events of the one, of the other up to where its source ended
        self._here: Counter[bytes] = Counter()
        self._there: list[list[bytes]] = []
        self._answers: list[int] = []  # the places of that one's
        self._more_answers = 0  # of this one, behind what both have

    @classmethod
    async def read(cls, store: Store, run: str) -> "EarlierImport":
        """A run of the store, as far as it can be read."""
        beside = cls(run)
        try:
            async for stored in stored_events(store, run):
                beside._learn(stored, event_of(stored))
        except (CannotJudge, Damaged):
            beside._broken = True
        return beside

    def _learn(self, stored: Stored, event: ev.Event) -> None:
        worded = stored.content is not None or stored.content_digest is None
        encoded = codec.Encoded(stored.kind, stored.body, stored.content)
        self._marks.append((mark_anywhere(stored.at, encoded, worded=worded), worded))
        self._there.append(words_mark(event))
        self._answers += [len(self._there)] if isinstance(event, ev.ModelResponded) else []
        self._told += not self.ended.end
        self.ended = source_end(stored, event, self.ended)

    def take(self, each: Derived, encoded: codec.Encoded) -> None:
        """The next event that is derived."""
        self._taken += 1
        if not self._parted and self._same < len(self._marks):
            mark, worded = self._marks[self._same]
            if mark == mark_anywhere(each.at, encoded, worded=worded):
                self._same += 1
                return
        self._parted = True
        self._more_answers += isinstance(each.event, ev.ModelResponded)
        self._here.update(words_mark(each.event))

    def related(self) -> Relation | None:
        """How the two stand to each other; None: they have no beginning in common, only the key."""
        if self._broken:
            return Relation(run=self.run, how="unknown", upto=self._same)
        if not self._same:
            return None
        how = self._compare()
        if how == "differs" and not any(place <= self._same for place in self._answers):
            return None
        return Relation(run=self.run, how=how, upto=self._same)

    def _compare(self) -> How:
        # Every answer of the one that ends first is in both, but for its last, which may have been under way;
        # and what stood behind it may be told in another order once the source went on.
        there = Counter(word for words in self._there[self._same :] for word in words)
        kept = there <= self._here and sum(place > self._same for place in self._answers) <= 1
        more = self._here <= there and self._more_answers <= 1
        if kept and more:  # neither says more: what remains may have been recorded
            kept, more = self._taken >= self._told, self._taken <= self._told
        return _HOW[kept, more]


_HOW: Mapping[tuple[bool, bool], How] = {
    (True, True): "same",
    (True, False): "goes_on",
    (False, True): "ends_before",
    (False, False): "differs",
}
"""By whether the one that is derived now has all of the other, and the other all of it."""


async def record_successor(store: Store, related: Relation, origin: TranscriptOrigin, run: str) -> None:
    """Record in the run that is there that its source went on, and in which run that is.

    Raises as `annotate`.
    """

    def note(state: RunState, _: int, __: bytes) -> ev.Annotation:
        # At the log's own last instant: when a file was imported is no part of what happened.
        return ev.SourceRecorded(
            at=state.at,
            format=origin.format,
            source=origin.sha256,
            position="",
            seq=related.upto or None,
            what=f"{END}{GOES_ON}{run}",
        )

    await annotate(store, related.run, note, patience=LEASE_SECONDS)  # another import is soon done


def sentence(related: Relation) -> str:
    """What is said of it."""
    match related.how:
        case "goes_on":
            return f"goes on after e{related.upto} of {related.run}"
        case "ends_before":
            return f"ends at e{related.upto} of {related.run}, which goes on"
        case "same":
            return f"tells the same as {related.run}"
        case "differs":
            return f"differs from e{related.upto + 1} of {related.run} on"
        case "unknown":
            return f"cannot be compared with {related.run}, whose log is damaged behind e{related.upto}"
