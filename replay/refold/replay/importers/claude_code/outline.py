"""A first look over a Claude Code session: which rows the conversation is made of, and where each answer is complete.

Rows point back at rows, answers are written in pieces with other rows between, and who went back to an earlier prompt
left rows behind: none of it shows before the end of the file. So the file is read twice, and only its skeleton is kept.
"""

import msgspec

from refold.replay.importers.claude_code.queue import Fate, Queue
from refold.replay.importers.claude_code.rows import Kind, is_id, kind
from refold.replay.importers.fields import JSON, text
from refold.replay.importers.session_rows import Row, rows
from refold.replay.importers.source import Source
from refold.replay.importers.trees import Branch, branches, path_to


class Node(msgspec.Struct, frozen=True, gc=False):
    """A row as the tree sees it: what it is, and of which response."""

    kind: Kind
    response: str


class Outline(msgspec.Struct, frozen=True):
    """What a reader must know before it reads. Places count the rows of the file from 0.

    `alone`: the whole file is a sub-agent's, so its rows are the conversation. `left`: uuids of rows that somebody
    left by going back. `complete`: the place of each response's last row. `began`: when its first message was written.
    `fates`: what became of words that somebody typed while the agent worked, by the place of a row that tells of them.
    """

    session: str
    model: str
    version: str
    alone: bool
    left: frozenset[str]
    complete: dict[str, int]
    fates: dict[int, Fate]
    began: int | None
    lines: int


def outline(source: Source) -> Outline:
    """Look over a session."""
    look = _Look()
    for place, row in enumerate(rows(source)):
        look.lines = row.line
        if isinstance(row, Row):
            look.row(row.value, place)
            look.time(row)
    return look.outline()


class _Look:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.parents: dict[str, str] = {}
        self.complete: dict[str, int] = {}
        self.session = self.model = self.version = ""
        self.last: dict[bool, str] = {}
        self.side: set[str] = set()
        self.queue = Queue()
        self.main = False
        self.spoke: dict[bool, int] = {}
        self.began: int | None = None
        self.lines = 0

    def row(self, row: JSON, place: int) -> None:
        found, uuid = kind(row), text(row, "uuid")
        self.session = text(row, "sessionId") or self.session
        self.version = text(row, "version") or self.version
        side = is_side(row)
        if found != "other":
            self.main = self.main or not side
        if found == "answer":
            self.model = self.model or text(row, "message", "model")
        if is_id(uuid) and uuid in self.nodes:
            return
        response = text(row, "message", "id") if found == "answer" else ""
        if not side or not self.main:
            self.queue.row(row, place, answers=found == "answer" and response not in self.complete)
        if response:
            self.complete[response] = place
        if is_id(uuid):
            self.nodes[uuid] = Node(found, response)
            self.parents[uuid] = text(row, "parentUuid") or self._before(row, side=side)
            if side:
                self.side.add(uuid)
            if text(row, "type") in ("user", "assistant", "system"):
                self.last[side] = uuid

    def time(self, row: Row) -> None:
        """Note when the first row was written, and the first message: bookkeeping may be much older."""
        if row.at is None:
            return
        self.began = row.at if self.began is None else self.began
        if kind(row.value) != "other":
            self.spoke.setdefault(is_side(row.value), row.at)

    def _before(self, row: JSON, *, side: bool) -> str:
        """What a compaction followed. Where it names a message that it keeps, that one is written anew behind it."""
        named = text(row, "logicalParentUuid")
        return self.last.get(side, named) if named and named not in self.nodes else named

    def outline(self) -> Outline:
        alone = not self.main
        self.queue.end()
        path = path_to(self.parents, self.last.get(alone, ""))
        kept = {self.nodes[row].response for row in path}
        asked = {self.parents[row] for row in path if self.nodes[row].kind == "prompt"}
        left = [
            row
            for branch in branches(self.parents, path)
            if self._was_left(branch, kept, asked)
            for row in branch.rows
        ]
        return Outline(
            session=self.session,
            model=self.model,
            version=self.version,
            alone=alone,
            left=frozenset(left),
            complete=self.complete,
            fates=self.queue.fates,
            began=self.spoke.get(alone, self.began),
            lines=self.lines,
        )

    def _was_left(self, branch: Branch, kept: set[str], asked: set[str]) -> bool:
        """Whether somebody went back behind a branch: it holds an answer of its own, or a prompt was asked anew.

        Results of parallel calls fork the tree too: each hangs on its own piece of one answer.
        """
        if any(row in self.side for row in branch.rows) and self.main:
            return False
        nodes = [self.nodes[row] for row in branch.rows]
        if any(node.kind == "answer" and node.response not in kept for node in nodes):
            return True
        return nodes[0].kind == "prompt" and branch.fork in asked


def is_side(row: JSON) -> bool:
    """Whether a row is of a sub-agent that wrote into this file."""
    return isinstance(row, dict) and row.get("isSidechain") is True
