"""Answers of a Claude Code session while their rows are read: one response, a row a block, usage repeated on each."""

from refold.importers.claude_code.rows import blocks, is_id, leftover
from refold.importers.content import read_call
from refold.importers.drafts import Draft
from refold.importers.fields import JSON, at, json_text, nano_usd, number, text
from refold.importers.items import Answered, Quality
from refold.importers.session_rows import Row
from refold.importers.usages import UsageNames, larger
from refold.reducers.messages import Message

PER_TOKEN = 10
"""Characters a token at most, where the count is the provider's last word and not a row's first."""

TOKENS = UsageNames(
    input=("input_tokens",),
    output=("output_tokens",),
    cache_read=("cache_read_input_tokens",),
    cache_write=("cache_creation_input_tokens",),
    reasoning=("output_tokens_details/thinking_tokens",),
    beside=True,
)


class Response(Draft):
    """An answer whose rows are not all read; `complete` is the place of its last one."""

    def __init__(self, response: str, first: Row, complete: int) -> None:
        super().__init__(first)
        self.response, self.complete = response, complete
        self.model, self.stop = text(first.value, "message", "model"), ""
        self.cost = self.duration = 0

    def add(self, row: Row) -> None:
        """Take one more row in."""
        self.grow(row, leftover(row, self.model))
        # The first rows were written when the response had only begun.
        self.usage = larger(self.usage, TOKENS.of(at(row.value, "message", "usage")))
        stop = text(row.value, "message", "stop_reason") or self.stop
        if self.stop not in ("", stop):
            self.left.append(json_text({"stop_reason": self.stop}))
        self.stop = stop
        self.cost = max(self.cost, nano_usd(at(row.value, "costUSD")) or 0)
        self.duration = max(self.duration, (number(row.value, "durationMs") or 0) * 1_000_000)
        for block in blocks(row.value):
            self._block(block)

    def _block(self, block: JSON) -> None:
        match text(block, "type"):
            case "text":
                self.texts.append(text(block, "text"))
            case "thinking":
                self.thoughts.append(text(block, "thinking"))
            case "tool_use":
                given = at(block, "input")
                call = read_call(text(block, "id"), text(block, "name"), given, block, beside=("input",))
                if not call.id or call not in self.calls:  # another call by the same id is one too
                    self.calls.append(call)
            case _:
                pass  # stands in `rest`

    def answered(self) -> Answered:
        """The answer as it stands."""
        said = self.message()
        return self.place.answered(
            said,
            self.usage,
            stop=self.stop,
            quality=self._quality(said),
            cost=self.cost or None,
            model=self.model,
            response=self.response if is_id(self.response) else "",
            duration=min(self.duration, 1 << 62),
            rest=self.rest,
        )

    def _quality(self, said: Message) -> Quality:
        written = len(said.text) + len(said.reasoning) + sum(len(call.arguments) for call in said.calls)
        return "partial" if self.usage and self.usage.output * PER_TOKEN < written else "reported"
