"""Reader of one transcript file: its runs as events to append, with counts.

Run ids are derived from the file's bytes and the run's key in it, so a second import of the same transcript
is recognized. The digest covers the unpacked bytes, so compression does not matter. A run that continues one
in the store gets that run's id.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

from refold.importers.content import decode_nested_json
from refold.importers.derivation.derivation import Derivation, Fit
from refold.importers.derivation.gap import conversations
from refold.importers.derivation.log import Derived, ImportProblem, Interludes, Salts, TranscriptOrigin
from refold.importers.items import Item, Place, Remarked, RunBegan, RunEnded, Unread
from refold.importers.registry import CERTAIN, Candidate, Importer, OtherFormat
from refold.importers.source import BadTranscript, Source
from refold.importers.survey import Counts, Survey, count_runs, warn_of_versions
from refold.importers.tallies import Count, RunCounts
from refold.reducers.events.parts import Parent
from refold.reducers.source_marks import PARENT_LABEL, lacks_tokens
from refold.reducers.text import clean

MOST_HELD = 16 << 20
"""Maximum characters of a file's items that are kept in memory between survey and import."""

MOST_PROBLEMS = 20
"""Maximum number of problems kept per file; all are counted."""


Read = TypeVar("Read")

CUT = frozenset({"cut", "cut_off", "cut_document"})
"""Codes of problems that mean that the file breaks off, or is unreadable from some point on."""

_NAMED = 5  # maximum number of runs named in a message
_DATABASE = b"SQLite format 3\0"


def run_id(format: str, sha256: str, key: str) -> str:  # noqa: A002
    """Return the id of a run in a transcript, derived from the file's digest and the run's key."""
    digest = hashlib.sha256(f"{sha256}\0{key}".encode(errors="replace")).hexdigest()
    return f"{format}-{digest[:16]}"


class EndOfRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as recorded in its source, and what was derived. `end` is the source's own word.

    `uncounted`: the number of responses without complete token counts.
    """

    run: str
    key: str
    end: str = ""
    events: int = 0
    uncounted: int = 0
    state: str = ""
    fit: Fit = Fit()


class TranscriptRun:
    """One run of a file: its id, and its items, which can be read only once. `ended` is set after that.

    `above` is the key of the run that started it, "" for none. `apart` is that key if the file does not name
    the call that started this run; "" if it names neither run nor call; else None. `begun_by` is the parent
    run and call, if the caller knows them better than the file.
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
        """Yield the events of its log in groups that belong together.

        `run`: the id of an existing run that this one continues.
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
    """One file while it is read. `problems` are the first problems; `odd` counts all, `unread` those with
    data that was not read.

    `closest`: the detected format; None if the user named the format.
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
        self._runs_by_key: dict[str, TranscriptRun] = {}
        self._tallies: list[RunCounts] = []

    def runs(self) -> Iterator[TranscriptRun]:
        """Yield the runs one after the other. Unread items of a run are skipped before the next.

        Raises `BadTranscript` if not one item can be read, if the file exceeds a limit, or, at the end, if it
        changed while it was read. Raises `OtherFormat` if it only resembles its format.
        """
        self._survey()
        while (item := self._pull()) is not None:
            if isinstance(item, RunBegan):
                yield self._begin_run(item)
                for _ in self.rest():
                    pass
            elif isinstance(item, RunEnded):
                self._end_run(item, Count())  # end of the file; belongs to no run
            else:
                self._early.append(item)  # items before a run are recorded at the start of that run's log
        self._report_leftovers()
        if self._source.sha256() != (self.sha256, self.bytes):
            raise BadTranscript(self._source.name, "", self._describe_change())

    def counts(self) -> Counts:
        """Return the counts, once all runs were read."""
        return count_runs(
            self.format, self._runs - self._children, self._ends, self._tallies, once=self._database
        )

    def rest(self) -> Iterator[Item]:
        """Yield the remaining items of the current run; the last is its end."""
        began, cut, count = False, "", Count()
        while self._open:
            item = self._pull()
            if item is None or (began and isinstance(item, RunBegan)):
                self._put_back(item)
                item = RunEnded(position="", end="unknown", end_source="no end is recorded")
            if isinstance(item, RunEnded):
                for cut_off in self._report_cut():
                    cut = cut_off.problem
                    yield cut_off
                item = _mark_open(item, cut) if cut else item
                self._open = False
                self._end_run(item, count)
            else:
                count.take(item)
                cut = item.problem if isinstance(item, Unread) and item.code in CUT else cut
            yield item
            if isinstance(item, RunBegan):
                began = True
                yield from self._early
                self._early = []

    def found(self, problems: list[ImportProblem]) -> None:
        """Count problems and empty the list."""
        self.odd += len(problems)
        self.unread += sum(problem.unread for problem in problems)
        self.problems += problems[: max(0, MOST_PROBLEMS - len(self.problems))]
        problems.clear()

    def _read_items(self) -> Iterator[Item]:
        for item in conversations(self._importer.items(self._source)):
            yield item
            yield from warn_of_versions(self.format, item)
            if isinstance(item, Remarked) and not item.known:
                yield from Place(item.position, item.at).unknown_calls(decode_nested_json(item.rest))

    def _end_run(self, end: RunEnded, count: Count) -> None:
        count.take(end)
        if not self._child:
            self._ends.append(end)
        self._tallies.append(count.tally())

    def _survey(self) -> None:
        """Read all items and refuse foreign files before anything is written.

        A run that was begun in the store cannot be removed.
        """
        found, held = Survey(self._source.name), list[Item]()
        while (item := self._guard_read(lambda: next(self._items, None))) is not None:
            found.take(item)
            held.append(item)
            if found.size > MOST_HELD:
                held.clear()
        # A small file is read once; its items are kept in memory until they are imported.
        self._items = iter(held) if found.size <= MOST_HELD else self._read_items()
        match = self._importer.match(self._source)
        certain = match is not None and match.score >= CERTAIN
        if self._closest is not None and (problem := found.foreign(certain=certain)):
            raise OtherFormat(self._source.name, self._closest, problem)
        self.found(found.problems(certain=certain))

    def _begin_run(self, item: RunBegan) -> TranscriptRun:
        key = item.key
        if key in self._keys:
            key = f"{key}#{self._runs + 1}"
            problem = f"key {item.key!r} is already used by another run; this run is named {key!r}"
            self.found([ImportProblem(item.position, "key_repeated", problem)])
        self._keys.add(key)
        self._runs += 1
        self._children += bool(item.parent)
        self._open, self._child = True, bool(item.parent)
        began = msgspec.structs.replace(item, key=key)
        self._put_back(began)
        run = TranscriptRun(run_id(self.format, self.sha256, key), began, self)
        self._runs_by_key[key] = run
        return run

    def parent_of(self, began: RunBegan) -> Parent | None:
        """Return the run and the call that started this one, if both were derived before it."""
        above = self._runs_by_key.get(began.parent)
        call = above.call_ids.get(began.call) if above is not None and began.call else None
        return Parent(run=above.run, call=call) if above is not None and call is not None else None

    def _pull(self) -> Item | None:
        return self._waiting.popleft() if self._waiting else self._guard_read(lambda: next(self._items, None))

    def _guard_read(self, read: Callable[[], Read]) -> Read:
        """Call a reader. Raises only `BadTranscript`, whatever the file contains."""
        try:
            return read()
        except BadTranscript as error:
            if not self._source.problem:
                raise
            # The damage to the source is the cause of the error, so the message includes it.
            problem = f"{error.problem} ({self._source.problem})"
            raise BadTranscript(error.name, error.position, problem) from error
        except RecursionError as error:
            raise BadTranscript(self._source.name, "", "nested too deeply") from error

    def _put_back(self, item: Item | None) -> None:
        if item is not None:
            self._waiting.appendleft(item)

    def _report_cut(self) -> Iterator[Unread]:
        """Yield the reason if the file breaks off after its last run."""
        following = self._pull()
        if (
            isinstance(following, Unread) and following.code in CUT
        ):  # some importers yield it after the end of the run
            yield following
            return
        self._put_back(following)
        if following is None and self._source.problem:
            yield Unread(position="the end", code="cut_off", problem=self._source.problem)

    def _describe_change(self) -> str:
        runs = [run_id(self.format, self.sha256, key) for key in sorted(self._keys)]
        made = ", ".join(runs[:_NAMED]) + (", …" if len(runs) > _NAMED else "")
        return f"file changed while it was read; the imported runs match no version of it ({made}). Import it again"

    def _report_leftovers(self) -> None:
        for item in self._early:
            if isinstance(item, Unread):
                self.found([ImportProblem(item.position, item.code, item.problem, unread=True)])
        beside = [item for item in self._early if not isinstance(item, Unread)]
        if beside and self._runs:
            problem = f"{len(beside)} items after the last run are in no log"
            self.found([ImportProblem(beside[0].position, "beside", problem)])
        if self._source.problem and not self._runs:
            self.found([ImportProblem("the end", "cut_off", self._source.problem, unread=True)])


def _mark_open(end: RunEnded, problem: str) -> RunEnded:
    """Return an `open` end for a run whose record breaks off, whatever the rest of the file records."""
    rest = f"; the rest of the file records {end.end}" if end.end != "open" else ""
    return msgspec.structs.replace(end, end="open", end_source=f"the source is truncated: {problem}{rest}")


def _last_part(name: str) -> str:
    return clean(name.replace("\\", "/").rsplit("/", 1)[-1])
