"""When two events of different runs say the same: what of them counts, and in what they differ.

What no second run can have in common with the first does not count: ids, instants, durations, salts and digests, what
a provider charged, the numbers of other events. Nor does what has no effect: annotations, and digests of the state. A call
is known by its tool and its place in the answer, for an id counts the calls before it. Where the words were erased on
one side only, it is not known whether they were the same.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from refold.reducers.events import (
    Answer,
    ApprovalAnswer,
    Call,
    Event,
    MessageHead,
    ModelResponded,
)
from refold.reducers.evolution import encoded
from refold.reducers.limits import LimitHit, LimitUnit
from refold.reducers.messages import Gap, Size
from refold.replay.following import Steps
from refold.replay.kinds.table import kind_for
from refold.store.protocol import Stored

SHOWN = 200
"""Characters of a value that are kept of either side, from shortly before the first difference."""

_BEFORE = 40

_NOT_COMPARED = frozenset(
    {
        "at", "run", "seed", "parent", "parent_seq", "parent_hash", "head_seq", "head_hash", "labels", "environment",
        "versions", "worker", "downtime", "adapter", "adapter_version", "response_id", "sent", "view", "request",
        "content", "duration", "input_tokens", "retry_wait", "retry_after", "deadline", "until", "due", "delay", "usage", "cost_nanousd",
    }
)  # fmt: skip
_SIZES = frozenset({"size", "partial", "blank", "hollow", "preview", "output_bytes", "sha256"})


class FieldDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A field in which two events differ. Of either value, as it was said or as JSON text, what stands around `place`.

    `place` is the first character that differs, counted from 0; `start` how many characters were left out before.
    `erased`: on one side it is gone, so that it is not known.
    """

    field: str
    left: str = ""
    right: str = ""
    place: int = 0
    start: int = 0
    erased: bool = False


Calls = Mapping[str, str]
"""What calls are, by their ids: `bash` for the first of the answer to that tool, then `bash#2`."""


def calls_of(event: ModelResponded) -> dict[str, str]:
    """What the calls of an answer are known by."""
    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    for call in event.calls:
        counts[call.name] = count = counts.get(call.name, 0) + 1
        names[call.id] = call.name if count == 1 else f"{call.name}#{count}"
    return names


class ComparedEvent(msgspec.Struct, frozen=True):
    """An event that is compared: its record, what it says, and what the calls of the last answer are known by."""

    stored: Stored
    event: Event
    calls: Calls

    @property
    def erased(self) -> bool:
        """Whether what it said is gone."""
        return self.stored.content is None and self.stored.content_digest is not None


class Compared(AsyncIterator[ComparedEvent]):
    """The events of a log that are compared, in order: what has no effect is passed by. `answer` is the last before the first.

    No generator, as `Records` is none.
    """

    def __init__(self, steps: Steps, answer: Event | None = None) -> None:
        self._steps = steps
        self._calls: Calls = calls_of(answer) if isinstance(answer, ModelResponded) else {}
        self.began = 0
        """The first instant that is known, of any event."""

    async def __anext__(self) -> ComparedEvent:
        while True:
            step = await anext(self._steps)
            self.began = self.began or step.stored.at
            if isinstance(step.event, ModelResponded):
                self._calls = calls_of(step.event)
            if kind_for(step.event).compared:
                return ComparedEvent(step.stored, step.event, self._calls)


def differences(one: ComparedEvent, other: ComparedEvent) -> tuple[FieldDifference, ...]:
    """In what two events of one kind differ, what was said first. Empty: they say the same."""
    mine, others = _body(one), _body(other)
    changed = [name for name in mine if mine[name] != others[name]]
    if one.erased is not other.erased:
        gone = FieldDifference(field="content", erased=True)
        return (gone, *(_difference(name, mine[name], others[name]) for name in changed))
    left, right = _said(one), _said(other)
    said = [name for name in left if left[name] != right.get(name)] + [
        name for name in right if name not in left
    ]
    if said:  # then the sizes of it differ, too, and need not be told
        changed = [name for name in changed if name not in _SIZES and name not in said]
    spoken = (
        _difference(name, left.get(name), right.get(name))
        for name in said
        if name not in _SIZES or len(said) == 1
    )
    return (*spoken, *(_difference(name, mine[name], others[name]) for name in changed))


def _said(told: ComparedEvent) -> dict[str, object]:
    """The content by its fields, empty ones left out; what only its provider can read is not compared."""
    content = getattr(told.event, "content", None)
    if content is None:
        return {}
    if isinstance(content, Answer):
        content = replace(content, provider_data="")
    fields = content.__struct_fields__
    return {name: value for name in fields if (value := getattr(content, name))}


def _body(told: ComparedEvent) -> dict[str, object]:
    event = told.event
    left_out = _NOT_COMPARED | kind_for(event).ignores
    names = (name for name in event.__struct_fields__ if name not in left_out)
    return {name: _comparable(getattr(event, name), told.calls, name) for name in names}


def _comparable(value: object, calls: Calls, name: str) -> object:
    match value:
        case str() if name == "call":
            return calls.get(value, value)
        case Size():  # its digest is salted
            return replace(value, digest="")
        case Gap():  # what it frames is compared as what was said
            return replace(value, source=0)
        case MessageHead():
            return replace(value, size=replace(value.size, digest=""))
        case LimitHit():
            timed = {"used": 0, "exceeded_by": 0} if value.unit is LimitUnit.NANOSECONDS else {}
            return replace(value, at=0, **timed)
        case Call():
            # Its arguments are what was said, and compared as such.
            return calls.get(value.id, value.name) + ("" if value.complete else " (incomplete)")
        case ApprovalAnswer():
            return replace(value, call=calls.get(value.call, value.call))
        case tuple() if name in ("calls", "in_doubt", "answers", "messages"):
            return tuple(_comparable(each, calls, "call") for each in cast("tuple[object, ...]", value))
        case _:
            return value


def _difference(name: str, left: object, right: object) -> FieldDifference:
    one, other = _text(left), _text(right)
    place = _common(one, other)
    start = max(0, place - _BEFORE)
    return FieldDifference(
        field=name,
        left=one[start : start + SHOWN],
        right=other[start : start + SHOWN],
        place=place,
        start=start,
    )


def _text(value: object) -> str:
    if isinstance(value, tuple):  # the arguments of an only call are that call's
        parts = cast("tuple[object, ...]", value)
        value = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    if value is None or isinstance(value, str):
        return str(value or "")
    return encoded(value).decode()


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with in common, by halving: comparing slices is C's work."""
    lengths = range(1, min(len(one), len(other)) + 1)
    return bisect_left(lengths, x=True, key=lambda length: one[:length] != other[:length])
