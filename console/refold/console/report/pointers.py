"""Messages without their words: where a text stands in the log already, the page points there."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec.structs import asdict

from refold.console.report.data import PageCall, PageMessage, Pointer, Words
from refold.reducers.events import Event
from refold.replay.seen import ShownMessage

_SHORT = 48  # characters: a pointer would be no shorter


class Places:
    """Where the texts of each event's content stand in it."""

    def __init__(self) -> None:
        self._found: dict[int, dict[str, Pointer]] = {}

    def of(self, seq: int, event: Event | None, text: str) -> Words:
        """The text, or where it stands in the content of event `seq`."""
        if len(text) <= _SHORT or event is None:
            return text
        places = self._found.get(seq)
        if places is None:
            content = msgspec.to_builtins(getattr(event, "content", None))
            places = self._found[seq] = {said: (seq, path) for path, said in _texts((), content)}
        return places.get(text, text)

    def row(self, shown: ShownMessage, event: Event | None) -> PageMessage:
        """The message, with pointers for what stands in its event."""
        seq, message, said = shown.seq, shown.message, asdict(shown)
        del said["message"]
        if message is not None:
            said |= {name: getattr(message, name) for name in ("call", "name")} | {"role": str(message.role)}
            said |= {name: self.of(seq, event, getattr(message, name)) for name in ("text", "reasoning")}
            calls = ((call.id, call.name, self.of(seq, event, call.arguments)) for call in message.calls)
            said["calls"] = tuple(PageCall(*call) for call in calls)
        return PageMessage(**said)


def _texts(path: tuple[str | int, ...], value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield from _texts((*path, key), each)
    elif isinstance(value, list):
        for place, each in enumerate(cast("list[object]", value)):
            yield from _texts((*path, place), each)
