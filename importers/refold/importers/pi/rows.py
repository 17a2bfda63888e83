"""Entries of a Pi session: what each says, in the words in which Pi shows it to the model. Nothing here remembers an entry.

The texts around summaries and shell commands are Pi's own (its `messages.ts`), so that a view built from them is the model's.
"""

from refold.importers.content import take_call
from refold.importers.fields import JSON, at, number, rows, text
from refold.importers.leftovers import take, take_each, take_flag, take_number, take_text, take_words
from refold.importers.usages import UsageNames
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role, ToolError

SUMMARY = "The conversation history before this point was compacted into the following summary:\n\n<summary>\n{}\n</summary>"
BRANCH = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{}</summary>"
)

PARTS = frozenset({"text", "thinking", "toolCall", "image"})
"""What the content of a message is made of."""

_BESIDE = frozenset({"thinking", "toolCall"})

TOKENS = UsageNames(
    input=("input",),
    output=("output",),
    cache_read=("cacheRead",),
    cache_write=("cacheWrite",),
    beside=True,
)


def asked(message: JSON) -> list[JSON]:
    """The calls in a message, as they stand there."""
    return [block for block in rows(message, "content") if text(block, "type") == "toolCall"]


def is_cut(message: JSON) -> bool:
    """Whether nothing shows that an answer came to its end: it has no call, and Pi counted no token of it.

    Pi writes `stop` also where the stream broke off.
    """
    used = TOKENS.of(at(message, "usage"))
    return used is not None and used == Usage() and not asked(message)


def error_of(name: str, said: str) -> ToolError | bool:
    """How a call failed, by Pi's own words."""
    if said == f"Tool {name} not found":
        return ToolError.UNKNOWN_TOOL
    return ToolError.BAD_ARGUMENTS if said.startswith(f'Validation failed for tool "{name}"') else True


def take_spoken(message: JSON) -> str:
    """What a message says, taken out of it; an image is named where it stood."""
    return take_words(message, "content", beside=_BESIDE)


def take_answer(message: JSON) -> Message:
    """What the model said, thought and asked for, taken out of its message."""
    said, calls, thoughts = take_spoken(message), list[MessageCall](), list[str]()
    for block in take_each(message, "content"):
        match text(block, "type"):
            case "toolCall":
                calls.append(take_call(block))
                take(block, "type")
            case "thinking" if thought := take_text(block, "thinking"):
                thoughts.append(thought)
                take(block, "type")
            case _:
                pass
    return Message(role=Role.ASSISTANT, text=said, reasoning="\n".join(thoughts), calls=tuple(calls))


def take_shell(message: JSON) -> str:
    """A shell command that the person ran, as the model is told of it, taken out of its message."""
    command, shown = take_text(message, "command"), take_text(message, "output")
    said = f"Ran `{command}`\n" + (f"```\n{shown}\n```" if shown else "(no output)")
    if take_flag(message, "cancelled"):
        return f"{said}\n\n(command cancelled)"
    if number(message, "exitCode"):
        return f"{said}\n\nCommand exited with code {take_number(message, 'exitCode')}"
    return said
