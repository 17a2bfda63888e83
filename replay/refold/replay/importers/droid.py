"""Droid sessions, as Factory's command line keeps them: a header, messages of content blocks, and what it notes beside.

An answer is one message, with its thoughts and calls; results come in a message of the person's side, before what the person
or the harness said with them. A message in which all is in `<system-` tags is the harness's. A compaction names the last
message that its summary stands for. Tokens are in no row: a file beside the session sums them up.

Counted: messages by their role, those with results as such.
"""

from collections.abc import Iterator
from copy import copy

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role, ToolError
from refold.replay.importers.call_ids import messages
from refold.replay.importers.content import words
from refold.replay.importers.fields import JSON, at, left, rows, text, without
from refold.replay.importers.items import Counted, Item, Place, RunBegan
from refold.replay.importers.message_shapes import read
from refold.replay.importers.protocol import Match
from refold.replay.importers.session_rows import Noise, Row, Rows, first_rows, gathered, rest_of, unread_parts
from refold.replay.importers.source import Source
from refold.replay.importers.tallies import counted
from refold.replay.importers.times import Times
from refold.replay.importers.trees import branches, path_to

_KINDS = ("todo_state", "session_settings", "agent_turn_outcome", "session_end")
_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document")
_TOLD = {
    "text": ("text",),
    "thinking": ("thinking",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "content", "is_error"),
}
_LABELS = ("title", "cwd", "version")
_LOOKED = 20


class Droid:
    """The importer of Droid's session files."""

    name = "droid"

    def match(self, source: Source) -> Match | None:
        """By its header, or by what it notes beside its messages."""
        found = [row.value for row in first_rows(source, _LOOKED) if isinstance(row, Row)]
        heads = (row for row in found if text(row, "type") == "session_start" and text(row, "id"))
        if any({"cwd", "owner", "title", "sessionTitle"} & row.keys() for row in heads):
            return Match(92, "a session_start with its folder or title")
        noted = any(text(row, "type") in ("todo_state", "compaction_state") for row in found)
        spoke = any(isinstance(at(row, "message", "content"), list) for row in found)
        return Match(82, "messages beside the state of a list of to-dos") if noted and spoke else None

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the file."""
        return gathered(_Reading(source).items())


DROID = Droid()


class _Reading:
    """One reading of a session."""

    def __init__(self, source: Source) -> None:
        self.rows, self.times = Rows(source), Times()
        self.seen: set[str] = set()
        self.talk: list[tuple[str, Message]] = []
        self.open: dict[str, str] = {}
        self.end = "open", "no message in the file"
        self.head: Row | None = None
        self.model = ""
        self.left = self._look_ahead()

    def _look_ahead(self) -> frozenset[str]:
        """The ids of messages on branches that were left, as far as the rows name their parents; and the header."""
        parents: dict[str, str] = {}
        for row in (row for row in self.rows if isinstance(row, Row)):
            if text(row.value, "type") == "session_start":
                self.head = self.head or row
            elif text(row.value, "type") == "message":
                parents.setdefault(text(row.value, "id"), text(row.value, "parentId"))
            self.model = self.model or text(row.value, "message", "model") or text(row.value, "model")
        path = path_to(parents, next(reversed(parents), ""))
        return frozenset(id_ for branch in branches(parents, path) for id_ in branch.rows)

    def items(self) -> Iterator[Item | Noise]:
        """The run, noise not yet gathered."""
        head, line = self.head.value if self.head else None, 1
        place = self.head.place if self.head else Place("line 1")
        yield RunBegan(
            place.position,
            place.at,
            without(head, "type", "id", *_LABELS),
            key=text(head, "id") or "session",
            model=self.model,
            agent="droid",
            labels={name: label for name in _LABELS if (label := text(head, name))},
        )
        for row in self.rows:
            line = row.line
            if isinstance(row, Noise):
                yield row
            elif row != self.head:
                yield from self._row(row)
        yield Place(f"line {line}").ended(self._end(), self.times.edges())

    def _row(self, row: Row) -> Iterator[Item | Noise]:
        kind, id_ = text(row.value, "type"), text(row.value, "id")
        self.times.see(row.value.get("timestamp"), row.at)
        if kind == "compaction_state":
            yield from self._compacted(row)
        elif kind != "message":
            yield row.noise(known=kind in _KINDS or kind == "session_start")
        elif id_ and id_ in self.seen:
            yield row.noise("repeated")
        elif id_ in self.left:
            yield row.noise("rewound", counts=self._counted(row))
        else:
            self.seen.add(id_)
            yield from self._message(row, id_, row.value.get("message"))

    def _counted(self, row: Row) -> Counted | None:
        """As what a message counts on a branch that was left; nothing else follows from it."""
        beside = copy(self)
        beside.open, beside.talk = {}, []
        told = beside._message(row, "", row.value.get("message"))
        return counted(item for item in told if not isinstance(item, Noise))

    def _message(self, row: Row, id_: str, message: JSON) -> Iterator[Item | Noise]:
        kinds = (text(block, "type") for block in rows(message, "content"))
        yield from unread_parts(row, message, ("content",), kinds, _BLOCKS)
        kept = left(message, "role", "content", "model")
        blocks: list[JSON] = [block for block in map(_left_of, rows(message, "content")) if block]
        if blocks:
            kept["content"] = blocks
        rest = rest_of(row.value, "message", kept)
        match text(message, "role"):
            case "assistant":
                found = read(message, Role.ASSISTANT).messages
                answer = next(
                    (each for each in found if each.role is Role.ASSISTANT), Message(role=Role.ASSISTANT)
                )
                self.open = {call.id: call.name for call in answer.calls}
                self.end = "finished", "last answer has no call"
                self.talk.append((id_, answer))
                yield row.place.answered(answer, model=text(message, "model"), rest=rest)
            case "user":
                yield from self._results(row, id_, message, rest)
                yield from self._said(row, id_, message, rest)
            case _:
                yield row.noise(known=False)

    def _results(self, row: Row, id_: str, message: JSON, rest: str) -> Iterator[Item]:
        for block in rows(message, "content"):
            if text(block, "type") != "tool_result":
                continue
            call, said = text(block, "tool_use_id"), words(at(block, "content"))
            name = self.open.pop(call, "")
            self.end = "open", "last message has results, no answer after it"
            self.talk.append((id_, Message(role=Role.TOOL, text=said, call=call, name=name)))
            error = ToolError.RAISED if at(block, "is_error") is True else None
            yield row.place.returned(call, said, name=name, error=error, rest=rest)

    def _said(self, row: Row, id_: str, message: JSON, rest: str) -> Iterator[Item]:
        content = at(message, "content")
        said = words(content, beside=("tool_result",))
        blocks = [block for block in rows(content) if text(block, "type") != "tool_result"]
        if not said and rows(content):
            return
        self.end = "open", "last message is a prompt, no answer after it"
        self.talk.append((id_, Message(role=Role.USER, text=said)))
        tagged = all(text(block, "text").startswith("<system-") for block in blocks) and bool(blocks)
        yield row.place.said(said, "harness" if tagged else "user", rest=rest)

    def _compacted(self, row: Row) -> Iterator[Item]:
        """Later requests show the summary, and what was said behind the message that it names."""
        yield row.remarked("compaction")
        ids, anchor = [id_ for id_, _ in self.talk], text(row.value, "anchorMessage", "id")
        if summary := text(row.value, "summaryText"):
            kept = self.talk[len(ids) - ids[::-1].index(anchor) :] if anchor in ids else []
            first = Message(role=Role.USER, text=summary)
            yield row.place.prompted(messages([first, *(said for _, said in kept)]), "compaction")

    def _end(self) -> tuple[str, str]:
        """How it ended, and what says so."""
        return ("open", f"{len(self.open)} tool call(s) without result at the end") if self.open else self.end


def _left_of(block: JSON) -> dict[str, JSON]:
    """What no item says of a block: a thought's signature, an image whole."""
    kind = text(block, "type")
    kept = left(block, "type", *_TOLD[kind]) if kind in _TOLD else left(block, "type")
    return {"type": kind, **kept} if kept else {}
