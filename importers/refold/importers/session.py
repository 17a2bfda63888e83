"""Session files of command-line agents: a common reader for rows with a header.

A subclass of `Session` defines how its format reads each row. Rows may form a tree: each names its
predecessor, so going back to an earlier row starts a new branch. The last row and its ancestors are the
conversation. Rows of other branches become remarks, with what they would have counted. Row ids may repeat; a
row with a known id is a repetition only if its content is equal, too.

The end of a run is derived from its items, with the same sentences for all formats.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from itertools import islice
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from refold.importers.content import end_of
from refold.importers.fields import JSON, Times, json_text, text
from refold.importers.items import (
    Answered,
    Cancelled,
    Counted,
    Item,
    Place,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.importers.registry import FormatMatch
from refold.importers.session_rows import Noise, Row, Rows, first_rows, gather, lines
from refold.importers.source import Source
from refold.importers.tallies import count_items
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role

End = tuple[str, str]
"""The kind of end, as in `RunEnded`, and where it is recorded."""

NOTHING: End = "open", "no message in it"
PROMPT: End = "open", "last message is a prompt without a response"
RESULT: End = "open", "last message is a result without a response"
THOUGHTS: End = "open", "last response has only reasoning: cut while it was written"


def end_with_open_calls(calls: int) -> End:
    """Return the end of a run in which this number of calls have no result."""
    return "open", f"{calls} tool call(s) without a result at the end"


def last_answer(stop: str, silent: str = "unknown") -> End:
    """Return the end of a run whose last response has no call and this stop reason.

    `silent` is the end if no stop reason is recorded.
    """
    if stop:
        return end_of(stop), f"last response has no call, stop={stop[:40]}"
    return (
        silent,
        f"last response has no call{', and its stop reason is not recorded' if silent == 'unknown' else ''}",
    )


class Ending:
    """Derives how a run ended from its items. `open` maps ids of calls without a result to tool names.

    `harness`: a message by the harness counts as a prompt. `silent`: the end of a run whose last response has
    no stop reason. `rule` returns the end for an item if the format has a more precise one, else None.
    """

    def __init__(
        self,
        *,
        harness: bool = True,
        silent: str = "finished",
        rule: Callable[[Item | Noise], End | None] = lambda _: None,
    ) -> None:
        self.open: dict[str, str] = {}
        self._harness, self._silent, self._rule = harness, silent, rule
        self._end = NOTHING

    def see(self, item: Item | Noise) -> None:
        """Update the end with the next item."""
        if isinstance(item, Answered):
            self.open = {call.id: call.name for call in item.calls}
        elif isinstance(item, Returned):
            self.open.pop(item.id, None)
        self._end = self._rule(item) or self._read(item) or self._end

    def _read(self, item: Item | Noise) -> End | None:
        match item:
            case Answered():
                return self._by_answer(item)
            case Returned():
                return RESULT
            case Said(by=by) if by == "user" or self._harness:
                return PROMPT
            case Cancelled():
                return "cancelled", "last request was cancelled"
            case RequestFailed():
                return "error", "last request failed"
            case _:
                return None

    def _by_answer(self, answer: Answered) -> End:
        if answer.stop_raw == "error":
            return "error", "last response has stop=error"
        if answer.stop_raw or answer.text:
            return last_answer(answer.stop_raw, self._silent)
        if answer.reasoning:
            return THOUGHTS
        return "unknown", "last response is empty; it is not recorded whether it is complete"

    def end(self) -> End:
        """Return the end, and where it is recorded."""
        stopped = self._end[0] in ("cancelled", "error")
        return end_with_open_calls(len(self.open)) if self.open and not stopped else self._end


class Session:
    """A reader of one session file, from its first row to its last. Each format is a subclass.

    `id` and `parent` are the keys that link rows into a tree; a format without `id` has no tree. `head` is
    the header, `numbers` maps row ids to row numbers, and `ending` tracks open calls.
    """

    id: ClassVar[str] = "id"
    parent: ClassVar[str] = "parentId"
    harness_prompts: ClassVar[bool] = True
    silent: ClassVar[str] = "finished"
    looked: ClassVar[int | None] = None
    """Number of rows to search for the header and other look-ahead data; None: all rows."""

    def __init__(self, source: Source) -> None:
        self.source, self.rows, self.times = source, Rows(source), Times()
        self.ending = Ending(harness=self.harness_prompts, silent=self.silent, rule=self.ends)
        self.head: Row | None = None
        self.model = ""
        self.numbers: dict[str, int] = {}
        self.repeats, self.left = self._look_ahead()

    def is_header(self, row: Row) -> bool:  # noqa: ARG002
        """Return whether a row is the header, which `begin` reads. The first such row counts."""
        return False

    def look(self, row: Row) -> None:
        """Record data of a row that must be known before the first row is read."""

    def is_conversation(self, row: Row) -> bool | None:  # noqa: ARG002
        """Return whether a row of the tree is part of the conversation. None: it is not in the tree."""
        return None

    def select_content(self, value: JSON) -> JSON:
        """Return the part of a row that distinguishes it from another row with the same id."""
        return value

    def begin(self) -> RunBegan:
        """Return the start of the run."""
        raise NotImplementedError

    def main(self, row: Row) -> Iterator[Item | Noise]:
        """Yield the items of a row of the conversation."""
        raise NotImplementedError

    def beside(self, noise: Noise) -> Iterator[Item | Noise]:
        """Yield the items for a line that is not a row, at its place."""
        yield from self.pause()
        yield noise

    def pause(self) -> Iterator[Item | Noise]:
        """Yield items that wait for further rows, when no such rows follow."""
        yield from ()

    def ends(self, item: Item | Noise) -> End | None:  # noqa: ARG002
        """Return the end of the run if this was its last item. None: use the common rule."""
        return None

    def end(self, place: Place) -> RunEnded:
        """Return the end of the run."""
        return place.end(self.ending.end(), self.times.edges())

    def _look_ahead(self) -> tuple["RepeatedRows", frozenset[str]]:
        """Find repeated row ids, and the ids of abandoned rows that are part of a conversation."""
        parents: dict[str, str] = {}
        spoke, repeated = set[str](), set[str]()
        for row in islice(self.rows, self.looked):
            if not isinstance(row, Row):
                continue
            if self.head is None and self.is_header(row):
                self.head = row
            self.look(row)
            id_, conversation = text(row.value, self.id), self.is_conversation(row)
            if conversation is None or not id_:
                continue
            repeated.update({id_} & parents.keys())
            parents.setdefault(id_, text(row.value, self.parent))
            spoke.update([id_] if conversation else [])
        return find_repeats(self.rows, self.id, repeated, self.select_content), _left_ids(parents, spoke)

    def items(self) -> Iterator[Item | Noise]:
        """Yield the items of the run, with adjacent noise still separate."""
        line = 1
        yield self.begin()
        for row in self.rows:
            line = row.line
            yield from self._see(self.beside(row) if isinstance(row, Noise) else self._row(row))
        yield from self._see(self.pause())
        yield self.end(Place(f"line {line}"))

    def _see(self, items: Iterable[Item | Noise]) -> Iterator[Item | Noise]:
        for item in items:
            self.ending.see(item)
            yield item

    def _row(self, row: Row) -> Iterator[Item | Noise]:
        if self.head is not None and row.number == self.head.number:
            return
        if row.number in self.repeats.again and self.is_conversation(row) is not None:
            yield row.noise("repeated")
            return
        self.times.see(row.value.get("timestamp"), row.at)
        if self.id and self.is_conversation(row) is not None:
            yield from self._of_tree(row, text(row.value, self.id))
        else:
            yield from self.main(row)

    def _of_tree(self, row: Row, id_: str) -> Iterator[Item | Noise]:
        other = row.number in self.repeats.others
        if other:
            yield diagnose_repeat(row, self.id)
        if id_ in self.left and not other:
            noise = row.noise("rewound")  # encoded before `main` takes values from it
            counts = self.count(row)
            yield replace(noise, counts=counts, apart=counts)
        else:
            self.numbers.update({id_: row.number} if id_ and id_ not in self.numbers else {})
            yield from self.main(row)

    def count(self, row: Row) -> Counted | None:
        """Return what a row would count in the conversation.

        `main` takes values from the row; there are no other side effects.
        """
        return count_items(item for item in copy(self).main(row) if not isinstance(item, Noise))


class SessionFormat(msgspec.Struct, frozen=True):
    """An importer for sessions: a name, a reader, and a rule that recognizes the first rows.

    `by_head` recognizes a file without a complete row by its first bytes. `rows` is the number of rows to
    look at.
    """

    name: str
    reading: type[Session]
    by: Callable[[list[dict[str, JSON]]], FormatMatch | None]
    by_head: Callable[[bytes], FormatMatch | None] = lambda _: None
    rows: int = 20

    def match(self, source: Source) -> FormatMatch | None:
        """Return how surely a file is of this format."""
        found = [row.value for row in first_rows(source, self.rows) if isinstance(row, Row)]
        return self.by(found) if found else self.by_head(source.head())

    def items(self, source: Source) -> Iterator[Item]:
        """Yield the items of the file's only run."""
        return gather(self.reading(source).items())


class Draft:
    """A response that is still being assembled from rows with text, reasoning and calls.

    `size`: bytes of its rows so far.
    """

    def __init__(self, first: Row) -> None:
        self.first = self.last = first
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[MessageCall] = []
        self.usage: Usage | None = None
        self.left: list[str] = []
        self.size = 0

    def grow(self, row: Row, left: str) -> None:
        """Add a row; `left` is JSON text of the fields that no item has."""
        self.last = row
        self.size += row.size
        self.left += [left] if left else []

    @property
    def place(self) -> Place:
        """Return the position of its rows, and the time of the last one."""
        at = self.last.at or self.first.at
        return Place(lines(self.first.line, self.last.line), at, row=self.first.number)

    @property
    def rest(self) -> str:
        """Return JSON text of the fields of its rows that no item has."""
        return self.left[0] if len(self.left) == 1 else f"[{','.join(self.left)}]" if self.left else ""

    def message(self) -> Message:
        """Return the message that it adds to the conversation."""
        content, thought = "\n".join(self.texts), "\n".join(filter(None, self.thoughts))
        return Message(role=Role.ASSISTANT, text=content, reasoning=thought, calls=tuple(self.calls))


class Branch(msgspec.Struct, frozen=True):
    """Rows off the path, all descended from `rows[0]`, whose parent `fork` is on the path."""

    fork: str
    rows: tuple[str, ...]


def path_to(parents: Mapping[str, str], last: str) -> frozenset[str]:
    """Return the row and its known ancestors. A cycle ends at the first repeated row."""
    found: dict[str, None] = {}
    while last in parents and last not in found:
        found[last] = None
        last = parents[last]
    return frozenset(found)


def branches(parents: Mapping[str, str], path: frozenset[str]) -> Iterator[Branch]:
    """Yield the branches that leave the path. Rows without a known ancestor belong to no branch."""
    roots: dict[str, str] = dict.fromkeys(path, "")  # "": on the path, or without a known ancestor
    members: dict[str, list[str]] = {}
    for row in parents:
        if row not in roots:
            _follow(row, parents, path, roots)
        if root := roots[row]:
            members.setdefault(root, []).append(row)
    for root, rows in members.items():
        ordered = (root, *(row for row in rows if row != root))
        yield Branch(parents[root], ordered)


def _follow(row: str, parents: Mapping[str, str], path: frozenset[str], roots: dict[str, str]) -> None:
    """Find the root of a row and of all rows in between."""
    walked: dict[str, None] = {}
    while row not in roots and row in parents and row not in walked:
        walked[row] = None
        if parents[row] in path:
            roots.update(dict.fromkeys(walked, row))
            return
        row = parents[row]
    roots.update(dict.fromkeys(walked, roots.get(row, "")))


def _left_ids(parents: dict[str, str], spoke: Collection[str]) -> frozenset[str]:
    """Return the rows on abandoned branches that hold part of a conversation."""
    path = path_to(parents, next(reversed(parents), ""))
    off = (branch.rows for branch in branches(parents, path))
    return frozenset(id_ for rows in off if not {*rows}.isdisjoint(spoke) for id_ in rows)


class RepeatedRows(msgspec.Struct, frozen=True):
    """Numbers of rows that reuse an id: `again` repeat the earlier row's content, `others` differ."""

    again: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()


def find_repeats(
    rows: Iterable[Row | Noise], name: str, ids: Collection[str], select: Callable[[JSON], JSON]
) -> RepeatedRows:
    """Compare rows that share one of these ids (under key `name`) by what `select` returns for them."""
    known: dict[str, set[bytes]] = {}
    again, others = set[int](), set[int]()
    for row in rows if ids else ():
        if not isinstance(row, Row) or (id_ := text(row.value, name)) not in ids:
            continue
        digest = hashlib.blake2b(json_text(select(row.value)).encode(), digest_size=16).digest()
        if digests := known.setdefault(id_, set()):
            (again if digest in digests else others).add(row.number)
        digests.add(digest)
    return RepeatedRows(frozenset(again), frozenset(others))


def diagnose_repeat(row: Row, name: str) -> Unread:
    """Return the diagnosis for a row that reuses an id with different content."""
    problem = f"id {text(row.value, name)[:80]!r} is already used by an earlier row with another message; both are imported"
    return row.place.oddity("id_repeated", problem)
