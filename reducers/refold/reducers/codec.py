"""Encode events to stored bytes and decode them: first the kind from the header, then that kind's decoder.

An unknown fact, decision or field stops the reader: a newer refold wrote the log. An unknown annotation is
kept as bytes and skipped. If defaults cannot bridge two versions, an upcaster converts on read; a log is
never rewritten.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast, get_args, get_type_hints

import msgspec

from refold.reducers import events as ev
from refold.reducers.errors import DamagedLog, NewerLog, UnreleasedLog
from refold.reducers.messages import Message
from refold.reducers.vocabulary import MOST_DIGITS

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

# By kind: functions from an old body, as plain JSON values, to the current form. Tried only if the current
# decoder refuses the body.
UPCASTERS: Mapping[str, Upcaster] = MappingProxyType({})


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """An event as bytes: JSON text of its body, and of its content if it has one."""

    kind: str
    body: bytes
    content: bytes | None


def _content_type(event: type[ev.Event]) -> type[ev.Content] | None:
    if "content" not in event.__struct_fields__:
        return None
    content: type[ev.Content] = get_args(get_type_hints(event)["content"])[0]  # of `X | None`
    return content


CONTENTS: Mapping[str, type[ev.Content]] = MappingProxyType(
    {kind: content for kind, event in ev.KINDS.items() if (content := _content_type(event)) is not None}
)

_ENCODER = msgspec.json.Encoder(order="deterministic")


class _Decoders(dict[str, Callable[[bytes], Any]]):
    """Decoders by kind, created on first use: few logs have all kinds. Raises `KeyError` for other kinds."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        super().__init__()
        self._types = types

    def __missing__(self, kind: str) -> Callable[[bytes], Any]:
        read = self[kind] = msgspec.json.Decoder(self._types[kind]).decode
        return read


_BODIES = _Decoders(ev.KINDS)
_NAMES: Mapping[type[ev.Event], str] = {event: kind for kind, event in ev.KINDS.items()}
_LATE_RESULT = ev.kind_of(ev.LateResult)
_CONTENTS = _Decoders(CONTENTS)
_HOLD_CONTENT = frozenset(CONTENTS)


def encode(event: ev.Event) -> Encoded:
    """Encode an event as kind, body and content. Equal events have equal bytes."""
    kind = _NAMES.get(type(event)) or ev.kind_of(event)
    said: Any = event  # most decisions have no field `content`
    if kind not in _HOLD_CONTENT or said.content is None:
        return Encoded(kind, _ENCODER.encode(event), None)
    bare = msgspec.structs.replace(event, content=None)
    return Encoded(kind, _ENCODER.encode(bare), _ENCODER.encode(said.content))


def decode(
    kind: str,
    body: bytes,
    content: bytes | None = None,
    *,
    run: str = "",
    seq: int = 0,
    upcasters: Mapping[str, Upcaster] = UPCASTERS,
) -> ev.Event:
    """Decode an event; `run` and `seq` are used in errors only.

    Raises:
        NewerLog: A kind, field or format is unknown to this version.
        UnreleasedLog: The log has no format.
        DamagedLog: Not JSON, a wrong type, a missing field, or a number of more than `MOST_DIGITS` digits.
    """
    if len(body) > MOST_DIGITS and _many_digits(body) and _longest_number(body) > MOST_DIGITS:
        raise DamagedLog(run, seq, f"the body of {_cut(kind)} has a number of more than {MOST_DIGITS} digits")
    try:
        read = _BODIES[kind]
    except KeyError:
        return _unknown(kind, body, run, seq)
    try:
        event: ev.Event = read(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        event = _upcast(kind, body, run, seq, upcasters, error)
    # Most decisions have no field `content`, and a failed attribute lookup is slow.
    read_as: Any = event
    if kind in _HOLD_CONTENT and (
        read_as.content is not None or (kind == _LATE_RESULT and read_as.fact.content is not None)
    ):
        raise DamagedLog(run, seq, f"the body of {kind} holds content")
    if content is not None:
        # The event is not shared yet, and a copy would cost as much as decoding the content.
        msgspec.structs.force_setattr(event, "content", _said(kind, event, content, run, seq))
    return event


def _said(kind: str, event: ev.Event, content: bytes, run: str, seq: int) -> ev.Content:
    if kind == _LATE_RESULT:  # contents have no kind: this one is decoded as the fact's
        assert isinstance(event, ev.LateResult)
        return _said(ev.kind_of(event.fact), event.fact, content, run, seq)
    if kind not in _HOLD_CONTENT:
        raise DamagedLog(run, seq, f"a {kind} has no content")
    try:
        said: ev.Content = _CONTENTS[kind](content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(f"content of {kind}", run, seq, error) from error
    fits = _FITS.get(kind)
    if fits is not None and not fits(event, said):
        raise DamagedLog(run, seq, f"the content of {kind} does not match its body")
    return said


# Whether body and content have the same number of messages, calls or texts.
_FITS: Mapping[str, Callable[[Any, Any], bool]] = {
    ev.kind_of(ev.ModelResponded): lambda event, answer: len(event.calls) == len(answer.arguments),
    ev.kind_of(ev.ApprovalAnswered): lambda event, said: (
        {each.call for each in event.answers if each.decision == "edit"} == said.arguments.keys()
    ),
    ev.kind_of(ev.RunStarted): lambda event, opening: len(event.messages) == len(opening.messages),
    ev.kind_of(ev.CallRefused): lambda _, said: len(said.texts) == 1,
    ev.kind_of(ev.MessageInjected): lambda event, said: len(said.texts) == 1 or event.gap is not None,
    ev.kind_of(ev.MessageTrimmed): lambda event, said: len(said.texts) == len(event.cuts),
    ev.kind_of(ev.ModelRequested): lambda event, said: len(said.texts) == len(event.request_only),
    ev.kind_of(ev.SummaryRequested): lambda _, said: len(said.texts) == 1,
}


def digest(salt: bytes, content: bytes) -> str:
    """Return hex SHA-256 of salt and content. It reveals nothing once the salt is deleted.

    The salt is preceded by its length in decimal and a colon. A store's hash chain uses the same digest.
    """
    return hashlib.sha256(b"%d:%b%b" % (len(salt), salt, content)).hexdigest()


def digest_of(salt: bytes, said: ev.Content | Message) -> str:
    """Return hex SHA-256 of salt and encoded content, as in the store's hash chain."""
    return digest(salt, _ENCODER.encode(said))


def digest_named(words: str, named: tuple[str, ...]) -> str:
    """Return the hex digest of a message: of its text's digest and the body's ids and names, if any."""
    return hashlib.sha256(_ENCODER.encode((words, *named))).hexdigest() if named else words


# Few bodies are long enough to search. Digits may also be part of a text, so numbers are then measured.
_DIGITS = re.compile(rb"[0-9]{%d}" % (MOST_DIGITS + 1))
# A search takes several times as long as decoding, so only samples are tested first: more than 300 digits in
# a row give ten digits in a row among every 30th byte.
_STEP, _IN_STEPS = MOST_DIGITS // 10, b"0" * 10
_DIGITS_ALIKE = bytes(ord("0") if byte in b"0123456789" else 0 for byte in range(256))


def _many_digits(body: bytes) -> bool:
    """Return whether enough digits in a row occur that a number may be too long."""
    # Not `in`: it first tries its left side as a number, which takes longer than the rest.
    steps = body[::_STEP].translate(_DIGITS_ALIKE).find(_IN_STEPS)
    return steps >= 0 and _DIGITS.search(body) is not None


def _longest_number(text: bytes) -> int:
    """Return the length of the longest integer in a JSON text; in unreadable text, of the readable part."""
    found = [0]
    try:
        json.loads(text, parse_int=lambda digits: found.append(len(digits.lstrip("-"))))
    except RecursionError:
        return MOST_DIGITS + 1
    except ValueError:
        pass  # the decoder reports the error
    return max(found)


_SHOWN = 200


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _unknown(kind: str, body: bytes, run: str, seq: int) -> ev.Event:
    try:
        raw: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DamagedLog(run, seq, f"the body of {_cut(kind)} is not JSON") from error
    fields = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    if fields.get("annotation") == kind and type(fields.get("at")) is int:
        return ev.UnknownAnnotation(at=fields["at"], of=kind, body=body)
    raise NewerLog(run, seq, f"unknown kind {_cut(kind)!r}")


def _upcast(
    kind: str, body: bytes, run: str, seq: int, upcasters: Mapping[str, Upcaster], error: Exception
) -> ev.Event:
    upcaster = upcasters.get(kind)
    if upcaster is None:
        raise _refused(f"body of {kind}", run, seq, error) from error
    try:
        return msgspec.convert(upcaster(json.loads(body)), ev.KINDS[kind])
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
    # An unknown value of a closed vocabulary comes from a later version; the hash chain detects damage first.
    if said.startswith(("Object contains unknown field", "Invalid enum value", "Invalid value")):
        return NewerLog(run, seq, f"{what}: {shown}")
    return DamagedLog(run, seq, f"{what} cannot be read: {shown}")
