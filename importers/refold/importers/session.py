"""Sessions of command-line agents: rows with a header, of which a format says how each is read, and the rest
is done here.

A session may form a tree: each row names the one that it follows, so going back to an earlier row begins a
new branch. The last row and its ancestors are the conversation. Rows of other branches are remarked, with
what they would have counted. The ids that link the rows may repeat: a row is the same as an earlier one only
if it says the same.

How a run ended is read off its items, in the same words for all formats.
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
"""How a run ended, as in `RunEnded`, and what says so."""

NOTHING: End = "open", "no message in it"
PROMPT: End = "open", "last message is a prompt, no answer after it"
RESULT: End = "open", "last message is a result, no answer after it"
THOUGHTS: End = "open", "last answer has only thoughts: cut while it was written"


def waiting(calls: int) -> End:
    """The end of a run in which so many calls have no result."""
    return "open", f"{calls} tool call(s) without result at the end"


def last_answer(stop: str, silent: str = "unknown") -> End:
    """The end of a run whose last answer has no call and stopped by this word; `silent` if nothing records
    why.
    """
    if stop:
        return end_of(stop), f"last answer has no call, stop={stop[:40]}"
    return (
        silent,
        f"last answer has no call{', and nothing records why it stopped' if silent == 'unknown' else ''}",
    )


class Ending:
    """How a run ends, by its items. `open`: the names of calls without result, by their ids.

    `harness`: a message that the harness put in is a prompt, too. `silent`: the end of a run whose last
    answer does not say why it stopped. `rule`: what a format knows better of an item, None for nothing.
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
        """Go on by an item."""
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
            return "error", "last answer has stop=error"
        if answer.stop_raw or answer.text:
            return last_answer(answer.stop_raw, self._silent)
        if answer.reasoning:
            return THOUGHTS
        return "unknown", "last answer is empty: nothing shows that it was written to its end"

    def end(self) -> End:
        """The end, and what says so."""
        stopped = self._end[0] in ("cancelled", "error")
        return waiting(len(self.open)) if self.open and not stopped else self._end


class Session:
    """One reading of a session file, from its first row to its last. A format is a subclass.

    `id` and `parent` are the keys by which rows form a tree; in a format without `id` they form none. `head`
    is the header, `numbers` the numbers of rows by their ids, and `ending` knows which calls are open.
    """

    id: ClassVar[str] = "id"
    parent: ClassVar[str] = "parentId"
    harness_prompts: ClassVar[bool] = True
    silent: ClassVar[str] = "finished"
    looked: ClassVar[int | None] = None
    """Rows in which the header stands, and what must be known before; None: all of them."""

    def __init__(self, source: Source) -> None:
        self.source, self.rows, self.times = source, Rows(source), Times()
        self.ending = Ending(harness=self.harness_prompts, silent=self.silent, rule=self.ends)
        self.head: Row | None = None
        self.model = ""
        self.numbers: dict[str, int] = {}
        self.repeats, self.left = self._look_ahead()

    def begins(self, row: Row) -> bool:  # noqa: ARG002
        """Whether a row is the header, which `begin` reads. Of several it is the first."""
        return False

    def look(self, row: Row) -> None:
        """Note of a row what must be known before the first row is read."""

    def speaks(self, row: Row) -> bool | None:  # noqa: ARG002
        """Whether a row of the tree says something to the model or by it. None: it is no row of the tree."""
        return None

    def says(self, value: JSON) -> JSON:
        """What tells a row from another one that has its id."""
        return value

    def begin(self) -> RunBegan:
        """How the run begins."""
        raise NotImplementedError

    def main(self, row: Row) -> Iterator[Item | Noise]:
        """What a row of the conversation says."""
        raise NotImplementedError

    def beside(self, noise: Noise) -> Iterator[Item | Noise]:
        """A line that is no row, where it stands."""
        yield from self.pause()
        yield noise

    def pause(self) -> Iterator[Item | Noise]:
        """What waits for further rows, where none will come."""
        yield from ()

    def ends(self, item: Item | Noise) -> End | None:  # noqa: ARG002
        """How the run ended if this was the last of it. None: as in any format."""
        return None

    def end(self, place: Place) -> RunEnded:
        """How the run ended."""
        return place.end(self.ending.end(), self.times.edges())

    def _look_ahead(self) -> tuple["RepeatedRows", frozenset[str]]:
        """Rows whose ids earlier rows have, and the ids of rows on branches on which something was said and
        that were left.
        """
        parents: dict[str, str] = {}
        spoke, repeated = set[str](), set[str]()
        for row in islice(self.rows, self.looked):
            if not isinstance(row, Row):
                continue
            if self.head is None and self.begins(row):
                self.head = row
            self.look(row)
            id_, speaks = text(row.value, self.id), self.speaks(row)
            if speaks is None or not id_:
                continue
            repeated.update({id_} & parents.keys())
            parents.setdefault(id_, text(row.value, self.parent))
            spoke.update([id_] if speaks else [])
        return find_repeats(self.rows, self.id, repeated, self.says), _left_ids(parents, spoke)

    def items(self) -> Iterator[Item | Noise]:
        """The run, noise not yet gathered."""
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
        if row.number in self.repeats.again and self.speaks(row) is not None:
            yield row.noise("repeated")
            return
        self.times.see(row.value.get("timestamp"), row.at)
        if self.id and self.speaks(row) is not None:
            yield from self._of_tree(row, text(row.value, self.id))
        else:
            yield from self.main(row)

    def _of_tree(self, row: Row, id_: str) -> Iterator[Item | Noise]:
        other = row.number in self.repeats.others
        if other:
            yield diagnose_repeat(row, self.id)
        if id_ in self.left and not other:
            noise = row.noise("rewound")  # encoded before anything is taken from it
            counts = self.count(row)
            yield replace(noise, counts=counts, apart=counts)
        else:
            self.numbers.update({id_: row.number} if id_ and id_ not in self.numbers else {})
            yield from self.main(row)

    def count(self, row: Row) -> Counted | None:
        """As what a row would count in the conversation.

        What `main` takes from it is gone; nothing else follows from it.
        """
        return count_items(item for item in copy(self).main(row) if not isinstance(item, Noise))


class SessionFormat(msgspec.Struct, frozen=True):
    """A format of sessions, as an importer: its name, how a file of it is read, and by which of its first
    rows it is known.

    `by_head`: the same for a file that has no whole row, by its first bytes. `rows`: how many are looked at.
    """

    name: str
    reading: type[Session]
    by: Callable[[list[dict[str, JSON]]], FormatMatch | None]
    by_head: Callable[[bytes], FormatMatch | None] = lambda _: None
    rows: int = 20

    def match(self, source: Source) -> FormatMatch | None:
        """How surely a file is of the format."""
        found = [row.value for row in first_rows(source, self.rows) if isinstance(row, Row)]
        return self.by(found) if found else self.by_head(source.head())

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the file."""
        return gather(self.reading(source).items())


class Draft:
    """An answer of which rows may follow: texts, thoughts and calls come one by one.

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
        """Take one more row in; `left` is JSON text of what no item says of it."""
        self.last = row
        self.size += row.size
        self.left += [left] if left else []

    @property
    def place(self) -> Place:
        """Where it stands, and when it was whole."""
        at = self.last.at or self.first.at
        return Place(lines(self.first.line, self.last.line), at, row=self.first.number)

    @property
    def rest(self) -> str:
        """JSON text of what no item says of its rows."""
        return self.left[0] if len(self.left) == 1 else f"[{','.join(self.left)}]" if self.left else ""

    def message(self) -> Message:
        """The message that it adds to the conversation."""
        said, thought = "\n".join(self.texts), "\n".join(filter(None, self.thoughts))
        return Message(role=Role.ASSISTANT, text=said, reasoning=thought, calls=tuple(self.calls))


class Branch(msgspec.Struct, frozen=True):
    """Rows off the path, all descended from `rows[0]`, whose parent `fork` is on the path."""

    fork: str
    rows: tuple[str, ...]


def path_to(parents: Mapping[str, str], last: str) -> frozenset[str]:
    """The row and its ancestors, as far as they are known. A circle ends where it closes."""
    found: dict[str, None] = {}
    while last in parents and last not in found:
        found[last] = None
        last = parents[last]
    return frozenset(found)


def branches(parents: Mapping[str, str], path: frozenset[str]) -> Iterator[Branch]:
    """The rows that leave the path, branch by branch. What hangs on nothing known belongs to none."""
    roots: dict[str, str] = dict.fromkeys(path, "")  # "": on the path, or on nothing
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
    """Find the root of a row, and so of all between."""
    walked: dict[str, None] = {}
    while row not in roots and row in parents and row not in walked:
        walked[row] = None
        if parents[row] in path:
            roots.update(dict.fromkeys(walked, row))
            return
        row = parents[row]
    roots.update(dict.fromkeys(walked, roots.get(row, "")))


def _left_ids(parents: dict[str, str], spoke: Collection[str]) -> frozenset[str]:
    """The rows on branches that were left, and on which something was said."""
    path = path_to(parents, next(reversed(parents), ""))
    off = (branch.rows for branch in branches(parents, path))
    return frozenset(id_ for rows in off if not {*rows}.isdisjoint(spoke) for id_ in rows)


class RepeatedRows(msgspec.Struct, frozen=True):
    """The numbers of rows whose id an earlier row has: `again` say the same as that one, `others` do not."""

    again: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()


def find_repeats(
    rows: Iterable[Row | Noise], name: str, ids: Collection[str], says: Callable[[JSON], JSON]
) -> RepeatedRows:
    """Compare the rows that share one of these ids, which stand under `name`, by what each `says`."""
    known: dict[str, set[bytes]] = {}
    again, others = set[int](), set[int]()
    for row in rows if ids else ():
        if not isinstance(row, Row) or (id_ := text(row.value, name)) not in ids:
            continue
        digest = hashlib.blake2b(json_text(says(row.value)).encode(), digest_size=16).digest()
        if digests := known.setdefault(id_, set()):
            (again if digest in digests else others).add(row.number)
        digests.add(digest)
    return RepeatedRows(frozenset(again), frozenset(others))


def diagnose_repeat(row: Row, name: str) -> Unread:
    """The diagnosis of a row whose id an earlier row with another message has."""
    problem = f"an earlier row has the id {text(row.value, name)[:80]!r} and another message: both are read"
    return row.place.oddity("id_repeated", problem)
