"""The log of an imported run while it grows: facts with what follows from them, and where they came from."""

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
"""The salt of the content of event number `seq`: random, or what it was the time before."""

Interludes = Mapping[int, Sequence["Derived"]]
"""What stands in a log behind event number so-and-so that its source never said: an end that it came to once,
and notes.
"""

Make = Callable[[RunState, int, bytes], ev.Fact]
"""(state, at, salt) -> the fact that comes next."""


class TranscriptOrigin(msgspec.Struct, frozen=True):
    """Where a run comes from: the format's name, the file's name without its folders, its SHA-256 in hex."""

    format: str
    file: str
    sha256: str


class Derived(msgspec.Struct, frozen=True, gc=False):
    """An event of the derived log, its instant and the salt of its content."""

    seq: int
    at: int
    event: ev.Event
    salt: bytes


class ImportProblem(msgspec.Struct, frozen=True, gc=False):
    """What was odd in a source, and where. `unread`: it could not be read, or not be trusted."""

    position: str
    code: str
    problem: str
    unread: bool = False


class Writer:
    """Tells the machine one fact after the other. It remembers what each message in the window says, as a
    key.

    Of a log that is there and goes on now, `between` has the interludes.
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
        self._origin, self._salts, self._odd = origin, salts, odd
        self._written: list[Derived] = []
        self._keys: dict[tuple[int, int], Key] = {}
        self.requests = self.calls = 0
        """How many requests, and calls of their answers, were told."""
        self._still = 0  # the last fact, if time did not move with it
        self.provider_ids: dict[str, str] = {}
        """The providers' ids of the open calls, by ours."""
        self.call_ids: dict[str, str] = {}
        """Our ids of all calls, by the providers'."""

    def taken(self) -> list[Derived]:
        """What was written since this was asked before."""
        written, self._written = self._written, []
        return written

    def tell(self, make: Make, item: Item | None, *said: Message) -> int:
        """Tell a fact at the instant of `item`; `said` are the messages it holds. Its number; 0: it has no
        place.

        One that has no place becomes a diagnosis, with its content.
        """
        self._pass_over()
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
        self._forget()
        return seq

    def _note_calls(self, fact: ev.Event) -> None:
        self.requests += isinstance(fact, ev.ModelResponded | ev.ModelFailed)
        if isinstance(fact, ev.ModelResponded):
            self.calls += len(fact.calls)
            self.provider_ids = {call.id: call.provider_id for call in fact.calls}
            self.call_ids.update((call.provider_id, call.id) for call in fact.calls)

    def record(self, item: Item, seq: int | None = None, what: str = "", text: str = "") -> None:
        """Say where a fact, or something that is none, stood in the source, with what of it has no other
        place.

        `what` may be the source's own word, but for one: only an end says `end:`, for by that an import knows
        that it is done.
        """
        if not isinstance(item, RunEnded):
            self._pass_over()
        told = "\n".join(part for part in (text, item.rest, self._own_time(item, seq)) if part)
        what = f"unmapped:{what}" if what.startswith(END) and not isinstance(item, RunEnded) else what
        if isinstance(item, RunEnded) and self._ended_so(clean(what), clean(told)):
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
            told,
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
        self._pass_over()
        position = "" if item is None else clean(item.position)
        problem = clean(problem)
        self._odd(ImportProblem(position, code, problem, unread))
        where = f"{position}: {problem}" if position else problem
        self._annotate(lambda at: ev.Diagnosed(at=at, code=clean(code), problem=where, seq=seq), text)

    def standing(self, results: dict[str, Key]) -> list[Standing]:
        """The units of the window; of an open batch with all its results, whose keys by call are
        `results`.
        """
        units, batch = self._units(), self.state.batch
        # Its calls and their results are of its unit.
        unit = next((one for one in reversed(units) if batch and one[0] == batch.number), None)
        if batch is not None and unit is not None:
            unit[1].extend(batch.number + 1 + call.position for call in batch.calls)
            unit[2].extend(results.get(call.id, b"") for call in batch.calls)
        return [Standing(tuple(numbers), tuple(keys)) for _, numbers, keys in units]

    def _units(self) -> list[tuple[int, list[int], list[Key]]]:
        """The units of the window: the number of each, and the numbers and keys of its messages."""
        units: list[tuple[int, list[int], list[Key]]] = []
        for ref in refs(self.state.window):
            if not units or units[-1][0] != ref.unit:
                units.append((ref.unit, [], []))
            units[-1][1].append(ref.number)
            units[-1][2].append(self._keys.get((ref.seq, ref.part), b""))
        return units

    def _pass_over(self) -> None:
        while self.state.seq in self._between:
            for each in self._between[self.state.seq]:
                self._again(each)

    def _ended_so(self, what: str, text: str) -> bool:
        """Whether the source came to this end before: what grew in its file since is none of this run's.

        Another is passed over.
        """
        while self.state.seq in self._between:
            ended, *noted = self._between[self.state.seq]
            self._again(ended)
            if _says(ended.event, what, text):
                return True
            for each in noted:
                self._again(each)
        return False

    def _again(self, each: Derived) -> None:
        self.state = evolve(self.state, each.event)
        self._written.append(each)

    def _own_time(self, item: Item, seq: int | None) -> str:
        """The source's own time where the log's does not show it: it ran backwards, or stood still.

        So of what stands at the instant of what came before it is known whether its source says so, or says
        nothing.
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

    def _forget(self) -> None:
        # Looking through the window and the open batch costs as much as both: it is done when it pays.
        calls = self.state.batch.calls if self.state.batch else ()
        if len(self._keys) <= 2 * (self.state.window.count + len(calls)) + 256:
            return
        open_results = [call.result for call in calls if call.result is not None]
        wanted = {(ref.seq, ref.part) for ref in (*refs(self.state.window), *open_results)}
        self._keys = {place: key for place, key in self._keys.items() if place in wanted}


def _content_of(fact: ev.Fact | None) -> str:
    content = getattr(fact, "content", None)
    return "" if content is None else json_text(msgspec.to_builtins(content))


def _says(event: ev.Event, what: str, text: str) -> bool:
    """Whether an end that was recorded is this one, wherever it stood; of one whose words were erased, by
    what is left.
    """
    if not isinstance(event, ev.SourceRecorded) or event.what != what:
        return False
    return event.content is None or event.content.text == text
