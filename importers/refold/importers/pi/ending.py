"""How a Pi session ended: by the last message that nobody took back."""

from refold.importers.fields import JSON, text
from refold.importers.pi.rows import asked, is_cut
from refold.importers.stops import end_of


class Ending:
    """Whose the last message is, why it stopped, and which calls it asks for, by their names."""

    def __init__(self) -> None:
        self.role = self.stop = ""
        self.cut = False
        self.pending: dict[str, str] = {}
        self.answered: set[str] = set()

    def see(self, message: JSON) -> None:
        """Go on by a message of the main conversation."""
        match text(message, "role"):
            case "assistant":
                self.pending = {text(call, "id"): text(call, "name") for call in asked(message)}
            case "toolResult":
                self.answered.add(text(message, "toolCallId"))
            case "user":
                pass
            case _:
                return
        self.role, self.stop = text(message, "role"), text(message, "stopReason")
        self.cut = self.role == "assistant" and is_cut(message)

    def end(self) -> tuple[str, str]:
        """The end, and what says so."""
        match self.role:
            case "":
                return "open", "no message in the file"
            case "user":
                return "open", "last message is a prompt"
            case "toolResult":
                return "open", "last message is a tool result"
            case _:
                return self._answered()

    def _answered(self) -> tuple[str, str]:
        says = f"last message: assistant, stopReason={self.stop or None}"
        waiting = sum(call not in self.answered for call in self.pending)
        ends = {"aborted": "cancelled", "error": "error", "length": "limit:token"}
        if self.stop not in ends and waiting:
            return "open", f"{waiting} tool call(s) without result at the end"
        if self.stop not in ends and self.cut:
            return "unknown", f"{says}, and no token counted: the stream may have broken off"
        return ends.get(self.stop) or end_of(self.stop), says
