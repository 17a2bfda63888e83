"""What the events of a Codex rollout say of it: tokens, by counters that are cumulative and repeated, and how it ended."""

from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass
from refold.replay.importers.codex.items import failure
from refold.replay.importers.fields import JSON, at, text
from refold.replay.importers.usages import UsageNames, each_of

TASK_EVENTS = ("task_started", "turn_started", "task_complete", "turn_complete", "turn_aborted", "error")
"""Types of events that say that a task began, or ended."""

_TOKENS = UsageNames(
    input=("input_tokens",),
    output=("output_tokens",),
    cache_read=("cached_input_tokens",),
    reasoning=("reasoning_output_tokens",),
)


class Meter:
    """A cumulative counter of tokens, read as growth. A smaller total is a new counter."""

    def __init__(self) -> None:
        self.last = Usage()

    def growth(self, payload: JSON) -> Usage | None:
        """How much the counter of a `token_count` event grew, None for an event without one."""
        now = _TOKENS.of(at(payload, "info", "total_token_usage"))
        if now is None:
            return None
        before = Usage() if now.input + now.output < self.last.input + self.last.output else self.last
        self.last = now
        return each_of(now, before, lambda total, last: max(0, total - last))


def end_of(task: JSON) -> tuple[str, str]:
    """How a rollout ended, by its last event of a task, and what says so."""
    what = text(task, "type")
    match what:
        case "":
            return "unknown", "no task events in the file"
        case "task_started" | "turn_started":
            return "open", f"{what} without {what.replace('started', 'complete')}"
        case "turn_aborted":
            return "cancelled", "last task event is turn_aborted"
        case "error":
            failed, word, _ = failure(task)
            end = "limit:rate" if failed is FailureClass.RATE_LIMIT else "error"
            return end, f"last task event is error {word}".rstrip()
        case _:
            broke = isinstance(at(task, "error"), dict)
            return ("error" if broke else "finished"), f"last task event is {what}"
