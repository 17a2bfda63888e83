"""A first look over a Claude Code session: which rows the conversation is made of, and where each answer is complete.

Rows point back at rows, answers are written in pieces with other rows between, and who went back to an earlier prompt
left rows behind: none of it shows before the end of the file. So the file is read twice, and only its skeleton is kept.
"""

from collections.abc import Iterable, Iterator

import msgspec

from refold.replay.importers.claude_code.agents import SubAgents, reports
from refold.replay.importers.claude_code.queue import Queue
from refold.replay.importers.claude_code.rows import Kind, is_id, kind
from refold.replay.importers.fields import JSON, text
from refold.replay.importers.session_rows import Noise, Row
from refold.replay.importers.trees import Branch, branches, path_to


class Node(msgspec.Struct, frozen=True, gc=False):
    """A row as the tree sees it: what it is, and of which response."""

    kind: Kind
    response: str


class Outline:
    """What a reader must know before it reads. Places count the rows of the file from 0: `kinds` has what each is.

    `alone`: the whole file is a sub-agent's, `agent`, so its rows are the conversation, or nobody's; `parted`: it is. Else `agents` are those that wrote into it. `left`: uuids of rows that somebody
    left by going back. `complete`: the place of each response's last row. `began`: when its first message was written.
    `fates`: what became of words that somebody typed while the agent worked, by the place of a row that tells of them.
    """

    def __init__(self, rows: Iterable[Row | Noise]) -> None:
        self.complete: dict[str, int] = {}
        self.kinds: list[Kind] = []
        self.session = self.model = self.version = ""
        self.began: int | None = None
        self.lines = 0
        self._nodes: dict[str, Node] = {}
        self._parents: dict[str, str] = {}
        self._last: dict[bool, str] = {}
        self._side: set[str] = set()
        self._queue = Queue()
        self.agents = SubAgents()
        self.agent = ""
        self._main = False
        self._spoke: dict[bool, int] = {}
        for place, row in enumerate(rows):
            self.lines = row.line
            self.kinds.append(kind(row.value) if isinstance(row, Row) else "other")
            if isinstance(row, Row):
                self._row(row.value, place, self.kinds[-1])
                self._time(row, self.kinds[-1])
                self._agent(row, self.kinds[-1])
        self._queue.end()
        self.alone, self.fates = not self._main, self._queue.fates
        self.began = self._spoke.get(self.alone, self.began)
        self.parted = self.alone and bool(self._side)
        self.left = frozenset(self._left())
        if self.alone:
            self.agents = SubAgents()

    def _row(self, row: JSON, place: int, found: Kind) -> None:
        uuid = text(row, "uuid")
        self.session = text(row, "sessionId") or self.session
        self.version = text(row, "version") or self.version
        side = is_side(row)
        if found != "other":
            self._main = self._main or not side
        if found == "answer":
            self.model = self.model or text(row, "message", "model")
        if is_id(uuid) and uuid in self._nodes:
            return
        response = text(row, "message", "id") if found == "answer" else ""
        if not side or not self._main:
            self._queue.row(row, place, found, answers=found == "answer" and response not in self.complete)
        if response:
            self.complete[response] = place
        if is_id(uuid):
            self._nodes[uuid] = Node(found, response)
            self._parents[uuid] = text(row, "parentUuid") or self._before(row, side=side)
            if side:
                self._side.add(uuid)
            if text(row, "type") in ("user", "assistant", "system"):
                self._last[side] = uuid

    def _agent(self, row: Row, found: Kind) -> None:
        self.agent = self.agent or text(row.value, "agentId")
        if reports(row.value):
            self.agents.wrapped(row)
        elif is_side(row.value):
            self.agents.beside(row, found)
        elif found == "answer":
            self.agents.call(row.value)

    def _time(self, row: Row, found: Kind) -> None:
        """Note when the first row was written, and the first message: bookkeeping may be much older."""
        if row.at is None:
            return
        self.began = row.at if self.began is None else self.began
        if found != "other":
            self._spoke.setdefault(is_side(row.value), row.at)

    def _before(self, row: JSON, *, side: bool) -> str:
        """What a compaction followed. Where it names a message that it keeps, that one is written anew behind it."""
        named = text(row, "logicalParentUuid")
        return self._last.get(side, named) if named and named not in self._nodes else named

    def _left(self) -> Iterator[str]:
        path = path_to(self._parents, self._last.get(self.alone, ""))
        kept = {self._nodes[row].response for row in path}
        asked = {self._parents[row] for row in path if self._nodes[row].kind == "prompt"}
        for branch in branches(self._parents, path):
            if self._was_left(branch, kept, asked):
                yield from branch.rows

    def _was_left(self, branch: Branch, kept: set[str], asked: set[str]) -> bool:
        """Whether somebody went back behind a branch: it holds an answer of its own, or a prompt was asked anew.

        Results of parallel calls fork the tree too: each hangs on its own piece of one answer.
        """
        if any(row in self._side for row in branch.rows) and self._main:
            return False
        nodes = [self._nodes[row] for row in branch.rows]
        if any(node.kind == "answer" and node.response not in kept for node in nodes):
            return True
        return nodes[0].kind == "prompt" and branch.fork in asked


def is_side(row: JSON) -> bool:
    """Whether a row is of a sub-agent that wrote into this file."""
    return isinstance(row, dict) and row.get("isSidechain") is True
