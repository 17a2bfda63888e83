"""The stored log of an imported run, and how earlier imports relate to the transcript that is imported
now.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import msgspec

from refold.engine.fork import annotate
from refold.importers.derivation.log import Derived, TranscriptOrigin
from refold.reducers import codec
from refold.reducers import events as ev
from refold.reducers.errors import Damaged, Inconclusive
from refold.reducers.source_marks import CONTINUED, END
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
"""Fields that depend on the salts of payloads. Two imports of one source differ in them, and in digests."""

_OF_THE_FILE = frozenset({"run", "parent", "labels", "source", "position", "no_request"})
"""Fields that differ between files of one conversation: runs, the file, positions in it, whether it ends
there.
"""


def exact_mark(at: int, encoded: codec.Encoded, *, file: bool = True) -> bytes:
    """Return a digest of the whole event; without `file`, of all but the fields that name its file."""
    names = _NOTHING if file else _of_which_file(encoded)
    body = _drop_fields(encoded, names) if encoded.kind == _STARTED or names else encoded.body
    return _digest(f"{at}", encoded.kind, body, encoded.content)


def unsalted_mark(at: int, encoded: codec.Encoded, *, worded: bool, file: bool = True) -> bytes:
    """Return a digest of the fields that depend on no salt, with the payload only if `worded`; `file` as in
    `exact_mark`.
    """
    body = _drop_fields(encoded, _SALTED if file else _SALTED | _of_which_file(encoded))
    return _digest(f"{at}", encoded.kind, body, encoded.content if worded else None)


def mark_anywhere(at: int, encoded: codec.Encoded, *, worded: bool) -> bytes:
    """Return a digest of the fields that depend neither on a salt nor on the file."""
    # A source may name the model only in its first response, so a shorter file does not have it.
    unknown = frozenset({"model"}) if encoded.kind == _STARTED else _NOTHING
    body = _drop_fields(encoded, _SALTED | _OF_THE_FILE | unknown)
    return _digest(f"{at}", encoded.kind, body, encoded.content if worded else None)


def words_mark(event: ev.Event) -> list[bytes]:
    """Return a digest of each text in a fact, independent of its place in the log."""
    return [_digest(text) for text in texts_of(event) if text] if isinstance(event, _SPEAK) else []


def _of_which_file(encoded: codec.Encoded) -> frozenset[str]:
    return frozenset({"source"}) if encoded.kind == _RECORDED else _NOTHING


def _drop_fields(encoded: codec.Encoded, names: frozenset[str]) -> bytes:
    fields = msgspec.json.decode(encoded.body, type=dict[str, Any])
    if encoded.kind == _STARTED:  # a renamed file is the same transcript
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


_TAIL = 16  # last events, which usually include the end of an import: notes and checkpoints may follow it


class ImportedLog(msgspec.Struct):
    """The stored events of `run`: their salts, and a mark to recognise each. `decided`: numbers of events
    that are no annotations.

    From the first of the `erased` events on, marks leave out what depends on salts, because an erased event
    has lost its salt.

    `ends`: where its source ended; several if the source was continued and imported again. `files`: the
    digests of those files. `between`: by the event before each end, the end and the notes after it, which a
    continued source skips. `at_end`: only notes follow the last end. `superseded`: the last end states that
    the rest is in another run. `noted`: our own notes follow an end.

    `parent`: the run and call that started it, from its first event. `grown`: the derived events may come
    from a longer version of the file, so the file's identity is not compared.
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
        """Whether nothing can be appended.

        An erased event has lost its salt, so later events could not be derived to match; events after a note
        would get the note's time.
        """
        return self.superseded or bool(self.erased) or self.noted

    @classmethod
    async def read(cls, store: Store, run: str, *, grown: bool = False) -> "ImportedLog":
        """Read the stored log in order, without checking hashes: an edited event then differs from the file.

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
        log.erased = frozenset(gone & noticed)  # a payload deleted without an erasure record differs
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
        supersedes = says.startswith(END + CONTINUED)
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
        """Return whether the stored event with this number equals this one."""
        return each.seq <= len(self.marks) and self.marks[each.seq - 1] == self.mark(
            each.seq, each.at, encoded
        )

    def mark(self, seq: int, at: int, encoded: codec.Encoded) -> bytes:
        """Return the mark of an event at its place in the log."""
        if not 0 < self.first_erased <= seq:
            return exact_mark(at, encoded, file=not self.grown)
        return unsalted_mark(at, encoded, worded=seq not in self.erased, file=not self.grown)


async def is_complete(store: Store, run: str) -> bool:
    """Return whether the import reached the end of its source; an import writes that event last."""
    head = (await store.head(run)).seq
    for after in (max(0, head - _TAIL), 0) if head else ():
        async for chunk in store.read(run, after, checked=False):
            if any(map(_is_end, chunk)):
                return True
    return False


def _is_end(stored: Stored) -> bool:
    if stored.kind != "source_recorded":
        return False
    event = event_of(stored)
    return isinstance(event, ev.SourceRecorded) and event.what.startswith(END)


def _encode(stored: Stored) -> codec.Encoded:
    return codec.Encoded(stored.kind, stored.body, stored.content)


How = Literal["continues", "ends_before", "same", "differs", "unknown"]


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """How a derived run relates to `run`, which was imported before. Both are equal up to its event `upto`.

    The derived run `continues` where the source of `run` ended; it `ends_before` events that `run` has in
    addition; it is the `same` conversation in another file; or it `differs` after `upto`. `unknown`: `run`
    cannot be read to its end.
    """

    run: str
    how: How
    upto: int


class EarlierImport:
    """An earlier import, compared with the events that are derived now. `ended`: how its own source ended."""

    def __init__(self, run: str) -> None:
        self.run, self.ended = run, SourceEnd()
        self._marks: list[tuple[bytes, bool]] = []
        self._same, self._parted, self._broken = 0, False, False
        self._taken = self._told = 0  # derived events; stored events up to the end of their source
        self._here: Counter[bytes] = Counter()
        self._there: list[list[bytes]] = []
        self._answers: list[int] = []  # event numbers of stored responses
        self._more_answers = 0  # derived responses after the common beginning

    @classmethod
    async def read(cls, store: Store, run: str) -> "EarlierImport":
        """Read the readable part of a stored run."""
        beside = cls(run)
        try:
            async for stored in stored_events(store, run):
                beside._learn(stored, event_of(stored))
        except (Inconclusive, Damaged):
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
        """Compare the next derived event."""
        self._taken += 1
        if not self._parted and self._same < len(self._marks):
            mark, worded = self._marks[self._same]
            if mark == mark_anywhere(each.at, encoded, worded=worded):
                self._same += 1
                return
        self._parted = True
        self._more_answers += isinstance(each.event, ev.ModelResponded)
        self._here.update(words_mark(each.event))

    def relate(self) -> Relation | None:
        """Return the relation of the two runs, or None if they share only the key and no beginning."""
        if self._broken:
            return Relation(run=self.run, how="unknown", upto=self._same)
        if not self._same:
            return None
        how = self._compare()
        if how == "differs" and not any(place <= self._same for place in self._answers):
            return None
        return Relation(run=self.run, how=how, upto=self._same)

    def _compare(self) -> How:
        # Both have every response of the shorter one except its last, which may have been in progress.
        # A continued source may record what follows that response in another order.
        there = Counter(word for words in self._there[self._same :] for word in words)
        kept = there <= self._here and sum(place > self._same for place in self._answers) <= 1
        more = self._here <= there and self._more_answers <= 1
        if kept and more:  # neither has more texts: compare the number of events
            kept, more = self._taken >= self._told, self._taken <= self._told
        return _HOW[kept, more]


_HOW: Mapping[tuple[bool, bool], How] = {
    (True, True): "same",
    (True, False): "continues",
    (False, True): "ends_before",
    (False, False): "differs",
}
"""By whether the derived run contains all of the stored one, and the stored one all of the derived."""


async def record_successor(store: Store, related: Relation, origin: TranscriptOrigin, run: str) -> None:
    """Record in an earlier import that its source was continued, and the run that has the rest.

    Raises what `annotate` raises.
    """

    def note(state: RunState, _: int, __: bytes) -> ev.Annotation:
        # The time of the log's last event: when a file was imported is not part of the run.
        return ev.SourceRecorded(
            at=state.at,
            format=origin.format,
            source=origin.sha256,
            position="",
            seq=related.upto or None,
            what=f"{END}{CONTINUED}{run}",
        )

    await annotate(store, related.run, note, patience=LEASE_SECONDS)  # another import ends soon


def sentence(related: Relation) -> str:
    """Describe a relation in a phrase."""
    match related.how:
        case "continues":
            return f"continues {related.run} after its e{related.upto}"
        case "ends_before":
            return f"ends at e{related.upto} of {related.run}, which continues"
        case "same":
            return f"is the same conversation as {related.run}"
        case "differs":
            return f"differs from {related.run}, from its e{related.upto + 1}"
        case "unknown":
            return f"cannot be compared with {related.run}, whose log is damaged after e{related.upto}"
