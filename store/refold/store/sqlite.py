"""The store on disk: one SQLite file, through aiosqlite."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeVar, TypeVarTuple

from refold.reducers.errors import WrongUse
from refold.store import access, readable, rows, schema, tables, wal
from refold.store.base import BaseStore, Claims
from refold.store.chain import START, CheckedPages, check_each
from refold.store.checks import (
    LogPart,
    Pages,
)
from refold.store.connection import PagedConnection, event_page, row_page
from refold.store.durability import Durability
from refold.store.protocol import (
    Claim,
    DamagedStore,
    Head,
    Lease,
    Origin,
    Record,
    Seal,
    SealedHead,
    Snapshot,
    Stored,
)
from refold.store.readable import Bridge, DirectBridge, Readable
from refold.store.rows import SqlRow

if TYPE_CHECKING:
    from anyio import Event

    from refold.store.committer import Committer

T = TypeVar("T")
Args = TypeVarTuple("Args")


class SqliteStore(BaseStore):
    """A log for each run in one SQLite file. Works on asyncio and trio; opened by `open`.

    Appends are atomic and, when they return, durable as requested in `open`. After an append raised, also by
    cancellation, no work of it is in progress: a head read then is final.
    """

    def __init__(self, bridge: Bridge, file: Readable, committer: "Committer | None" = None) -> None:
        self._bridge, self._file, self._path = bridge, file, file.path
        self._committer = committer
        self._closed = False
        self._calls = 0  # in progress
        self._problem: str | None = None  # result of the last `check`; "": no problem
        self._idle: Event | None = None  # set when the last call ends, if `aclose` waits for it

    @classmethod
    async def open(
        cls,
        path: str | PathLike[str],
        *,
        durability: Literal["fsync", "process"] = "fsync",
        readonly: bool = False,
    ) -> Self:
        """Open the store at `path`; create it if it does not exist.

            async with await SqliteStore.open("runs.db") as store: ...

        With `durability="fsync"` a returned append survives a power cut, with `"process"` the end of this
        process but not always a power cut. With `readonly`, for audits, no store is created or written;
        SQLite may still create its `-shm` and `-wal` beside the file.

        Raises `NotAStore` (another kind of file, another schema, no folder) with nothing changed,
        `StoreUnavailable`, or `DamagedStore`.
        """
        from refold.store.committer import Committer, Database
        from refold.store.thread import bridge

        way = await bridge()
        try:
            database = await way.call(lambda: Database.open(Path(path), durability, readonly=readonly))
        except BaseException:
            await way.aclose()
            raise
        return cls(way, database, Committer(database))

    @classmethod
    def open_here(cls, path: str | PathLike[str]) -> Self:
        """Open the store at `path` read-only, for sequential programs.

        It needs no event loop and starts no thread: methods read in the calling thread and never wait. Raises
        as `open`.
        """
        return cls(DirectBridge(), Readable.open_here(Path(path)))

    async def _append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool
    ) -> Head:
        return await self._call(
            partial(self._writer.append, release=release), run, expected_seq, lease, records
        )

    async def _head(self, run: str) -> Head:
        place = await self._read(tables.find, run)
        return place.head if place else START

    def _pages(
        self, run: str, after: int, upto: int | None, *, checked: bool
    ) -> AsyncIterator[Sequence[Stored]]:
        pages = self._pages_of(run, after - 1 if checked else after, upto)
        return CheckedPages(pages, after) if checked else pages

    def _pages_of(self, run: str, after: int, upto: int | None) -> AsyncIterator[Sequence[Stored]]:
        left: list[tuple[str, int, int]] | None = None
        end = 0

        async def following() -> Sequence[Stored]:
            nonlocal left, end
            if left is None:  # the end is fixed once, so that the reader ends even if the log grows
                left, end = await self._spans(run, after, upto)
            while left:
                owner, low, last = left.pop(0)
                if low < last:
                    page = await self._read(event_page, owner, schema.EVENTS, (low, last))
                    left.insert(0, (owner, rows.last_key(self._path, owner, page, low, last), last))
                    return rows.to_events(self._path, owner, page)
            if end:
                found = await self._read(row_page, schema.END, (end,))
                rows.check_end(self._path, run, end, found)
            return ()

        return Pages(following)

    async def _read_some(self, run: str, seqs: Sequence[int], *, checked: bool) -> Sequence[Stored]:
        events = list[Stored]()
        spans = await self._read(tables.spans, run)
        for part, low in spans:
            wanted = {seq for seq in seqs if max(part.after, 0) < seq <= part.upto}
            if wanted:
                found = await self._rows(part.run, low, schema.SOME_EVENTS, low, json.dumps(sorted(wanted)))
                if lost := wanted.difference(event.seq for event in found):
                    raise rows.missing_events(self._path, part.run, min(lost), min(lost))
                events += found
        return await self._check_single(spans, events) if checked else events

    async def _read_kinds(self, run: str, kinds: Collection[str]) -> Sequence[Stored]:
        events, wanted = list[Stored](), json.dumps(sorted(kinds))
        spans, _ = await self._spans(run, 0, None)
        for owner, low, last in spans:
            events += await self._rows(owner, low, schema.KINDS_OF_EVENTS, last, wanted)
        return await self._check_single(await self._read(tables.spans, run), events)

    async def _lineage(self, run: str) -> Sequence[Origin]:
        return await self._read(tables.origins, run)

    async def _erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head:
        return await self._call(self._writer.database.erase, run, expected_seq, lease, seqs, notice)

    async def _transact(self, rule: Callable[[Claims, *Args], T], *args: *Args) -> T:
        return await self._write(tables.transact, rule, *args)

    async def _due(self, most: int) -> Sequence[str]:
        found, astray = await self._read(tables.due, most)
        if astray and self._file.writes:
            await self._write(tables.cut)
            found, _ = await self._read(tables.due, most)
        return found

    async def _claim(self, run: str) -> Claim | None:
        return await self._read(tables.claim, run)

    async def _save_snapshot(self, run: str, snapshot: Snapshot) -> None:
        await self._write(readable.save_snapshot, run, snapshot)

    async def _snapshot(self, run: str, version: str) -> Snapshot | None:
        found = await self._read(row_page, schema.SNAPSHOT, (run, version))
        if not found or not all(map(isinstance, found[0], (int, bytes, bytes))):
            return None
        return Snapshot(seq=found[0][0], version=version, data=found[0][2])

    async def _add_seal(self, heads: Sequence[SealedHead], seal: Seal) -> None:
        await self._write(readable.add_seal, heads, seal)

    def _sealed_heads(self, after: int) -> AsyncIterator[Sequence[SealedHead]]:
        return self._table_pages(schema.SEALED_HEADS, after, partial(rows.to_sealed_head, self._path))

    def seals(self) -> AsyncIterator[Sequence[Seal]]:
        """See `Store.seals`."""
        return self._table_pages(schema.SEALS, 0, partial(rows.to_seal, self._path))

    def _runs(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, Head]]]:
        # `DamagedStore` for a damaged run is raised after all others are listed.
        below = 2**63 - 1
        damaged: int | None = None

        async def following() -> Sequence[tuple[str, Head]]:
            nonlocal below, damaged
            while page := await self._read(row_page, schema.RUNS, (below, prefix)):
                if page[-1][0] >= below:
                    raise rows.out_of_order(self._path)
                below = page[-1][0]
                listed = list[tuple[str, Head]]()
                for number, key, name, digest in page:
                    run, head = rows.run_id(name), rows.head(number, key, digest)
                    if run and head:
                        listed.append((run, head))
                    else:
                        damaged = number
                if listed:
                    return listed
            if damaged is not None:
                raise rows.damaged_run(self._path, damaged)
            return ()

        return Pages(following)

    async def check(self) -> None:
        """See `Store.check`. A read-only file is checked once."""
        if self._problem is None or self._file.writes:
            self._problem = await self._read(wal.file_problem, Path(self._path))
        if self._problem:
            raise DamagedStore(self._path, self._problem)

    async def durability(self) -> Durability:
        """See `Store.durability`. Each writer chooses it in `open`; the file does not say how others did."""
        refuses = await self._read(access.refuses_edits, Path(self._path))
        if self._committer is None:
            return Durability(loss=False, refuses_edits=refuses)
        synced = self._committer.database.durability == "fsync"
        settings = (("synchronous", "FULL" if synced else "NORMAL"),)
        return Durability(power_cut=synced, loss=False, refuses_edits=refuses, settings=settings)

    async def aclose(self) -> None:
        """See `Store.aclose`. Waits for calls in progress; new calls are refused."""
        if self._closed:
            return
        self._closed = True
        if self._committer is None:  # reads never overlap
            await self._file.close()
            return
        from anyio import CancelScope, Event

        with CancelScope(shield=True):
            if self._calls:
                self._idle = Event()
                await self._idle.wait()
            try:
                await self._bridge.call(self._committer.aclose)
                await self._bridge.call(self._file.close)
            finally:
                await self._bridge.aclose()

    def _table_pages(self, sql: str, after: int, made: Callable[[SqlRow], T]) -> AsyncIterator[Sequence[T]]:
        """Yield rows with a first column above `after`, in its order."""

        async def following() -> Sequence[T]:
            nonlocal after
            page = await self._read(row_page, sql, (after,))
            if page and page[-1][0] <= after:
                raise rows.out_of_order(self._path)
            after = page[-1][0] if page else after
            return [made(row) for row in page]

        return Pages(following)

    async def _spans(self, run: str, after: int, upto: int | None) -> tuple[list[tuple[str, int, int]], int]:
        """Return a list of (owner, key to read after, last key), and the log's last key, or 0 if the read
        ends earlier.
        """
        found, end = list[tuple[str, int, int]](), 0
        for part, low in await self._read(tables.spans, run):
            start = min(max(after, part.after), part.upto) if after > 0 else part.after
            last = part.upto if upto is None else min(max(upto, 0), part.upto)
            found.append((part.run, low + start, low + last))
            end = low + part.upto if upto is None else 0
        return [each for each in found if each[2] & schema.SEQ_MASK], end

    async def _rows(self, run: str, after: int, sql: str, *which: int | str) -> list[Stored]:
        events = list[Stored]()
        while page := await self._read(event_page, run, sql, (after, *which)):
            after = rows.last_key(self._path, run, page, after, after)
            events += rows.to_events(self._path, run, page)
        return events

    @property
    def _writer(self) -> "Committer":
        """The committer. Raises `WrongUse` if the store is read-only."""
        if self._committer is None:
            raise self._file.unwritable()
        return self._committer

    async def _check_single(
        self, spans: Sequence[tuple[LogPart, int]], events: Sequence[Stored]
    ) -> Sequence[Stored]:
        """Check single events of a log with these parts: see `check_each`."""
        before = {event.seq - 1 for event in events}
        keys = [low + seq for part, low in spans for seq in before if part.after < seq <= part.upto]
        hashes, after, asked = dict[int, bytes](), -1, json.dumps(keys)
        while page := await self._read(row_page, schema.HASHES, (after, asked)):
            after = rows.last_key(self._path, "", page, after, after)
            hashes |= {key & schema.SEQ_MASK: hash_ for key, _, hash_ in page if isinstance(hash_, bytes)}
        return check_each(events, hashes)

    async def _write(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        return await self._call(lambda: self._writer.database.write(function, *args))

    async def _read(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        return await self._call(lambda: self._file.read(function, *args))

    async def _call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        if self._closed:
            raise WrongUse(f"store {self._path} is closed")
        self._calls += 1
        try:
            return await self._bridge.call(function, *args)
        finally:
            self._calls -= 1
            if self._idle and not self._calls:
                self._idle.set()
