"""The protocol of a wire, a vendor's HTTP API: read a request's tools and messages, write a reply."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from clients.scripts import Failure, Usage
from refold.reducers.messages import Message

Body = Mapping[str, Any]


class Tool(msgspec.Struct, frozen=True):
    """A tool that a request offers. `free_text`: its input is a text, not a JSON object."""

    name: str
    properties: Mapping[str, Any] = {}
    free_text: bool = False


class ScriptedCall(msgspec.Struct, frozen=True):
    """A call in a reply, with the arguments as sent on the wire.

    `fails` is None if it depends on the client; then the work folder shows it after the run.
    """

    id: str
    name: str
    arguments: str
    free_text: bool = False
    fails: bool | None = False


class Reply(msgspec.Struct, frozen=True):
    """A whole answer, as each wire writes it."""

    text: str
    calls: tuple[ScriptedCall, ...]
    usage: Usage
    reasoning: str = ""


class Wire(Protocol):
    """A vendor's API, from the side of the server."""

    name: str
    end: str
    """The last `data` of a stream, if the wire has one."""

    def serves(self, path: str) -> bool:
        """Whether a POST to this path (without its query) is a request to a model on this wire."""
        ...

    def streams(self, path: str, body: Body) -> bool:
        """Whether the reply is to be a stream of server-sent events."""
        ...

    def tools(self, body: Body) -> list[Tool]:
        """The tools that a request offers."""
        ...

    def messages(self, body: Body) -> list[Message]:
        """The messages of a request, in its order; a call's id as the wire has it, and reasoning left out."""
        ...

    def events(self, reply: Reply, number: int) -> list[dict[str, Any]]:
        """A reply as the events of a stream; `number` makes its ids."""
        ...

    def document(self, reply: Reply, number: int) -> dict[str, Any]:
        """A reply as one JSON document."""
        ...

    def arguments(self, text: str) -> str:
        """The arguments of a call as this wire can carry them; `text` may be malformed JSON."""
        ...

    def error(self, failure: Failure) -> dict[str, Any]:
        """The body of a failure."""
        ...


def text_of(content: object) -> str:
    """The text of a content (a text, or parts: a line each; the type of other parts in brackets)."""
    if isinstance(content, str):
        return content
    return "\n".join(_texts(content)) if isinstance(content, list) else ""


def pieces(text: str, size: int = 12) -> list[str]:
    """A text as the deltas of a stream."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def _texts(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            yield part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type')}]"
