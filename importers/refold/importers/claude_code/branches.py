"""Branches of a Claude Code session that somebody left by going back: the rows of each, read again without all being held.

Rows are named by their places in the file, from 0.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from refold.importers.session_rows import MOST_HELD, Noise, Row


class Branch(msgspec.Struct, frozen=True):
    """A conversation that was left: its `number`, `above` that of the one from which it forks, 0 for the session's.

    `fork` is the place of the row behind which it does, `first` that of its first row, `uuid` what names this one, `size`
    the bytes of all.
    """

    number: int
    above: int
    fork: int
    first: int
    uuid: str
    size: int

    def key(self, session: str) -> str:
        """The key of its run: the same when the session goes on."""
        return f"{session}/rewound-{self.uuid}"


class Branches(msgspec.Struct, frozen=True):
    """Those of a file, by their first rows. `of`: the number of each row's, where it is of one.

    `unanswered`: rows behind a prompt that was asked anew before it was answered; they are no branch of their own.
    """

    heads: dict[int, Branch] = {}
    of: dict[int, int] = {}
    unanswered: set[int] = set()

    def join(self, place: int, before: int) -> None:
        """A row is of the conversation of the one before it."""
        if number := self.of.get(before):
            self.of[place] = number
        if before in self.unanswered:
            self.unanswered.add(place)

    def read(self, rows: Iterable[Row | Noise]) -> Iterator[tuple[Branch, Iterable[tuple[int, Row]]]]:
        """Each with its rows, and with the first rows of those that fork from it. A large one is read while it is told."""
        for batch in _batches(sorted(self.heads.values(), key=lambda branch: branch.first)):
            if len(batch) == 1:
                (branch,) = batch
                yield branch, (place_row for number, place_row in self._told(rows) if number == branch.number)
                continue
            held: dict[int, list[tuple[int, Row]]] = {branch.number: [] for branch in batch}
            for number, place_row in self._told(rows):
                if number in held:
                    held[number].append(place_row)
            yield from ((branch, held.pop(branch.number)) for branch in batch)

    def _told(self, rows: Iterable[Row | Noise]) -> Iterator[tuple[int, tuple[int, Row]]]:
        """Each row with the number of every branch in whose run it is told of."""
        for place, row in enumerate(rows):
            if isinstance(row, Row) and (number := self.of.get(place)):
                yield number, (place, row)
                if place in self.heads and (above := self.heads[place].above):
                    yield above, (place, row)


def _batches(branches: Sequence[Branch]) -> Iterator[list[Branch]]:
    """As many at once as may be held, so that a file of many is not read once for each."""
    batch: list[Branch] = []
    size = 0
    for branch in branches:
        if batch and size + branch.size > MOST_HELD:
            yield batch
            batch, size = [], 0
        size += branch.size
        batch.append(branch)
    if batch:
        yield batch
