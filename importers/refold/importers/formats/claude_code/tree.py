"""The rows of a Claude Code session as a tree: branches that the user left, and subagents.

Rows are identified by their places in the file, from 0.

The session is the last row with all rows above it. Of the remaining rows, the last one with all rows above it
is a line, up to the row where it forks, and so on. A line with a response is a branch that the user left,
because no later request contains what the agent did there. So is a line that begins with a prompt if another
prompt replaced that one. Results of parallel calls fork the tree too, because each follows its own piece of a
response. Such a line belongs to the conversation from which it forks, as do rows whose parent is not known.

Older versions wrote the rows of subagents among the others (`isSidechain`), linked to each other but not to
the call, whose `prompt` is their first text. Newer versions wrap each row into a `progress` row, which names
the agent and the call. A file that has only rows of one subagent is read as a session.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from refold.importers.fields import JSON, at, instant, omit_keys, table, text
from refold.importers.formats.claude_code.rows import Kind, join_text, list_blocks
from refold.importers.session_rows import MOST_HELD, Noise, Row


class TreeBranch(msgspec.Struct, frozen=True):
    """A conversation that the user left, with its `number` and the number of its parent conversation,
    `above`.

    The session has the number 0. `fork` is the place of the row after which the branch forks, `first` that of
    its first row. `uuid` names the branch, and `size` is the number of bytes of all its rows.
    """

    number: int
    above: int
    fork: int
    first: int
    uuid: str
    size: int

    def make_key(self, session: str) -> str:
        """Return the key of its run, which stays the same if the session is continued."""
        return f"{session}/rewound-{self.uuid}"


class Branches(msgspec.Struct, frozen=True):
    """The branches of a file by the places of their first rows.

    `of` maps places of rows to numbers of branches.

    `unanswered`: rows after a prompt that the user replaced before it was answered. They are not a branch.
    """

    heads: dict[int, TreeBranch] = {}
    of: dict[int, int] = {}
    unanswered: set[int] = set()

    def join(self, place: int, before: int) -> None:
        """Assign a row to the conversation of the row before it."""
        if number := self.of.get(before):
            self.of[place] = number
        if before in self.unanswered:
            self.unanswered.add(place)

    def read(self, rows: Iterable[Row | Noise]) -> Iterator[tuple[TreeBranch, Iterable[tuple[int, Row]]]]:
        """Yield each branch with its rows and with the first rows of the branches that fork from it.

        The rows of a large branch are read while they are consumed.
        """
        for batch in _group_branches(sorted(self.heads.values(), key=lambda branch: branch.first)):
            if len(batch) == 1:
                (branch,) = batch
                yield (
                    branch,
                    (place_row for number, place_row in self._list_rows(rows) if number == branch.number),
                )
                continue
            held: dict[int, list[tuple[int, Row]]] = {branch.number: [] for branch in batch}
            for number, place_row in self._list_rows(rows):
                if number in held:
                    held[number].append(place_row)
            yield from ((branch, held.pop(branch.number)) for branch in batch)

    def _list_rows(self, rows: Iterable[Row | Noise]) -> Iterator[tuple[int, tuple[int, Row]]]:
        """Yield each row with the number of each branch whose run contains it."""
        for place, row in enumerate(rows):
            if isinstance(row, Row) and (number := self.of.get(place)):
                yield number, (place, row)
                if place in self.heads and (above := self.heads[place].above):
                    yield above, (place, row)


def _group_branches(branches: Sequence[TreeBranch]) -> Iterator[list[TreeBranch]]:
    """Group branches that fit into memory together, so that a file with many is not read once for each."""
    batch: list[TreeBranch] = []
    size = 0
    for branch in branches:
        if batch and size + branch.size > MOST_HELD:
            yield batch
            batch, size = [], 0
        size += branch.size
        batch.append(branch)
    if batch:
        yield batch


_NONE = -1


class _Line(msgspec.Struct):
    """Rows that follow each other up to a fork: `head` is the first row's place, `fork` that of its parent.

    `above` is the number of the line of that parent, once all rows above it are known. `answered`: the line
    has a response. `holds`: the line or a fork of it has one. `anew`: its prompt was replaced by another one.
    """

    head: int
    fork: int
    above: int
    answered: bool = False
    holds: bool = False
    anew: bool = False


class RowTree:
    """A tree of rows, added in the order of their places.

    `pieces` maps the other rows of a response to the place of its first row.
    """

    def __init__(self, kinds: Sequence[Kind], pieces: Mapping[int, int]) -> None:
        self._kinds, self._pieces = kinds, pieces
        self._places: dict[str, int] = {}
        self._hidden: dict[int, str] = {}
        """Ids of rows, by place, that a later row has too."""
        self._late: dict[int, str] = {}
        self._parents, self._sizes = array("q"), array("q")
        self._ends: dict[bool, list[int]] = {True: [], False: []}

    def __contains__(self, uuid: str) -> bool:
        """Return whether a row has this id."""
        return uuid in self._places

    def find_place(self, uuid: str) -> int | None:
        """Return the place of the row with this id."""
        return self._places.get(uuid)

    def add(self, place: int, uuid: str, parent: str | int, size: int) -> None:
        """Add a row with its id and its parent. If several rows have an id, it refers to the last one."""
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

    def choose_parent(self, uuid: str, parent: str | int) -> str | int:
        """Return the parent of a row that has the id of an earlier one: that row, if both name the same
        parent.
        """
        first = self._places.get(uuid, _NONE)
        named = parent if isinstance(parent, int) else self._places.get(parent, _NONE)
        return first if first != _NONE and named in (_NONE, self._parents[first]) else parent

    def add_end(self, place: int, *, side: bool) -> None:
        """Record that a conversation may end with this row. `side`: it is a subagent's."""
        self._ends[side].append(place)

    def find_last(self, *, side: bool) -> int | None:
        """Return the last row with which a conversation may end."""
        return self._ends[side][-1] if self._ends[side] else None

    def find_branches(self, *, side: bool) -> Branches:
        """Return the branches of the conversation that ends with the last row, after all rows were added."""
        for place, parent in self._late.items():
            self._parents[place] = self._places.get(parent, _NONE)
        lines, of = self._find_lines(self._ends[side])
        if len(lines) < 2:
            return Branches()
        for line in reversed(lines):
            line.holds = line.holds or line.answered
            if line.above != _NONE:
                lines[line.above].holds |= line.holds
        return self._select_branches(lines, of)

    def _find_lines(self, ends: Sequence[int]) -> tuple[list[_Line], "array[int]"]:
        """Return the lines, from the last row on, and the number of each row's line."""
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
            above = of[line.fork] if line.fork != _NONE else number  # its own number: a cycle
            if above != number and (above == 0 or lines[above].above != _NONE):
                line.above = above
                line.anew = self._kinds[line.head] == "prompt" and (line.above, line.fork) in asked
        return lines, of

    def _select_branches(self, lines: Sequence[_Line], of: "array[int]") -> Branches:
        """Select the branches. Other lines belong to the conversation from which they fork.

        Rows outside all lines belong to the conversation of their parents.
        """
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
            {
                place: TreeBranch(*found, place, names[place], sizes[found[0]])
                for place, found in heads.items()
            },
            branches,
            unanswered,
        )


class SubAgent(msgspec.Struct):
    """A subagent: its name in the session, the call that started it ("" if not recorded), and its rows.

    `call` is the provider's id. `reported`: its rows were wrapped into rows of the session that are not
    counted.
    """

    name: str
    call: str
    reported: bool
    rows: list[Row] = []


class SubAgents:
    """The subagents of a session, collected while its file is read."""

    def __init__(self) -> None:
        self.found: list[SubAgent] = []
        self._by_row: dict[str, SubAgent] = {}
        self._by_name: dict[str, SubAgent] = {}
        self._calls: dict[str, list[str]] = {}
        self._seen: set[str] = set()

    def record_calls(self, row: JSON) -> None:
        """Record the calls of a response that may start a subagent."""
        for block in list_blocks(row):
            if (task := text(block, "input", "prompt")) and text(block, "type") == "tool_use":
                call, asked = text(block, "id"), self._calls.setdefault(task.strip(), [])
                asked += [call] if call not in self._seen else []  # a row may be written twice
                self._seen.add(call)

    def add_row(self, row: Row, found: Kind) -> None:
        """Add a subagent's row that is written among those of the session."""
        agent, call = self._by_row.get(text(row.value, "parentUuid")), text(row.value, "parent_tool_use_id")
        agent = self._by_name.get(call) if call else agent
        if agent is None and call:
            agent = self._by_name[call] = SubAgent(f"agent-{len(self.found) + 1}", call, reported=False)
            self.found.append(agent)
        elif agent is None:
            begun_by = self._calls.get(join_text(row.value).strip(), []) if found != "other" else []
            agent = SubAgent(
                f"agent-{len(self.found) + 1}", begun_by.pop(0) if begun_by else "", reported=False
            )
            self.found.append(agent)
        agent.rows.append(row)
        if uuid := text(row.value, "uuid"):  # without an id, the next row without a parent would be its child
            self._by_row[uuid] = agent

    def add_wrapped(self, row: Row) -> None:
        """Add the row that a `progress` row contains."""
        name = text(row.value, "data", "agentId")
        agent = self._by_name.get(name)
        if agent is None:
            agent = SubAgent(name, text(row.value, "parentToolUseID"), reported=True)
            self._by_name[name] = agent
            self.found.append(agent)
        told, data = table(row.value, "data", "message"), omit_keys(row.value.get("data"), "message")
        if not data.get("prompt") or text(data, "prompt").strip() in self._calls:
            data.pop("prompt", None)  # each row repeats the prompt of the call

        progress: dict[str, JSON] = {**omit_keys(row.value, "data", "type", "timestamp"), "data": data}
        ours: dict[str, JSON] = {
            "isSidechain": True,
            "sessionId": text(row.value, "sessionId"),
            "version": text(row.value, "version"),
        }
        if hidden := {
            key: told[key] for key in (*ours, "progress") if key in told and told[key] != ours.get(key)
        }:
            progress["hidden"] = hidden
        value: dict[str, JSON] = {**told, **ours, "progress": progress}
        when = instant(told.get("timestamp")) or row.at
        agent.rows.append(msgspec.structs.replace(row, value=value, at=when))


def is_report(row: JSON) -> bool:
    """Return whether a row contains a row of a subagent."""
    message = at(row, "data", "message")
    return (
        text(row, "data", "type") == "agent_progress"
        and isinstance(message, dict)
        and bool(text(row, "data", "agentId"))
        and isinstance(message.get("message"), dict)
    )
