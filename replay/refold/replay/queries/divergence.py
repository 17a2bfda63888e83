"""`bisect --versus`: find the first event at which two logs diverge; and compare two events.

Values that always differ between two runs do not count: ids, times, durations, salts and digests, provider
charges, numbers of other events. Neither do events without effect: annotations, and digests of the state. A
call is identified by its tool and its position in the response, because ids count earlier calls. If a payload
is erased on one side only, the difference is unknown.

Two copies of a log, or a fork and its parent, are bisected by their chains: equal hashes mean equal prefixes.
Logs written separately share no hash, but digests of their states may still agree, if they are of the same
facts at the same times. From there on, events are compared one by one, not aligned by turn as in `diff`: the
comparison starts in the middle of a log, and only the first different event matters.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Literal, cast

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.evolution import encode_value
from refold.reducers.limits import LimitHit, LimitUnit
from refold.reducers.messages import Gap, Size
from refold.replay.kinds.table import kind_for
from refold.replay.reader import Records, Steps, event_of
from refold.store.protocol import Store, Stored, UnknownRun

SHOWN = 200
"""Characters kept of a value, starting shortly before the first difference."""

_BEFORE = 40

_NOT_COMPARED = frozenset(
    {
        "at", "run", "seed", "parent", "parent_seq", "parent_hash", "head_seq", "head_hash", "labels", "environment",
        "versions", "worker", "downtime", "adapter", "adapter_version", "response_id", "sent", "view", "request",
        "content", "duration", "input_tokens", "retry_wait", "retry_after", "deadline", "until", "due", "delay", "usage", "cost_nanousd",
    }
)  # fmt: skip
_SIZES = frozenset({"size", "partial", "blank", "blank_outside_think", "preview", "output_bytes", "sha256"})


class FieldDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A field in which two events differ, with an excerpt of both values as text or JSON.

    `place` is the first differing character, from 0; `start` is the number of characters left out before it.
    `erased`: one side is gone, so the difference is unknown.
    """

    field: str
    left: str = ""
    right: str = ""
    place: int = 0
    start: int = 0
    erased: bool = False


Calls = Mapping[str, str]
"""Names of calls by id: `bash` for the first call of that tool in a response, then `bash#2`."""


def calls_of(event: ev.ModelResponded) -> dict[str, str]:
    """Return the names of a response's calls."""
    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    for call in event.calls:
        counts[call.name] = count = counts.get(call.name, 0) + 1
        names[call.id] = call.name if count == 1 else f"{call.name}#{count}"
    return names


class ComparedEvent(msgspec.Struct, frozen=True):
    """An event to compare: its record, the decoded event, and the names of the latest calls."""

    stored: Stored
    event: ev.Event
    calls: Calls

    @property
    def erased(self) -> bool:
        """Whether its payload is erased."""
        return self.stored.erased


class ComparedEvents(AsyncIterator[ComparedEvent]):
    """Iterator over the events of a log that count in a comparison, in order.

    `answer` is the last response before the first of them. It is not a generator, as `Records`.
    """

    def __init__(self, steps: Steps, answer: ev.Event | None = None) -> None:
        self._steps = steps
        self._calls: Calls = calls_of(answer) if isinstance(answer, ev.ModelResponded) else {}
        self.began = 0
        """First recorded time of any event."""

    async def __anext__(self) -> ComparedEvent:
        while True:
            step = await anext(self._steps)
            self.began = self.began or step.stored.at
            if isinstance(step.event, ev.ModelResponded):
                self._calls = calls_of(step.event)
            if kind_for(step.event).compared:
                return ComparedEvent(step.stored, step.event, self._calls)


def differences(one: ComparedEvent, other: ComparedEvent) -> tuple[FieldDifference, ...]:
    """Return the differences of two events of one kind, payload first; empty if they are equal."""
    mine, others = _body(one), _body(other)
    changed = _list_changed(mine, others)
    if one.erased is not other.erased:
        return (FieldDifference(field="content", erased=True), *_list_differences(changed, mine, others))
    left, right = _payload_fields(one), _payload_fields(other)
    said = _list_changed(left, right)
    if said:  # sizes differ as well, and are not listed
        changed = [name for name in changed if name not in _SIZES and name not in said]
    spoken = said if len(said) == 1 else [name for name in said if name not in _SIZES]
    return (*_list_differences(spoken, left, right), *_list_differences(changed, mine, others))


def _list_changed(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _list_differences(
    names: Iterable[str], one: Mapping[str, object], other: Mapping[str, object]
) -> Iterator[FieldDifference]:
    return (_difference(name, one.get(name), other.get(name)) for name in names)


def _payload_fields(told: ComparedEvent) -> dict[str, object]:
    """Return the payload's fields without empty ones; fields that only a provider can read are skipped."""
    content = getattr(told.event, "content", None)
    if content is None:
        return {}
    if isinstance(content, ev.Answer):
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
        case Gap():  # the framed text is compared as payload
            return replace(value, source=0)
        case ev.MessageHead():
            return replace(value, size=replace(value.size, digest=""))
        case LimitHit():
            timed = {"used": 0, "exceeded_by": 0} if value.unit is LimitUnit.NANOSECONDS else {}
            return replace(value, at=0, **timed)
        case ev.Call():
            # Arguments are compared as payload.
            return calls.get(value.id, value.name) + ("" if value.complete else " (incomplete)")
        case ev.ApprovalAnswer():
            return replace(value, call=calls.get(value.call, value.call))
        case tuple() if name in ("calls", "in_doubt", "answers", "messages"):
            return tuple(_comparable(each, calls, "call") for each in cast("tuple[object, ...]", value))
        case _:
            return value


def _difference(name: str, left: object, right: object) -> FieldDifference:
    one, other = _text(left), _text(right)
    place = _common_prefix(one, other)
    start = max(0, place - _BEFORE)
    return FieldDifference(
        field=name,
        left=one[start : start + SHOWN],
        right=other[start : start + SHOWN],
        place=place,
        start=start,
    )


def _text(value: object) -> str:
    if isinstance(value, tuple):  # with only one call, these are its arguments
        parts = cast("tuple[object, ...]", value)
        value = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    if value is None or isinstance(value, str):
        return str(value or "")
    return encode_value(value).decode()


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts, by bisection: slice comparison runs in C."""
    lengths = range(1, min(len(one), len(other)) + 1)
    return bisect_left(lengths, x=True, key=lambda length: one[:length] != other[:length])


_SOME = 256  # records read at once when searching for a kind
_MOST_RESULTS = 1000  # consecutive results that are sorted

_DIGESTED, _ANSWERED = ev.kind_of(ev.StateDigested), ev.kind_of(ev.ModelResponded)

By = Literal["hashes", "digests", "nothing"]


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """First events at which two logs differ.

    `seqs` are their numbers, None if that log has ended; `kinds` their kinds, "" then; `fields` lists the
    differences, and is empty if the logs are equal to their ends. Up to event `same` the logs are equal, by
    the `hashes` of their chains or by state `digests`, found in `looks` lookups; later events were compared
    one by one.
    """

    left: str
    right: str
    same: int
    by: By
    looks: int
    seqs: tuple[int | None, int | None] = (None, None)
    kinds: tuple[str, str] = ("", "")
    fields: tuple[FieldDifference, ...] = ()


async def divergence(stores: tuple[Store, Store], runs: tuple[str, str]) -> Divergence:
    """Return the first event at which two logs diverge. Raises `UnknownRun`, `DamagedLog`, `NewerLog`.

    The module lists what is compared. Both `stores` may be the same one.
    """
    logs = _ReadLog(stores[0], runs[0]), _ReadLog(stores[1], runs[1])
    halver = _Halver(logs)
    same, by = await halver.same()
    known = Divergence(left=runs[0], right=runs[1], same=same, by=by, looks=halver.looks)
    for log in logs:
        await log.continue_after(same)
    while True:
        one, other = await logs[0].next(), await logs[1].next()
        if one is None and other is None:
            return known
        fields = _fields(one, other)
        if fields:
            return msgspec.structs.replace(
                known,
                seqs=(one and one.stored.seq, other and other.stored.seq),
                kinds=(one.stored.kind if one else "", other.stored.kind if other else ""),
                fields=fields,
            )


def _fields(one: ComparedEvent | None, other: ComparedEvent | None) -> tuple[FieldDifference, ...]:
    if one is not None and other is not None and one.stored.kind == other.stored.kind:
        return tuple(field for field in differences(one, other) if not field.erased)
    left, right = (told.stored.kind if told else "the log ends" for told in (one, other))
    return (FieldDifference(field="kind", left=left, right=right),)


class _ReadLog:
    """A log with random access, which can then be read on from one position."""

    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run = store, run
        self._rest: ComparedEvents | None = None
        self._ready: list[ComparedEvent] = []
        self._ahead: ComparedEvent | None = None

    async def end(self) -> int:
        """Return the number of its last event. Raises `UnknownRun`."""
        last = (await self.store.head(self.run)).seq
        if not last:
            raise UnknownRun(self.run)
        return last

    async def at(self, seq: int) -> Stored | None:
        """Return one record."""
        return next(iter(await self.store.read_some(self.run, [seq])), None)

    async def digest_after(self, seq: int, upto: int) -> Stored | None:
        """Return the first state digest after event `seq`, up to `upto`."""
        for begin in range(seq, upto, _SOME):
            some = range(begin + 1, min(begin + _SOME, upto) + 1)
            for stored in await self.store.read_some(self.run, some):
                if stored.kind == _DIGESTED:
                    return stored
        return None

    async def continue_after(self, seq: int) -> None:
        """Continue reading after an event, and look up the names of calls that are open there."""
        before: ev.Event | None = None
        for begin in range(seq, 0, -_SOME):
            some = await self.store.read_some(self.run, range(max(0, begin - _SOME) + 1, begin + 1))
            answer = next((each for each in reversed(some) if each.kind == _ANSWERED), None)
            if answer is not None:
                before = event_of(answer, content=False)
                break
        self._rest = ComparedEvents(Steps(Records(self.store, self.run, after=seq)), before)

    async def next(self) -> ComparedEvent | None:
        """Return the next compared event; None after the last.

        Consecutive results are sorted by their calls, since their arrival order is random.
        """
        assert self._rest is not None, "call continue_after first"
        if not self._ready:
            told = self._ahead or await anext(self._rest, None)
            self._ahead = None
            while (
                told is not None
                and isinstance(told.event, ev.ToolReturned)
                and len(self._ready) < _MOST_RESULTS
            ):
                self._ready.append(told)
                told = await anext(self._rest, None)
            if not self._ready:
                return told
            self._ahead = told
            self._ready.sort(key=_call, reverse=True)
        return self._ready.pop()


def _call(told: ComparedEvent) -> str:
    assert isinstance(told.event, ev.ToolReturned)
    return told.calls.get(told.event.call, told.event.call)


class _Halver:
    """Finds the last event up to which two logs are equal, by bisection."""

    def __init__(self, logs: tuple[_ReadLog, _ReadLog]) -> None:
        self._logs = logs
        self.looks = 0

    async def same(self) -> tuple[int, By]:
        """Return the last equal event (0: none), and the evidence."""
        upto = min(await self._logs[0].end(), await self._logs[1].end())
        found = await self._by_hashes(upto)
        if found:
            return found, "hashes"
        found = await self._by_digests(upto)
        return found, "digests" if found else "nothing"

    async def _by_hashes(self, upto: int) -> int:
        # Unrelated runs differ in the first event, so no bisection is needed.
        if not await self._are_equal(1):
            return 0
        low, high = 1, upto
        while low < high:
            middle = (low + high + 1) // 2
            if await self._are_equal(middle):
                low = middle
            else:
                high = middle - 1
        return low

    async def _are_equal(self, seq: int) -> bool:
        self.looks += 1
        one, other = await self._logs[0].at(seq), await self._logs[1].at(seq)
        return one is not None and other is not None and one.hash == other.hash

    async def _by_digests(self, upto: int) -> int:
        low, high = 0, upto
        while low < high:
            middle = (low + high) // 2
            self.looks += 1
            one = await self._logs[0].digest_after(middle, high)
            other = await self._logs[1].at(one.seq) if one is not None else None
            if one is not None and other is not None and other.kind == _DIGESTED and one.body == other.body:
                low = one.seq
            else:
                high = middle
        return low
