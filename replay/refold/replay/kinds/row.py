"""The contract of a row: what is said of the events of one kind, and to whom.

A row is literal: a word where the kind alone decides, a pure function of the event where it does not. Listings, the page, exports
and counts ask rows, so that a new kind is one row more in the table and nothing else here.
"""

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from refold.reducers.events import Event
from refold.replay.kinds.details import NOTHING, EventDetails, Tools

EventType = Literal["run", "model", "tool", "person", "history", "guard", "limit", "wait", "state", "note"]
"""What a kind of event is about, in one word: `type` in filters."""

Weight = Literal["routine", "plain", "decisive"]
"""`routine`: a short list leaves it out. `decisive`: it made the run what it was."""

MarkedTurn = Literal["", "this", "next"]
"""The turn whose row in a listing of turns has a word about it: the one under way, the one that the next request opens, none."""

Sign = Literal["", "guard", "prune"]
"""What an event is in a timeline, beside what failed."""

E = TypeVar("E", bound=Event)


class Kind(msgspec.Struct, Generic[E], frozen=True, kw_only=True):
    """A kind of event as people are told of it.

    `says` is what it says in one line without its kind, in words of ours and the log's names and numbers; `quotes` are the words of
    somebody else that the line goes on with, in an excerpt, "" without any. Neither is harmless yet: whoever shows it sees to that.
    `marks` is the turn that has a word about it, and `mark` this word where `says` would not do there.

    `texts` are the ways to what was said in it, in order: `content.text`, `reason`. `speaker` is who says that, "" where
    nobody does. `details` are its names, codes and numbers, given the tools of the last answer's calls. `counts` is the member of
    `Stats` in which it counts, and under which word.

    Comparing two runs: `compared` says whether it counts; `named` that it is aligned by its name too; `tells` that the model was
    shown it or said it; `ignores` are fields that no second run can have alike, beside those that no kind has alike.
    """

    of: type[E]
    type: EventType
    says: Callable[[E], str]
    quotes: Callable[[E], str] = lambda _: ""
    marks: MarkedTurn = ""
    mark: Callable[[E], str] | None = None
    texts: tuple[str, ...] = ()
    speaker: str = ""
    details: Callable[[E, Tools], EventDetails] = lambda _, __: NOTHING
    weight: Callable[[E], Weight] = lambda _: "plain"
    sign: Sign = ""
    counts: tuple[str, Callable[[E], str | None]] | None = None
    compared: bool = True
    named: bool = False
    tells: bool = False
    ignores: frozenset[str] = frozenset()

    def sentence(self, event: E) -> str:
        """All that is said of it in one line: ours, and after a colon the words of others."""
        said, quoted = self.says(event), self.quotes(event)
        return f"{said}: {quoted}" if said and quoted else said or quoted


AnyKind = Kind[Any]


def routine(_: Event) -> Weight:
    """Of little weight, whatever it says."""
    return "routine"


def decisive(_: Event) -> Weight:
    """Of much weight, whatever it says."""
    return "decisive"
