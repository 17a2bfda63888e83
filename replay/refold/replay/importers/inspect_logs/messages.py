"""Inspect's messages as ours: attachments put back, texts and reasoning parted, results with their errors.

A text of a hundred characters or more may stand as `attachment://<hash>`, looked up in the sample. A result that failed
has no text of its own: then it is the error's message, which is what providers are sent.
"""

from collections.abc import Sequence

import msgspec

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role, ToolError
from refold.replay.importers.content import calls_of, told, words
from refold.replay.importers.fields import JSON, at, rows, table, text
from refold.replay.importers.source import MOST_SAID

_ATTACHMENT = "attachment://"
_DEPTH = 60

ERRORS = {
    "parsing": ToolError.BAD_ARGUMENTS,
    "timeout": ToolError.TIMEOUT,
    "approval": ToolError.CANCELLED,
    "cancelled": ToolError.CANCELLED,
}
"""Inspect's kinds of a tool's error in ours; any other was raised by the tool."""


def error_of(error: JSON) -> ToolError | None:
    """The kind of a call's error, None where there is none."""
    if error is None:
        return None
    message = text(error, "message")
    if message.startswith("Tool ") and message.endswith("not found"):
        return ToolError.UNKNOWN_TOOL
    return ERRORS.get(text(error, "type"), ToolError.RAISED)


class Attachments:
    """The long texts of a sample, and which of them were asked for."""

    def __init__(self, texts: dict[str, JSON]) -> None:
        self._texts = texts
        self._used: set[str] = set()
        self._size = 0

    def put_back(self, value: JSON, depth: int = 0) -> JSON:
        """A value with its attachments in their places; one that is not there stays as it is.

        A few bytes may ask for one of megabytes, as often as they like: what is more than one event holds stays, too.
        """
        self._size = self._size if depth else 0
        if isinstance(value, str):
            name = value.removeprefix(_ATTACHMENT) if value.startswith(_ATTACHMENT) else ""
            found = self._texts.get(name)
            if isinstance(found, str) and self._size <= MOST_SAID:
                self._used.add(name)
                self._size += len(found)
                return found
        elif isinstance(value, list) and depth < _DEPTH:
            return [self.put_back(each, depth + 1) for each in value]
        elif isinstance(value, dict) and depth < _DEPTH:
            return {key: self.put_back(each, depth + 1) for key, each in value.items()}
        return value

    def unused(self) -> dict[str, JSON]:
        """Those that no message, call or result has: of states, scores and raw requests, mostly."""
        return {name: found for name, found in self._texts.items() if name not in self._used}


def said(content: JSON) -> str:
    """The text of a content. Reasoning is none."""
    return words(content, beside=("reasoning",))


def beside(message: JSON) -> tuple[str, ...]:
    """The keys of a message that ours says: role, call, name, and its content, if that is told."""
    said_of_it = ("role", "tool_calls", "tool_call_id", "function")
    return (*said_of_it, "content") if told(at(message, "content")) else said_of_it


def reasoned(message: JSON) -> str:
    """The reasoning of an answer: parts of its content, in old logs a field."""
    thoughts = (part for part in rows(message, "content") if text(part, "type") == "reasoning")
    parts = (text(part, "reasoning") or text(part, "summary") for part in thoughts)
    return "\n".join(filter(None, parts)) or text(message, "reasoning")


def result_text(message: JSON, content: str = "content") -> str:
    """What a result said, else its error's message."""
    return said(at(message, content)) or text(message, "error", "message")


def ours(message: JSON) -> Message:
    """One message, its attachments put back."""
    word = text(message, "role")
    role = Role(word) if word in set(Role) else Role.USER
    if role is Role.TOOL:
        name = text(message, "function") or None
        return Message(role=role, text=result_text(message), call=text(message, "tool_call_id"), name=name)
    shown = Message(role=role, text=said(at(message, "content")))
    if role is not Role.ASSISTANT:
        return shown
    return msgspec.structs.replace(shown, reasoning=reasoned(message), calls=calls_of(message))


class Prompts:
    """The prompts of a sample's requests: as they stand in the event, or as ranges of the sample's pool of messages.

    Each message of the pool is read once, however many prompts it is in.
    """

    def __init__(self, sample: JSON, attachments: Attachments) -> None:
        # `events_data.messages` since 0.3.200 or so, `message_pool` for a while before.
        self.pool: Sequence[JSON] = rows(sample, "events_data", "messages") or rows(sample, "message_pool")
        self._attachments = attachments
        self._read: dict[int, Message] = {}
        self._same: dict[str, tuple[JSON, Message]] = {}

    def of(self, event: JSON) -> tuple[Message, ...] | None:
        """The messages of a request, None where they were not recorded."""
        inputs, refs = rows(event, "input"), rows(event, "input_refs")
        if inputs:
            return tuple(self._once(message) for message in inputs)
        if not refs or not self.pool:
            return None
        return tuple(self._pooled(place) for ref in refs for place in _range(ref, len(self.pool)))

    def _pooled(self, place: int) -> Message:
        if place not in self._read:
            self._read[place] = ours(self._attachments.put_back(self.pool[place]))
        return self._read[place]

    def _once(self, message: JSON) -> Message:
        """A message that stands in every prompt after its first, read once as long as it stays the same."""
        name = text(message, "id")
        known = self._same.get(name) if name else None
        if known is not None and known[0] == message:
            return known[1]
        read = ours(self._attachments.put_back(message))
        if name:
            self._same[name] = (message, read)
        return read


def _range(ref: JSON, size: int) -> range:
    """A half-open range of the pool, `[first, end]`; a single number is one message."""
    first, end = at(ref, 0), at(ref, 1)
    if isinstance(ref, int) and not isinstance(ref, bool):
        first, end = ref, ref + 1
    if not isinstance(first, int) or not isinstance(end, int):
        return range(0)
    return range(max(0, first), min(end, size))


def results_of(sample: JSON, pool: Sequence[JSON]) -> dict[str, JSON]:
    """The messages that are results, by their own id and by their call's: the first, for later ones may be cleared."""
    found: dict[str, JSON] = {}
    for message in (*pool, *rows(sample, "messages")):
        if text(message, "role") == "tool":
            for name in (text(message, "id"), text(message, "tool_call_id")):
                if name and table(message):
                    found.setdefault(name, message)
    return found
