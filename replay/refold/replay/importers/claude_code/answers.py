"""Answers of a Claude Code session while their rows are read: one response, a row a block, usage repeated on each."""

import msgspec

from refold.reducers.messages import Usage
from refold.reducers.vocabulary import Role
from refold.replay.importers.claude_code.rows import STOPS, blocks, is_id, leftover
from refold.replay.importers.claude_code.tally import larger, usage_of
from refold.replay.importers.fields import JSON, at, json_text, number, text
from refold.replay.importers.items import Answered, Asked, Quality
from refold.replay.importers.pieces import Piece
from refold.replay.importers.session_rows import Row, lines

PER_TOKEN = 10
"""Characters a token at most, where the count is the provider's last word and not a row's first."""


class Draft:
    """An answer whose rows are not all read; `complete` is the place of its last one."""

    def __init__(self, response: str, first: Row, complete: int) -> None:
        self.response, self.first, self.last, self.complete = response, first, first, complete
        self.uuids: set[str] = set()
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[Asked] = []
        self.usage: Usage | None = None
        self.left: list[str] = []
        self.stop = ""
        self.cost: float = 0
        self.duration = self.size = 0

    def add(self, row: Row) -> None:
        """Take one more row in."""
        self.last = row
        self.size += len(json_text(row.value))
        self.uuids.add(text(row.value, "uuid"))
        self.usage = larger(self.usage, usage_of(row.value))
        self.stop = text(row.value, "message", "stop_reason") or self.stop
        cost = at(row.value, "costUSD")
        self.cost = max(self.cost, cost) if isinstance(cost, int | float) and 0 <= cost < 1e6 else self.cost
        self.duration = max(self.duration, (number(row.value, "durationMs") or 0) * 1_000_000)
        self.left.append(leftover(row.value))
        for block in blocks(row.value):
            self._block(block)

    def _block(self, block: JSON) -> None:
        match text(block, "type"):
            case "text":
                self.texts.append(text(block, "text"))
            case "thinking":
                self.thoughts.append(text(block, "thinking"))
            case "tool_use" if not any(call.id and call.id == text(block, "id") for call in self.calls):
                # Not `json_text`: what a model wrote keeps its order.
                arguments = msgspec.json.encode(at(block, "input")).decode()
                self.calls.append(Asked(id=text(block, "id"), name=text(block, "name"), arguments=arguments))
            case _:
                pass  # stands in `rest`

    def piece(self) -> Piece:
        """The message that it adds to the conversation."""
        said, thought = "\n".join(self.texts), "\n".join(self.thoughts)
        return Piece(role=Role.ASSISTANT, text=said, reasoning=thought, calls=tuple(self.calls))

    def answered(self) -> Answered:
        """The answer as it stands."""
        piece = self.piece()
        model = text(self.first.value, "message", "model")
        return Answered(
            position=lines(self.first.line, self.last.line),
            at=self.last.at or self.first.at,
            rest=self.left[0] if len(self.left) == 1 else f"[{','.join(self.left)}]",
            text=piece.text,
            reasoning=piece.reasoning,
            calls=piece.calls,
            stop=STOPS.get(self.stop),
            stop_raw=self.stop,
            usage=self.usage or Usage(),
            quality=self._quality(piece),
            cost_nanousd=round(self.cost * 1e9) if self.cost else None,
            model=model,
            response_id=self.response if is_id(self.response) else "",
            duration=min(self.duration, 1 << 62),
        )

    def _quality(self, piece: Piece) -> Quality:
        if self.usage is None:
            return ""
        written = len(piece.text) + len(piece.reasoning) + sum(len(call.arguments) for call in piece.calls)
        return "partial" if self.usage.output * PER_TOKEN < written else "reported"
