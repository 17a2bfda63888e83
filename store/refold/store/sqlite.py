"""The store on disk: one SQLite file, through aiosqlite.

The hash chain is computed here, from the head that we believe the run to have. The one statement that writes also
checks that head and the lease, in its own transaction: what was computed from a wrong belief is never written.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from os import PathLike
from pathlib import Path
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, TypeVarTuple

from refold.reducers.errors import WrongUse
from refold.store import schema
from refold.store.asking import can_name, check_append, check_prefix, check_run
from refold.store.chain import GENESIS, extend
from refold.store.pages import Pages
from refold.store.protocol import Conflict, DamagedStore, Head, Lease, LeaseLost, Record, Stored

if TYPE_CHECKING:
    from anyio import Event

    from refold.store.bridge import Bridge
    from refold.store.database import Database

T = TypeVar("T")
Args = TypeVarTuple("Args")

# What a row of an event holds. Its table takes nothing else, but a damaged page may hold anything.
_COLUMNS: dict[str, type | tuple[type, ...]] = {
    "key": int,
    "at": int,
    "kind": bytes,
    "hash": bytes,
    "content_digest": (bytes, NoneType),
    "salt": (bytes, NoneType),
    "body": bytes,
    "content": (bytes, NoneType),
}

_MAX_PLACES = 4096
_FIRST_TOKEN = 1


class _Place(NamedTuple):
    """Where a run stands in the file: its number, the token of its lease, its head."""

    number: int
    token: int
    head: Head


class SqliteStore:
    """A log for each run in one SQLite file. Works on asyncio and trio; made by `open`.

    Appends are atomic and, when they return, as durable as `open` was told. When one raises, cancellation
    included, nothing of it is in flight any more: a head read after that is the truth.
    """

    def __init__(self, bridge: "Bridge", database: "Database") -> None:
        self._bridge, self._database = bridge, database
        self._closed = False
        self._calls = 0  # under way
        self._idle: Event | None = None  # somebody waits for the last of them
        # Heads that were true once, and so are true or outdated, never wrong: a run's past does not change.
        self._places: dict[str, _Place] = {}

    @classmethod
    async def open(
        cls,
        path: str | PathLike[str],
        *,
        durability: Literal["fsync", "process"] = "fsync",
        readonly: bool = False,
    ) -> Self:
        """Open the store at `path`; make it if there is none, migrate it if it is older.

            async with await SqliteStore.open("runs.db") as store: ...

        With `durability="fsync"` an append that returned survives a power cut, with `"process"` the end of
        this process but not always a power cut. With `readonly`, for audits, no store is made, migrated or
        written; SQLite may still put its `-shm` and `-wal` beside the file.

        Raises `NotAStore` (another kind of file, a newer schema, no folder) with nothing changed,
        `StoreUnavailable`, or `DamagedStore`.
        """
        from refold.store.bridge import bridge
        from refold.store.database import Database

        way = await bridge()
        try:
            database = await way.call(lambda: Database.open(Path(path), durability, readonly=readonly))
        except BaseException:
            await way.aclose()
            raise
        return cls(way, database)

    async def append(self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> Head:
        """See `Store.append`."""
        check_append(run, expected_seq, lease, records)
        try:
            return await self._append(run, expected_seq, lease, records)
        except BaseException:
            self._places.pop(run, None)
            raise

    async def head(self, run: str) -> Head:
        """See `Store.head`."""
        place = await self._find(run)
        return place.head if place else Head(seq=0, hash=GENESIS)

    def read(self, run: str, after: int = 0, upto: int | None = None) -> AsyncIterator[Sequence[Stored]]:
        """See `Store.read`."""
        check_run(run)
        span: tuple[int, int] | None = None

        async def following() -> Sequence[Stored]:
            nonlocal span
            if span is None:  # the end is fixed once: a reader must come to one, however fast the log grows
                span = await self._span(run, after, upto)
            if span[0] >= span[1]:
                return ()
            rows = await self._call(self._database.page, schema.EVENTS, span)
            if rows and rows[-1][0] <= span[0]:
                raise self._out_of_order()
            span = (rows[-1][0] if rows else span[1], span[1])
            return [_stored(self._database.path, run, row) for row in rows]

        return Pages(following)

    async def read_some(self, run: str, seqs: Sequence[int]) -> Sequence[Stored]:
        """See `Store.read_some`."""
        place = await self._find(run)
        wanted = json.dumps([seq for seq in seqs if place and 0 < seq <= place.head.seq])
        low = place.number << schema.SEQ_BITS if place else 0
        events, after = list[Stored](), low
        while rows := await self._call(self._database.page, schema.SOME_EVENTS, (after, low, wanted)):
            if rows[-1][0] <= after:
                raise self._out_of_order()
            events += [_stored(self._database.path, run, row) for row in rows]
            after = rows[-1][0]
        return events

    async def lease(self, run: str) -> Lease:
        """See `Store.lease`. So far every run has one lease for everybody; its token is 1."""
        place = await self._find(run)
        return Lease(run=run, token=place.token if place else _FIRST_TOKEN)

    def runs(self, prefix: str = "") -> AsyncIterator[Sequence[tuple[str, Head]]]:
        """See `Store.runs`. Runs are as new as their first append.

        A damaged one hides no other: `DamagedStore` is raised once all others are listed.
        """
        check_prefix(prefix)
        below = 2**63 - 1
        damaged: int | None = None

        async def following() -> Sequence[tuple[str, Head]]:
            nonlocal below, damaged
            while rows := await self._call(self._database.page, schema.RUNS, (below, prefix)):
                if rows[-1][0] >= below:
                    raise self._out_of_order()
                below = rows[-1][0]
                listed = list[tuple[str, Head]]()
                for number, key, name, digest in rows:
                    run, head = _id(name), _head(number, key, digest)
                    if run and head:
                        listed.append((run, head))
                    else:
                        damaged = number
                if listed:
                    return listed
            if damaged is not None:
                raise _damaged_run(self._database.path, damaged)
            return ()

        return Pages(following)

    async def aclose(self) -> None:
        """See `Store.aclose`. Waits for what is under way; what is called meanwhile is refused."""
        from anyio import CancelScope, Event

        if self._closed:
            return
        self._closed = True
        with CancelScope(shield=True):
            if self._calls:
                self._idle = Event()
                await self._idle.wait()
            try:
                await self._bridge.call(self._database.close)
            finally:
                await self._bridge.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _append(self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> Head:
        place = self._places.get(run)
        if place is None or place.head.seq != expected_seq:
            place = await self._place_to_append(run, expected_seq)
        _check_place(run, place, expected_seq, lease)
        events = extend(run, place.head, records)
        low = place.number << schema.SEQ_BITS
        rows = [_row(low, event) for event in events]
        if not await self._call(self._database.insert, place.number, expected_seq, lease.token, rows):
            _check_place(run, await self._place_to_append(run, expected_seq), expected_seq, lease)
            # No head moves there and back between two looks.
            problem = f"run {run} takes no event, and nobody else added one: somebody changed the schema or the rows"
            raise DamagedStore(self._database.path, problem)
        head = Head(seq=events[-1].seq, hash=events[-1].hash)
        self._remember(run, place._replace(head=head))
        return head

    async def _place_to_append(self, run: str, expected_seq: int) -> _Place:
        """The run's place after all that was asked to be written; a new run gets a number."""
        place = await self._find_after_writes(run)
        if place is None and expected_seq == 0:
            await self._call(self._database.add_run, run)
            place = await self._find_after_writes(run)
        if place is None:
            raise Conflict(run, expected_seq, 0)
        return place

    def _remember(self, run: str, place: _Place) -> None:
        self._places.pop(run, None)
        self._places[run] = place
        if len(self._places) > _MAX_PLACES:
            del self._places[next(iter(self._places))]

    async def _find(self, run: str) -> _Place | None:
        check_run(run)
        return _place(self._database.path, await self._call(self._database.page, schema.PLACE, (run,)))

    async def _find_after_writes(self, run: str) -> _Place | None:
        rows = await self._call(self._database.page_after_writes, schema.PLACE, (run,))
        return _place(self._database.path, rows)

    async def _span(self, run: str, after: int, upto: int | None) -> tuple[int, int]:
        """The key after which to read, and the last one to read."""
        place = await self._find(run)
        if place is None:
            return 0, 0
        low, last = place.number << schema.SEQ_BITS, place.head.seq
        # From the front means from the very front: what somebody put before event 1 must be seen to be found.
        start = min(after, last) if after > 0 else -1
        return low + start, low + (last if upto is None else min(max(upto, 0), last))

    def _out_of_order(self) -> DamagedStore:
        # SQLite believes the order of a damaged page. Whoever reads on from its last row would do so for ever.
        return DamagedStore(
            self._database.path, "rows are out of order: copy the file, then try `sqlite3 FILE .recover`"
        )

    async def _call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        if self._closed:
            raise WrongUse(f"store {self._database.path} is closed")
        self._calls += 1
        try:
            return await self._bridge.call(function, *args)
        finally:
            self._calls -= 1
            if self._idle and not self._calls:
                self._idle.set()


def _check_place(run: str, place: _Place, expected_seq: int, lease: Lease) -> None:
    # The lease first: who has lost it should stop, not read again.
    if place.token != lease.token:
        raise LeaseLost(run, lease.token, place.token)
    if place.head.seq != expected_seq:
        raise Conflict(run, expected_seq, place.head.seq)


def _place(path: str, rows: Sequence[tuple[Any, ...]]) -> _Place | None:
    if not rows:
        return None
    number, token, key, _, digest = rows[0]
    head = _head(number, key, digest)
    if head is None or not isinstance(token, int):
        raise _damaged_run(path, number)
    return _Place(number, token, head)


def _head(number: int, key: int | None, digest: object) -> Head | None:
    """The head of the run with this number; None if no store wrote it so."""
    if not 0 < number <= schema.MAX_NUMBER:
        return None
    if key is None:
        return Head(seq=0, hash=GENESIS)
    seq = key & schema.SEQ_MASK
    return Head(seq=seq, hash=digest) if seq and isinstance(digest, bytes) else None


def _id(name: object) -> str | None:
    """The id as it was read; None if no run can have it."""
    # Bytes that are no UTF-8 become lone surrogates, which no id has.
    run = name.decode(errors="surrogateescape") if isinstance(name, bytes) else ""
    return run if can_name(run) else None


def _damaged_run(path: str, number: int) -> DamagedStore:
    return DamagedStore(
        path, f"run number {number}: its number, id, token or head is none that a store writes"
    )


def _row(low: int, event: Stored) -> tuple[Any, ...]:
    # As text, or SQLite would take it for a blob, which no shell shows.
    content = None if event.content is None else event.content.decode()
    digest, salt = event.content_digest, event.salt or None
    return (low + event.seq, event.at, event.kind, event.hash, digest, salt, event.body.decode(), content)


def _stored(path: str, run: str, row: tuple[Any, ...]) -> Stored:
    if not all(map(isinstance, row, _COLUMNS.values())):
        raise _damaged_event(path, run, row)
    key, at, kind, digest, content_digest, salt, body, content = row
    return Stored(
        run=run,
        seq=key & schema.SEQ_MASK,
        at=at,
        kind=_text(kind),
        body=body,
        content=content,
        salt=salt or b"",
        hash=digest,
        content_digest=content_digest,
    )


def _damaged_event(path: str, run: str, row: tuple[Any, ...]) -> DamagedStore:
    name, value = next(
        (name, value)
        for (name, kind), value in zip(_COLUMNS.items(), row, strict=True)
        if not isinstance(value, kind)
    )
    said = (
        f"event {row[0] & schema.SEQ_MASK} of run {run}: its {name} is {value!r:.40}, which no store writes"
    )
    return DamagedStore(path, said)


def _text(value: bytes) -> str:
    # What we wrote is UTF-8. What somebody else wrote over it must still be readable, to be shown as damaged.
    return value.decode(errors="backslashreplace")
