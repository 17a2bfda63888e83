"""Compare sent messages with those of `view`, by role, text, and names and arguments of calls."""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import msgspec

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role


class Key(NamedTuple):
    """The compared parts of a message: ids of calls differ in imports, and reasoning is not always sent."""

    role: Role
    text: str
    calls: tuple[tuple[str, str], ...]


class Sight(msgspec.Struct, frozen=True):
    """A difference: `what` names it the same in every run of a client, `detail` has both texts."""

    what: str
    detail: str


def differences(sent: Sequence[Message], shown: Sequence[Message]) -> list[Sight]:
    """List the differences between sent and shown messages, in order.

    Adjacent system messages, and adjacent user messages, count as one: a client may send one message in two
    parts.
    """
    before, after = _keys(sent), _keys(shown)
    found: list[Sight] = []
    for tag, low, high, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            found += _spans(before[low:high], after[start:end])
    return found


def _spans(sent: Sequence[Key], shown: Sequence[Key]) -> Iterator[Sight]:
    if [key.role for key in sent] == [key.role for key in shown]:
        for one, other in zip(sent, shown, strict=True):
            yield Sight(f"changes {_name(one)}", f"{_clip(one)} -> {_clip(other)}")
        return
    yield from (Sight(f"lacks {_name(key)}", _clip(key)) for key in sent)
    yield from (Sight(f"adds {_name(key)}", _clip(key)) for key in shown)


def _keys(messages: Sequence[Message]) -> list[Key]:
    found: list[Key] = []
    for message in messages:
        calls = tuple((call.name, canonical(call.arguments)) for call in message.calls)
        key = Key(message.role, message.text, calls)
        if found and key.role == found[-1].role and key.role in (Role.USER, Role.SYSTEM):
            found[-1] = Key(key.role, f"{found[-1].text}\n{key.text}", ())
        else:
            found.append(key)
    return found


def canonical(arguments: str) -> str:
    """Normalize arguments that are JSON; return others unchanged."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments


_PLACE = re.compile(r"/\S*/(?=work\b|home\b)")
_START = 32


def _name(key: Key) -> str:
    """Name a message by its role and start, without paths that differ between runs."""
    start = _PLACE.sub("", " ".join(key.text.split()))[:_START]
    return f"{key.role} {start!r}" if start or not key.calls else f"{key.role} of {len(key.calls)} calls"


def _clip(key: Key) -> str:
    text = (
        key.text
        if len(key.text) < 700
        else f"{key.text[:500]} [...{len(key.text)} characters] {key.text[-150:]}"
    )
    return f"{text!r} {list(key.calls) if key.calls else ''}".strip()
