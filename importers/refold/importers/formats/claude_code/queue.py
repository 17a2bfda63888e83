"""Text that a user typed while the agent worked, and responses recorded once for each state of their stream.

Typed text waits in a queue; rows record when it is added and when it leaves. The rows have no ids, so text
that leaves is found by its content, otherwise it is the first in the queue. It may appear again as a separate
row, an attachment or a prompt, before the next response: then that row is the message. If it does not, its
removal from the queue is the only evidence that the model received it.

While a response is streamed, iFlow writes a row for each state of it, each with another `message.id` and all
with the same parent. A row may repeat the call of the row before it. So a call that repeats the id of a call
without a result is the same call.
"""

import re
from collections import defaultdict, deque
from collections.abc import Callable
from itertools import islice
from typing import Literal

import msgspec

from refold.importers.fields import JSON, NANO, at, rows, text
from refold.importers.formats.claude_code.attachments import read_queued
from refold.importers.formats.claude_code.rows import Kind, command_name, join_text, list_results
from refold.importers.session_rows import Row

What = Literal["said", "typed:taken_back", "typed:never_sent", "typed:unknown"]
"""The fate of text that is in no other row: sent to the model, not sent, or unknown."""

_ABSORBED = "absorbed_mid_turn"
_COMMAND = re.compile(r"/[A-Za-z][\w:.-]*(?:\s|$)")
_NOTICES = ("<task-notification", "<system-reminder")
_TOGETHER = 50  # texts that leave one after another and may be joined in one prompt


class Fate(msgspec.Struct, frozen=True):
    """What became of queued text, recorded at the row that added or removed it."""

    what: What
    said: str


class _Words:
    """Text in the queue. `came` and `left` are the places of the rows that added and removed it.

    `how` is the operation that removed it. `open`: it waits, or no response has started since it left.
    `heard`: another row contains it.
    """

    def __init__(self, said: str, came: int) -> None:
        self.said, self.came, self.left, self.how = said, came, came, ""
        self.waiting = self.open = True
        self.heard = False


class Queue:
    """The queue, updated row by row.

    After `end`, `fates` has what became of typed text, by the place of the row that added or removed it.
    """

    def __init__(self) -> None:
        self.fates: dict[int, Fate] = {}
        self._all: deque[_Words] = deque()
        self._left: deque[_Words] = deque()
        # Texts that wait and texts found in no other row, by content, in order. Outdated entries are dropped
        # when they are reached.
        self._waiting: defaultdict[str, deque[_Words]] = defaultdict(deque)
        self._unheard: defaultdict[str, deque[_Words]] = defaultdict(deque)

    def read_row(self, row: JSON, place: int, found: Kind, *, answers: bool) -> None:
        """Update the queue with a row of the main conversation.

        `answers`: the row is the first of a response.
        """
        if answers:
            self._settle()
        if text(row, "type") == "queue-operation":
            self._read_operation(row, place)
        elif said := read_queued(row) or (join_text(row) if text(row, "type") == "user" else ""):
            self._match_message(said, command_name(row) if found == "command" else "")

    def end(self) -> None:
        """Settle all text that is still in the queue after the last row."""
        self._settle()
        for words in self._all:
            if words.waiting:
                self._record_fate(words, "typed:never_sent", words.came)

    def _read_operation(self, row: JSON, place: int) -> None:
        said, operation = text(row, "content"), text(row, "operation")
        named = (
            _skip_to_first(self._waiting[_normalize_spaces(said)], lambda words: words.waiting)
            if said
            else None
        )
        match operation:
            case "enqueue":
                words = self._add_words(said, place)
                self._all.append(words)
                self._waiting[_normalize_spaces(said)].append(words)
            case "popAll":
                for words in [named] if named else self._all:
                    self._remove(words, operation, place)
                if not named:
                    self._all.clear()
            case "dequeue" | "remove" if said:
                self._remove(named or self._add_words(said, place), text(row, "reason") or operation, place)
            case "dequeue" | "remove":
                first = _skip_to_first(self._all, lambda words: words.waiting)
                if first is not None:
                    self._remove(first, text(row, "reason") or operation, place)
            case _:
                pass  # an operation of a later version: the text stays in the queue

    def _add_words(self, said: str, place: int) -> _Words:
        words = _Words(said, place)
        self._unheard[_normalize_spaces(said)].append(words)
        return words

    def _remove(self, words: _Words, how: str, place: int) -> None:
        if words.waiting:
            words.waiting, words.how, words.left = False, how, place
            self._left.append(words)

    def _match_message(self, said: str, command: str) -> None:
        alike = _skip_to_first(
            self._unheard[_normalize_spaces(said)], lambda words: words.open and not words.heard
        )
        if alike is not None:
            alike.heard = True
            return
        for words in islice(self._left, _TOGETHER):
            named = bool(command) and words.said.split()[:1] == [command]
            words.heard = words.heard or named or (words.how == "dequeue" and words.said in said)

    def _settle(self) -> None:
        """Decide about text that left the queue before this response: the model received it by now, or never
        will.
        """
        for words in self._left:
            words.open = False
            if words.how == "popAll":
                self._record_fate(words, "typed:taken_back", words.came)
            elif words.how == _ABSORBED or (words.how == "remove" and not _COMMAND.match(words.said)):
                self._record_fate(words, "said", words.left)
            else:
                self._record_fate(words, "typed:unknown", words.came)
        self._left.clear()

    def _record_fate(self, words: _Words, what: What, place: int) -> None:
        typed = what == "said" or find_sender(words.said) == "user"
        if words.said.strip() and not words.heard and typed:
            self.fates[place] = Fate(what, words.said)


def find_sender(said: str) -> str:
    """Return who put text into the queue: the user, or the harness with a notice."""
    return "harness" if said.lstrip().startswith(_NOTICES) else "user"


def _skip_to_first(queue: deque[_Words], wanted: Callable[[_Words], bool]) -> _Words | None:
    while queue and not wanted(queue[0]):
        queue.popleft()
    return queue[0] if queue else None


def _normalize_spaces(said: str) -> str:
    return " ".join(said.split())


_IFLOW = "session-"


def is_iflow(session: str) -> bool:
    """Return whether a session is iFlow's, by the prefix of its id. Claude Code's ids are bare UUIDs."""
    return session.startswith(_IFLOW)


class Bursts:
    """Finds the response of each row, also if the states of a response have different ids.

    Responses are identified by the places of their first rows.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[bool, str], tuple[int, str, JSON]] = {}
        self._last: tuple[int, Row] | None = None

    def find_first(self, row: Row, first: int) -> int:
        """Return the first row of the response that contains `row`.

        `first` is the result by `message.id` alone.
        """
        side = at(row.value, "isSidechain") is True
        asked = [
            block for block in rows(row.value, "message", "content") if text(block, "type") == "tool_use"
        ]
        for call in asked:
            known = self._open.get((side, text(call, "id")))
            if known is not None and known[1:] == (text(call, "name"), at(call, "input")):
                first = min(first, known[0])
        if self._last is not None and _is_same_stream(self._last[1], row):
            first = min(first, self._last[0])
        for call in asked:
            if id_ := text(call, "id"):
                self._open.setdefault((side, id_), (first, text(call, "name"), at(call, "input")))
        self._last = first, row
        return first

    def end(self, row: JSON, found: Kind) -> None:
        """Process a row that does not belong to a response: its results end calls, and no response streams
        after it.
        """
        if found == "other":
            return
        self._last = None
        for result in list_results(row):
            self._open.pop((at(row, "isSidechain") is True, text(result, "tool_use_id")), None)


def _is_same_stream(before: Row, row: Row) -> bool:
    """Return whether two rows are states of one iFlow response: same parent, less than a second apart."""
    parent = text(row.value, "parentUuid")
    if not (is_iflow(text(row.value, "sessionId")) and parent and parent == text(before.value, "parentUuid")):
        return False
    return before.at is not None and row.at is not None and 0 <= row.at - before.at < NANO
