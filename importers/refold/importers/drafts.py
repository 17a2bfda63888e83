"""Answers of which the rows of a session are not all read: texts, thoughts and calls come one by one."""

from refold.importers.items import Place
from refold.importers.session_rows import Row, lines
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role


class Draft:
    """An answer of which rows may follow. `size`: bytes of its rows so far."""

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
