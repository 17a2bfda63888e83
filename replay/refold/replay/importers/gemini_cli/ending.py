"""How a Gemini CLI chat ended: by the last of its user and model messages, whatever else it tells the person."""

from refold.replay.importers.fields import JSON, at, rows, text


def answered(call: JSON) -> bool:
    """Whether a call has its result: it lies inside it."""
    result = at(call, "result")
    return bool(result) if isinstance(result, list | str) else isinstance(result, dict)


def end_of(last: JSON) -> tuple[str, str]:
    """The end, and what says so, by the last message that nobody took back."""
    match text(last, "type"):
        case "":
            return "open", "no user or model message"
        case "user":
            return "open", "last message is a prompt, no answer after it"
        case _:
            calls = rows(last, "toolCalls")
            pending = sum(not answered(call) for call in calls)
            if pending:
                return "open", f"{pending} tool call(s) without result at the end"
            if calls:
                return "open", "last model message has tool calls, no answer after their results"
            return "finished", "last model message is text without tool call"
