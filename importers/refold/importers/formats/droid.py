"""Droid sessions, as Factory's command line keeps them: a header, messages of content blocks, and what it notes beside.

An answer is one message, with its thoughts and calls; results come in a message of the person's side, before what the person
or the harness said with them. A message in which all is in `<system-` tags is the harness's. A compaction names the last
message that its summary stands for. Tokens are in no row: a file beside the session sums them up.

Counted: messages by their role, those with results as such.
"""

from collections.abc import Iterator
from copy import copy

from msgspec.structs import replace

from refold.importers.answers import end_of
from refold.importers.cuts import since, summed_up
from refold.importers.fields import (
    JSON,
    Times,
    at,
    rows,
    take_each,
    take_flag,
    take_if,
    take_text,
    take_words,
    text,
)
from refold.importers.items import Counted, Item, Place, RunBegan
from refold.importers.message_shapes import take_messages
from refold.importers.registry import Match
from refold.importers.session_rows import Noise, Row, Rows, first_rows, gathered, unread_parts
from refold.importers.source import Source
from refold.importers.tallies import counted
from refold.importers.traces import answer_of
from refold.importers.trees import branches, diagnose_repeat, find_repeats, path_to
from refold.reducers.vocabulary import Role

_KINDS = ("todo_state", "session_settings", "agent_turn_outcome", "session_end")
_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document")
_LABELS = ("title", "cwd", "version")
_LOOKED = 20


class Droid:
    """The importer of Droid's session files."""

    name = "droid"

    def match(self, source: Source) -> Match | None:
        """By its header, or by what it notes beside its messages."""
        found = [row.value for row in first_rows(source, _LOOKED) if isinstance(row, Row)]
        heads = (row for row in found if text(row, "type") == "session_start" and text(row, "id"))
        if any({"cwd", "owner", "title", "sessionTitle"} & row.keys() for row in heads):
            return Match(92, "a session_start with its folder or title")
        noted = any(text(row, "type") in ("todo_state", "compaction_state") for row in found)
        spoke = any(isinstance(at(row, "message", "content"), list) for row in found)
        return Match(82, "messages beside the state of a list of to-dos") if noted and spoke else None

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the file."""
        return gathered(_Reading(source).items())


DROID = Droid()


class _Reading:
    """One reading of a session."""

    def __init__(self, source: Source) -> None:
        self.rows, self.times = Rows(source), Times()
        self.numbers: dict[str, int] = {}
        self.open: dict[str, str] = {}
        self.end = "open", "no message in the file"
        self.head: Row | None = None
        self.model = ""
        self.left = self._look_ahead()

    def _look_ahead(self) -> frozenset[str]:
        """The ids of messages on branches that were left, as far as the rows name their parents; and the header."""
        parents: dict[str, str] = {}
        repeated: set[str] = set()
        for row in (row for row in self.rows if isinstance(row, Row)):
            if text(row.value, "type") == "session_start":
                self.head = self.head or row
            elif text(row.value, "type") == "message":
                repeated.update({text(row.value, "id")} & parents.keys())
                parents.setdefault(text(row.value, "id"), text(row.value, "parentId"))
            self.model = self.model or text(row.value, "message", "model") or text(row.value, "model")
        self.repeats = find_repeats(self.rows, "id", repeated - {""}, lambda row: at(row, "message"))
        path = path_to(parents, next(reversed(parents), ""))
        return frozenset(id_ for branch in branches(parents, path) for id_ in branch.rows)

    def items(self) -> Iterator[Item | Noise]:
        """The run, noise not yet gathered."""
        head, line = self.head.value if self.head else None, 1
        place = self.head.place if self.head else Place("line 1")
        yield RunBegan(
            place.position,
            place.at,
            key=take_text(head, "id") or "session",
            model=self.model,
            agent="droid",
            cuts=None,
            labels={name: label for name in _LABELS if (label := take_text(head, name))},
            rest=self.head.rest() if self.head else "",
        )
        for row in self.rows:
            line = row.line
            if isinstance(row, Noise):
                yield row
            elif self.head is None or row.number != self.head.number:
                yield from self._row(row)
        yield Place(f"line {line}").ended(self._end(), self.times.edges())

    def _row(self, row: Row) -> Iterator[Item | Noise]:
        kind, id_ = text(row.value, "type"), text(row.value, "id")
        self.times.see(row.value.get("timestamp"), row.at)
        if kind == "compaction_state":
            yield from self._compacted(row)
        elif kind != "message":
            yield row.noise(known=kind in _KINDS or kind == "session_start")
        elif row.number in self.repeats.again:
            yield row.noise("repeated")
        elif row.number in self.repeats.others:
            yield diagnose_repeat(row, "id")
            yield from self._message(row, row.value.get("message"))
        elif id_ in self.left:
            noise = row.noise("rewound")  # encoded before anything is taken from it
            counts = self._counted(row)
            yield replace(noise, counts=counts, apart=counts)
        else:
            self.numbers[id_] = row.number
            yield from self._message(row, row.value.get("message"))

    def _counted(self, row: Row) -> Counted | None:
        """As what a message counts on a branch that was left; nothing else follows from it."""
        beside = copy(self)
        beside.open = {}
        told = beside._message(row, row.value.get("message"))
        return counted(item for item in told if not isinstance(item, Noise))

    def _message(self, row: Row, message: JSON) -> Iterator[Item | Noise]:
        kinds = (text(block, "type") for block in rows(message, "content"))
        yield from unread_parts(row, message, ("content",), kinds, _BLOCKS)
        match text(message, "role"):
            case "assistant":
                yield self._answer(row, message)
            case "user":
                yield from self._user(row, message)
            case _:
                yield row.noise(known=False)

    def _answer(self, row: Row, message: JSON) -> Item:
        read, model = take_messages(message, role=Role.ASSISTANT), take_text(message, "model")
        answer = answer_of(read)
        self.open = {call.id: call.name for call in answer.calls}
        how = f"; it stopped by {read.stop[:40]}" if read.stop else ""
        self.end = end_of(read.stop) if read.stop else "finished", f"last answer has no call{how}"
        return row.place.answered(answer, stop=read.stop, model=model, rest=row.rest())

    def _user(self, row: Row, message: JSON) -> Iterator[Item]:
        """The results in a message of the person's side, then what was said with them."""
        blocks = [block for block in rows(message, "content") if text(block, "type") != "tool_result"]
        tagged = all(text(block, "text").startswith("<system-") for block in blocks) and bool(blocks)
        listed = bool(rows(message, "content"))
        results = [
            _take_result(block)
            for block in take_each(message, "content")
            if text(block, "type") == "tool_result"
        ]
        said = take_words(message, "content", beside=frozenset({"tool_result"}))
        take_if(message, "role", "user")
        rest = row.rest()
        for call, output, failed in results:
            name = self.open.pop(call, "")
            self.end = "open", "last message has results, no answer after it"
            yield row.place.returned(call, output, name=name, failed=failed, rest=rest)
        if said or not listed:
            self.end = "open", "last message is a prompt, no answer after it"
            yield row.place.said(said, "harness" if tagged else "user", rest=rest)

    def _compacted(self, row: Row) -> Iterator[Item]:
        """Later requests show the summary, and what was said behind the message that it names."""
        yield row.remarked("compaction")
        anchor = self.numbers.get(text(row.value, "anchorMessage", "id"))
        if summary := text(row.value, "summaryText"):
            yield summed_up(row.place, summary, tail=since(anchor + 1) if anchor is not None else ())

    def _end(self) -> tuple[str, str]:
        """How it ended, and what says so."""
        return ("open", f"{len(self.open)} tool call(s) without result at the end") if self.open else self.end


def _take_result(block: JSON) -> tuple[str, str, bool]:
    """The call that a result is of, what it showed the model, and whether it failed."""
    failed = take_flag(block, "is_error") is True  # a block of results says so only of those that failed
    take_if(block, "type", "tool_result")
    return take_text(block, "tool_use_id"), take_words(block, "content"), failed
