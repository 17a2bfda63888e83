"""What is counted in a Gemini CLI chat, and how it ended: by its user and model messages, whatever else it tells the person."""

import msgspec

from refold.reducers.messages import Usage
from refold.replay.importers.fields import JSON, at, rows, text
from refold.replay.importers.tallies import Count, UsageNames

_TOKENS = UsageNames(input=("input",), output=("output",), cache_read=("cached",), reasoning=("thoughts",))


def usage_of(message: JSON) -> Usage | None:
    """The usage of a model message. `output` leaves out the thoughts there, here it has them; `input` has the cached."""
    used = _TOKENS.of(at(message, "tokens"))
    return used and msgspec.structs.replace(used, output=used.output + used.reasoning)


def answered(call: JSON) -> bool:
    """Whether a call has its result: it lies inside it."""
    result = at(call, "result")
    return bool(result) if isinstance(result, list | str) else isinstance(result, dict)


class Counts(Count):
    """Counts of messages as they come; results have no messages of their own."""

    writes = False

    def __init__(self) -> None:
        super().__init__()
        self.last: JSON = None

    def message(self, message: JSON, *, left: bool = False) -> None:
        """Count a message in. One that was taken back counts, but ends nothing."""
        self.time(at(message, "timestamp"))
        kind = text(message, "type")
        if kind not in ("user", "gemini"):
            return
        self.last = self.last if left else message
        if kind == "user":
            self.users += 1
            return
        self.answers += 1
        if (used := usage_of(message)) is not None:
            self.used.append(used)
        for call in rows(message, "toolCalls"):
            name = self.call(text(call, "id"))
            self.results |= {name} if answered(call) else set()
            self.errors += text(call, "status") == "error"

    def end(self) -> tuple[str, str]:
        """The end, and what says so."""
        match text(self.last, "type"):
            case "":
                return "open", "no user or model message"
            case "user":
                return "open", "last message is a prompt, no answer after it"
            case _:
                calls = rows(self.last, "toolCalls")
                pending = sum(not answered(call) for call in calls)
                if pending:
                    return "open", f"{pending} tool call(s) without result at the end"
                if calls:
                    return "open", "last model message has tool calls, no answer after their results"
                return "finished", "last model message is text without tool call"
