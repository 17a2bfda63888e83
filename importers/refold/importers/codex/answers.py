"""Answers of a Codex rollout while their items are read: thoughts, texts and calls up to the next thing from outside."""

from refold.importers.codex.items import kind, left_of, take_call, take_said, take_thought
from refold.importers.drafts import Draft
from refold.importers.fields import JSON
from refold.importers.items import Answered, Counted
from refold.importers.session_rows import Row


class Response(Draft):
    """A response of which items may follow, or its usage. `asked`: calls of it that count."""

    def __init__(self, first: Row, model: str) -> None:
        super().__init__(first)
        self.model, self.closed = model, False
        self.asked = 0

    def add(self, row: Row, found: JSON) -> None:
        """Take one more item in."""
        match kind(found):
            case "answer":
                self.texts.append(take_said(found))
            case "reasoning":
                self.thoughts.append(take_thought(found))
            case _:
                self.calls.append(take_call(found))
        self.grow(row, left_of(row, found))

    def answered(self) -> Answered:
        """The answer as it stands."""
        # A message is a row of text, and a response may have none of them, or several.
        counts = Counted(assistant=len(self.texts), calls=self.asked, usage=self.usage)
        place = self.place.counting(counts)
        return place.answered(self.message(), self.usage, model=self.model, rest=self.rest)
