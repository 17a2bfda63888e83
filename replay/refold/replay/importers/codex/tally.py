"""What is counted in a Codex rollout, and how it ended. Token counters are cumulative and repeated: growth is what counts."""

from refold.reducers.messages import Usage
from refold.reducers.vocabulary import FailureClass
from refold.replay.importers.codex.items import error_of, failure, item, kind
from refold.replay.importers.fields import JSON, at, text
from refold.replay.importers.tallies import Count, UsageNames, each_of

TASK_EVENTS = ("task_started", "turn_started", "task_complete", "turn_complete", "turn_aborted", "error")


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


class Counts(Count):
    """Counts of all rows, and the last event of a task."""

    writes = False

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[str] = set()
        self.task: JSON = None

    def row(self, row: JSON) -> None:
        """Count a row in. Bare rows have no time of their own that counts."""
        self.time(at(row, "timestamp"))
        if (found := item(row)) is not None:
            self._item(found)
        elif text(row, "type") == "event_msg" and text(row, "payload", "type") in TASK_EVENTS:
            self.task = at(row, "payload")

    def _item(self, found: JSON) -> None:
        match kind(found):
            case "message":
                self.users += text(found, "role") == "user"
            case "answer":
                self.answers += 1
            case "call" | "hosted":
                self.call(text(found, "call_id") or text(found, "id"))
            case "result":
                self._result(found)
            case _:
                pass

    def _result(self, found: JSON) -> None:
        """A call's results count once, as the calls do."""
        call = text(found, "call_id")
        self.results.add(call)
        if error_of(found) is not None:
            self.failed.add(call)
        self.tools, self.errors = len(self.results), len(self.failed)

    def end(self) -> tuple[str, str]:
        """The end, and what says so."""
        what = text(self.task, "type")
        match what:
            case "":
                return "unknown", "no task events in the file"
            case "task_started" | "turn_started":
                return "open", f"{what} without {what.replace('started', 'complete')}"
            case "turn_aborted":
                return "cancelled", "last task event is turn_aborted"
            case "error":
                failed, word, _ = failure(self.task)
                end = "limit:rate" if failed is FailureClass.RATE_LIMIT else "error"
                return end, f"last task event is error {word}".rstrip()
            case _:
                broke = isinstance(at(self.task, "error"), dict)
                return ("error" if broke else "finished"), f"last task event is {what}"
