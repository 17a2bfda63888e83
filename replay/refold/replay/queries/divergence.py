"""`bisect --versus`: the first event at which two logs part.

Two copies of a log, or a fork and its parent, are halved by their chains: equal hashes say that everything before is
equal. Logs that were written apart have no hash in common, but the digests of their states may still agree, where they are of
the same facts at the same instants. From there on events are compared one after the other, not turn by
turn as `diff` aligns them: this begins in the middle of a log, and the first event that is another is all that is asked for.
"""

from typing import Literal

import msgspec

from refold.reducers.events import Event, ModelResponded, StateDigested, ToolReturned, kind_of
from refold.replay.following import Steps
from refold.replay.queries.likeness import (
    Compared,
    ComparedEvent,
    FieldDifference,
    differences,
)
from refold.replay.reader import Records, event_of
from refold.store.protocol import Store, Stored, UnknownRun

_SOME = 256  # records that are read at once to look for one of a kind
_MOST_RESULTS = 1000  # in a row, that are put in order

_DIGESTED, _ANSWERED = kind_of(StateDigested), kind_of(ModelResponded)

By = Literal["hashes", "digests", "nothing"]


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first events at which two logs say something else.

    `seqs` are their numbers, None where that log has ended, `kinds` their kinds, "" there; `fields` is what differs,
    and empty if the logs say the same to their ends. Up to event `same` the logs are equal, by the `hashes` of their chains or in
    their states, by `digests`, found in so many `looks`; what follows was compared event by event.
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
    """The first event at which two logs part, one after the other. Raises `UnknownRun`, `DamagedLog` and `NewerLog`.

    `refold.replay.queries.likeness` says what of an event counts. `stores` may be the same one twice.
    """
    logs = _Log(stores[0], runs[0]), _Log(stores[1], runs[1])
    halver = _Halver(logs)
    same, by = await halver.same()
    known = Divergence(left=runs[0], right=runs[1], same=same, by=by, looks=halver.looks)
    for log in logs:
        await log.go_on_after(same)
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


class _Log:
    """A log that is looked into here and there, and then read on from one place."""

    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run = store, run
        self._rest: Compared | None = None
        self._ready: list[ComparedEvent] = []
        self._ahead: ComparedEvent | None = None

    async def end(self) -> int:
        """The number of its last event. Raises `UnknownRun`."""
        last = (await self.store.head(self.run)).seq
        if not last:
            raise UnknownRun(self.run)
        return last

    async def at(self, seq: int) -> Stored | None:
        """One record."""
        return next(iter(await self.store.read_some(self.run, [seq])), None)

    async def digest_after(self, seq: int, upto: int) -> Stored | None:
        """The first digest of the state after event `seq`, up to `upto`."""
        for begin in range(seq, upto, _SOME):
            some = range(begin + 1, min(begin + _SOME, upto) + 1)
            for stored in await self.store.read_some(self.run, some):
                if stored.kind == _DIGESTED:
                    return stored
        return None

    async def go_on_after(self, seq: int) -> None:
        """Read on from there. What the calls that are open there are known by is looked up."""
        before: Event | None = None
        for begin in range(seq, 0, -_SOME):
            some = await self.store.read_some(self.run, range(max(0, begin - _SOME) + 1, begin + 1))
            answer = next((each for each in reversed(some) if each.kind == _ANSWERED), None)
            if answer is not None:
                before = event_of(answer, content=False)
                break
        self._rest = Compared(Steps(Records(self.store, self.run, after=seq)), before)

    async def next(self) -> ComparedEvent | None:
        """The next event that is compared; None after the last.

        Results that came one after the other are put in the order of their calls: which came first is chance.
        """
        assert self._rest is not None, "it was told where to go on"
        if not self._ready:
            told = self._ahead or await anext(self._rest, None)
            self._ahead = None
            while (
                told is not None and isinstance(told.event, ToolReturned) and len(self._ready) < _MOST_RESULTS
            ):
                self._ready.append(told)
                told = await anext(self._rest, None)
            if not self._ready:
                return told
            self._ahead = told
            self._ready.sort(key=_call, reverse=True)
        return self._ready.pop()


def _call(told: ComparedEvent) -> str:
    assert isinstance(told.event, ToolReturned)
    return told.calls.get(told.event.call, told.event.call)


class _Halver:
    """Looks for the last event up to which two logs are the same, in as few looks as there are bits in its number."""

    def __init__(self, logs: tuple[_Log, _Log]) -> None:
        self._logs = logs
        self.looks = 0

    async def same(self) -> tuple[int, By]:
        """Up to which event they are the same, 0: none, and by what that is known."""
        upto = min(await self._logs[0].end(), await self._logs[1].end())
        found = await self._by_hashes(upto)
        if found:
            return found, "hashes"
        found = await self._by_digests(upto)
        return found, "digests" if found else "nothing"

    async def _by_hashes(self, upto: int) -> int:
        # Two runs that share nothing do not share the first event: no need to halve.
        if not await self._alike(1):
            return 0
        low, high = 1, upto
        while low < high:
            middle = (low + high + 1) // 2
            if await self._alike(middle):
                low = middle
            else:
                high = middle - 1
        return low

    async def _alike(self, seq: int) -> bool:
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
