"""Entries of a Pi session: what each says, in the words in which Pi shows it to the model. Nothing here remembers an entry.

The texts around summaries and shell commands are Pi's own (its `messages.ts`), so that a view built from them is the model's.
"""

from refold.replay.importers.fields import JSON, at, number, rows, table, text
from refold.replay.importers.session_rows import rest_of
from refold.replay.importers.usages import UsageNames

SUMMARY = "The conversation history before this point was compacted into the following summary:\n\n<summary>\n{}\n</summary>"
BRANCH = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{}</summary>"
)

PARTS = frozenset({"text", "thinking", "toolCall", "image"})
"""What the content of a message is made of."""

TOKENS = UsageNames(
    input=("input",),
    output=("output",),
    cache_read=("cacheRead",),
    cache_write=("cacheWrite",),
    beside=True,
)


def blocks(message: JSON) -> list[JSON]:
    """The blocks of a message; a bare text is one."""
    content = at(message, "content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(rows(message, "content"))


def spoken(message: JSON) -> str:
    """What a message says; an image is named where it stood."""
    return "\n".join(_said(block) for block in blocks(message) if text(block, "type") in ("text", "image"))


def _said(block: JSON) -> str:
    return text(block, "text") if text(block, "type") == "text" else "[image]"


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
