"""Claude Code sessions: one JSON object a line, each answer in pieces, the conversation a tree.

A response is one answer, however many rows it has: they share `message.id`, each holds a block, results of its first
calls may stand between them. Rows that somebody left by going back to an earlier
prompt are no part of the conversation: they are kept as remarks. Those of a sub-agent are a run of their own. File order is the truth; times go back here and there.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role, ToolError
from refold.replay.importers.claude_code.agents import SubAgent, reports
from refold.replay.importers.claude_code.answers import Response
from refold.replay.importers.claude_code.conversation import Conversation
from refold.replay.importers.claude_code.ending import Ending
from refold.replay.importers.claude_code.outline import Outline, is_side
from refold.replay.importers.claude_code.queue import Fate
from refold.replay.importers.claude_code.queue import by as by_whom
from refold.replay.importers.claude_code.rows import (
    PARTS,
    Kind,
    attached,
    blocks,
    error_of,
    failure,
    is_bookkeeping,
    is_id,
    is_kept,
    is_message,
    leftover,
    output,
    remark,
    results,
    spoken,
)
from refold.replay.importers.fields import at, table, text
from refold.replay.importers.items import UNCOUNTED, Counted, Item, Place, RunBegan
from refold.replay.importers.protocol import Match
from refold.replay.importers.session_rows import Noise, Row, Rows, first_rows, gathered, unread_parts
from refold.replay.importers.source import Source, fits
from refold.replay.importers.tallies import counted
from refold.replay.importers.times import Times
from refold.replay.source_words import PARENT_LABEL

_LINKED = b'"parentUuid"'
_BLOCKS = (b'"tool_use"', b'"tool_result"', b'"session_id"', b"toolu_")
_LOOK_AT = 40
"""Rows in which a message, or what is kept beside messages, tells a session whose rows do not name their parents."""


class ClaudeCode:
    """The importer of Claude Code's session files."""

    name = "claude_code"

    def match(self, source: Source) -> Match | None:
        """By the key that its rows have in every version from 1.0 on, or by rows that others cut down."""
        head = source.head().lstrip(b"\xef\xbb\xbf \r\n")
        if head.startswith(b"{") and _LINKED in head:
            return Match(90, "rows with parentUuid")
        found = [row.value for row in first_rows(source, _LOOK_AT) if isinstance(row, Row)]
        if any(map(is_message, found)):
            return Match(50, "rows of type user or assistant with a message")
        if any(map(is_bookkeeping, found)):
            return Match(40, "rows that a session keeps beside its messages")
        printed = not found and b"claude" in head.lower() and sum(block in head for block in _BLOCKS) >= 2
        return Match(5, "no rows: what somebody printed of a session") if printed else None

    def items(self, source: Source) -> Iterator[Item]:
        """The session, and then the sub-agents that wrote into its file, each a run that a call of it began."""
        session = _Reading(source.name, Rows(source))
        yield from gathered(session.items())
        if session.outline.alone:
            return
        for agent in session.outline.agents.found:
            reading = _Reading(source.name, agent.rows, agent, session.outline.session)
            for item in gathered(reading.items()):
                yield msgspec.structs.replace(item, counts=UNCOUNTED) if agent.reported else item


class _Reading:
    """One reading of a session. What follows the beginning of an answer waits until the answer is complete."""

    def __init__(
        self,
        name: str,
        rows: Iterable[Row | Noise],
        agent: SubAgent | None = None,
        session: str = "",
    ) -> None:
        self.name, self.rows = name, rows
        self.outline = Outline(rows)
        self.agent, self.session = agent, session
        self.queue: deque[Item | Noise | Response] = deque()
        self.drafts: dict[str, Response] = {}
        self.seen: set[str] = set()
        self.talk = Conversation()
        self.asides: dict[str, Response] = {}
        self.returned: set[str] = set()
        self.times, self.ending = Times(), Ending()
        self.mode = ""
        self.aside = False
        """Whether the messages here are of a branch that was left: rows that have no place in the tree are, too."""

    def items(self) -> Iterator[Item | Noise]:
        """The run, noise not yet gathered."""
        yield self._began()
        for place, row in enumerate(self.rows):
            if isinstance(row, Noise):
                self.queue.append(row)
            else:
                self._row(row, place)
            yield from self._ready(place)
        yield from self._ready(None)
        reported = self.agent is not None and self.agent.reported
        yield Place(f"line {self.outline.lines}").ended(
            self.ending.end(), None if reported else self.times.edges()
        )

    def _began(self) -> RunBegan:
        seen = self.outline
        session = self.session or seen.session or "session"
        name = self.agent.name if self.agent is not None else seen.agent if seen.alone else ""
        labels = {"version": seen.version} if seen.version else {}
        if seen.parted and self.agent is None:
            labels[PARENT_LABEL] = session  # in another file
        return RunBegan(
            position=f"line {self.agent.rows[0].line if self.agent else 1}",
            at=seen.began,
            key=f"{session}/{name}" if name else session,
            parent=session if self.agent is not None else "",
            call=self.agent.call if self.agent is not None else "",
            model=seen.model,
            agent="claude-code",
            labels=labels,
        )

    def _ready(self, place: int | None) -> Iterator[Item | Noise]:
        """What need not wait any longer; everything, after the last row."""
        while self.queue:
            first = self.queue[0]
            if isinstance(first, Response) and place is not None and first.complete > place:
                return
            self.queue.popleft()
            if isinstance(first, Response):
                self.drafts.pop(first.response, None)
                yield first.answered()
            else:
                yield first

    def _row(self, row: Row, place: int) -> None:
        uuid = text(row.value, "uuid")
        if is_id(uuid) and uuid in self.seen:
            self.queue.append(row.noise("repeated"))
            return
        self.seen.add(uuid)
        found = self.outline.kinds[place]
        if not self.outline.alone and (is_side(row.value) or reports(row.value)):
            return  # it stands in a run of its own
        if text(row.value, "type") in ("user", "assistant", "system"):
            self.times.see(row.value.get("timestamp"), row.at)
        if uuid in self.outline.left or (self.aside and place in self.outline.fates):
            self.aside = True
            self.queue.append(row.noise("rewound", counts=self._aside(row, place, found)))
        else:
            self.aside = self.aside and found == "other"
            self.ending.see(row.value, found)
            self._permission(row)
            self._main(row, place, found)

    def _aside(self, row: Row, place: int, found: Kind) -> Counted | None:
        """As what a row counts that is no part of the conversation: a response of it once, with its last row."""
        match found:
            case "answer":
                response = text(row.value, "message", "id")
                draft = self.asides.pop(response, None) or Response(response, row, place)
                draft.add(row)
                if self.outline.complete.get(response, place) <= place:
                    return counted([draft.answered()])
                self.asides[response] = draft
                return None
            case "result":
                returned = results(row.value)
                new = {text(result, "tool_use_id") for result in returned} - self.returned
                self.returned |= new
                failed = sum(error_of(result) is not None for result in returned)
                return Counted(tool=1, results=len(new), errors=failed)
            case "interrupt" | "summary" | "command" | "meta" | "prompt":
                return Counted(user=1)
            case _:
                return None

    def _main(self, row: Row, place: int, found: Kind) -> None:
        if found != "other":
            kinds = (text(block, "type") for block in blocks(row.value))
            self.queue.extend(unread_parts(row, at(row.value, "message"), ("content",), kinds, PARTS))
        match found:
            case "answer":
                self._answer(row, place)
            case "failed":
                self._failed(row)
            case "synthetic":
                self._say(row, by="harness", role=Role.ASSISTANT)
            case "result":
                self._results(row)
            case "summary":
                self.talk.compact(text(row.value, "uuid"), spoken(row.value))
                self._prompted(row, "compaction", leftover(row.value), Counted(user=1))
            case "interrupt":
                # Later answers are shown the marker as a message; that it stopped something is what happened.
                self._say(row, by="harness")
                self.queue.append(row.place.cancelled(spoken(row.value)[:200]))
            case "meta":
                self._say(row, by="hook" if spoken(row.value).startswith("Stop hook") else "harness")
            case "command":
                self._say(row, by="harness")
            case "prompt":
                self._say(row, by="user")
            case "other":
                self._other(row, place)

    def _permission(self, row: Row) -> None:
        """A change of the mode that decides about which calls a person is asked."""
        mode = text(row.value, "permissionMode")
        if mode and mode != self.mode and text(row.value, "type") == "user":
            self.mode = mode
            self.queue.append(row.place.remarked("permission_mode", {"permissionMode": mode}))

    def _answer(self, row: Row, place: int) -> None:
        response = text(row.value, "message", "id")
        draft = self.drafts.get(response)
        if draft is None or not response:
            draft = Response(response, row, self.outline.complete.get(response, place))
            self.drafts[response] = draft
            self.queue.append(draft)
            self.talk.add(text(row.value, "uuid"), draft)
        draft.add(row)
        fits(self.name, row.position, draft.size)

    def _failed(self, row: Row) -> None:
        failed, message, status = failure(row.value)
        self.queue.append(row.place.failed(message, failed, status=status, rest=leftover(row.value)))

    def _say(self, row: Row, *, by: str, role: Role = Role.USER) -> None:
        if said := spoken(row.value):
            self._said(row, said, by=by, role=role)
        else:
            known, counts = "content" in table(row.value, "message"), Counted(user=int(role is Role.USER))
            self.queue.append(row.noise(known=known, counts=counts))

    def _said(
        self, row: Row, said: str, *, by: str, role: Role = Role.USER, counts: Counted | None = None
    ) -> None:
        place = row.place.counting(counts)
        self.queue.append(place.said(said, by, role=role, rest=leftover(row.value)))
        self.talk.add(text(row.value, "uuid"), Message(role=role, text=said))

    def _results(self, row: Row) -> None:
        rest, uuid = leftover(row.value), text(row.value, "uuid")
        # The key is the one that the agent's own file gives. Where a row has several results, nobody says of which it speaks.
        agent, session = text(row.value, "toolUseResult", "agentId"), text(row.value, "sessionId")
        returned = results(row.value)
        began = f"{session}/{agent}" if is_id(agent) and is_id(session) and len(returned) == 1 else ""
        for number, result in enumerate(returned):
            call, shown, error = text(result, "tool_use_id"), output(result), error_of(result)
            # A row is one message, however many results it has.
            counts = Counted(results=1, errors=int(error is not None)) if number else None
            place = row.place.counting(counts)
            self.queue.append(place.returned(call, shown, error=error, began=began, rest=rest))
            self.talk.add(uuid, Message(role=Role.TOOL, text=shown, call=call))
            if error is ToolError.CANCELLED:
                self.queue.append(row.place.remarked("approval:rejected", {"tool_use_id": call}))
            rest = ""
        if beside := spoken(row.value):
            self.queue.append(row.place.counting(UNCOUNTED).said(beside, "harness"))
            self.talk.add(uuid, Message(role=Role.USER, text=beside))

    def _other(self, row: Row, place: int) -> None:
        match remark(row.value):
            case "failure":
                self._failed(row)
            case "attached":
                said, by = attached(row.value)
                self._beside(row, by=by, said=said)
            case "queue" if place in self.outline.fates:
                self._typed(row, self.outline.fates[place])
            case "compaction":
                self.queue.append(row.remarked("compaction"))
                self.talk.keep(row.value)
            case "microcompaction":
                self.queue.append(row.remarked("microcompaction"))
                if self.talk.clear(row.value):
                    self._prompted(row, "microcompaction", "")
            case what:
                self.queue.append(row.noise(what, known=what != "unmapped" or is_kept(row.value)))

    def _typed(self, row: Row, fate: Fate) -> None:
        if fate.what == "said":
            self._beside(row, by=by_whom(fate.said), said=fate.said)
        else:
            self.queue.append(row.remarked(fate.what))

    def _beside(self, row: Row, *, by: str, said: str) -> None:
        """A message of a row that the format does not count as one."""
        self._said(row, said, by=by, counts=Counted(beside=1))

    def _prompted(self, row: Row, why: str, rest: str, counts: Counted | None = None) -> None:
        self.queue.append(row.place.counting(counts).prompted(self.talk.messages(), why, rest))


CLAUDE_CODE = ClaudeCode()
