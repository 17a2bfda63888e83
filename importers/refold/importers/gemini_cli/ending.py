"""How a Gemini CLI chat ended: by the last of its user and model messages, whatever else it tells the person."""

from refold.importers.fields import JSON, at, rows, table, text
from refold.importers.gemini_cli.parts import holds_responses, is_answered, is_context


def end_of(last: JSON) -> tuple[str, str]:
    """The end, and what says so, by the last message that nobody took back."""
    match text(last, "type"):
        case "":
            return "open", "no user or model message"
        case "user" if holds_responses(last):
            return "open", "last message is a result, no answer after it"
        case "user" if is_context(last):
            return "unknown", "only what the CLI itself puts before a chat: nobody asked anything"
        case "user":
            return "open", "last message is a prompt, no answer after it"
        case _:
            calls = rows(last, "toolCalls")
            pending = sum(not is_answered(call) for call in calls)
            if pending:
                return "open", f"{pending} tool call(s) without result at the end"
            if calls:
                return "open", "last model message has tool calls, no answer after their results"
            # A call is written only once it has ended: without one an answer may have been cut off in its tool, or amid its words.
            cut = (
                " (no token counts: cut off)"
                if "tokens" in table(last) and at(last, "tokens") is None
                else ""
            )
            return (
                "unknown",
                f"last model message is text without tool call, and nothing records why it stopped{cut}",
            )
