"""Events to stored bytes and back. Decoding goes in two steps: the kind from the header, then its decoder.

An unknown fact or decision, or an unknown field, stops the reader: the log was written by a newer refold.
An unknown annotation is kept as bytes and skipped. What defaults cannot bridge between versions is
converted on read by an upcaster; a log is never rewritten.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast, get_args, get_type_hints

import msgspec

from refold.reducers.errors import DamagedLog, NewerLog, UnreleasedLog
from refold.reducers.events import (
    KINDS,
    Answer,
    CallRefused,
    Content,
    Event,
    MessageInjected,
    ModelResponded,
    Opening,
    RunStarted,
    Said,
    UnknownAnnotation,
    kind_of,
)
from refold.reducers.numbers import MOST_DIGITS

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

# By kind: an old body, as plain JSON values, to today's. Tried only where today's decoder refuses the body.
UPCASTERS: Mapping[str, Upcaster] = MappingProxyType({})


class Encoded(msgspec.Struct, frozen=True):
    """An event as bytes: JSON text of its body, and of its content where it has one."""

    kind: str
    body: bytes
    content: bytes | None


def _content_type(event: type[Event]) -> type[Content] | None:
    if "content" not in event.__struct_fields__:
        return None
    content: type[Content] = get_args(get_type_hints(event)["content"])[0]  # of `X | None`
    return content


CONTENTS: Mapping[str, type[Content]] = MappingProxyType(
    {kind: content for kind, event in KINDS.items() if (content := _content_type(event)) is not None}
)

_ENCODER = msgspec.json.Encoder(order="deterministic")
_BODIES = {kind: msgspec.json.Decoder(event) for kind, event in KINDS.items()}
_CONTENTS = {kind: msgspec.json.Decoder(content) for kind, content in CONTENTS.items()}


def encode(event: Event) -> Encoded:
    """The event as its kind, body and content. Equal events have equal bytes."""
    content = getattr(event, "content", None)
    if content is None:
        return Encoded(kind_of(event), _ENCODER.encode(event), None)
    bare = msgspec.structs.replace(event, content=None)
    return Encoded(kind_of(event), _ENCODER.encode(bare), _ENCODER.encode(content))


def decode(
    kind: str,
    body: bytes,
    content: bytes | None = None,
    *,
    run: str = "",
    seq: int = 0,
    upcasters: Mapping[str, Upcaster] = UPCASTERS,
) -> Event:
    """The event of these bytes; `run` and `seq` only tell where it stood.

    Raises `NewerLog` for a kind, a field or a format that this version does not know, `UnreleasedLog` for a log without
    a format, `DamagedLog` for what is no JSON, has a wrong type, lacks a field, or holds a number of more than `MOST_DIGITS` digits.
    """
    if len(body) > MOST_DIGITS and _DIGITS.search(body) and _longest_number(body) > MOST_DIGITS:
        raise DamagedLog(
            run, seq, f"the body of {_cut(kind)} holds a number of more than {MOST_DIGITS} digits"
        )
    decoder = _BODIES.get(kind)
    if decoder is None:
        return _unknown(kind, body, run, seq)
    try:
        event = decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        event = _upcast(kind, body, run, seq, upcasters, error)
    # Most decisions have no content at all, and asking an object for what it lacks is slow.
    if kind in _CONTENTS and getattr(event, "content", None) is not None:
        raise DamagedLog(run, seq, f"the body of {kind} holds content")
    return event if content is None else _joined(kind, event, content, run, seq)


def with_content(event: Event, content: bytes, *, run: str = "", seq: int = 0) -> Event:
    """The event with its content read from these bytes. Raises as `decode`."""
    return _joined(kind_of(event), event, content, run, seq)


def _joined(kind: str, event: Event, content: bytes, run: str, seq: int) -> Event:
    decoder = _CONTENTS.get(kind)
    if decoder is None:
        raise DamagedLog(run, seq, f"a {kind} has no content")
    try:
        said = decoder.decode(content)
        if not _fits(event, said):
            raise DamagedLog(
                run, seq, f"the content of {kind} is not that of its body: other things are in it"
            )
        return msgspec.structs.replace(event, content=said)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(f"content of {kind}", run, seq, error) from error


def _fits(event: Event, content: Content) -> bool:
    """Whether body and content speak of as many messages, calls, or words."""
    match event, content:
        case ModelResponded(calls=calls), Answer(arguments=arguments):
            return len(calls) == len(arguments)
        case RunStarted(messages=sizes), Opening(messages=messages):
            return len(sizes) == len(messages)
        case ((CallRefused() | MessageInjected()), Said(texts=texts)):
            return len(texts) == 1
        case _:
            return True


def digest(salt: bytes, content: bytes) -> str:
    """Hex SHA-256 of salt and content: tells texts apart, and tells nothing once the salt is gone.

    The salt is framed by its length in decimal and a colon; the chain of a store uses the same digest.
    """
    return hashlib.sha256(b"%d:%b%b" % (len(salt), salt, content)).hexdigest()


# Few bodies are long enough to be searched at all, and digits may stand in a name, too: then numbers are measured.
_DIGITS = re.compile(rb"[0-9]{%d}" % (MOST_DIGITS + 1))


def _longest_number(text: bytes) -> int:
    """How many characters the longest whole number in a JSON text has; of what cannot be read, as far as it can."""
    found = [0]
    try:
        json.loads(text, parse_int=lambda digits: found.append(len(digits.lstrip("-"))))
    except RecursionError:
        return MOST_DIGITS + 1
    except ValueError:
        pass  # the decoder will say what it is
    return max(found)


_SHOWN = 200


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _unknown(kind: str, body: bytes, run: str, seq: int) -> Event:
    try:
        raw: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DamagedLog(run, seq, f"the body of {_cut(kind)} is no JSON text") from error
    fields = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    if fields.get("annotation") == kind and type(fields.get("at")) is int:
        return UnknownAnnotation(at=fields["at"], of=kind, body=body)
    raise NewerLog(run, seq, f"unknown kind {_cut(kind)!r}")


def _upcast(
    kind: str, body: bytes, run: str, seq: int, upcasters: Mapping[str, Upcaster], error: Exception
) -> Event:
    upcaster = upcasters.get(kind)
    if upcaster is None:
        raise _refused(f"body of {kind}", run, seq, error) from error
    try:
        return msgspec.convert(upcaster(json.loads(body)), KINDS[kind])
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as again:
        raise _refused(f"body of {kind}", run, seq, again) from again


def _refused(what: str, run: str, seq: int, error: Exception) -> DamagedLog | NewerLog | UnreleasedLog:
    said, shown = str(error), _cut(str(error))
    if said == "Object missing required field `format`":
        return UnreleasedLog(run, seq)
    if said.startswith("Expected `int` <= ") and said.endswith("`$.format`"):
        return NewerLog(run, seq, f"{what}: its format is not known")
    if said.endswith(("`$.kind`", "`$.annotation`")):
        return DamagedLog(run, seq, f"{what} is tagged as another kind: {shown}")
    # An unknown word of a closed vocabulary is a later version's, too: what was damaged, the chain tells first.
    if said.startswith(("Object contains unknown field", "Invalid enum value", "Invalid value")):
        return NewerLog(run, seq, f"{what}: {shown}")
    return DamagedLog(run, seq, f"{what} cannot be read: {shown}")
