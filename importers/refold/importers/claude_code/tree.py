"""The rows of a Claude Code session as a tree, each hanging on its parent, and what of it somebody left by going back.

The last row and all above it are the session. Of what is left then, the last row and all above it are a line, up to the
row where it forks; and so on. A line with an answer was left, for the agent did something there that no later answer
was shown; so was one that begins with a prompt, where another was asked in its place. Results of parallel calls
fork the tree too, each hangs on its own piece of one answer: such a line is of the conversation from which it forks, as is
what hangs on nothing known.
"""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from refold.importers.claude_code.branches import Branch, Branches
from refold.importers.claude_code.rows import Kind

_NONE = -1


class _Line(msgspec.Struct):
    """Rows that hang on each other: the places of the first and of what that hangs on, and the number of the line of that,
    as far as all above it is known.

    `answered`: it has an answer of its own; `holds`: it or what forks from it has. `anew`: its prompt was asked in other words.
    """

    head: int
    fork: int
    above: int
    answered: bool = False
    holds: bool = False
    anew: bool = False


class Tree:
    """A tree of rows, filled in the order of their places. `pieces` of an answer are its other rows, with the place of the first."""

    def __init__(self, kinds: Sequence[Kind], pieces: Mapping[int, int]) -> None:
        self._kinds, self._pieces = kinds, pieces
        self._places: dict[str, int] = {}
        self._hidden: dict[int, str] = {}
        """The ids of rows by their places, where a later row has the same."""
        self._late: dict[int, str] = {}
        self._parents, self._sizes = array("q"), array("q")
        self._ends: dict[bool, list[int]] = {True: [], False: []}

    def __contains__(self, uuid: str) -> bool:
        """Whether a row has this id."""
        return uuid in self._places

    def place(self, uuid: str) -> int | None:
        """The place of the row that has this id."""
        return self._places.get(uuid)

    def add(self, place: int, uuid: str, parent: str | int, size: int) -> None:
        """A row that has an id, and what it hangs on. An id means the last row that has it."""
        if uuid in self._places:
            self._hidden[self._places[uuid]] = uuid
        self._places[uuid] = place
        for values in (self._parents, self._sizes):
            values.extend([_NONE] * (place + 1 - len(values)))
        self._sizes[place] = size
        found = parent if isinstance(parent, int) else self._places.get(parent, _NONE)
        self._parents[place] = found
        if isinstance(parent, str) and parent and found == _NONE:
            self._late[place] = parent

    def behind(self, uuid: str, parent: str | int) -> str | int:
        """What a row hangs on that has the id of an earlier one: on that one, if both name the same parent."""
        first = self._places.get(uuid, _NONE)
        named = parent if isinstance(parent, int) else self._places.get(parent, _NONE)
        return first if first != _NONE and named in (_NONE, self._parents[first]) else parent

    def end(self, place: int, *, side: bool) -> None:
        """A conversation may end with this row; `side`: a sub-agent's."""
        self._ends[side].append(place)

    def last(self, *, side: bool) -> int | None:
        """The last of those rows."""
        return self._ends[side][-1] if self._ends[side] else None

    def branches(self, *, side: bool) -> Branches:
        """What was left of the conversation that ends with the last row, once all rows are there."""
        for place, parent in self._late.items():
            self._parents[place] = self._places.get(parent, _NONE)
        lines, of = self._lines(self._ends[side])
        if len(lines) < 2:
            return Branches()
        for line in reversed(lines):
            line.holds = line.holds or line.answered
            if line.above != _NONE:
                lines[line.above].holds |= line.holds
        return self._told(lines, of)

    def _lines(self, ends: Sequence[int]) -> tuple[list[_Line], "array[int]"]:
        """The lines from the last on, and the number of each row's."""
        of, lines = array("q", [_NONE]) * len(self._parents), list[_Line]()
        answers: dict[int, int] = {}
        asked: set[tuple[int, int]] = set()
        for place in reversed(ends):
            if of[place] != _NONE:
                continue
            number, line = len(lines), _Line(place, place, _NONE)
            lines.append(line)
            while line.fork != _NONE and of[line.fork] == _NONE:
                line.head, line.fork = line.fork, self._parents[line.fork]
                of[line.head] = number
                if self._kinds[line.head] == "prompt":
                    asked.add((number, line.fork))
                if self._kinds[line.head] == "answer":
                    piece = self._pieces.get(line.head, line.head)
                    line.answered |= answers.setdefault(piece, number) == number
            above = of[line.fork] if line.fork != _NONE else number  # its own number: a circle
            if above != number and (above == 0 or lines[above].above != _NONE):
                line.above = above
                line.anew = self._kinds[line.head] == "prompt" and (line.above, line.fork) in asked
        return lines, of

    def _told(self, lines: Sequence[_Line], of: "array[int]") -> Branches:
        """Lines that stay are of the conversation from which they fork; rows with which none ends are of their parents'."""
        number_of, dropped = [0] * len(lines), [False] * len(lines)
        sizes, heads = Counter[int](), dict[int, tuple[int, int, int]]()
        for number, line in enumerate(lines):
            if line.above == _NONE:
                continue
            number_of[number], dropped[number] = number_of[line.above], dropped[line.above] or line.anew
            if line.answered or (line.anew and line.holds):
                heads[line.head] = number, number_of[line.above], line.fork
                number_of[number], dropped[number] = number, False
        branches, unanswered = dict[int, int](), set[int]()
        for place, parent in enumerate(self._parents):
            if of[place] == _NONE and parent != _NONE:
                of[place] = of[parent]
            if of[place] == _NONE:
                continue
            if number := number_of[of[place]]:
                branches[place] = number
                sizes[number] += self._sizes[place]
            if dropped[of[place]]:
                unanswered.add(place)
        names = {place: uuid for uuid, place in self._places.items() if place in heads}
        names |= {place: f"{uuid}-{place}" for place, uuid in self._hidden.items() if place in heads}
        return Branches(
            {place: Branch(*found, place, names[place], sizes[found[0]]) for place, found in heads.items()},
            branches,
            unanswered,
        )
