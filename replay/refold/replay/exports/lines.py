"""JSON lines: one event a line, whole, with all that its record holds; `record` reads one back.

Body and content are the stored bytes, so that the hash chain can be checked of the lines alone.
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec.structs import asdict

from refold.reducers.errors import WrongUse
from refold.replay.reader import event_of, stored_events
from refold.store.protocol import Store, Stored

_NOTHING = msgspec.Raw(b"")
_HEX = ("hash", "salt", "content_digest")


class EventLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `hash`, `salt` and `content_digest` are hex; `at` is nanoseconds since the Unix epoch.

    An event that said nothing has neither `content` nor `content_digest`; one whose content was erased has the digest.
    """

    run: str
    seq: int
    at: int
    kind: str
    body: msgspec.Raw
    content: msgspec.Raw = _NOTHING
    salt: str = ""
    content_digest: str = ""
    hash: str = ""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(EventLine)
_BREAKS = bytes.maketrans(b"\r\n", b"  ")


async def json_lines(
    store: Store, run: str, upto: int | None = None, *, content: bool = True
) -> AsyncIterator[str]:
    """The events of a run, a line each. Without `content` what was said is left out, and its salts.

    Raises `UnknownRun`, `DamagedLog` and `NewerLog`, naming the event.
    """
    async for stored in stored_events(store, run, upto):
        event_of(stored)  # what cannot be read is not handed on as if it could
        yield line_of(stored, content=content)


def line_of(stored: Stored, *, content: bool = True) -> str:
    """The line of a record. What is no JSON, in a log that was tampered with, stands in it as a text."""
    fields: dict[str, Any] = asdict(stored) | {"body": _raw(stored.body), "content": _NOTHING}
    fields |= {name: (fields[name] or b"").hex() for name in _HEX}
    if content and stored.content is not None:
        fields["content"] = _raw(stored.content)
    elif not content:
        fields["salt"] = ""
    return _ENCODER.encode(EventLine(**fields)).decode() + "\n"


def record(line: str | bytes) -> Stored:
    """The record that a line was made of. Raises `WrongUse` for what is no such line."""
    try:
        read = _DECODER.decode(line)
        fields: dict[str, Any] = asdict(read) | {name: bytes.fromhex(getattr(read, name)) for name in _HEX}
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WrongUse(f"no line of an export: {error}") from error
    fields |= {"body": bytes(read.body), "content": bytes(read.content) or None}
    fields["content_digest"] = fields["content_digest"] or None
    return Stored(**fields)


def _raw(text: bytes) -> msgspec.Raw:
    try:
        text.decode()
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return msgspec.Raw(_ENCODER.encode(text.decode(errors="backslashreplace")))
    # Between JSON's tokens a line break is but a space, and inside a string it cannot stand.
    return msgspec.Raw(text.translate(_BREAKS))
