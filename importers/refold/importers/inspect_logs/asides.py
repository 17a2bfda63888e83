"""Events of a subagent: calls in them are in no run."""

from refold.importers.fields import JSON, rows, text
from refold.importers.items import UNCOUNTED, Counted, together

_CHOICES = ("output", "choices")


def within(event: JSON) -> Counted:
    """Count the calls of an event of a subagent, and of the events nested in it: those of its model, and tools that ran."""
    inner = nested(event)
    match text(event, "event"):
        case "model":
            choices = rows(event, *_CHOICES)
            calls = sum(len(rows(choice, "message", "tool_calls")) for choice in choices)
            return together([inner, Counted(calls=calls)]) or UNCOUNTED
        case "tool":
            return together([inner, Counted(results=1)]) or UNCOUNTED
        case _:
            return inner


def nested(event: JSON) -> Counted:
    """Count the calls in the events that stand in an event, as those of a tool that asked a model, or of a subtask."""
    return together(map(within, rows(event, "events"))) or UNCOUNTED
