"""The store in PostgreSQL, for agents on many machines."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Concatenate, Literal, ParamSpec, Self, TypeVar, TypeVarTuple

from anyio import CancelScope, move_on_after, sleep

from refold.reducers.errors import WrongUse
from refold.store.base import BaseStore, Claims
from refold.store.chain import START, CheckedPages, check_each
from refold.store.checks import Pages, can_name
from refold.store.durability import Durability
from refold.store.postgres import changes, opening, reads
from refold.store.postgres.address import parse_address
from refold.store.postgres.appends import Append
from refold.store.postgres.committer import Committer
from refold.store.postgres.connection import PATIENCE, Link
from refold.store.postgres.listening import Listener
from refold.store.postgres.threads import Lane, LaneHere, LaneInThread
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
    StoreUnavailable,
)

P = ParamSpec("P")
T = TypeVar("T")
Args = TypeVarTuple("Args")


class PostgresStore(BaseStore):
    """A log for each run in one schema of a PostgreSQL database. Works on asyncio and trio.

    Appends are atomic and, when they return, durable as the server's settings promise: see `durability`.
    After an append raised, also by cancellation, no work of it is in progress here. If its outcome is
    unknown, reading the run waits until it is known.
    """

    def __init__(self, reader: Lane, committer: Committer | None, link: Link) -> None:
        self._reader, self._committer, self._link = reader, committer, link
        self._listener: Listener | None = None
        self._closed = False
        self._durability: Durability | None = None  # the last answer
        self._problem: str | None = None  # result of the last `check`; "": no problem

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        durability: Literal["fsync", "process"] = "fsync",
        readonly: bool = False,
        patience: float = PATIENCE,
    ) -> Self:
        """Open the store at `address`: see `postgres.address`. Its tables are created if there are none.

        With `durability="process"` a commit does not wait for the server's disk. A lost connection is opened
        again for `patience` seconds before a call fails.

        Raises `WrongUse` for an invalid address, `NotAStore`, `StoreUnavailable`, or `DamagedStore`.
        """
        parsed = parse_address(address)
        reader = LaneInThread(Link(parsed, durability, patience=patience), "refold-store-reads")
        store = cls(reader, None, Link(parsed, durability, patience=patience))
        try:
            await reader.run(opening.open_schema, readonly=readonly)
        except BaseException:
            with CancelScope(shield=True):
                await reader.aclose()
            raise
        if not readonly:
            store._committer = Committer(store._link, store._channel)
        return store

    @classmethod
    def open_here(cls, address: str, *, patience: float = PATIENCE) -> Self:
        """Open the store at `address` read-only, for sequential programs.

        It needs no event loop and starts no thread: methods read in the calling thread. Raises as `open`.
        """
        parsed = parse_address(address)
        link = Link(parsed, "fsync", patience=patience)
        try:
            link.retry(opening.open_schema, readonly=True)
        except BaseException:
            link.drop()
            raise
        return cls(LaneHere(link), None, link)

    def _new_link(self) -> Link:
        return Link(self._link.address, "fsync", patience=self._link.patience)

    @property
    def _channel(self) -> str:
        return f"refold_{self._link.address.schema}"

    async def _append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool
    ) -> Head:
        return await self._writer.append(Append(run, expected_seq, lease, records, release=release))

    async def _head(self, run: str) -> Head:
        await self._confirm(run)
        return await self._read(reads.find_head, run) or START

    def _pages(
        self, run: str, after: int, upto: int | None, *, checked: bool
    ) -> AsyncIterator[Sequence[Stored]]:
        pages = self._pages_of(run, after - 1 if checked else after, upto)
        return CheckedPages(pages, after) if checked else pages

    def _pages_of(self, run: str, after: int, upto: int | None) -> AsyncIterator[Sequence[Stored]]:
        left: list[tuple[str, int, int, int]] | None = None

        async def following() -> Sequence[Stored]:
            nonlocal left
            if left is None:  # the end is fixed once, so that the reader ends even if the log grows
                await self._confirm(run)
                left = reads.bounded(await self._read(reads.spans, run), after, upto)
            while left:
                owner, number, start, last = left.pop(0)
                if start < last:
                    page = await self._read(reads.event_page, owner, number, start, last)
                    left.insert(0, (owner, number, page[-1].seq, last))
                    return page
            return ()

        return Pages(following)

    async def _read_some(self, run: str, seqs: Sequence[int], *, checked: bool) -> Sequence[Stored]:
        await self._confirm(run)
        events, hashes = await self._read(reads.some_events, run, seqs, checked=checked)
        return check_each(events, hashes) if checked else events

    async def _read_kinds(self, run: str, kinds: Collection[str]) -> Sequence[Stored]:
        await self._confirm(run)
        return check_each(*await self._read(reads.events_of_kinds, run, kinds))

    async def _lineage(self, run: str) -> Sequence[Origin]:
        return await self._read(reads.origins, run)

    async def _erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head:
        return await self._writer.call(changes.erase, run, expected_seq, lease, seqs, notice)

    async def _transact(self, rule: Callable[[Claims, *Args], T], *args: *Args) -> T:
        return await self._writer.transact(rule, *args)

    async def _due(self, most: int) -> Sequence[str]:
        return await self._read(reads.due, min(most, 2**31 - 1), writes=self._committer is not None)

    async def _take_due(self, most: int, holder: str, length: int, skip: Collection[str]) -> Sequence[Lease]:
        known = {run for run in skip if can_name(run)}  # the server has no other ids
        return await self._writer.call(changes.take_due, min(most, 2**31 - 1), holder, length, known)

    async def wait_due(self, seconds: float) -> None:
        """See `Store.wait_due`. Woken by the server's notices."""
        self._check_open()
        if self._listener is None:
            self._listener = Listener(self._new_link(), self._channel)
        with move_on_after(seconds):
            try:
                if await self._listener.wait(seconds):
                    return
            except StoreUnavailable:  # polling goes on
                pass
            await sleep(seconds)

    async def _claim(self, run: str) -> Claim | None:
        return await self._read(reads.find_claim, run)

    async def _save_snapshot(self, run: str, snapshot: Snapshot) -> None:
        await self._writer.call(changes.save_snapshot, run, snapshot)

    async def _snapshot(self, run: str, version: str) -> Snapshot | None:
        await self._confirm(run)
        return await self._read(reads.snapshot, run, version)

    async def _add_seal(self, heads: Sequence[SealedHead], seal: Seal) -> None:
        await self._writer.call(changes.add_seal, heads, seal)

    def _sealed_heads(self, after: int) -> AsyncIterator[Sequence[SealedHead]]:
        async def following() -> Sequence[SealedHead]:
            nonlocal after
            page = await self._read(reads.sealed_heads, after)
            after = page[-1].place if page else after
            return page

        return Pages(following)

    def seals(self) -> AsyncIterator[Sequence[Seal]]:
        """See `Store.seals`."""
        after = 0

        async def following() -> Sequence[Seal]:
            nonlocal after
            page = await self._read(reads.seals, after)
            after = page[-1][0] if page else after
            return [seal for _, seal in page]

        return Pages(following)

    def _runs(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, Head]]]:
        below = 2**63 - 1

        async def following() -> Sequence[tuple[str, Head]]:
            nonlocal below
            page = await self._read(reads.runs_page, below, prefix)
            below = page[-1][0] - 1 if page else below
            return [(reads.run_of(self._link, row), Head(seq=row[2], hash=row[3])) for row in page]

        return Pages(following)

    async def check(self) -> None:
        """See `Store.check`: heads that are not the last event, and events of no run.

        It reads the keys of all events. Opened read-only, the store is checked once.
        """
        if self._problem is None or self._committer is not None:
            self._problem = await self._read(reads.find_problem)
        if self._problem:
            raise DamagedStore(self._link.shown, self._problem)

    async def durability(self) -> Durability:
        """See `Store.durability`. The server's settings decide, unless `open` got another `durability`.

        Opened read-only, the store asks once: `verify --all` wants it for each run.
        """
        if self._durability is None or self._committer is not None:
            self._durability = await self._read(opening.durability)
        return self._durability

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        if self._closed:
            return
        self._closed = True
        if isinstance(self._reader, LaneHere):
            await self._reader.aclose()
            return
        self._reader.stop_retries()
        with CancelScope(shield=True):
            if self._committer is not None:
                await self._committer.aclose()
            await self._reader.aclose()
            if self._listener is not None:
                self._listener.close_soon()

    async def _confirm(self, run: str) -> None:
        if self._committer is not None and not self._closed:
            await self._committer.confirm(run)

    @property
    def _writer(self) -> Committer:
        self._check_open()
        if self._committer is None:
            raise WrongUse(f"store {self._link.shown}: it is open read-only; open it without `readonly`")
        return self._committer

    async def _read(
        self, function: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._check_open()
        return await self._reader.run(function, *args, **kwargs)

    def _check_open(self) -> None:
        if self._closed:
            raise WrongUse(f"store {self._link.shown} is closed")
