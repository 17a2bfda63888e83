"""A look over all that a file says, before anything of it is written: does it say it in this format, and not too much?

Files of other agents may look like one of a format and map to nothing of it. What tells them is what comes out: messages
in which nothing stands, and rows that the format is not known to have.
"""

from collections.abc import Iterable

import msgspec

from refold.reducers.messages import Message
from refold.replay.importers.derivation.log import Problem
from refold.replay.importers.items import (
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
)
from refold.replay.importers.source import BadTranscript, fits

MOST_ITEMS = 10_000_000
"""Items of one file: each is an event at least."""

_OF_THE_FORMAT = 5  # where nothing was said, one row in so many is of the format


class Survey(msgspec.Struct):
    """What was found. `said` messages, answers and results were read, `mute` ones not, or not all of each.

    `runs` are counted; `known` and `unknown` are rows beside messages. `silent`: problems of runs in which nothing was said at all.
    """

    runs: int = 0
    said: int = 0
    mute: int = 0
    known: int = 0
    unknown: int = 0
    first_mute: str = ""
    first_unknown: str = ""
    silent: list[Problem] = msgspec.field(default_factory=list[Problem])

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


def surveyed(name: str, items: Iterable[Item]) -> Survey:
    """Look over the items of a file. Raises `BadTranscript` for more than is read of any, and what reading raises."""
    look = _Look(name)
    for item in items:
        look.take(item)
    return look.found


class _Look:
    def __init__(self, name: str) -> None:
        self.name, self.found = name, Survey()
        self.count = self.together = self.before = 0
        self.began: RunBegan | None = None
        self.last_mute = ""
        self.unread = 0

    def take(self, item: Item) -> None:
        self.count += 1
        if self.count > MOST_ITEMS:
            raise BadTranscript(
                self.name, item.position, f"more than {MOST_ITEMS} messages and remarks in one file"
            )
        self._bounded(item)
        found = self.found
        match item:
            case RunBegan():
                self.began, self.before = item, self._heard()
                found.runs += 1
                found.said += len(item.messages)
                found.known += bool(item.rest)  # its header
            case RunEnded():
                self._ended(found)
            case Prompted():
                found.said += bool(item.messages)
            case Remarked(known=False):
                found.unknown += item.rows
                found.first_unknown = found.first_unknown or item.position
            case Remarked():
                found.known += item.rows
            case Unread(code=code):
                self.unread += 1
                if code == UNKNOWN_PART:
                    self._mute(item)
            case _:
                found.said += item.position != self.last_mute

    def _mute(self, item: Item) -> None:
        self.found.mute += 1
        self.found.first_mute = self.found.first_mute or item.position
        self.last_mute = item.position

    def _heard(self) -> int:
        return self.found.said + self.found.mute + self.unread

    def _ended(self, found: Survey) -> None:
        if self.began is not None and self._heard() == self.before:
            problem = f"run {self.began.key!r}: no message and no answer in it"
            found.silent.append(Problem(self.began.position, "nothing_said", problem))
        self.began = None

    def _bounded(self, item: Item) -> None:
        """What is said between two answers may become one event."""
        size = _size(item)
        if isinstance(item, Answered | RequestFailed | RunBegan | RunEnded):
            self.together = 0
        self.together += size if isinstance(item, Said) else 0
        fits(self.name, item.position, max(size, self.together, len(item.rest)))


def _size(item: Item) -> int:
    match item:
        case Said():
            return len(item.text)
        case Answered():
            return len(item.text) + len(item.reasoning) + sum(len(call.arguments) for call in item.calls)
        case Returned():
            return len(item.output)
        case RequestFailed():
            return len(item.message) + len(item.partial_text)
        case Prompted() | RunBegan():
            return sum(map(_length, item.messages))
        case _:
            return 0


def _length(message: Message) -> int:
    return len(message.text) + len(message.reasoning) + sum(len(call.arguments) for call in message.calls)
