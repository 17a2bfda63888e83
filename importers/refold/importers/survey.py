"""A look over all that a file says, before anything of it is written: does it say it in this format, and not too much?

Files of other agents may look like one of a format and map to nothing of it. What tells them is what comes out: messages
in which nothing stands, and rows that the format is not known to have.
"""

from refold.importers.derivation.log import Problem
from refold.importers.items import (
    UNKNOWN_PART,
    Answered,
    Item,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
    message_of,
)
from refold.importers.source import BadTranscript, fits
from refold.reducers.messages import Message

MOST_ITEMS = 10_000_000
"""Items of one file: each is an event at least."""

_ITEM = 300  # bytes of an item itself, about
_OF_THE_FORMAT = 5  # where nothing was said, one row in so many is of the format


class Survey:
    """What was found in a file `name`. `said` messages, answers and results were read, `mute` ones not, or not all of each.

    `runs` are counted; `known` and `unknown` are rows beside messages. `silent`: problems of runs in which nothing was said at all.
    `size`: characters of all that was said.
    """

    def __init__(self, name: str) -> None:
        self.runs = self.said = self.mute = self.known = self.unknown = 0
        self.first_mute = self.first_unknown = self._last_mute = ""
        self.silent: list[Problem] = []
        self.size = 0
        self._name = name
        self._count = self._together = self._before = self._unread = 0
        self._began: RunBegan | None = None

    def foreign(self, *, certain: bool) -> str:
        """Why it is not of this format, "" if it may be: most of what it holds says nothing.

        `certain`: something in it is of this format alone. Else rows of another may hold what was done.
        """
        if self.mute and self.mute >= self.said:
            of = f"{self.mute} of {self.mute + self.said}"
            return f"{of} messages in it cannot be read as such, the first at {self.first_mute}"
        most = (_OF_THE_FORMAT - 1) * self.known if not self.said else self.said + self.known
        if self.unknown > most and not (certain and self.said):
            of = f"{self.unknown} of {self.unknown + self.known + self.said}"
            return f"{of} rows in it are of no known type, the first at {self.first_unknown}"
        return ""

    def problems(self, *, certain: bool) -> list[Problem]:
        """What is to be told of it, each once for the whole file."""
        found = [*self.silent] if self.runs else [Problem("", "nothing_said", "no run in it")]
        if problem := self.foreign(certain=certain):
            found.append(Problem("", "foreign", f"most of it says nothing: {problem}", unread=True))
        elif self.unknown:
            rows = f"rows of no known type, kept as they are: {self.unknown}"
            unread = not (certain and self.said)
            found.append(Problem(self.first_unknown, "unknown_rows", rows, unread=unread))
        return found

    def take(self, item: Item) -> None:
        """Look at one more item. Raises `BadTranscript` for more than is read of any file."""
        self._count += 1
        if self._count > MOST_ITEMS:
            problem = f"more than {MOST_ITEMS} messages and remarks in one file"
            raise BadTranscript(self._name, item.position, problem)
        self._bounded(item)
        match item:
            case RunBegan():
                self._began, self._before = item, self._heard()
                self.runs += 1
                self.said += len(item.messages)
                self.known += bool(item.rest)  # its header
            case RunEnded():
                self._ended()
            case Prompted():
                self.said += bool(item.messages)
            case Remarked(known=False):
                self.unknown += item.rows
                self.first_unknown = self.first_unknown or item.position
            case Remarked():
                self.known += item.rows
            case Unread(read=True):
                pass
            case Unread(code=code):
                self._unread += 1
                if code == UNKNOWN_PART:
                    self.mute += 1
                    self.first_mute = self.first_mute or item.position
                    self._last_mute = item.position
            case _:
                self.said += item.position != self._last_mute

    def _heard(self) -> int:
        return self.said + self.mute + self._unread

    def _ended(self) -> None:
        if self._began is not None and self._heard() == self._before:
            problem = f"run {self._began.key!r}: no message and no answer in it"
            self.silent.append(Problem(self._began.position, "nothing_said", problem))
        self._began = None

    def _bounded(self, item: Item) -> None:
        """What is said between two answers may become one event."""
        size = _size(item)
        self.size += size + len(item.rest) + _ITEM
        if isinstance(item, Answered | RequestFailed | RunBegan | RunEnded):
            self._together = 0
        self._together += size if isinstance(item, Said) else 0
        fits(self._name, item.position, max(size, self._together, len(item.rest)))


def _size(item: Item) -> int:
    match item:
        case Said():
            return len(item.text)
        case Answered() | Returned():
            return _length(message_of(item))
        case RequestFailed():
            return len(item.message) + len(item.partial_text)
        case Prompted() | RunBegan():
            return sum(map(_length, item.messages))
        case _:
            return 0


def _length(message: Message) -> int:
    return len(message.text) + len(message.reasoning) + sum(len(call.arguments) for call in message.calls)
