"""What a person typed while the agent worked: it waits in a queue, and the session tells how it left. And
answers in bursts.

The words are those that are recorded: what the harness puts around them is in no row. A name before them,
`[file: a.py]`, says where they come from. A type that stands in no table here is not known to reach the
model.

Nothing names one of them in two rows, so what leaves is known by its words, or else it is the first that
waits. It may come again as a row of its own, an attachment or a prompt, before the model answers anew: then
that row is the message. Where it does not, that it left is the only trace that the model was told.

While an answer streams in, iFlow writes a row for each state of it, each under another `message.id` and all
below the same parent. A row may repeat the call of the row before it. So a call that waits for its result,
and is asked once more by its id, is one call.
"""

import re
from collections import defaultdict, deque
from collections.abc import Callable
from itertools import islice
from typing import Literal

import msgspec

from refold.importers.fields import JSON, NANO, at, rows, text
from refold.importers.formats.claude_code.attachments import queued
from refold.importers.formats.claude_code.rows import Kind, command_name, results, spoken
from refold.importers.session_rows import Row

What = Literal["said", "typed:taken_back", "typed:never_sent", "typed:unknown"]
"""What became of words that no other row has: the model was told, or not, or nobody can know."""

_ABSORBED = "absorbed_mid_turn"
_COMMAND = re.compile(r"/[A-Za-z][\w:.-]*(?:\s|$)")
_NOTICES = ("<task-notification", "<system-reminder")
_TOGETHER = 50  # words that leave one after the other and may stand in one prompt


class Fate(msgspec.Struct, frozen=True):
    """What became of words, told at the row by which they came or left."""

    what: What
    said: str


class _Words:
    """Words of the queue. `came` and `left` are the places of the rows that say so, `how` is how they left.

    `open`: they wait, or the model has not answered anew since they left. `heard`: another row has them.
    """

    def __init__(self, said: str, came: int) -> None:
        self.said, self.came, self.left, self.how = said, came, came, ""
        self.waiting = self.open = True
        self.heard = False


class Queue:
    """The queue, row by row.

    `fates`, once `end` was called: what became of which words, by the place of a row.
    """

    def __init__(self) -> None:
        self.fates: dict[int, Fate] = {}
        self._all: deque[_Words] = deque()
        self._left: deque[_Words] = deque()
        # Of each what waits and what was not heard again, in their order; what does not any more is dropped
        # when it is met.
        self._waiting: defaultdict[str, deque[_Words]] = defaultdict(deque)
        self._unheard: defaultdict[str, deque[_Words]] = defaultdict(deque)

    def row(self, row: JSON, place: int, found: Kind, *, answers: bool) -> None:
        """Go on by a row of the main conversation. `answers`: it is the first of a response."""
        if answers:
            self._settle()
        if text(row, "type") == "queue-operation":
            self._moved(row, place)
        elif said := queued(row) or (spoken(row) if text(row, "type") == "user" else ""):
            self._heard(said, command_name(row) if found == "command" else "")

    def end(self) -> None:
        """No row follows."""
        self._settle()
        for words in self._all:
            if words.waiting:
                self._tell(words, "typed:never_sent", words.came)

    def _moved(self, row: JSON, place: int) -> None:
        said, operation = text(row, "content"), text(row, "operation")
        named = _first(self._waiting[_key(said)], lambda words: words.waiting) if said else None
        match operation:
            case "enqueue":
                words = self._came(said, place)
                self._all.append(words)
                self._waiting[_key(said)].append(words)
            case "popAll":
                for words in [named] if named else self._all:
                    self._leave(words, operation, place)
                if not named:
                    self._all.clear()
            case "dequeue" | "remove" if said:
                self._leave(named or self._came(said, place), text(row, "reason") or operation, place)
            case "dequeue" | "remove":
                first = _first(self._all, lambda words: words.waiting)
                if first is not None:
                    self._leave(first, text(row, "reason") or operation, place)
            case _:
                pass  # a word of a version to come: the row is kept, and the words wait

    def _came(self, said: str, place: int) -> _Words:
        words = _Words(said, place)
        self._unheard[_key(said)].append(words)
        return words

    def _leave(self, words: _Words, how: str, place: int) -> None:
        if words.waiting:
            words.waiting, words.how, words.left = False, how, place
            self._left.append(words)

    def _heard(self, said: str, command: str) -> None:
        alike = _first(self._unheard[_key(said)], lambda words: words.open and not words.heard)
        if alike is not None:
            alike.heard = True
            return
        for words in islice(self._left, _TOGETHER):
            named = bool(command) and words.said.split()[:1] == [command]
            words.heard = words.heard or named or (words.how == "dequeue" and words.said in said)

    def _settle(self) -> None:
        """The model answers anew: of what left before, it was told by now, or never will be."""
        for words in self._left:
            words.open = False
            if words.how == "popAll":
                self._tell(words, "typed:taken_back", words.came)
            elif words.how == _ABSORBED or (words.how == "remove" and not _COMMAND.match(words.said)):
                self._tell(words, "said", words.left)
            else:
                self._tell(words, "typed:unknown", words.came)
        self._left.clear()

    def _tell(self, words: _Words, what: What, place: int) -> None:
        typed = what == "said" or by(words.said) == "user"
        if words.said.strip() and not words.heard and typed:
            self.fates[place] = Fate(what, words.said)


def by(said: str) -> str:
    """Who put words into the queue: a person, or the harness with a notice of its own."""
    return "harness" if said.lstrip().startswith(_NOTICES) else "user"


def _first(queue: deque[_Words], wanted: Callable[[_Words], bool]) -> _Words | None:
    while queue and not wanted(queue[0]):
        queue.popleft()
    return queue[0] if queue else None


def _key(said: str) -> str:
    return " ".join(said.split())


_IFLOW = "session-"


def is_iflow(session: str) -> bool:
    """Whether a session is iFlow's, by its id: Claude Code's are bare UUIDs."""
    return session.startswith(_IFLOW)


class Bursts:
    """The answer to which each row of an answer belongs, row by row.

    Answers are known by the places of their first rows.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[bool, str], tuple[int, str, JSON]] = {}
        self._last: tuple[int, Row] | None = None

    def first(self, row: Row, first: int) -> int:
        """The first row of the answer of which `row` is a piece; `first` by its `message.id` alone."""
        side = at(row.value, "isSidechain") is True
        asked = [
            block for block in rows(row.value, "message", "content") if text(block, "type") == "tool_use"
        ]
        for call in asked:
            known = self._open.get((side, text(call, "id")))
            if known is not None and known[1:] == (text(call, "name"), at(call, "input")):
                first = min(first, known[0])
        if self._last is not None and _streams(self._last[1], row):
            first = min(first, self._last[0])
        for call in asked:
            if id_ := text(call, "id"):
                self._open.setdefault((side, id_), (first, text(call, "name"), at(call, "input")))
        self._last = first, row
        return first

    def end(self, row: JSON, found: Kind) -> None:
        """Go on by a row that is no piece of an answer: its results end calls, and with it no answer
        streams.
        """
        if found == "other":
            return
        self._last = None
        for result in results(row):
            self._open.pop((at(row, "isSidechain") is True, text(result, "tool_use_id")), None)


def _streams(before: Row, row: Row) -> bool:
    """Whether both rows are states of one answer of iFlow's: below the same parent, less than a second
    apart.
    """
    parent = text(row.value, "parentUuid")
    if not (is_iflow(text(row.value, "sessionId")) and parent and parent == text(before.value, "parentUuid")):
        return False
    return before.at is not None and row.at is not None and 0 <= row.at - before.at < NANO
