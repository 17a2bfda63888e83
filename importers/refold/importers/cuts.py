"""Cuts of a conversation, and the calls that wait for a result.

A reader says which rows stay, and holds no messages for it: what they said is known behind the readers.
"""

from collections.abc import Iterable, Mapping

from refold.importers.items import NO_ROW, Answered, Item, Place, Returned, Said
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Ranges, Role
from refold.reducers.window import ranges_of

BEGINNING = 0
"""The row of what a run begins with. A source's own are numbered from 1."""

_LAST = 1 << 62

ALL: Ranges = ((NO_ROW, _LAST),)
"""Every row, and what stands in none."""


class Cut(Item, frozen=True, kw_only=True):
    """From here on the model is shown something else than all that was said: after a compaction, a rollback, …

    First the last `turns` of the person are taken back, with all that followed them. Of the rest stays
    `head`, then comes what `joins`, then stays `tail`: ranges of rows, first and last included; `between`:
    and what was said between them. `cleared` has what is left of the words of results, by the providers' ids
    of their calls. `why` is the source's word for it.
    """

    why: str
    turns: int = 0
    head: Ranges = ()
    joins: tuple[Said | Answered | Returned, ...] = ()
    tail: Ranges = ()
    between: bool = False
    cleared: Mapping[str, str] = {}


class Forked(Item, frozen=True, kw_only=True):
    """The run of this `key`, which is told later, begins with all that was said in this one up to here."""

    key: str


def cut_to_summary(place: Place, summary: str, *, head: Ranges = (), tail: Ranges = ()) -> Cut:
    """A compaction: `summary` stands for what does not stay. It stands in no row: no later cut names it."""
    said = Place(place.position).message(summary, "harness")
    return Cut(*place.common(), why="compaction", head=head, joins=(said,), tail=tail)


def since(row: int) -> Ranges:
    """This row and all behind it."""
    return ((row, _LAST),)


def only(rows: Iterable[int]) -> Ranges:
    """These rows, in any order."""
    return ranges_of(sorted(set(rows)))


def answering(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages without the results for which no call is open."""
    kept: list[Message] = []
    waiting = 0
    for message in messages:
        result = message.role is Role.TOOL
        if waiting or not result:
            kept.append(message)
            waiting += len(message.calls) - result
    return tuple(kept)
