"""Droid sessions of Factory's command line: a header, messages with content blocks, and metadata rows.

A response is one message with reasoning and calls. Results are in a user message, before the text by the user
or the harness. A message that consists of `<system-` tags is by the harness. A compaction names the last
message that its summary replaces. Rows have no tokens: a separate file has their totals.

Counts: messages by role, with messages that hold results as results.
"""

from collections.abc import Iterator

from refold.importers.fields import (
    JSON,
    at,
    rows,
    take_each,
    take_flag,
    take_if,
    take_text,
    take_words,
    text,
)
from refold.importers.items import Item, Place, RunBegan
from refold.importers.message_shapes import take_messages
from refold.importers.registry import FormatMatch
from refold.importers.session import Session, SessionFormat
from refold.importers.session_rows import Noise, Row, cut_to_summary, since, unread_parts
from refold.importers.traces import answer_of
from refold.reducers.vocabulary import Role

_KINDS = ("session_start", "todo_state", "session_settings", "agent_turn_outcome", "session_end")
_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document")
_LABELS = ("title", "cwd", "version")


class _Droid(Session):
    def is_header(self, row: Row) -> bool:
        return text(row.value, "type") == "session_start"

    def look(self, row: Row) -> None:
        self.model = self.model or text(row.value, "message", "model") or text(row.value, "model")

    def is_conversation(self, row: Row) -> bool | None:
        return True if text(row.value, "type") == "message" else None

    def select_content(self, value: JSON) -> JSON:
        return at(value, "message")

    def begin(self) -> RunBegan:
        head = self.head.value if self.head else None
        place = self.head.place if self.head else Place("line 1")
        return RunBegan(
            place.position,
            place.at,
            key=take_text(head, "id") or "session",
            model=self.model,
            agent="droid",
            cuts=None,
            labels={name: label for name in _LABELS if (label := take_text(head, name))},
            rest=self.head.rest() if self.head else "",
        )

    def main(self, row: Row) -> Iterator[Item | Noise]:
        match text(row.value, "type"):
            case "message":
                yield from self._message(row, row.value.get("message"))
            case "compaction_state":
                yield from self._read_compaction(row)
            case kind:
                yield row.noise(known=kind in _KINDS)

    def _message(self, row: Row, message: JSON) -> Iterator[Item | Noise]:
        kinds = (text(block, "type") for block in rows(message, "content"))
        yield from unread_parts(row, message, ("content",), kinds, _BLOCKS)
        match text(message, "role"):
            case "assistant":
                yield self._answer(row, message)
            case "user":
                yield from self._user(row, message)
            case _:
                yield row.noise(known=False)

    def _answer(self, row: Row, message: JSON) -> Item:
        read, model = take_messages(message, role=Role.ASSISTANT), take_text(message, "model")
        return row.place.reply(answer_of(read), stop=read.stop, model=model, rest=row.rest())

    def _user(self, row: Row, message: JSON) -> Iterator[Item]:
        """Yield the results in a user message, then the text with them."""
        blocks = [block for block in rows(message, "content") if text(block, "type") != "tool_result"]
        tagged = all(text(block, "text").startswith("<system-") for block in blocks) and bool(blocks)
        listed = bool(rows(message, "content"))
        results = [
            _take_result(block)
            for block in take_each(message, "content")
            if text(block, "type") == "tool_result"
        ]
        content = take_words(message, "content", beside=frozenset({"tool_result"}))
        take_if(message, "role", "user")
        rest = row.rest()
        for call, output, failed in results:
            name = self.ending.open.get(call, "")
            yield row.place.result(call, output, name=name, failed=failed, rest=rest)
        if content or not listed:
            yield row.place.message(content, "harness" if tagged else "user", rest=rest)

    def _read_compaction(self, row: Row) -> Iterator[Item]:
        """Yield a compaction: the summary, then the messages after the one that it names."""
        yield row.remark("compaction")
        anchor = self.numbers.get(text(row.value, "anchorMessage", "id"))
        if summary := text(row.value, "summaryText"):
            yield cut_to_summary(row.place, summary, tail=since(anchor + 1) if anchor is not None else ())


def _take_result(block: JSON) -> tuple[str, str, bool]:
    """Take the call id of a result, its text for the model, and whether it failed."""
    failed = take_flag(block, "is_error") is True  # only written for failed results
    take_if(block, "type", "tool_result")
    return take_text(block, "tool_use_id"), take_words(block, "content"), failed


def _match(found: list[dict[str, JSON]]) -> FormatMatch | None:
    """Match the header, or metadata rows beside messages."""
    heads = (row for row in found if text(row, "type") == "session_start" and text(row, "id"))
    if any({"cwd", "owner", "title", "sessionTitle"} & row.keys() for row in heads):
        return FormatMatch(92, "a row session_start with a folder or title")
    noted = any(text(row, "type") in ("todo_state", "compaction_state") for row in found)
    spoke = any(isinstance(at(row, "message", "content"), list) for row in found)
    return FormatMatch(82, "messages, and rows todo_state or compaction_state") if noted and spoke else None


DROID = SessionFormat("droid", _Droid, _match)
