"""Answers that are written as several with ids of their own: iFlow writes rows as Claude Code does, but for this.

While an answer streams in, iFlow writes a row for each state of it, each under another `message.id` and all below the same parent.
A row may repeat the call of the row before it. So a call that waits for its result, and is asked once more by its id, is one call.
"""

from refold.importers.claude_code.rows import Kind, results
from refold.importers.fields import JSON, NANO, at, rows, text
from refold.importers.session_rows import Row

_IFLOW = "session-"


def is_iflow(session: str) -> bool:
    """Whether a session is iFlow's, by its id: Claude Code's are bare UUIDs."""
    return session.startswith(_IFLOW)


class Bursts:
    """The answer to which each row of an answer belongs, row by row. Answers are known by the places of their first rows."""

    def __init__(self) -> None:
        self._open: dict[tuple[bool, str], tuple[int, str, JSON]] = {}
        self._last: tuple[int, Row] | None = None

    def first(self, row: Row, first: int) -> int:
        """The first row of the answer of which `row` is a piece; `first` by its `message.id` alone."""
        side = at(row.value, "isSidechain") is True
        asked = [
            block for block in rows(row.value, "message", "content") if text(block, "type") == "tool_use"
        ]
        for call in asked:
            known = self._open.get((side, text(call, "id")))
            if known is not None and known[1:] == (text(call, "name"), at(call, "input")):
                first = min(first, known[0])
        if self._last is not None and _streams(self._last[1], row):
            first = min(first, self._last[0])
        for call in asked:
            if id_ := text(call, "id"):
                self._open.setdefault((side, id_), (first, text(call, "name"), at(call, "input")))
        self._last = first, row
        return first

    def end(self, row: JSON, found: Kind) -> None:
        """Go on by a row that is no piece of an answer: its results end calls, and with it no answer streams."""
        if found == "other":
            return
        self._last = None
        for result in results(row):
            self._open.pop((at(row, "isSidechain") is True, text(result, "tool_use_id")), None)


def _streams(before: Row, row: Row) -> bool:
    """Whether both rows are states of one answer of iFlow's: below the same parent, less than a second apart."""
    parent = text(row.value, "parentUuid")
    if not (is_iflow(text(row.value, "sessionId")) and parent and parent == text(before.value, "parentUuid")):
        return False
    return before.at is not None and row.at is not None and 0 <= row.at - before.at < NANO
