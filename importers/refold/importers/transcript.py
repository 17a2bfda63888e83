"""One file, run by run: what stands in it, as events to be appended, and what was counted on the way.

A run's id follows from the file's bytes and the run's key in it, so that a transcript that is imported twice
is found to be there. The bytes are digested as they are meant: packed or not, it is the same transcript. What
is found to go on from a run that is there is derived as that one.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

from refold.importers.content import unwrapped
from refold.importers.derivation.derivation import Derivation, Fit
from refold.importers.derivation.gap import conversations
from refold.importers.derivation.log import Derived, ImportProblem, Interludes, Salts, TranscriptOrigin
from refold.importers.items import Item, Place, Remarked, RunBegan, RunEnded, Unread
from refold.importers.registry import CERTAIN, Candidate, Importer, OtherFormat
from refold.importers.source import BadTranscript, Source
from refold.importers.survey import Counts, Survey, counted, warn_of_versions
from refold.importers.tallies import Count, RunCounts
from refold.reducers.events.parts import Parent
from refold.reducers.source_marks import PARENT_LABEL, lacks_tokens
from refold.reducers.text import clean

MOST_HELD = 16 << 20
"""Characters of a file's items that are held between the look over all of them and their telling."""

MOST_PROBLEMS = 20
"""Problems of a file that are kept; all are counted."""


Read = TypeVar("Read")

CUT = frozenset({"cut", "cut_off", "cut_document"})
"""By these codes importers say that the file breaks off, or cannot be read from somewhere on."""

_NAMED = 5  # runs, in a sentence
_DATABASE = b"SQLite format 3\0"


def run_id(format: str, sha256: str, key: str) -> str:  # noqa: A002
    """The id of a run out of a transcript: the same for the same bytes."""
    digest = hashlib.sha256(f"{sha256}\0{key}".encode(errors="replace")).hexdigest()
    return f"{format}-{digest[:16]}"


class EndOfRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it stands in its source, and what was derived of it. `end` is the source's own word; of
    `uncounted` answers not all tokens are known.
    """

    run: str
    key: str
    end: str = ""
    events: int = 0
    uncounted: int = 0
    state: str = ""
    fit: Fit = Fit()


class TranscriptRun:
    """One run of a file: its id, and its items, which are read but once. `ended`, once they were: what became
    of it.

    `above` is the key of the run that began it, "" for none; `apart` too, where the file does not say by
    which call: "" if the file says no more than that one did, else None. `begun_by` is that run and the call,
    if somebody knows better than the file.
    """

    def __init__(self, run: str, began: RunBegan, reading: "Transcript") -> None:
        self.run, self.key, self.ended = run, began.key, EndOfRun(run=run, key=began.key)
        self.call_ids: Mapping[str, str] = {}
        self.above = began.parent or began.labels.get(PARENT_LABEL, "")
        begun = bool(began.parent) or PARENT_LABEL in began.labels
        self.apart = self.above if begun and not began.call else None
        self.begun_by: Parent | None = None
        self._began = began
        self.format, self.origin = reading.format, reading.origin
        self._reading = reading

    @property
    def parent(self) -> Parent | None:
        """The run and the call that began it, as the file says, once that run was derived."""
        return self._reading.parent_of(self._began)

    def derive(
        self, salts: Salts, run: str = "", between: Interludes = MappingProxyType({})
    ) -> Iterator[list[Derived]]:
        """The events of its log, in groups that belong together; as those of `run`, if it is one that is
        there and goes on.
        """
        self.run = run or self.run
        self.begun_by = self.begun_by or self.parent
        deriving = Derivation(self.run, self._reading.origin, salts, between, self.begun_by)
        self.call_ids = deriving.call_ids
        events, uncounted, end = 0, 0, ""
        for item in self._reading.rest():
            end = item.end if isinstance(item, RunEnded) else end
            derived = deriving.take(item)
            events += len(derived)
            uncounted += sum(lacks_tokens(each.event) for each in derived)
            self._reading.found(deriving.problems)
            if derived:
                yield derived
        state = str(deriving.state.agent_state)
        self.ended = EndOfRun(
            run=self.run,
            key=self.key,
            end=end,
            events=events,
            uncounted=uncounted,
            state=state,
            fit=deriving.fit,
        )


class Transcript:
    """One file while it is read. `problems` are the first ones; `odd` counts all, `unread` those of what was
    not read.

    `closest`: the format was told by the content of the file, as this; None: somebody said which it is.
    """

    def __init__(self, source: Source, importer: Importer, closest: Candidate | None = None) -> None:
        self.format = importer.name
        self.sha256, self.bytes = source.sha256()
        self.origin = TranscriptOrigin(importer.name, _last_part(source.name), self.sha256)
        self.problems: list[ImportProblem] = []
        self.odd = self.unread = 0
        self._importer, self._closest = importer, closest
        self._source = source
        self._items = self._read_items()
        self._database = source.head(len(_DATABASE)) == _DATABASE
        self._waiting: deque[Item] = deque()
        self._open = False
        self._early: list[Item] = []
        self._keys: set[str] = set()
        self._runs, self._ends = 0, list[RunEnded]()
        self._children, self._child = 0, False
        self._told_runs: dict[str, TranscriptRun] = {}
        self._tallies: list[RunCounts] = []

    def runs(self) -> Iterator[TranscriptRun]:
        """The runs one after the other; what is left of one is passed over before the next.

        Raises `BadTranscript` where not one item could be read, or where there is more than is read, and at
        the end where the file is not any more what it was when it was digested; `OtherFormat` where it only
        looks like one of its format.
        """
        self._look_over()
        while (item := self._pull()) is not None:
            if isinstance(item, RunBegan):
                yield self._begun(item)
                for _ in self.rest():
                    pass
            elif isinstance(item, RunEnded):
                self._ended(item, Count())  # of the file: no run of it is told
            else:
                self._early.append(item)  # what a file says before a run stands at the head of that run's log
        self._left_over()
        if self._source.sha256() != (self.sha256, self.bytes):
            raise BadTranscript(self._source.name, "", self._changed())

    def counts(self) -> Counts:
        """What was counted, once all of it was read."""
        return counted(
            self.format, self._runs - self._children, self._ends, self._tallies, once=self._database
        )

    def rest(self) -> Iterator[Item]:
        """What is left of the run that is being read; its end is the last."""
        began, cut, count = False, "", Count()
        while self._open:
            item = self._pull()
            if item is None or (began and isinstance(item, RunBegan)):
                self._put_back(item)
                item = RunEnded(position="", end="unknown", end_source="nothing says so")
            if isinstance(item, RunEnded):
                for cut_off in self._cut_off():
                    cut = cut_off.problem
                    yield cut_off
                item = _broken_off(item, cut) if cut else item
                self._open = False
                self._ended(item, count)
            else:
                count.take(item)
                cut = item.problem if isinstance(item, Unread) and item.code in CUT else cut
            yield item
            if isinstance(item, RunBegan):
                began = True
                yield from self._early
                self._early = []

    def found(self, problems: list[ImportProblem]) -> None:
        """Count what was found odd, and empty the list."""
        self.odd += len(problems)
        self.unread += sum(problem.unread for problem in problems)
        self.problems += problems[: max(0, MOST_PROBLEMS - len(self.problems))]
        problems.clear()

    def _read_items(self) -> Iterator[Item]:
        for item in conversations(self._importer.items(self._source)):
            yield item
            yield from warn_of_versions(self.format, item)
            if isinstance(item, Remarked) and not item.known:
                yield from Place(item.position, item.at).unknown_calls(unwrapped(item.rest))

    def _ended(self, end: RunEnded, count: Count) -> None:
        count.take(end)
        if not self._child:
            self._ends.append(end)
        self._tallies.append(count.tally())

    def _look_over(self) -> None:
        """Whether the file is worth a line of a log: a run that was begun cannot be taken back."""
        found, held = Survey(self._source.name), list[Item]()
        while (item := self._told(lambda: next(self._items, None))) is not None:
            found.take(item)
            held.append(item)
            if found.size > MOST_HELD:
                held.clear()
        # A small file is read once, and what it says is held until it is told.
        self._items = iter(held) if found.size <= MOST_HELD else self._read_items()
        match = self._importer.match(self._source)
        certain = match is not None and match.score >= CERTAIN
        if self._closest is not None and (problem := found.foreign(certain=certain)):
            raise OtherFormat(self._source.name, self._closest, problem)
        self.found(found.problems(certain=certain))

    def _begun(self, item: RunBegan) -> TranscriptRun:
        key = item.key
        if key in self._keys:
            key = f"{key}#{self._runs + 1}"
            problem = f"another run has the key {item.key!r}: this one is called {key!r}"
            self.found([ImportProblem(item.position, "key_repeated", problem)])
        self._keys.add(key)
        self._runs += 1
        self._children += bool(item.parent)
        self._open, self._child = True, bool(item.parent)
        began = msgspec.structs.replace(item, key=key)
        self._put_back(began)
        told = TranscriptRun(run_id(self.format, self.sha256, key), began, self)
        self._told_runs[key] = told
        return told

    def parent_of(self, began: RunBegan) -> Parent | None:
        """The run and the call that began this one, if both were derived before it."""
        above = self._told_runs.get(began.parent)
        call = above.call_ids.get(began.call) if above is not None and began.call else None
        return Parent(run=above.run, call=call) if above is not None and call is not None else None

    def _pull(self) -> Item | None:
        return self._waiting.popleft() if self._waiting else self._told(lambda: next(self._items, None))

    def _told(self, read: Callable[[], Read]) -> Read:
        """What reading tells. Raises `BadTranscript`, and nothing else that a file can bring about."""
        try:
            return read()
        except BadTranscript as error:
            if not self._source.problem:
                raise
            # That nothing could be read follows from this: whoever mends the file must know it.
            problem = f"{error.problem} ({self._source.problem})"
            raise BadTranscript(error.name, error.position, problem) from error
        except RecursionError as error:
            raise BadTranscript(self._source.name, "", "nested too deeply") from error

    def _put_back(self, item: Item | None) -> None:
        if item is not None:
            self._waiting.appendleft(item)

    def _cut_off(self) -> Iterator[Unread]:
        """Of the last run of a file that could not be unpacked to its end: that it could not."""
        following = self._pull()
        if isinstance(following, Unread) and following.code in CUT:  # some say so behind the run's end
            yield following
            return
        self._put_back(following)
        if following is None and self._source.problem:
            yield Unread(position="the end", code="cut_off", problem=self._source.problem)

    def _changed(self) -> str:
        runs = [run_id(self.format, self.sha256, key) for key in sorted(self._keys)]
        made = ", ".join(runs[:_NAMED]) + (", …" if len(runs) > _NAMED else "")
        return f"it was changed while it was read, so what was made of it is of no file ({made}): import it again"

    def _left_over(self) -> None:
        for item in self._early:
            if isinstance(item, Unread):
                self.found([ImportProblem(item.position, item.code, item.problem, unread=True)])
        beside = [item for item in self._early if not isinstance(item, Unread)]
        if beside and self._runs:
            problem = f"{len(beside)} items behind the last run are in no log"
            self.found([ImportProblem(beside[0].position, "beside", problem)])
        if self._source.problem and not self._runs:
            self.found([ImportProblem("the end", "cut_off", self._source.problem, unread=True)])


def _broken_off(end: RunEnded, problem: str) -> RunEnded:
    """The end of a run whose record breaks off: whatever the rest of the file says, nobody has seen how it
    goes on.
    """
    said = f"; the rest of it says {end.end}" if end.end != "open" else ""
    return msgspec.structs.replace(end, end="open", end_source=f"the record breaks off: {problem}{said}")


def _last_part(name: str) -> str:
    return clean(name.replace("\\", "/").rsplit("/", 1)[-1])
