"""Entries of a Pi session: what each says, in the words in which Pi shows it to the model. Nothing here remembers an entry.

The texts around summaries and shell commands are Pi's own (its `messages.ts`), so that a view built from them is the model's.
"""

from refold.reducers.messages import Usage
from refold.reducers.vocabulary import StopReason
from refold.replay.importers.fields import JSON, at, number, rows, table, text
from refold.replay.importers.session_rows import rest_of

SUMMARY = "The conversation history before this point was compacted into the following summary:\n\n<summary>\n{}\n</summary>"
BRANCH = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{}</summary>"
)

PARTS = frozenset({"text", "thinking", "toolCall", "image"})
"""What the content of a message is made of."""

STOPS = {
    "stop": StopReason.END_TURN,
    "length": StopReason.MAX_TOKENS,
    "toolUse": StopReason.TOOL_USE,
    "error": StopReason.OTHER,
    "aborted": StopReason.OTHER,
}


def blocks(message: JSON) -> list[JSON]:
    """The blocks of a message; a bare text is one."""
    content = at(message, "content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(rows(message, "content"))


def spoken(message: JSON) -> str:
    """What a message says; an image is named where it stood."""
    return "\n".join(_said(block) for block in blocks(message) if text(block, "type") in ("text", "image"))


def _said(block: JSON) -> str:
    return text(block, "text") if text(block, "type") == "text" else "[image]"


def usage_of(message: JSON) -> Usage | None:
    """The usage of an answer. Cached tokens stand beside the input there, inside it here."""
    used = at(message, "usage")
    if not isinstance(used, dict):
        return None
    read, written = number(used, "cacheRead") or 0, number(used, "cacheWrite") or 0
    return Usage(
        input=(number(used, "input") or 0) + read + written,
        output=number(used, "output") or 0,
        cache_read=read,
        cache_write=written,
    )


def cost_of(message: JSON) -> int | None:
    """What an answer cost, in nano-dollars, by Pi's own price list."""
    total = at(message, "usage", "cost", "total")
    known = isinstance(total, int | float) and not isinstance(total, bool) and 0 <= total < 1e6
    return round(total * 1e9) if known and isinstance(total, int | float) else None


def shell(message: JSON) -> str:
    """A shell command that the person ran, as the model is told of it."""
    shown = text(message, "output")
    said = f"Ran `{text(message, 'command')}`\n" + (f"```\n{shown}\n```" if shown else "(no output)")
    code = number(message, "exitCode")
    if at(message, "cancelled") is True:
        return f"{said}\n\n(command cancelled)"
    return f"{said}\n\nCommand exited with code {code}" if code else said


def leftover(entry: JSON, *taken: str) -> str:
    """What an entry holds beside these keys of its message, its time and its type."""
    message = {key: value for key, value in table(entry, "message").items() if key not in ("role", *taken)}
    if left := [found for block in blocks(at(entry, "message")) if (found := _block_left(block))]:
        message["content"] = list(left)
    elif "content" in taken:
        message.pop("content", None)
    return rest_of(entry, "message", message)


def _block_left(block: JSON) -> dict[str, JSON]:
    known = {
        "text": ("type", "text"),
        "thinking": ("type", "thinking"),
        "toolCall": ("type", "id", "name", "arguments"),
    }.get(text(block, "type"), ())
    return {key: value for key, value in table(block).items() if key not in known}
