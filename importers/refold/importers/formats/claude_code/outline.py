"""A first pass over a Claude Code session: the rows of each conversation, and the last row of each response.

Rows refer to earlier rows, responses are written in pieces with other rows between them, and going back to an
earlier prompt leaves rows behind. Only the end of the file shows all this. So the importer reads the file
twice, and holds only this outline in memory.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from refold.importers.fields import JSON, text
from refold.importers.formats.claude_code.queue import Bursts, Queue
from refold.importers.formats.claude_code.rows import (
    Kind,
    command_name,
    describe_failure,
    find_end,
    find_kind,
    is_head,
    is_id,
    is_result,
    list_blocks,
    list_denied,
    list_preserved,
    list_results,
    select_content,
)
from refold.importers.formats.claude_code.tree import RowTree, SubAgents, TreeBranch, is_report
from refold.importers.session import (
    NOTHING,
    PROMPT,
    RESULT,
    THOUGHTS,
    end_with_open_calls,
    find_repeats,
    last_answer,
)
from refold.importers.session_rows import Noise, Row
from refold.reducers.vocabulary import FailureClass

_NAMELESS = -1  # the row has no `message.id`, so its response is not known


class Outline:
    """The structure of a session file, computed before its items are read.

    Attributes:
        kinds: the kind of each row. Places are indexes of rows in the file, from 0.
        alone: the file has no row of the main conversation; usually it is the file of a subagent.
        parted: the file belongs to the subagent `agent`; its session is in another file.
        cwd: the working directory of the first row that has one.
        agents: the subagents that wrote into the session's file.
        repeated: places of rows that repeat an earlier row.
        others: numbers of rows with the id of an earlier row but another message.
        branches: what the user left by going back.
        forks: the branches by the place of the row after which they fork.
        pieces: for responses of several rows, the place of the first row by those of the others.
        complete: the place of a response's last row by that of its first.
        began: when the first message was written.
        cuts: the number of cuts and forks of each conversation, by the number of its branch.
        named: the numbers of the messages that a compaction keeps, by the ids of their rows.
        fates: what became of text that the user typed while the agent worked, by the place of a row.
        denied: ids of the calls that a stream lists as not permitted.
    """

    def __init__(self, rows: Iterable[Row | Noise], others: frozenset[int] = frozenset()) -> None:
        self.others = others
        self.repeated_ids = set[str]()
        self.kinds: list[Kind] = []
        self.pieces: dict[int, int] = {}
        self.complete: dict[int, int] = {}
        self.repeated: set[int] = set()
        self.session = self.model = self.version = self.agent = self.cwd = ""
        self.began: int | None = None
        self.lines = 0
        self.denied: frozenset[str] = frozenset()
        self.named: dict[str, int] = {}
        self._cuts, self._kept = list[int](), set[str]()
        self.agents, self.bursts = SubAgents(), Bursts()
        self._main = self._sided = False
        self._spoke: dict[bool, int] = {}
        numbers = array("q")
        tree, queue, answers = RowTree(self.kinds, self.pieces), Queue(), dict[str, int]()
        for place, row in enumerate(rows):
            self.lines = row.line
            numbers.append(row.number if isinstance(row, Row) else 0)
            self.kinds.append(find_kind(row.value) if isinstance(row, Row) else "other")
            if isinstance(row, Row):
                self._record_session(row.value, self.kinds[-1])
                self._read_row(row, place, tree, queue, answers)
                self._record_time(row, self.kinds[-1])
                self._record_agent(row, self.kinds[-1])
        queue.end()
        self.alone, self.fates = not self._main, queue.fates
        self.began = self._spoke.get(self.alone, self.began)
        self.parted = self.alone and self._sided
        self.branches = tree.find_branches(side=self.alone)
        self._join_typed()
        self._join_cuts(tree, numbers)
        if self.alone:
            self.agents = SubAgents()

    def _read_row(self, found: Row, place: int, tree: RowTree, queue: Queue, answers: dict[str, int]) -> None:
        row, what = found.value, self.kinds[place]
        uuid, side = text(row, "uuid"), is_side(row)
        self._main = self._main or (what != "other" and not side)
        other = is_id(uuid) and found.number in self.others
        if is_id(uuid) and uuid in tree and not other:
            self.repeated.add(place)
            self.repeated_ids.add(uuid)
            return
        first = self._find_response(found, place, answers)
        if not side or not self._main:
            queue.read_row(row, place, what, answers=what == "answer" and first == place)
        self._record_cut(row, place)
        if is_id(uuid):
            linked = text(row, "parentUuid") or _find_predecessor(row, tree, side=side)
            tree.add(place, uuid, tree.choose_parent(uuid, linked) if other else linked, found.size)
            self._sided = self._sided or side
            if text(row, "type") in ("user", "assistant", "system"):
                tree.add_end(place, side=side)

    def _find_response(self, found: Row, place: int, answers: dict[str, int]) -> int:
        """Find the response that a row belongs to, and return the place of the response's first row.

        Rows that do not belong to an earlier response return their own place.
        """
        if self.kinds[place] != "answer":
            self.bursts.end(found.value, self.kinds[place])
            return place
        response = text(found.value, "message", "id")
        first = answers.setdefault(response, place) if response else _NAMELESS
        first = answers[response] = self.bursts.find_first(found, first) if response else first
        if first != place:
            self.pieces[place] = first
        if _NAMELESS < first < place:
            self.complete[first] = place
        return place if first == _NAMELESS else first

    def _record_cut(self, row: JSON, place: int) -> None:
        """Record a cut and the rows that it keeps."""
        subtype = text(row, "subtype")
        if self.kinds[place] == "summary" or subtype == "microcompact_boundary":
            self._cuts.append(place)
        elif subtype == "compact_boundary":
            self._kept.update(list_preserved(row)[0])

    def _join_cuts(self, tree: RowTree, numbers: Sequence[int]) -> None:
        """Assign the cuts to their conversations and find the rows that they keep.

        `numbers` has the row numbers by place.
        """
        self.forks = defaultdict[int, list[TreeBranch]](list)
        for branch in self.branches.heads.values():
            self.forks[branch.fork].append(branch)
            self._cuts.append(branch.fork)
        self.cuts = Counter(self.branches.of.get(place, 0) for place in self._cuts)
        for uuid in self._kept:
            place = tree.find_place(uuid)
            if place is not None:
                first = self.pieces.get(place, _NAMELESS)
                self.named[uuid] = numbers[place if first == _NAMELESS else first]

    def _record_session(self, row: JSON, found: Kind) -> None:
        self.session = text(row, "sessionId") or text(row, "session_id") or self.session
        self.version = text(row, "version") or text(row, "claude_code_version") or self.version
        self.cwd = self.cwd or text(row, "cwd")
        if is_head(row):
            self.model = self.model or text(row, "model")
        elif is_result(row):
            self.denied |= list_denied(row)
        if found == "answer":
            self.model = self.model or text(row, "message", "model")

    def _record_agent(self, row: Row, found: Kind) -> None:
        self.agent = self.agent or text(row.value, "agentId")
        if is_report(row.value):
            self.agents.add_wrapped(row)
        elif is_side(row.value):
            self.agents.add_row(row, found)
        elif found == "answer":
            self.agents.record_calls(row.value)

    def _record_time(self, row: Row, found: Kind) -> None:
        """Record the time of the first row and of the first message. Bookkeeping rows may be much older."""
        if row.at is None:
            return
        self.began = row.at if self.began is None else self.began
        if found != "other":
            self._spoke.setdefault(is_side(row.value), row.at)

    def _join_typed(self) -> None:
        """Assign queued text to the conversation of the message before it, because the tree does not contain
        it.
        """
        before = -1
        for place, found in enumerate(self.kinds if self.branches.heads else ()):
            if found != "other":
                before = place
            elif place in self.fates:
                self.branches.join(place, before)


def read_outline(rows: Iterable[Row | Noise]) -> Outline:
    """Read the outline: a second time if a row has the id of an earlier row but another message."""
    outline = Outline(rows)
    others = find_repeats(rows, "uuid", outline.repeated_ids, select_content).others
    return Outline(rows, others) if others else outline


def _find_predecessor(row: JSON, tree: RowTree, *, side: bool) -> str | int:
    """Return the row that precedes a compaction: the one it names, or the last row if that is not in the tree
    yet.

    A compaction may name a message that it keeps, which is written again after it.
    """
    named = text(row, "logicalParentUuid")
    last = tree.find_last(side=side)
    return last if named and named not in tree and last is not None else named


def is_side(row: JSON) -> bool:
    """Return whether a row belongs to a subagent that wrote into this file."""
    return isinstance(row, dict) and (row.get("isSidechain") is True or bool(row.get("parent_tool_use_id")))


_OVER = frozenset({"stop_hook_summary", "turn_duration"})
"""Subtypes of rows that the harness writes after a turn."""


class OutlineEnding:
    """The end of the main conversation by its last row, without local commands and texts of the harness."""

    def __init__(self) -> None:
        self.last: Kind = "other"
        self.row: JSON = None
        self.command = ""
        self.result: JSON = None
        self.response = self.stop = ""
        self.calls: list[str] = []
        self.answered: set[str] = set()
        self.spoke = self.thought = self.over = False

    def see(self, row: JSON, found: Kind) -> None:
        """Update the state with one row of the main conversation."""
        if found == "command" or text(row, "subtype") == "local_command":
            self.command = command_name(row) or self.command
        self.over = self.over or _is_turn_end(row)
        self.result = row if is_result(row) else self.result
        if found in ("command", "synthetic", "other"):
            return
        self.last, self.row, self.command, self.over = found, row, "", False
        self.result = None
        self.answered.update(text(result, "tool_use_id") for result in list_results(row))
        if found == "answer":
            self._read_response(row)

    def _read_response(self, row: JSON) -> None:
        response = text(row, "message", "id")
        if response != self.response or not response:
            self.response, self.calls, self.stop, self.spoke, self.thought = response, [], "", False, False
            self.answered = set()
        self.stop = text(row, "message", "stop_reason") or self.stop
        for block in list_blocks(row):
            match text(block, "type"):
                case "tool_use":
                    self.calls.append(text(block, "id"))
                case "text":
                    self.spoke = True
                case "thinking" | "redacted_thinking":
                    self.thought = True
                case _:
                    pass

    def end(self) -> tuple[str, str]:
        """Return the name of the end and its source."""
        if self.result is not None:
            return find_end(self.result)
        pending = sum(call not in self.answered for call in self.calls)
        match self.last:
            case "interrupt":
                marker = next(
                    iter(text(next(iter(list_blocks(self.row)), None), "text").strip().splitlines()), ""
                )
                return "cancelled", f"last message: {marker[:80]}"
            case "failed":
                return self._end_with_failure()
            case "prompt" | "meta" | "summary":
                return PROMPT
            case "other":
                return NOTHING
            case _ if pending:
                return end_with_open_calls(pending)
            case "result":
                return RESULT
            case _ if self.thought and not self.spoke and not self.calls:
                return THOUGHTS
            case _:
                return self._end_with_response()

    def _end_with_failure(self) -> tuple[str, str]:
        failed, _, status = describe_failure(self.row)
        source = f"last request failed{f' ({status})' if status else ''}"
        return "limit:rate" if failed is FailureClass.RATE_LIMIT else "error", source

    def _end_with_response(self) -> tuple[str, str]:
        """Return the end of a conversation whose last message is a response.

        Responses are written block by block. Only a stop reason or a row of the harness shows that it is
        complete.
        """
        over = self.over and not self.stop
        end, says = last_answer(self.stop, "finished" if over else "unknown")
        turn = "; then the turn was over" if over else ""
        command = f"; then the local command {self.command}" if self.command else ""
        return end, f"{says}{turn}{command}"


def _is_turn_end(row: JSON) -> bool:
    """Return whether a row shows that a turn is over: its `Stop` hooks ran, or its duration is recorded."""
    return text(row, "data", "hookEvent") == "Stop" or text(row, "subtype") in _OVER
