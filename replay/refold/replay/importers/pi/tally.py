"""What is counted in a Pi session, and how it ended: entries of type `message`, by their roles."""

from refold.replay.importers.fields import JSON, at, text
from refold.replay.importers.pi.rows import TOKENS, blocks
from refold.replay.importers.tallies import Count


class Counts(Count):
    """Counts of entries as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[str] = []
        self.last: JSON = None

    def entry(self, entry: JSON, *, left: bool = False) -> None:
        """Count an entry in. One that was left counts, but ends nothing."""
        self.time(at(entry, "timestamp"))
        message = at(entry, "message")
        if text(entry, "type") != "message" or not isinstance(message, dict):
            return
        match text(message, "role"):
            case "user":
                self.users += 1
            case "assistant":
                self._answer(message, left=left)
            case "toolResult":
                self.tools += 1
                self.errors += at(message, "isError") is True
                self.results.add(text(message, "toolCallId"))
            case _:
                return
        self.last = self.last if left else message

    def _answer(self, message: JSON, *, left: bool) -> None:
        self.answers += 1
        self.requests = (self.requests or 0) + (not left)
        if (used := TOKENS.of(at(message, "usage"))) is not None:
            self.used.append(used)
        asked = (block for block in blocks(message) if text(block, "type") == "toolCall")
        self.pending = [self.call(text(block, "id")) for block in asked]

    def end(self) -> tuple[str, str]:
        """The end, and what says so."""
        match text(self.last, "role"):
            case "":
                return "open", "no message in the file"
            case "user":
                return "open", "last message is a prompt"
            case "toolResult":
                return "open", "last message is a tool result"
            case _:
                return self._answered()

    def _answered(self) -> tuple[str, str]:
        stop = text(self.last, "stopReason")
        says = f"last message: assistant, stopReason={stop or None}"
        waiting = sum(call not in self.results for call in self.pending)
        ends = {"aborted": "cancelled", "error": "error", "length": "limit:token"}
        if stop not in ends and waiting:
            return "open", f"{waiting} tool call(s) without result at the end"
        return ends.get(stop, "finished"), says
