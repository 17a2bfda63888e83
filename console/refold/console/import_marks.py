"""By what an event of an imported run is known again: in the log that is there, and in that of a source that grew."""

import hashlib
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from refold.reducers import codec
from refold.reducers.events import (
    ContextObserved,
    Event,
    InputReceived,
    ModelFailed,
    ModelResponded,
    RunStarted,
    ToolReturned,
)
from refold.replay.kinds.table import texts_of

_SPEAK = (ContextObserved, InputReceived, ModelFailed, ModelResponded, RunStarted, ToolReturned)
_STARTED = "run_started"
_RECORDED = "source_recorded"
_NOTHING: frozenset[str] = frozenset()
_SALTED = frozenset({"view", "state", "guards"})
"""What hangs on the salts of contents: two imports of one source agree in nothing of it, nor in a digest in a size."""

_OF_THE_FILE = frozenset({"run", "parent", "labels", "source", "position", "unasked"})
"""What is another in another file of the same conversation: the runs, the file and places in it, whether it ends there."""


def exact(at: int, encoded: codec.Encoded, *, file: bool = True) -> bytes:
    """The whole event; without `file`, but for which file it is of."""
    names = _NOTHING if file else _of_which_file(encoded)
    body = _without(encoded, names) if encoded.kind == _STARTED or names else encoded.body
    return _digest(f"{at}", encoded.kind, body, encoded.content)


def unsalted(at: int, encoded: codec.Encoded, *, worded: bool, file: bool = True) -> bytes:
    """What of the event hangs on no salt; without its words unless `worded`, and as `exact` without `file`."""
    body = _without(encoded, _SALTED if file else _SALTED | _of_which_file(encoded))
    return _digest(f"{at}", encoded.kind, body, encoded.content if worded else None)


def anywhere(at: int, encoded: codec.Encoded, *, worded: bool) -> bytes:
    """What of the event hangs on no salt, and on no file either."""
    # Where a source does not name the model before the first answer does, its beginning alone does not know it.
    unknown = frozenset({"model"}) if encoded.kind == _STARTED else _NOTHING
    body = _without(encoded, _SALTED | _OF_THE_FILE | unknown)
    return _digest(f"{at}", encoded.kind, body, encoded.content if worded else None)


def words(event: Event) -> list[bytes]:
    """What was said in a fact, text by text, wherever it stands in the log."""
    return [_digest(text) for text in texts_of(event) if text] if isinstance(event, _SPEAK) else []


def _of_which_file(encoded: codec.Encoded) -> frozenset[str]:
    return frozenset({"source"}) if encoded.kind == _RECORDED else _NOTHING


def _without(encoded: codec.Encoded, names: frozenset[str]) -> bytes:
    fields = msgspec.json.decode(encoded.body, type=dict[str, Any])
    if encoded.kind == _STARTED:  # the same bytes under another name are the same transcript
        fields.get("labels", {}).pop("source.file", None)
    if names:
        for size in _sizes(fields):
            size.pop("digest", None)
    return msgspec.json.encode({name: fields[name] for name in fields if name not in names})


def _sizes(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    messages: list[Any] = fields.get("messages", [])
    holders: list[Any] = [fields, *(each for each in messages if isinstance(each, dict))]
    for holder in cast("list[dict[str, Any]]", holders):
        yield from (holder[name] for name in ("size", "partial") if name in holder)


def _digest(*parts: str | bytes | None) -> bytes:
    made = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part or b""
        made.update(b"%d:" % len(data) + data)
    return made.digest()[:16]
