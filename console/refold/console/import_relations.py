"""What a run that is imported has to do with runs of the same conversation that are there: it goes on, or is another."""

from collections import Counter
from typing import Literal

import msgspec

from refold.console import import_marks
from refold.engine.fork import annotate
from refold.reducers import codec
from refold.reducers.errors import CannotJudge, Damaged
from refold.reducers.events import Annotation, Event, ModelResponded, SourceRecorded
from refold.reducers.state import RunState
from refold.replay.importers.derivation.log import Derived, Origin
from refold.replay.reader import event_of, stored_events
from refold.replay.source_words import END, GOES_ON, SourceEnd, source_end
from refold.store.protocol import LEASE_SECONDS, Store, Stored

How = Literal["goes_on", "ends_before", "same", "differs", "unknown"]


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands to `run`, which was imported before: both are equal up to event `upto` of that one.

    It `goes_on` where that one's source ended; it `ends_before` what that one has besides; it is the `same` conversation in
    another file; or it `differs` from there on. `unknown`: that one cannot be read to its end.
    """

    run: str
    how: How
    upto: int


class Beside:
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
    async def read(cls, store: Store, run: str) -> "Beside":
        """A run of the store, as far as it can be read."""
        beside = cls(run)
        try:
            async for stored in stored_events(store, run):
                beside._learn(stored, event_of(stored))
        except (CannotJudge, Damaged):
            beside._broken = True
        return beside

    def _learn(self, stored: Stored, event: Event) -> None:
        worded = stored.content is not None or stored.content_digest is None
        encoded = codec.Encoded(stored.kind, stored.body, stored.content)
        self._marks.append((import_marks.anywhere(stored.at, encoded, worded=worded), worded))
        self._there.append(import_marks.words(event))
        self._answers += [len(self._there)] if isinstance(event, ModelResponded) else []
        self._told += not self.ended.end
        self.ended = source_end(stored, event, self.ended)

    def take(self, each: Derived, encoded: codec.Encoded) -> None:
        """The next event that is derived."""
        self._taken += 1
        if not self._parted and self._same < len(self._marks):
            mark, worded = self._marks[self._same]
            if mark == import_marks.anywhere(each.at, encoded, worded=worded):
                self._same += 1
                return
        self._parted = True
        self._more_answers += isinstance(each.event, ModelResponded)
        self._here.update(import_marks.words(each.event))

    def related(self) -> Relation | None:
        """How the two stand to each other; None: they have no beginning in common, only the key."""
        if self._broken:
            return Relation(run=self.run, how="unknown", upto=self._same)
        if not self._same:
            return None
        # Every answer of the one that ends first is in both, but for its last, which may have been under way; and what
        # stood behind it may be told in another order once the source went on.
        there = Counter(word for words in self._there[self._same :] for word in words)
        kept = there <= self._here and sum(place > self._same for place in self._answers) <= 1
        more = self._here <= there and self._more_answers <= 1
        if kept and more:  # neither says more: what remains may have been recorded
            kept, more = self._taken >= self._told, self._taken <= self._told
        how: How = "same" if kept and more else "goes_on" if kept else "ends_before" if more else "differs"
        if how == "differs" and not any(place <= self._same for place in self._answers):
            return None
        return Relation(run=self.run, how=how, upto=self._same)


async def superseded(store: Store, related: Relation, origin: Origin, run: str) -> None:
    """Record in the run that is there that its source went on, and in which run that is. Raises as `annotate`."""

    def note(state: RunState, _: int, __: bytes) -> Annotation:
        # At the log's own last instant: when a file was imported is no part of what happened.
        return SourceRecorded(
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
