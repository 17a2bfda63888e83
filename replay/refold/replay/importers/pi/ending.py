"""How a Pi session ended: by the last message that nobody took back."""

from refold.replay.importers.fields import JSON, text
from refold.replay.importers.pi.rows import blocks


class Ending:
    """The last message, and which calls wait."""

    def __init__(self) -> None:
        self.last: JSON = None
        self.pending: list[str] = []
        self.answered: set[str] = set()

    def see(self, message: JSON) -> None:
        """Go on by a message of the main conversation."""
        match text(message, "role"):
            case "assistant":
                asked = (block for block in blocks(message) if text(block, "type") == "toolCall")
                self.pending = [text(block, "id") for block in asked]
            case "toolResult":
                self.answered.add(text(message, "toolCallId"))
            case "user":
                pass
            case _:
                return
        self.last = message

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
        waiting = sum(call not in self.answered for call in self.pending)
        ends = {"aborted": "cancelled", "error": "error", "length": "limit:token"}
        if stop not in ends and waiting:
            return "open", f"{waiting} tool call(s) without result at the end"
        return ends.get(stop, "finished"), says
