"""Answers of a Codex rollout while their items are read: thoughts, texts and calls up to the next thing from outside."""

from refold.reducers.messages import Usage
from refold.reducers.vocabulary import Role
from refold.replay.importers.codex.items import call, kind, leftover, said, thought
from refold.replay.importers.fields import JSON, json_text
from refold.replay.importers.items import Answered, Asked
from refold.replay.importers.pieces import Piece
from refold.replay.importers.session_rows import Row, lines


class Draft:
    """A response of which items may follow, or its usage."""

    def __init__(self, first: Row, model: str) -> None:
        self.first = self.last = first
        self.model = model
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[Asked] = []
        self.left: list[str] = []
        self.usage: Usage | None = None
        self.closed = False
        self.size = 0

    def add(self, row: Row, found: JSON) -> None:
        """Take one more item in."""
        self.last = row
        self.size += len(json_text(row.value))
        match kind(found):
            case "answer":
                self.texts.append(said(found))
                self.left.append(leftover(row.value, "role", "content"))
            case "reasoning":
                self.thoughts.append(thought(found))
                self.left.append(leftover(row.value, "summary"))
            case _:
                self.calls.append(call(found))
                self.left.append(leftover(row.value, "call_id", "name", "arguments", "input", "action"))

    def piece(self) -> Piece:
        """The message that it adds to the conversation."""
        thoughts = "\n".join(filter(None, self.thoughts))
        return Piece(
            role=Role.ASSISTANT, text="\n".join(self.texts), reasoning=thoughts, calls=tuple(self.calls)
        )

    def answered(self) -> Answered:
        """The answer as it stands."""
        shown, left = self.piece(), [rest for rest in self.left if rest]
        return Answered(
            position=lines(self.first.line, self.last.line),
            at=self.last.at or self.first.at,
            rest=left[0] if len(left) == 1 else f"[{','.join(left)}]" if left else "",
            text=shown.text,
            reasoning=shown.reasoning,
            calls=shown.calls,
            usage=self.usage or Usage(),
            quality="reported" if self.usage else "",
            model=self.model,
        )
