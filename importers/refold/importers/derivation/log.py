"""The growing log of an imported run: facts, their decisions, and source positions."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from refold.importers.derivation.units import Key, Standing, key_of
from refold.importers.fields import json_text
from refold.importers.items import Item, RunEnded
from refold.reducers import events as ev
from refold.reducers.errors import RefoldError
from refold.reducers.estimate import MissingTokenizer
from refold.reducers.evolution import evolve
from refold.reducers.folds import advance
from refold.reducers.messages import Message
from refold.reducers.source_marks import END
from refold.reducers.state import NEW, RunState
from refold.reducers.text import clean
from refold.reducers.vocabulary import Unknown
from refold.reducers.window import refs

Salts = Callable[[int], bytes]
"""Returns the salt for the content of event number `seq`: random, or as in the previous import."""

Interludes = Mapping[int, Sequence["Derived"]]
"""Events of an existing log that are not from its source, by the event number before them: an earlier end,
and notes.
"""

Make = Callable[[RunState, int, bytes], ev.Fact]
"""Returns the next fact, from (state, at, salt)."""


class TranscriptOrigin(msgspec.Struct, frozen=True):
    """Origin of a run: format, file name without folders, and SHA-256 in hex."""

    format: str
    file: str
    sha256: str


class Derived(msgspec.Struct, frozen=True, gc=False):
    """An event of the derived log, its time and the salt of its content."""

    seq: int
    at: int
    event: ev.Event
    salt: bytes


class ImportProblem(msgspec.Struct, frozen=True, gc=False):
    """An anomaly in a source, and its position. `unread`: it could not be read or trusted."""

    position: str
    code: str
    problem: str
    unread: bool = False


class Writer:
    """Passes facts to the machine, and keeps a comparison key for each message in the window.

    `between` has the interludes of an existing log that is continued.
    """

    def __init__(
        self,
        origin: TranscriptOrigin,
        salts: Salts,
        odd: Callable[[ImportProblem], None],
        between: Interludes,
    ) -> None:
        self.state: RunState = NEW
        self._between = between
        self._origin, self._salts, self._report = origin, salts, odd
        self._written: list[Derived] = []
        self._keys: dict[tuple[int, int], Key] = {}
        self.requests = self.calls = 0
        """Number of requests, and of calls in their responses, written so far."""
        self._still = 0  # number of the last fact, if its time equals that of the fact before
        self.provider_ids: dict[str, str] = {}
        """Provider ids of the open calls, by our ids."""
        self.call_ids: dict[str, str] = {}
        """Our ids of all calls, by provider ids."""

    def take_written(self) -> list[Derived]:
        """Return the events written since the last call."""
        written, self._written = self._written, []
        return written

    def write_fact(self, make: Make, item: Item | None, *said: Message) -> int:
        """Write a fact at the time of `item`, and return its number, or 0 if the machine rejects it.

        `said` are the messages in the fact. A rejected fact becomes a diagnosis with its content.
        """
        self._copy_interludes()
        seq = self.state.seq + 1
        own = None if item is None else item.at
        at = max(self.state.at, own or 0)
        salt = self._salts(seq)
        fact, before = None, self.state.at
        try:
            fact = make(self.state, at, salt)
            if own is None:
                fact = msgspec.structs.replace(fact, unknown=(Unknown.TIME, *fact.unknown))
            self.state, events = advance(self.state, fact)
        except MissingTokenizer:
            raise
        except RefoldError as error:
            self.diagnose("no_place", str(error), item, text=_content_of(fact))
            return 0
        self._note_calls(events[0])
        self._still = 0 if self.state.at > before else seq
        for place, event in enumerate(events):
            self._written.append(Derived(seq + place, self.state.at, event, b"" if place else salt))
        self._keys |= {(seq, part): key_of(message) for part, message in enumerate(said)}
        self._drop_old_keys()
        return seq

    def _note_calls(self, fact: ev.Event) -> None:
        self.requests += isinstance(fact, ev.ModelResponded | ev.ModelFailed)
        if isinstance(fact, ev.ModelResponded):
            self.calls += len(fact.calls)
            self.provider_ids = {call.id: call.provider_id for call in fact.calls}
            self.call_ids.update((call.provider_id, call.id) for call in fact.calls)

    def record(self, item: Item, seq: int | None = None, what: str = "", text: str = "") -> None:
        """Record the source position of a fact, or of an item that is not a fact, with its remaining data.

        `what` may be the source's own word. Only the end of a run may start with `end:`, because imports use
        it to recognize a completed run.
        """
        if not isinstance(item, RunEnded):
            self._copy_interludes()
        remainder = "\n".join(part for part in (text, item.rest, self._own_time(item, seq)) if part)
        what = f"unmapped:{what}" if what.startswith(END) and not isinstance(item, RunEnded) else what
        if isinstance(item, RunEnded) and self._find_same_end(clean(what), clean(remainder)):
            return
        self._annotate(
            lambda at: ev.SourceRecorded(
                at=at,
                format=self._origin.format,
                source=self._origin.sha256,
                position=clean(item.position),
                seq=seq or None,
                what=clean(what),
            ),
            remainder,
        )

    def diagnose(
        self,
        code: str,
        problem: str,
        item: Item | None,
        *,
        seq: int | None = None,
        text: str = "",
        unread: bool = False,
    ) -> None:
        """Say that something is odd, with what could not be used."""
        self._copy_interludes()
        position = "" if item is None else clean(item.position)
        problem = clean(problem)
        self._report(ImportProblem(position, code, problem, unread))
        where = f"{position}: {problem}" if position else problem
        self._annotate(lambda at: ev.Diagnosed(at=at, code=clean(code), problem=where, seq=seq), text)

    def list_standing(self, results: dict[str, Key]) -> list[Standing]:
        """Return the units of the window. Results of the open batch have the keys `results`, by call."""
        units, batch = self._units(), self.state.batch
        # Calls of the batch and their results belong to its unit.
        unit = next((one for one in reversed(units) if batch and one[0] == batch.number), None)
        if batch is not None and unit is not None:
            unit[1].extend(batch.number + 1 + call.position for call in batch.calls)
            unit[2].extend(results.get(call.id, b"") for call in batch.calls)
        return [Standing(tuple(numbers), tuple(keys)) for _, numbers, keys in units]

    def _units(self) -> list[tuple[int, list[int], list[Key]]]:
        """Return the units of the window: number, message numbers, and message keys of each."""
        units: list[tuple[int, list[int], list[Key]]] = []
        for ref in refs(self.state.window):
            if not units or units[-1][0] != ref.unit:
                units.append((ref.unit, [], []))
            units[-1][1].append(ref.number)
            units[-1][2].append(self._keys.get((ref.seq, ref.part), b""))
        return units

    def _copy_interludes(self) -> None:
        while self.state.seq in self._between:
            for each in self._between[self.state.seq]:
                self._copy_event(each)

    def _find_same_end(self, what: str, text: str) -> bool:
        """Return whether the log already has this end of the source.

        Earlier events that are not from the source are copied; notes after this end are not.
        """
        while self.state.seq in self._between:
            ended, *noted = self._between[self.state.seq]
            self._copy_event(ended)
            if _is_same_end(ended.event, what, text):
                return True
            for each in noted:
                self._copy_event(each)
        return False

    def _copy_event(self, each: Derived) -> None:
        self.state = evolve(self.state, each.event)
        self._written.append(each)

    def _own_time(self, item: Item, seq: int | None) -> str:
        """Return the source's time if it differs from the log's, or if the log's time did not advance.

        So for equal times in the log, it is visible whether the source recorded the time.
        """
        still = seq is not None and seq == self._still
        shown = item.at is None or (item.at == self.state.at and not still)
        return "" if shown else json_text({"at": item.at})

    def _annotate(self, make: Callable[[int], ev.Annotation], text: str) -> None:
        note, salt = make(self.state.at), b""
        if text:
            salt = self._salts(self.state.seq + 1)
            note = msgspec.structs.replace(note, content=ev.Remark(text=clean(text)))
        self.state = evolve(self.state, note)
        self._written.append(Derived(self.state.seq, self.state.at, note, salt))

    def _drop_old_keys(self) -> None:
        # A scan costs as much as the window and the open batch, so it runs only after some growth.
        calls = self.state.batch.calls if self.state.batch else ()
        if len(self._keys) <= 2 * (self.state.window.count + len(calls)) + 256:
            return
        open_results = [call.result for call in calls if call.result is not None]
        wanted = {(ref.seq, ref.part) for ref in (*refs(self.state.window), *open_results)}
        self._keys = {place: key for place, key in self._keys.items() if place in wanted}


def _content_of(fact: ev.Fact | None) -> str:
    content = getattr(fact, "content", None)
    return "" if content is None else json_text(msgspec.to_builtins(content))


def _is_same_end(event: ev.Event, what: str, text: str) -> bool:
    """Return whether a recorded end is this one, wherever it was; an erased text counts as equal."""
    if not isinstance(event, ev.SourceRecorded) or event.what != what:
        return False
    return event.content is None or event.content.text == text
