"""What a model was sent against what `view` shows: messages compared by role, text, and names and arguments of calls."""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import msgspec

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role


class Key(NamedTuple):
    """What of a message is compared. Ids of calls are the import's own, and reasoning is not in every wire."""

    role: Role
    text: str
    calls: tuple[tuple[str, str], ...]


class Sight(msgspec.Struct, frozen=True):
    """A difference: `what` names it the same in every run of a client, `detail` has both texts."""

    what: str
    detail: str


def differences(sent: Sequence[Message], shown: Sequence[Message]) -> list[Sight]:
    """What of the messages that were sent is not shown so, in their order; none where all is the same.

    Messages of one role in a row count as one, except answers and results: a client may send in two parts what its
    transcript has as one.
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
    """Arguments as JSON in one form; what is no JSON as it is."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments


_PLACE = re.compile(r"/\S*/(?=work\b|home\b)")
_START = 32


def _name(key: Key) -> str:
    """A message by its role and how it begins, without what is another in each run."""
    start = _PLACE.sub("", " ".join(key.text.split()))[:_START]
    return f"{key.role} {start!r}" if start or not key.calls else f"{key.role} of {len(key.calls)} calls"


def _clip(key: Key) -> str:
    text = (
        key.text
        if len(key.text) < 700
        else f"{key.text[:500]} [...{len(key.text)} characters] {key.text[-150:]}"
    )
    return f"{text!r} {list(key.calls) if key.calls else ''}".strip()
